package rows

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"
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
	kinds     bool                 // it puts tasks of kinds
	joins     bool                 // it can be a part of a transaction of the caller's
	task      uint64               // that it is about, if it is about one
	tasks     int                  // that it works on, 0 means one
	bytes     int                  // that it will put
	run       func(*unit) error

	err  error
	wake chan bool // true: it is done; false: it leads
}

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
	Alive  []uint64 // consumers
	Keys   []string // in order and each once, as soon as all is said
	Lines  []Line   // whose accounts are asked for
	Puts   []Range  // what staysBehind reads
}

// forDriver returns the plan as a driver gets it. No value is in a range twice.
func (w *wants) forDriver(q *queue) *Plan {
	p := &w.Plan
	for _, list := range [...]*[]uint64{&w.Get, &w.Alive} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	for _, list := range [...]*[]Line{&w.Lines, &w.LastRounds} {
		slices.SortFunc(*list, Line.Compare)
		*list = slices.Compact(*list)
	}
	if q.store.traits.Exclusive { // there it is no use
		return p
	}
	if w.Take > 0 {
		p.Ranges = append(p.Ranges, ReadyRange(w.Filter, w.Take))
	}
	p.Ranges = append(p.Ranges, w.Puts...)
	if len(w.Get) > 0 {
		p.Ranges = append(p.Ranges, RowRange(false, ForUpdate, w.Get...))
	}
	if len(w.Alive) > 0 {
		p.Ranges = append(p.Ranges, AliveRange(w.Alive))
	}
	for i, l := range w.Lines {
		if i == 0 || l.Priority != w.Lines[i-1].Priority {
			p.Ranges = append(p.Ranges, lastReadyRange(l.Priority), furthestRange(l.Priority))
		}
		p.Ranges = append(p.Ranges, lastRange(l, 0), servedRange(l))
	}
	if len(w.Keys) > 0 {
		p.Ranges = append(p.Ranges, KeyRange(w.Keys))
		if q.frontsOnly {
			fronts, parked := FrontRange(w.Keys, false), ParkedRange(w.Keys, parkedAtFirst, false)
			p.Ranges = append(p.Ranges, fronts, parked)
		}
	}
	return p
}

// callOrder says in which order the calls of a transaction run. They were all made at the same
// time, so any order is right; this one reads the index of ready tasks once for all who take, and
// lets them take before others are put behind.
type callOrder uint8

const (
	mayMakeReady callOrder = iota // what may make tasks ready
	takes                         // what takes
	puts                          // what puts
)

// maxCalls is how many calls share a transaction at most, so that none takes long.
const maxCalls = 512

// committer puts calls that are made at the same time into one transaction. There is no goroutine
// for it: one of the callers leads, and does the work of all who came before; those who come
// meanwhile wait, and one of them leads next.
//
// The invariant while mu is free: if calls are pending, one of their callers leads, or was sent
// false and will lead. Each of the others waits for its wake, to which exactly one value is sent:
// true when its call has been run, or false when it is to lead. So nobody waits for ever, even if a
// call panics (see run and handOver).
type committer struct {
	store *Store

	mu      sync.Mutex // protects the others; nothing of the database happens under it
	pending []*call
	last    int  // how many calls there were in the last transaction
	crowded bool // those were several, or another one came before its end
	leads   bool // there is one who leads
}

// do runs a call, and returns when its transaction is committed. Before it has begun, ctx can take
// it back.
func (m *committer) do(ctx context.Context, c *call) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	m.pending = append(m.pending, c)
	lead := !m.leads
	m.leads = true
	if !lead {
		m.crowded, c.wake = true, make(chan bool, 1)
	}
	m.mu.Unlock()
	if !lead {
		select {
		case done := <-c.wake:
			if done {
				return c.err
			}
		case <-ctx.Done():
			if m.withdraw(c) {
				return ctx.Err()
			}
			if done := <-c.wake; done {
				return c.err
			}
		}
	}
	m.lead(c)
	return c.err
}

