package rows

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/life"
)

// Options say how a Store uses its database.
type Options struct {
	MaxPayload int           // bytes
	History    time.Duration // how long tasks that are gone are remembered; 0 means not at all
	Poll       time.Duration // the interval in which waiting callers look for changes of others
	Timeout    time.Duration // the longest time of a transaction; 0 leaves that to the database

	// Beside is how many transactions of a queue lock only keys after another process has written to
	// the queue. Then two transactions lock the whole queue, to find out whether other processes
	// still write; while these two run, all others wait. 0 means 500.
	Beside int
}

// Store is a [driver.Store] that keeps its queues in a database.
type Store struct {
	db        DB
	traits    Traits
	options   Options
	committer *committer // that of all queues, nil if each has its own

	mu     sync.Mutex // protects queues
	queues map[uint64]*queue
}

// New returns a Store.
func New(db DB, options Options) *Store {
	s := &Store{db: db, traits: db.Traits(), options: options, queues: map[uint64]*queue{}}
	if s.traits.Exclusive {
		s.committer = &committer{store: s}
	}
	return s
}

// CheckRange returns an error if an option of a store is not 0 to most.
func CheckRange[T int | time.Duration](field string, value, most T) error {
	if value < 0 || value > most {
		return &driver.FieldError{Field: field, Value: value, Limit: fmt.Sprintf("0 to %v", most)}
	}
	return nil
}

// context returns one for a transaction.
func (s *Store) context(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.options.Timeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.options.Timeout)
}

// queue is the state of a queue in this process; all Queues of this process share it. Fields that
// transactions use belong to the running transaction, because the committer runs one at a time.
type queue struct {
	store     *Store
	committer *committer
	number    uint64
	name      string
	settings  settings
	text      []byte // the settings as they are written down
	mode
	joined bool // it stands for the queue in a transaction of the caller's

	mu     sync.Mutex        // protects openBy and stats; nothing is called under it
	openBy []driver.Notifier // of the Queues of this process; never changed in place
	stats  driver.Stats      // counters; only the running transaction changes them

	// The running transaction uses the following fields, and changes them after its commit.

	ownConsumers map[string]*ownConsumer // by name: the consumers of this process
	names        map[uint64]string       // of these, by number
	ownLeases    map[uint64]ownLease     // by task: their leases

	// Outcomes that others write are read from endsMark on; endsMark is "" if no caller awaits any.
	// endsChecked is the time when all awaited tasks were last looked up.
	endsMark    string
	endsChecked int64

	// The due times are no later than what they are for; 0 means never.
	due          int64 // of advance
	renewAt      int64 // of renewConsumers: renewalOf the earliest deadline
	outcomeUntil int64 // Until of the next outcome to be deleted

	// rounds has the rounds being served, or earlier ones; see lastRange.
	rounds         map[int]uint64
	noExpiryBefore int64 // no consumer is expired before this time
	// inDoubt has, by task, the last lease from a transaction with an unknown outcome.
	inDoubt       map[uint64]newLease
	leasesToCheck int // with more leases than these, checkLeases does something
	dropped       bool

	// beside is the number of next transactions that lock keys. While it is 0, transactions take the
	// whole queue, because the driver then keeps the Head. If a transaction finds that the driver has
	// not kept it, another process has written, and beside becomes Options.Beside.
	beside   int
	keeps    bool // the driver keeps the last Head, unless others have written
	keyCount keyCount

	// These are times of this process, not of the database; 0 means never.
	dueAt     atomic.Int64 // when something is due, or consumers are to be renewed
	pollAt    atomic.Int64 // when to ask whether others have changed something
	pollPause atomic.Int64 // between the last two such times, 0 if it was the usual one

	others   atomic.Bool  // others may have changed something, see lookAt
	lookedAt atomic.Int64 // when findChanges was called last
}

