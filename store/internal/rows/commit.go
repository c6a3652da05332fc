package rows

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/fairq/fairq/internal/driver"
)

// call is something that is to be done in a transaction.
type call struct {
	name      string
	backend   *backend
	queue     *queue
	order     callOrder
	plan      func(*queue, *wants) // what it will want; nil if that is not worth telling
	exclusive bool                 // it needs the queue for itself
	groups    bool                 // it is about groups
	opens     bool                 // the queue may have other settings
	lines     bool                 // it needs lines: see needLines
	joins     bool                 // it can be a part of a transaction of the caller's
	task      uint64               // that it is about, if it is about one
	tasks     int                  // that it works on, 0 means one
	bytes     int                  // that it will put
	binds     bool                 // once it is being committed its caller waits: see committer
	run       func(*unit) error

	// The committer protects stage and left.
	stage stage
	left  error      // that of the caller's context, if that has ended the call
	taken []newLease // by run
	err   error
	over  chan struct{} // is closed when err is final
}

// stage is how far a call has come.
type stage uint8

const (
	waiting    stage = iota // to be run: for others, or for the database
	running                 // in a transaction
	committing              // that transaction
	committed
	abandoned // by a caller who did not wait for the end of that
)

// fail ends the call with an error of the database.
func (c *call) fail(err error) { c.err = failed(c.name, c.queue.name, err) }

// failed returns an error of the database, with the call that failed by it.
func failed(call, queue string, err error) error {
	return fmt.Errorf("task: %s, queue %q: %w", call, queue, err)
}

// wants is what the calls of a transaction will probably want of a queue.
type wants struct {
	Plan
	Get    []uint64 // ids of tasks
	Take   int      // tasks that pass the Filter
	Filter Filter
	Alive  []uint64   // consumers
	Keys   []string   // whose rows are asked for
	Lines  []Line     // whose accounts are asked for
	Puts   []lineKind // where a task is put that probably stays behind, see staysBehind
}

// forDriver returns the plan as a driver gets it. No value is in a range twice.
func (w *wants) forDriver(q *queue) *Plan {
	p := &w.Plan
	for _, list := range [...]*[]uint64{&w.Get, &w.Alive} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	slices.SortFunc(w.Lines, Line.Compare)
	w.Lines = slices.Compact(w.Lines)
	w.lockKeys()
	if q.store.traits.Exclusive { // there it is no use
		return p
	}
	p.Ranges = w.ranges(q, &Head{})
	if q.keepsHead() {
		p.Kept = func(h *Head) []Range { return w.ranges(q, h) }
	}
	return p
}

// change says that a task of a key will be put, or be settled.
func (w *wants) change(q *queue, key string) {
	if q.byKey() {
		w.Keys = append(w.Keys, key)
	}
}

// maxLocks is the greatest number of keys that a transaction locks at once, because a database has
// little room for locks. A transaction that needs more enters the queue exclusively.
const maxLocks = 100

// lockKeys names the keys that are locked before anything is read.
func (w *wants) lockKeys() {
	if !w.LocksKeys {
		return
	}
	w.Locks = append(w.Locks, w.Keys...)
	slices.Sort(w.Locks)
	w.Locks = slices.Compact(w.Locks)
	w.Exclusive = w.Exclusive || len(w.Locks)+w.Take > maxLocks
}

// ranges returns the ranges to read in a queue with that head.
func (w *wants) ranges(q *queue, h *Head) (ranges []Range) {
	if w.Take > 0 {
		if q.lines {
			ranges = append(ranges, TurnRange(w.Filter, w.Take))
		} else {
			ranges = append(ranges, ReadyRange(w.Filter, w.Take))
		}
	}
	for _, at := range w.Puts {
		ranges = append(ranges, lastRange(at))
	}
	if ids := w.unread(h); len(ids) > 0 {
		ranges = append(ranges, RowRange(false, ForUpdate, ids...))
	}
	if isGone := func(n uint64) bool { return !h.alive[n] }; slices.ContainsFunc(w.Alive, isGone) {
		ranges = append(ranges, AliveRange(w.Alive))
	}
	for lines := range byPriority(w.Lines) {
		ranges = append(ranges, LastRange(q.rounds[lines[0].Priority], lines...))
		if q.costs {
			ranges = append(ranges, furthestRange(lines[0].Priority))
			for _, l := range lines {
				ranges = append(ranges, servedRange(l))
			}
		}
	}
	return append(ranges, q.keyRanges(h.unknown(w.Keys))...)
}

