package postgres

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
)

const (
	// The row comes before the lock, as in Open.
	sqlLockQueue = "SELECT writer FROM fairq.queues WHERE id = $1 FOR UPDATE"
	// A transaction that moves the marks gives up, and waiting ones go on, if another one is long.
	sqlLimitWait = "SET LOCAL lock_timeout = '20ms'"
	sqlWaitAgain = "SET LOCAL lock_timeout TO DEFAULT"
	sqlSetWriter = "UPDATE fairq.queues SET writer = $2 WHERE id = $1"
	sqlLock      = "SELECT (extract(epoch FROM clock_timestamp()) * 1e9)::bigint " +
		"FROM pg_advisory_xact_lock($1)"
	sqlLockShared = "SELECT (extract(epoch FROM clock_timestamp()) * 1e9)::bigint " +
		"FROM pg_advisory_xact_lock_shared($1)"

	// The keys are locked in the order of the numbers of their locks.
	sqlLockKeys = "SELECT pg_advisory_xact_lock(lock) IS NULL, " +
		"(extract(epoch FROM clock_timestamp()) * 1e9)::bigint FROM (SELECT DISTINCT " +
		"hashtextextended(encode(k, 'hex'), $1) AS lock FROM unnest($2::bytea[]) k ORDER BY lock) l"
	sqlTryKey = "pg_try_advisory_xact_lock(hashtextextended(encode(key, 'hex'), $1))"

	sqlClock   = "SELECT (extract(epoch FROM clock_timestamp()) * 1e9)::bigint"
	sqlNumbers = "SELECT nextval('fairq.numbers') FROM generate_series(1, $1::int)"

	// The rounds are read one priority after the other, each at the end of its part of the index.
	sqlHead = `
SELECT writer, settings, paused, paused_keys, marked,
	ARRAY(
		WITH RECURSIVE r AS (
			(SELECT priority, round FROM fairq.rounds
				WHERE queue = $1 ORDER BY priority DESC, round DESC LIMIT 1)
			UNION ALL
			SELECT next.* FROM r CROSS JOIN LATERAL (
				SELECT priority, round FROM fairq.rounds WHERE queue = $1 AND priority < r.priority
				ORDER BY priority DESC, round DESC LIMIT 1
			) next
		)
		SELECT unnest(ARRAY[priority, round]) FROM r
	),
	coalesce($2::bigint, (extract(epoch FROM clock_timestamp()) * 1e9)::bigint),
	(extract(epoch FROM clock_timestamp()) * 1e9)::bigint
FROM fairq.queues WHERE id = $1`
)

// Enter implements rows.Tx. One batch begins the transaction, locks the queue, and makes the reads
// that the plan names. The locks of the queue and of keys come first, so that later statements see
// everything committed before. The search for ready tasks comes right after them, so that the
// times before and after it measure the search (see marks). This process may have kept the Head of
// the queue. If another process has written since, a second batch reads the whole Head.
func (t *tx) Enter(queue uint64, plan *rows.Plan) (rows.View, error) {
	v := &view{tx: t, queue: int64(queue), locksKeys: plan.LocksKeys && !plan.Exclusive}
	if n := plan.Numbers; n > 1 { // about as many rows will be written
		v.changes, v.changed = make([]change, 0, n), make(map[uint64]int, n)
	}
	t.begin()
	t.flush()
	lock := sqlLockShared
	var locked, searched int64
	i := slices.IndexFunc(plan.Ranges, isSearch)
	moves := i >= 0 && t.user == nil && t.db.marks.mustMove(queue)
	if moves {
		t.add(sqlLimitWait)
	}
	_, resets := t.db.resets.LoadAndDelete(queue)
	alone := plan.Exclusive || moves || resets
	if alone {
		t.add(sqlLockQueue, v.queue).Query(each(func(r pgx.Rows) error { return r.Scan(&v.last) }))
		lock = sqlLock
	}
	t.add(lock, t.db.lock(queue)).QueryRow(func(r pgx.Row) error { return r.Scan(&locked) })
	if v.locksKeys && len(plan.Locks) > 0 {
		keys := make([][]byte, len(plan.Locks))
		for i, key := range plan.Locks {
			keys[i] = []byte(key)
		}
		t.add(sqlLockKeys, v.queue, keys).Query(each(func(r pgx.Rows) error {
			return r.Scan(new(bool), &locked)
		}))
	}
	var s *search
	if i >= 0 {
		s = v.newSearch(&plan.Ranges[i], someExtra)
		s.whole = moves
		v.addSearch(s)
	}
	first := len(v.fetched)
	if moves {
		t.add(sqlWaitAgain)
	}
	own, known := t.db.writer.Load(), t.known(queue, plan)
	if known == nil {
		v.addHead(plan, &searched)
	} else {
		if s != nil {
			t.add(sqlClock).QueryRow(func(r pgx.Row) error { return r.Scan(&searched) })
		}
		v.prefetch(plan, plan.Kept(known.head))
	}
	err := t.send("enter")
	switch {
	case err != nil && moves:
		err = fmt.Errorf("%w: %w", errMoving, err)
	case err != nil || known == nil:
	case v.last == known.writer && v.last == t.db.writer.Load():
		v.kept = *known
		if v.now = locked; t.db.config.now != nil {
			v.now = *t.db.now()
		}
	default:
		v.fetched = v.fetched[:first] // the search
		v.addHead(plan, new(int64))
		err = t.send("enter again")
	}
	if err != nil || v.head == nil {
		return nil, err
	}
	if v.locksKeys && v.last != 0 && !alone {
		t.db.resets.Store(queue, true)
		return nil, errKept
	}
	v.keep(plan, own)
	if s != nil {
		t.db.marks.searched(queue, s, v.marked, time.Duration(searched-locked))
	}
	if moves {
		v.moveMarks(s)
	}
	t.views = append(t.views, v)
	return v, nil
}

