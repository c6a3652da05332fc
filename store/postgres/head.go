package postgres

import (
	"bytes"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/fairq/fairq/internal/driver"
)

const (
	sqlSetRounds = "INSERT INTO fairq.rounds (queue, priority, round) " +
		"SELECT $1, priority, round FROM unnest($2::bigint[], $3::bigint[]) u (priority, round)"

	// Rows that others are deleting are skipped.
	sqlOldRounds = `
DELETE FROM fairq.rounds WHERE ctid = ANY(ARRAY(
	SELECT r.ctid FROM unnest($2::bigint[], $3::bigint[], $4::bigint[]) u (priority, since, until)
	CROSS JOIN LATERAL (
		SELECT ctid FROM fairq.rounds
			WHERE queue = $1 AND priority = u.priority AND round >= u.since AND round < u.until
		FOR UPDATE SKIP LOCKED
	) r
))`

	sqlSetHead = "UPDATE fairq.queues SET settings = $2, paused = $3, paused_keys = $4 WHERE id = $1"
)

// Nearly every transaction writes the current round and the counts. If each were one row, all
// transactions would wait for each other to write it. So a transaction adds a row, without
// waiting. A reader takes the greatest round, and the sum of the counts. A transaction that adds a
// row also deletes old ones, except locked ones: a leftover row does no harm, and is deleted
// later.

// oldRounds is how far back finished rounds are deleted. There are several if transactions have
// written at the same time.
const oldRounds = 16

// Save implements rows.View.
func (v *view) Save() error {
	h, was := v.head, &v.savedHead
	if h.Paused != was.Paused || h.PausedKeys != was.PausedKeys ||
		!bytes.Equal(h.Settings, was.Settings) {
		was.Paused, was.PausedKeys, was.Settings = h.Paused, h.PausedKeys, h.Settings
		v.do(sqlSetHead, h.Settings, h.Paused, h.PausedKeys)
	}
	var priorities, rounds, since []int64
	for priority, round := range h.Rounds {
		if old := was.Rounds[priority]; round > old {
			was.Rounds[priority] = round
			priorities, rounds = append(priorities, int64(priority)), append(rounds, int64(round))
			since = append(since, v.sweepFrom(int64(old)-oldRounds))
		}
	}
	if rounds == nil {
		return nil
	}
	v.do(sqlSetRounds, priorities, rounds)
	v.do(sqlOldRounds, priorities, since, rounds)
	return nil
}

// sweepFrom returns the begin of a deletion of old rows. Mostly that is since, so that the
// deletion need not pass dead index entries before it. Now and then it is the very beginning,
// because earlier deletions have left out locked rows.
func (v *view) sweepFrom(since int64) int64 {
	if v.tx.db.saves.Add(1)%1000 == 0 {
		return 0
	}
	return since
}

const (
	sqlTasks = "SELECT count(*), coalesce(sum(ready), 0)::bigint, " +
		"coalesce(sum(delayed), 0)::bigint, coalesce(sum(taken), 0)::bigint, " +
		"coalesce(sum(buried), 0)::bigint, coalesce(sum(held), 0)::bigint " +
		"FROM fairq.counts WHERE queue = $1"

	sqlCount = "INSERT INTO fairq.counts (queue, ready, delayed, taken, buried, held) " +
		"VALUES ($1, $2, $3, $4, $5, $6)"

	sqlMergeCounts = `
WITH gone AS (
	DELETE FROM fairq.counts WHERE ctid = ANY(ARRAY(
		SELECT ctid FROM fairq.counts WHERE queue = $1 ORDER BY number LIMIT 1000 FOR UPDATE SKIP LOCKED
	)) RETURNING *
)
INSERT INTO fairq.counts (queue, ready, delayed, taken, buried, held)
SELECT $1, sum(ready), sum(delayed), sum(taken), sum(buried), sum(held) FROM gone
	HAVING count(*) > 0`
)

func (v *view) addCounts() {
	v.tx.add(sqlTasks, v.queue).QueryRow(func(r pgx.Row) error {
		var n byState
		err := r.Scan(&v.countRows, &n[driver.Ready], &n[driver.Delayed], &n[driver.Taken],
			&n[driver.Buried], &n[driver.Held])
		for _, of := range n[1:] {
			n[0] += of
		}
		v.counted = &n
		return err
	})
}

// Counts implements rows.View.
func (v *view) Counts() (n [driver.Held + 1]int, err error) {
	if v.counted == nil {
		v.addCounts()
		if err := v.tx.send("count"); err != nil {
			return n, err
		}
	}
	for state := range n {
		n[state] = v.counted[state] + v.delta[state]
	}
	return n, nil
}

// mergeEvery is how many changes of counts are merged into one.
const mergeEvery = 64

// count adds the changes of the numbers of tasks to the batch of the commit.
func (v *view) count() {
	d := &v.delta
	if *d == (byState{}) {
		return
	}
	v.tx.add(sqlCount, v.queue, d[driver.Ready], d[driver.Delayed], d[driver.Taken], d[driver.Buried],
		d[driver.Held])
	if v.tx.db.counts.Add(1)%mergeEvery == 0 || v.countRows > 2*mergeEvery {
		v.tx.add(sqlMergeCounts, v.queue)
	}
	*d = byState{}
}

// Drop implements rows.View.
func (v *view) Drop() (done bool, err error) {
	v.delta = byState{}
	for _, t := range append(slices.Sorted(maps.Keys(tables)), "rounds", "marks", "counts") {
		v.do("DELETE FROM fairq." + t + " WHERE queue = $1")
	}
	v.do("DELETE FROM fairq.queues WHERE id = $1")
	v.writer = 0
	v.tx.db.forget(uint64(v.queue))
	return true, nil
}