// settings are those of a queue as they are stored.
type settings struct {
	driver.Settings
	// Lines is true after a task with a kind, or a key that was paused or waited: see needLines.
	Lines   bool
	Crowded bool   // it is so full that a key may be over its share; see updateCrowded
	Work    []work `json:",omitempty"` // that is to be done before anything else
}

// settings returns the settings of a new queue. A queue with RejectOverShare counts by key only
// when it is crowded. But a store that may not write many rows at once counts by key from the
// beginning: it could not begin to count when there are many keys.
func (s *Store) settings(wanted driver.Settings) settings {
	crowded := wanted.WhenFull == fairq.RejectOverShare && s.traits.MaxWrites > 0
	return settings{Settings: wanted, Crowded: crowded}
}

// mode is what follows from the settings.
type mode struct {
	// Lines have turns, not tasks: see lines.go. A queue loses its lines only when it is opened
	// without tasks.
	lines      bool
	limits     bool // MaxInFlightPerKey or rates of keys block and free keys all the time
	costs      bool // rounds share work, not tasks
	countsKeys bool // the row of a key counts all of its tasks, not just those in flight
	exclusive  bool // each transaction needs the queue for itself
	locksKeys  bool // else it locks the keys whose tasks it changes: see unit.needKeys
}

func (store *Store) modeOf(s *settings) mode {
	m, optimistic := mode{costs: s.Quantum > 0, limits: s.LimitsKeys()}, store.traits.Optimistic
	m.lines = m.limits || s.Lines || s.KeepPlace
	m.countsKeys = s.KeyCapacity < s.Capacity || s.Crowded
	m.locksKeys = m.byKey() && !optimistic && !store.traits.Exclusive
	m.exclusive = m.costs || s.Capacity < fairq.MaxLen || s.Rate.Limit > 0 && !optimistic
	return m
}

// byKey reports whether changes need more of a key than the last round of its lines.
func (m *mode) byKey() bool { return m.lines || m.countsKeys }

// keepsHead reports whether all transactions that write to the queue enter it exclusively, and its
// head is worth keeping.
func (q *queue) keepsHead() bool {
	return q.store.traits.Exclusive ||
		q.lines && !q.store.traits.Optimistic && q.beside == 0
}

// entered notes whether a transaction that was committed had a kept Head.
func (q *queue) entered(kept bool) {
	switch {
	case q.beside > 0:
		q.beside--
	case q.keeps && !kept:
		q.beside, q.keeps = cmp.Or(q.store.options.Beside, 500), false
	default:
		q.keeps = true
	}
}

// guardsLines reports whether two transactions may put tasks into a line at the same time, because
// neither counts them in the row of the key. staysBehind and firstPlace then guard the line.
func (q *queue) guardsLines() bool { return q.lines && !q.countsKeys && q.store.traits.Optimistic }

// counted returns a state if the rows of keys count the tasks that are in it, else 0.
func (m *mode) counted(s driver.State) driver.State {
	if m.countsKeys || m.limits && s == driver.Taken {
		return s
	}
	return 0
}

// ownConsumer is a consumer of this process, which renews its deadline.
type ownConsumer struct {
	name     string
	number   uint64
	epoch    uint64
	deadline int64 // others do not expire it before
}

// newLease is a lease that a call has begun. consumer is the name of the consumer that holds it.
type newLease struct {
	driver.Lease
	consumer string
}

// ownLease is a lease of a consumer of this process.
type ownLease struct {
	id, lease uint64
	consumer  uint64
	key       string
	group     string
	cancelled bool // the listeners got the EventCancel
}

func (l ownLease) asLease() driver.Lease {
	return driver.Lease{ID: driver.ID(l.id), Number: l.lease}
}

// openerPrefix begins the names of consumers that stand for open Queues.
const openerPrefix = "\x00open "