// kept is the cached state of a queue. It stays from one transaction to the next
// (database.heads) as long as no other process has written to the queue. The invariant: if the
// row of the queue has the number of a writer, that writer was the last to enter the queue
// exclusively, and its kept state is the committed one. So every other writer sets another
// number, even if it only locks keys. A process gets a new number after each new connection,
// because the server may have lost commits when the last one broke. A transaction that enters
// takes the kept state away, and puts it back after its commit.
type kept struct {
	head      *rows.Head
	savedHead rows.Head // as it is in the database
	marked    bool      // the queue has marks
	writer    int64     // 0 if it is not to be kept
}

// errKept is the error of a transaction that would write to a queue whose state another process
// keeps. The next transaction enters the queue exclusively. Otherwise the two would wait for each
// other: one for the row of the queue, and the other for its lock.
var errKept = errors.New("another process keeps the state of the queue")

// known returns the kept state of a queue, or nil.
func (t *tx) known(queue uint64, plan *rows.Plan) *kept {
	if t.user != nil {
		return nil
	}
	known, ok := t.db.heads.LoadAndDelete(queue)
	if !ok || plan.Kept == nil || !plan.Exclusive {
		return nil
	}
	return known.(*kept)
}

// keep decides whether the state of a queue is kept after the transaction, and invalidates the
// kept state of other processes. own is the number of this process.
func (v *view) keep(plan *rows.Plan, own int64) {
	if v.writer = 0; plan.Exclusive && plan.Kept != nil && v.tx.user == nil {
		v.writer = own
	}
	if (plan.Exclusive || v.locksKeys) && v.writer != v.last {
		v.do(sqlSetWriter, v.writer)
	}
}

// addHead adds the whole plan, except the search, to the batch.
func (v *view) addHead(plan *rows.Plan, clock *int64) {
	v.tx.add(sqlHead, v.queue,
		v.tx.db.now()).QueryRow(func(r pgx.Row) error { return v.readHead(r, clock) })
	v.prefetch(plan, plan.Ranges)
}

// prefetch adds the reads of the plan, except the search and the head, to the batch.
func (v *view) prefetch(plan *rows.Plan, ranges []rows.Range) {
	for i := range ranges {
		if r := &ranges[i]; !isSearch(*r) { // that is read first
			v.addRange(r)
		}
	}
	if plan.Numbers > 0 {
		v.addNumbers(plan.Numbers)
	}
	if plan.Counts {
		v.addCounts()
	}
}

func (v *view) readHead(r pgx.Row, clock *int64) error {
	head := &rows.Head{Rounds: map[int]uint64{}}
	var rounds []int64
	err := r.Scan(&v.last, &head.Settings, &head.Paused, &head.PausedKeys, &v.marked, &rounds, &v.now,
		clock)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	for i := 0; i+1 < len(rounds); i += 2 {
		head.Rounds[int(rounds[i])] = uint64(rounds[i+1])
	}
	v.head, v.savedHead = head, *head
	v.savedHead.Rounds = maps.Clone(head.Rounds)
	return err
}

func (v *view) addNumbers(n int) {
	v.tx.add(sqlNumbers, n).Query(list(&v.numbers, func(r pgx.Rows, number *uint64) error {
		return r.Scan(number)
	}))
}

// Number implements rows.View. The numbers come from a sequence, so none is given twice and no
// transaction waits for a lock. Numbers that a transaction has not used are lost. Enter fetches as
// many numbers as the plan asks for.
func (v *view) Number() (uint64, error) {
	if len(v.numbers) == 0 {
		v.numbersAsked = min(max(2*v.numbersAsked, 8), 1000)
		v.addNumbers(v.numbersAsked)
		if err := v.tx.send("number"); err != nil {
			return 0, err
		}
	}
	n := v.numbers[0]
	v.numbers = v.numbers[1:]
	return n, nil
}

// Head implements rows.View.
func (v *view) Head() *rows.Head { return v.head }

// Now implements rows.View.
func (v *view) Now() int64 { return v.now }

type byState = [driver.Held + 1]int