// byPriority yields the lines of one priority after the other.
func byPriority(lines []Line) iter.Seq[[]Line] {
	return runs(lines, func(a, b Line) bool { return a.Priority == b.Priority })
}

// runs yields the neighbours that are the same in some way.
func runs[T any](all []T, same func(a, b T) bool) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for len(all) > 0 {
			n := slices.IndexFunc(all, func(x T) bool { return !same(all[0], x) })
			if n < 0 {
				n = len(all)
			}
			if !yield(all[:n]) {
				return
			}
			all = all[n:]
		}
	}
}

// unread returns the ids of tasks that are wanted and not known.
func (w *wants) unread(h *Head) []uint64 {
	return slices.DeleteFunc(slices.Clone(w.Get), func(id uint64) bool {
		_, known := h.tasks[id]
		return known
	})
}

// callOrder is the order of the calls of a transaction. They were all made at the same time, so
// any order is right. This one reads the index of ready tasks once for all takes, and runs them
// before the calls that put tasks behind.
type callOrder uint8

const (
	mayMakeReady callOrder = iota // what may make tasks ready
	takes                         // what takes
	puts                          // what puts
)

// maxCalls is how many calls share a transaction at most, so that none takes long.
const maxCalls = 512

// committer puts calls that are made at the same time into one transaction. While calls are
// pending, one goroutine runs them: calls that come during a transaction run in the next one.
//
// A call that is alone runs in its caller's goroutine, which saves two switches of goroutines.
// With Traits.Exclusive only a call whose context has no end does so: such a database is a file,
// and no context can end the writes to a file.
//
// A caller stops waiting when its context is done:
//
//   - If its call has not run, it never will.
//   - If the call is running, the committer ends the transaction, because the caller may change
//     memory that the call reads and writes. The other calls run again without this one.
//   - If the call is being committed, the caller waits for commitTime, and then gets ErrUnknown.
//     The tasks that the call has taken are handed back. But the result of some calls changes what
//     this process knows, as when a queue is opened (call.binds). Such a call waits until the end.
//
// When all callers have left, the committer ends the transaction, whatever it waits for.
type committer struct {
	store *Store

	mu      sync.Mutex // protects what follows; nothing of the database happens under it
	pending []*call
	last    int     // how many calls there were in the last transaction
	crowded bool    // those were several, or another one came before its end
	runs    bool    // a goroutine runs calls
	joined  []*unit // of callers' transactions that were committed, to be delivered

	current []*call            // those of the transaction that runs
	cancel  context.CancelFunc // ends it
}

// do runs a call, and returns when its transaction is committed.
func (m *committer) do(ctx context.Context, c *call) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.over = make(chan struct{})
	m.mu.Lock()
	if !m.runs && !m.crowded && (ctx.Done() == nil || !m.store.traits.Exclusive) {
		m.runs = true
		m.mu.Unlock()
		return m.runOwn(ctx, c)
	}
	m.pending = append(m.pending, c)
	m.crowded = m.crowded || m.runs
	m.startLocked()
	m.mu.Unlock()
	select {
	case <-c.over:
		return c.err
	case <-ctx.Done():
		return m.quit(c, ctx.Err())
	}
}

// runOwn runs a call in its caller's goroutine, and leaves later calls to another goroutine. No
// other call is in the transaction, so it may end when ctx is done.
func (m *committer) runOwn(ctx context.Context, c *call) error {
	left := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { left <- m.quit(c, ctx.Err()) })
	m.run([]*call{c})
	m.mu.Lock()
	if m.runs = false; len(m.pending)+len(m.joined) > 0 {
		m.startLocked()
	}
	m.mu.Unlock()
	if !stop() {
		return <-left
	}
	return c.err
}

