package rows

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/fairq/fairq/task/driver"
)

// transaction is one try to run calls together. If it fails, all that it has changed in memory is
// in its units, and is forgotten with them.
type transaction struct {
	store     *Store
	committer *committer // nil in a transaction of the caller's
	calls     []*call
	exclusive bool
	running   *call   // the one that is running
	inDoubt   bool    // it may have been committed
	left      []*call // those that were not run: see work and unit.isFull
	units     []*unit
}

func (t *transaction) run(ctx context.Context) error {
	tx, err := t.store.db.Begin(ctx)
	if err != nil {
		return err
	}
	done := false
	defer func() { // also if it panics
		if !done {
			tx.Rollback()
		}
	}()
	t.committer.deliverJoined()
	err = caught(func() {
		for calls := range byQueue(t.calls) {
			t.enter(tx, calls)
		}
		t.running = nil
		t.committer.move(t.calls, running, committing)
		check(ctx.Err()) // a caller has left, so the others' calls run again without it
		if err := tx.Commit(); err != nil {
			if _, again := t.store.db.Again(err); !again { // else nothing has happened
				t.inDoubt = true
			}
			panic(failure{err})
		}
		t.committer.move(t.calls, committing, committed)
	})
	done = err == nil
	return err
}

// handBackLater has handed back what calls have taken, if it is there, because their callers have
// got an error and know nothing of the leases: nobody would work on these tasks until the consumer
// ends.
func handBackLater(calls []*call) {
	for _, c := range calls {
		for _, l := range c.taken {
			c.queue.inDoubt[uint64(l.ID)] = l.Number
		}
		if q := c.queue; len(q.inDoubt) > 0 {
			now := time.Now()
			q.dueAt.Store(now.UnixNano())
			q.wake(now)
		}
	}
}

// byQueue yields the calls of one queue after the other.
func byQueue(calls []*call) func(func([]*call) bool) {
	return func(yield func([]*call) bool) {
		for len(calls) > 0 {
			n := slices.IndexFunc(calls, func(c *call) bool { return c.queue != calls[0].queue })
			if n < 0 {
				n = len(calls)
			}
			if !yield(calls[:n]) {
				return
			}
			calls = calls[n:]
		}
	}
}

// enter runs the calls of a queue. First come the settings, on which all else depends; then work
// that is left, for nobody may see what is half done; then what is due, so that no call finds a
// task as it should not be any more; and then, as all of that may change it, what was read ahead
// for the calls.
func (t *transaction) enter(tx Tx, calls []*call) {
	q := calls[0].queue
	alone := t.exclusive || q.exclusive || t.store.traits.Exclusive
	plan := &wants{Plan: Plan{Exclusive: alone, ByKey: q.limitsInFlight}, Filter: everything}
	for _, c := range calls {
		plan.Exclusive = plan.Exclusive || c.exclusive || c.groups && !t.store.traits.Optimistic
		if c.task != 0 {
			plan.Get = append(plan.Get, c.task)
		}
		if c.plan != nil {
			c.plan(q, plan)
		}
	}
	plan.Get = slices.AppendSeq(plan.Get, maps.Keys(q.inDoubt))
	if q.frontsOnly {
		plan.Numbers += plan.Numbers + len(plan.Get) // for turns
	}
	u := q.enter(tx, plan)
	if u == nil {
		for _, c := range calls {
			c.err = q.gone()
		}
		return
	}
	t.units = append(t.units, u)
	for _, c := range calls {
		if c.opens {
			u.opening = append(u.opening, c.backend.notifier)
		}
	}
	u.asIs = !slices.ContainsFunc(calls, func(c *call) bool { return !c.backend.wanted.AsIs })
	u.readSettings()
	if u.goOn() {
		u.prepare()
		u.advance()
		u.handBackInDoubt()
	}
	for _, c := range calls {
		t.running = c
		if c.fronts && !u.workLeft() && !u.dropped {
			u.needFronts()
		}
		if u.workLeft() || u.isFull(c) {
			t.left = append(t.left, c)
			continue
		}
		if t.committer != nil && !t.committer.claim(c) {
			continue
		}
		if u.dropped {
			c.err = driver.ErrDropped
			continue
		}
		if !c.opens {
			c.err = c.backend.checkSettings(q)
		}
		if c.err == nil {
			u.taken = nil
			c.err = c.run(u)
			c.taken = u.taken
		}
	}
	t.running = nil
	u.save()
	if u.changed {
		tx.Notify(q.number)
	}
}

// deliver tells what has happened.
func (t *transaction) deliver() {
	for _, u := range t.units {
		u.deliver()
	}
	for _, c := range t.calls {
		if c.stage == abandoned { // it stays so
			handBackLater([]*call{c})
		}
	}
}

// errJoin says that a call cannot be a part of a transaction of the caller's.
var errJoin = &driver.FieldError{
	Field: "the context", Value: "one with a transaction",
	Limit: "one without, for only calls that put, settle, change or show tasks can be part of one",
}

// runJoined runs a call in a transaction of the caller's. What is known of the queue here is not
// touched before that is committed. If nobody will say when that is, others' changes are polled.
func (s *Store) runJoined(ctx context.Context, own *driver.Tx, c *call) error {
	if !c.joins {
		return errJoin
	}
	known := c.queue
	q := newQueue(s, known.number, known.name, settings{Settings: c.backend.wanted})
	q.joined, q.openBy, c.queue = true, known.notifiers(), q
	alone := !s.traits.Undo // what is found out later could not be undone
	for try := 1; ; try++ {
		tx, err := s.db.Joined(ctx)
		if err != nil {
			return failed(c.name, q.name, err)
		}
		t := transaction{store: s, calls: []*call{c}, exclusive: alone}
		err = caught(func() {
			t.enter(tx, t.calls)
			check(tx.Commit())
		})
		if err == nil {
			run := time.Now()
			if !own.OnCommit(func() { known.joinedCommitted(t.units, run) }) {
				known.pollOften()
			}
			return c.err
		}
		tx.Rollback() // what the call did, not what the caller did before
		switch {
		case errors.Is(err, errNotExclusive) && !alone:
			alone = true
		case !s.traits.Undo || try == maxTriesJoined || !s.again(ctx, err, try):
			return failed(c.name, q.name, err)
		}
	}
}

// joinedCommitted has the units delivered of a call that has run at that time in a transaction of
// the caller's, which is committed now. The committer does so, before its next transaction.
func (q *queue) joinedCommitted(units []*unit, run time.Time) {
	m := q.committer
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range units {
		u.q, u.now = q, u.now+int64(time.Since(run))
		m.joined = append(m.joined, u)
	}
	m.startLocked()
}

// deliverJoined delivers the units of callers' transactions that were committed.
func (m *committer) deliverJoined() {
	m.mu.Lock()
	units := m.joined
	m.joined = nil
	m.mu.Unlock()
	for _, u := range units {
		counted := reflect.ValueOf(&u.stats).Elem() // in this unit alone
		for i := range counted.NumField() {
			if f := counted.Field(i); f.CanUint() {
				f.SetUint(f.Uint() + reflect.ValueOf(u.q.stats).Field(i).Uint())
			}
		}
		u.deliver()
	}
}

// maxTriesJoined is how often a call in a transaction of the caller's is tried. The rest of that
// keeps its locks, so of a deadlock the same may come again.
const maxTriesJoined = 3