// Open implements [driver.Store].
func (s *Store) Open(
	ctx context.Context, name string, wanted driver.Settings, n driver.Notifier,
) (driver.Backend, error) {
	if wanted.AsIs {
		return s.openAsIs(ctx, name, wanted, n)
	}
	if wanted.WhenFull >= fairq.EvictHeaviest {
		return nil, &driver.FieldError{
			Field: "Options.WhenFull", Value: wanted.WhenFull,
			Limit: "fairq.Reject or fairq.RejectOverShare in a database, which drops " +
				"nothing that was made durable",
		}
	}
	for { // again if it is dropped in between
		initial := s.settings(wanted)
		row, err := s.find(ctx, name, initial.text())
		if err != nil {
			return nil, failed("Open", name, err)
		}
		b := &backend{
			queue: s.queue(row.ID, name, initial), notifier: n, opener: openerPrefix + rand.Text(),
		}
		err = b.call(ctx, "Open", call{
			exclusive: true, opens: true, binds: true, run: func(u *unit) error {
				return u.open(b, wanted)
			},
		})
		if errors.Is(err, driver.ErrDropped) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return b, nil
	}
}

// openAsIs opens a queue that there is, with the settings that it has. It writes nothing.
func (s *Store) openAsIs(
	ctx context.Context, name string, wanted driver.Settings, n driver.Notifier,
) (driver.Backend, error) {
	row, err := s.find(ctx, name, nil)
	if err == nil && row == nil {
		return nil, fmt.Errorf("%w: queue %q", driver.ErrNotFound, name)
	}
	var known settings
	if err == nil {
		err = json.Unmarshal(row.Settings, &known)
	}
	if err != nil {
		return nil, failed("Open", name, err)
	}
	return &backend{queue: s.queue(row.ID, name, known), notifier: n, wanted: wanted}, nil
}

// Queues implements [driver.Store].
func (s *Store) Queues(ctx context.Context, from string, n int) (names []string, err error) {
	if n == 0 {
		n = math.MaxInt32
	}
	err = s.transact(ctx, func(tx Tx) (err error) {
		names, err = tx.Queues(from, n)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("task: Queues: %w", err)
	}
	return names, nil
}

// transact calls f in a transaction of its own, as often as that may help.
func (s *Store) transact(ctx context.Context, f func(tx Tx) error) error {
	if s.db.Own(ctx) != nil { // it may have locked what the call waits for
		return errJoin("a call of the Store")
	}
	ctx, cancel := s.context(ctx)
	defer cancel()
	for try := 1; ; try++ {
		err := s.tryTransact(ctx, f)
		if err == nil || !s.again(ctx, err, try) {
			return err
		}
	}
}

func (s *Store) tryTransact(ctx context.Context, f func(tx Tx) error) error {
	tx, err := s.db.Begin(ctx)
	if err != nil {
		return err
	}
	if err = f(tx); err == nil {
		err = tx.Commit()
	}
	if err != nil {
		tx.Rollback()
	}
	return err
}

// find returns the queue of that name. If there is none, it makes one with these settings; but if
// they are nil it returns nil.
func (s *Store) find(ctx context.Context, name string, settings []byte) (row *Queue, err error) {
	err = s.transact(ctx, func(tx Tx) (err error) {
		row, err = tx.Queue(name, settings)
		return err
	})
	return row, err
}

// queue returns the queue of that number as this process knows it.
func (s *Store) queue(number uint64, name string, wanted settings) *queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[number]
	if q == nil {
		q = newQueue(s, number, name, wanted)
		if q.committer = s.committer; q.committer == nil { // so that queues do not wait for each other
			q.committer = &committer{store: s}
		}
		s.queues[number] = q
	}
	return q
}

func newQueue(s *Store, number uint64, name string, known settings) *queue {
	q := &queue{
		store: s, number: number, name: name,
		ownConsumers: map[string]*ownConsumer{}, names: map[uint64]string{},
		ownLeases: map[uint64]ownLease{},
		inDoubt:   map[uint64]newLease{}, rounds: map[int]uint64{},
		due: 1, leasesToCheck: pageSize,
	}
	q.set(known)
	return q
}

func (q *queue) set(known settings) {
	q.settings, q.text, q.mode = known, known.text(), q.store.modeOf(&known)
}