// quit ends a call whose context is done, and returns its error.
func (m *committer) quit(c *call, why error) error {
	if err := m.leave(c, why, false); err != nil {
		return err
	}
	select {
	case <-c.over:
		return c.err
	case <-time.After(commitTime):
	}
	if err := m.leave(c, why, true); err != nil {
		return err
	}
	<-c.over
	return c.err
}

// startLocked starts a goroutine unless one runs.
func (m *committer) startLocked() {
	if !m.runs {
		m.runs = true
		go m.runAll()
	}
}

// commitTime is how long a caller whose context is done waits for a commit that has begun. A
// commit usually takes milliseconds, and until it ends no one knows whether the call was done.
const commitTime = 500 * time.Millisecond

// leave ends a call whose context is done. If it returns nil, the caller must go on waiting: with
// late until the transaction has ended, otherwise for commitTime.
func (m *committer) leave(c *call, why error, late bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.left = why; c.stage == committing && !late {
		return nil
	}
	stays := func(c *call) bool { return c.left == nil }
	// A call may be over already. Then the transaction that is running is another one.
	isLast := !slices.ContainsFunc(m.current, stays)
	if slices.Contains(m.current, c) && (c.stage == running || isLast) {
		m.cancel()
	}
	switch {
	case c.stage == waiting:
		return why
	case c.stage == committing && !c.binds:
		c.stage = abandoned
		return failed(c.name, c.queue.name, fmt.Errorf("%w: %w", why, driver.ErrUnknown))
	}
	return nil
}

// begin begins a try of the calls. It returns the calls with a caller that still waits.
func (m *committer) begin(calls []*call, cancel context.CancelFunc) []*call {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.current = nil
	for _, c := range calls {
		if c.stage = waiting; c.left == nil {
			m.current = append(m.current, c)
		} else {
			c.err = c.left
		}
	}
	m.cancel = cancel
	return m.current
}

// claim reports whether a caller still waits for its call. Then it waits until the call has run.
func (m *committer) claim(c *call) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.left == nil {
		c.stage = running
	}
	return c.left == nil
}

// move moves the calls of one stage to another.
func (m *committer) move(calls []*call, from, to stage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range calls {
		if c.stage == from {
			c.stage = to
		}
	}
}

// runAll runs all pending calls, and further ones until there are none.
func (m *committer) runAll() {
	for batch := m.gather(); batch != nil; batch = m.gather() {
		m.run(batch)
	}
}

// errPanic is the error of all callers if one of the calls of a transaction panics. None of the
// calls has happened.
var errPanic = errors.New("rows: a call has panicked in the transaction")

// run runs calls, and wakes their callers, even if one of the calls panics.
func (m *committer) run(batch []*call) {
	done := false
	defer func() {
		v := recover()
		for _, c := range batch {
			if !done {
				c.err = fmt.Errorf("%w: %v\n%s", errPanic, v, debug.Stack())
			}
			close(c.over)
		}
	}()
	m.deliverJoined()
	for left := batch; len(left) > 0; {
		left = m.runSome(left)
	}
	done = true
}

// gather returns the pending calls, nil if there are none. Callers whose calls have just returned
// probably make the next ones at once. So gather lets them run as long as new calls come, which is
// cheaper than a transaction for each call. If there are fewer calls than in the last transaction,
// it also waits for Traits.Linger, because other callers may wait for a processor. If the last
// transaction had one call, and no other came during it, gather does not wait.
func (m *committer) gather() []*call {
	for n := 0; ; {
		m.mu.Lock()
		if len(m.pending) == n || n >= maxCalls || !m.crowded {
			break
		}
		n = len(m.pending)
		m.mu.Unlock()
		runtime.Gosched()
	}
	if linger := m.store.traits.Linger; linger > 0 && 0 < len(m.pending) && len(m.pending) < m.last {
		m.mu.Unlock()
		time.Sleep(linger)
		m.mu.Lock()
	}
	defer m.mu.Unlock()
	m.current = nil
	m.pending = slices.DeleteFunc(m.pending, func(c *call) bool { return c.left != nil })
	switch {
	case len(m.joined) > 0:
		return []*call{} // run delivers the joined units
	case len(m.pending) == 0:
		m.runs = false
		return nil
	}
	n, tasks, bytes := 0, 0, 0
	for n < min(len(m.pending), maxCalls) {
		tasks += max(1, m.pending[n].tasks)
		bytes += m.pending[n].bytes
		if n > 0 && (tasks > m.store.step(tasks) || bytes > m.store.maxBytes()) {
			break
		}
		n++
	}
	m.last, m.crowded = n, n > 1
	batch := slices.Clone(m.pending[:n])
	m.pending = slices.Delete(m.pending, 0, n)
	return batch
}