// withdraw takes a call back, unless it has begun or leads.
func (m *committer) withdraw(c *call) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.Index(m.pending, c)
	if i < 0 || len(c.wake) > 0 {
		return false
	}
	m.pending = slices.Delete(m.pending, i, i+1)
	return true
}

// lead runs what is pending, until the call has been run too, and hands over.
func (m *committer) lead(own *call) {
	defer m.handOver(own)
	for done := false; !done; {
		batch := m.gather()
		done = slices.Contains(batch, own)
		m.run(batch, own)
	}
}

// errPanic is what the others get if one of the calls of a transaction panics. Nothing of it has
// happened.
var errPanic = errors.New("rows: another call has panicked in the same transaction")

// run runs calls, and tells those who wait for them, also if one of them panics.
func (m *committer) run(batch []*call, own *call) {
	panics := true
	defer func() {
		for _, c := range batch {
			if panics {
				c.err = errPanic
			}
			if c != own {
				c.wake <- true
			}
		}
	}()
	m.store.run(batch)
	panics = false
}

func (m *committer) handOver(own *call) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pending = slices.DeleteFunc(m.pending, func(c *call) bool { return c == own }) // another one has panicked before its turn
	if m.leads = len(m.pending) > 0; m.leads {
		m.pending[0].wake <- false
	}
}

// gather returns what is pending. Those whose calls have just returned are probably about to make
// the next ones, so it lets them run as long as more calls come of it: that is cheaper than a
// transaction for each. If there are fewer then than in the last transaction, it may be that the
// others are still queued on another processor. Who is alone waits for nobody.
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
	if linger := m.store.traits.Linger; linger > 0 && len(m.pending) < m.last {
		m.mu.Unlock()
		time.Sleep(linger)
		m.mu.Lock()
	}
	defer m.mu.Unlock()
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

// failure is what ends a transaction: an error of the database. See must.
type failure struct{ error }

// errNotExclusive ends a transaction that finds that it needs the queue for itself.
var errNotExclusive = errors.New("rows: the queue is needed exclusively")

// must returns the first value. An error of the database ends the transaction, whatever is being
// done. So it is thrown as a panic, and caught returns it: otherwise nearly each line of the rules
// would have to pass it on.
func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// caught calls f, and returns what was thrown in it.
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

// maxTries is how often a transaction is tried, unless there are pauses and a limit for its time.
const maxTries = 10

// run runs calls.
func (s *Store) run(calls []*call) {
	for len(calls) > 0 {
		calls = s.runSome(calls)
	}
}

// runSome runs calls in a transaction, and returns those that must be run in another one. One that
// fails by itself is left out of it.
//
// Queues are entered in the order of their numbers, so that processes do not wait for each other
// in a circle. The queue is needed exclusively if a call finds that out: then all begins again, and
// stays so for all further tries.
func (s *Store) runSome(calls []*call) (left []*call) {
	slices.SortStableFunc(calls, func(a, b *call) int {
		if a.queue != b.queue {
			return int(a.queue.number) - int(b.queue.number)
		}
		return int(a.order) - int(b.order)
	})
	// It does not end with that of a caller, for others' calls are in it too.
	ctx, cancel := s.context(context.Background())
	defer cancel()
	alone := false
	for try := 1; len(calls) > 0; try++ {
		t := transaction{store: s, calls: calls, exclusive: alone}
		err := t.run(ctx)
		switch {
		case err == nil:
			t.deliver()
			return t.left
		case errors.Is(err, errNotExclusive) && !alone:
			alone = true
		case s.again(ctx, err, try):
			for some := range byQueue(calls) {
				some[0].queue.stats.Conflicts++
			}
		case t.running != nil && len(calls) > 1:
			t.running.fail(err)
			calls = slices.DeleteFunc(slices.Clone(calls), func(c *call) bool { return c == t.running })
		default:
			for _, c := range calls {
				c.fail(err)
			}
			return nil
		}
	}
	return nil
}

// maxPause is how long is waited between two tries at most.
const maxPause = 200 * time.Millisecond

// again waits until a transaction that has failed is to be tried again, and returns false if it is
// not. Each time it waits twice as long. A part of that is random, or those who have met would meet
// again.
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