func (s settings) text() []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // there is nothing in it that cannot be written
	}
	return text
}

// readSettings reads the settings that the queue has, which others may have changed.
func (u *unit) readSettings() {
	if bytes.Equal(u.head.Settings, u.q.text) {
		return
	}
	var known settings
	check(json.Unmarshal(u.head.Settings, &known))
	u.q.set(known)
	if u.q.exclusive || u.q.locksKeys && (u.q.joined || !u.plan.LocksKeys) {
		u.needExclusive()
	}
}

// open is the part of Open that needs the queue.
func (u *unit) open(b *backend, wanted driver.Settings) error {
	q := u.q
	if q.settings.Settings != wanted {
		if others := must(u.v.ConsumersNamed(openerPrefix, u.now)); len(others) > 0 {
			return wanted.Match(q.settings.Settings,
				fmt.Sprintf("as long as others have queue %q open", q.name))
		}
		n := must(u.v.Counts())[0]
		if n > 0 {
			fixed, is := wanted, q.settings
			fixed.Format, fixed.KeepPlace = is.Format, is.KeepPlace
			fixed.Quantum, fixed.ShareTime = is.Quantum, is.ShareTime
			why := fmt.Sprintf("as in queue %q, which has tasks: %d", q.name, n)
			if err := wanted.Match(fixed, why); err != nil {
				return err
			}
		}
		u.changeSettings(wanted, n == 0)
	}
	must(u.ownConsumer(b.handle()))
	u.onCommit(func() {
		b.wanted = wanted
		q.mu.Lock()
		defer q.mu.Unlock()
		q.openBy = append(slices.Clip(q.openBy), b.notifier)
		q.due = 1 // b does not know yet when it is
	})
	return nil
}

// needLines gives the turns to lines instead of tasks, and for good. A caller calls it because a
// task has a kind, or a key is paused or waits. Without lines a take of some kinds would have to
// pass over all tasks of other kinds. A pause would have to hide all tasks of its key.
func (u *unit) needLines() {
	if s := u.q.settings; !s.Lines {
		u.needExclusive()
		s.Lines = true
		u.setSettings(s)
	}
}

// changeSettings gives the queue other settings. If these need other rows, it makes the queue
// write the rows again. A queue with tasks keeps its lines even if no setting needs them any more.
func (u *unit) changeSettings(wanted driver.Settings, isEmpty bool) {
	was, mode, to := u.q.settings, u.q.mode, u.q.store.settings(wanted)
	to.Lines = mode.lines && !isEmpty || u.head.PausedKeys > 0
	u.setSettings(to)
	if to.Rate != was.Rate {
		u.changeKey(allKeys, func(k *Key) { k.Wait = life.Wait{} })
	}
	if u.q.mode != mode || to.KeyRate != was.KeyRate ||
		to.MaxInFlightPerKey != was.MaxInFlightPerKey {
		u.rebuild()
	}
}

// setSettings changes the settings. If turns belong to lines from now on, it gives the lines the
// turns of their tasks. Only a queue without tasks can go back to turns of tasks.
func (u *unit) setSettings(to settings) {
	was := u.q.lines
	if !was {
		u.closeGaps()
	}
	u.q.set(to)
	u.head.Settings, u.headChanged = u.q.text, true
	if u.q.lines != was {
		u.saveKeys()
		clear(u.head.keys)
		clear(u.head.accounts)
		u.readAhead = readAhead{}
		u.do(&work{What: parkTasks})
	}
}

// checkSettings returns an error if the queue has other settings now than when this process opened
// it. That happens only if this process was away for longer than Grace: other processes can change
// the settings only of a queue that no process has open.
func (b *backend) checkSettings(q *queue) error {
	if b.wanted.AsIs || q.settings.Settings == b.wanted {
		return nil
	}
	return b.wanted.Match(q.settings.Settings,
		fmt.Sprintf("to which others have changed it for queue %q", q.name))
}