// failure is an error of the database that ends a transaction. See must.
type failure struct{ error }

// errNotExclusive ends a transaction that finds that it needs the queue for itself.
var errNotExclusive = errors.New("rows: the queue is needed exclusively")

// must returns the first value. An error of the database always ends the transaction, so must
// throws the error as a panic, and caught returns it. Otherwise nearly each line of the rules
// would have to pass the error on.
func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// caught calls f, and returns the error that must has thrown in it.
func caught(f func()) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case failure:
			err = v.error
		default:
			panic(v)
		}
	}()
	f()
	return nil
}

// maxTries is the greatest number of tries of a transaction, unless there are pauses and a time
// limit.
const maxTries = 10

// runSome runs calls in a transaction, and returns the calls that must run in another one. A call
// that fails by itself is not in that transaction.
//
// The transaction enters queues in the order of their numbers, so that processes do not wait for
// each other in a circle. If a call finds that it needs its queue exclusively, the transaction
// begins again, and all further tries are exclusive.
func (m *committer) runSome(calls []*call) (left []*call) {
	slices.SortStableFunc(calls, func(a, b *call) int {
		if a.queue != b.queue {
			return int(a.queue.number) - int(b.queue.number)
		}
		return int(a.order) - int(b.order)
	})
	s := m.store
	ctx, end := s.context(context.Background())
	defer end()
	alone, cancel := false, func() {}
	defer func() { cancel() }()
	for try := 1; ; try++ {
		cancel()
		var wanted context.Context // until all callers have left
		wanted, cancel = context.WithCancel(ctx)
		if calls = m.begin(calls, cancel); len(calls) == 0 {
			return nil
		}
		t := transaction{store: s, committer: m, calls: calls, exclusive: alone}
		err := t.run(wanted)
		switch {
		case err == nil:
			t.deliver()
			return t.left
		case errors.Is(err, errNotExclusive) && !alone:
			alone = true
		case !t.inDoubt && (s.again(wanted, err, try) || wanted.Err() != nil && ctx.Err() == nil):
			for some := range byQueue(calls) {
				q := some[0].queue
				q.mu.Lock()
				q.stats.Conflicts++
				q.mu.Unlock()
			}
		case t.running != nil && len(calls) > 1:
			t.running.fail(err)
			isRunning := func(c *call) bool { return c == t.running }
			calls = slices.DeleteFunc(slices.Clone(calls), isRunning)
		default:
			if t.inDoubt {
				handBackLater(calls)
			}
			for _, c := range calls {
				c.fail(err)
			}
			return nil
		}
	}
}

// maxPause is the longest pause between two tries.
const maxPause = 200 * time.Millisecond

// again waits before the next try of a failed transaction; it returns false if there must be no
// other try. Each pause is twice as long as the one before. A part of each pause is random,
// because transactions with equal pauses would conflict again.
func (s *Store) again(ctx context.Context, err error, try int) bool {
	after, again := s.db.Again(err)
	_, limited := ctx.Deadline()
	switch {
	case !again || try >= maxTries && (after == 0 || !limited):
		return false
	case after == 0:
		return true
	}
	after = min(after<<min(try-1, maxTries), maxPause)
	return Pause(ctx, after/2+rand.N(after/2+1)) == nil
}

// Pause waits for some time. If ctx is done first, it returns its error.
func Pause(ctx context.Context, d time.Duration) error {
	if d == 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
