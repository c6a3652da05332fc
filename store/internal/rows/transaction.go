package rows

import (
	"context"
	"errors"
	"iter"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/fairq/fairq/internal/driver"
)

// transaction is one try to run calls together. All its changes in memory are in its units, so a
// failed try leaves nothing behind.
type transaction struct {
	store     *Store
	committer *committer // nil in a transaction of the caller's
	calls     []*call
	exclusive bool
	running   *call   // the call that is running
	inDoubt   bool    // it may have been committed
	left      []*call // calls that were not run: see work and unit.isFull
	units     []*unit
}

func (t *transaction) run(ctx context.Context) error {
	tx, err := t.store.db.Begin(ctx)
	if err != nil {
		return err
	}
	done := false
	defer func() { // even after a panic
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
		check(ctx.Err()) // a caller has left, so the other calls run again without it
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

// handBackLater makes the next transaction hand back the tasks that calls have taken, if the calls
// turn out to be committed. Their callers have got an error and do not know the leases. Otherwise
// no worker would have these tasks until the consumer ends.
func handBackLater(calls []*call) {
	for _, c := range calls {
		for _, l := range c.taken {
			c.queue.inDoubt[uint64(l.ID)] = l
		}
		if q := c.queue; len(q.inDoubt) > 0 {
			now := time.Now()
			q.dueAt.Store(now.UnixNano())
			q.wake(now)
		}
	}
}

// byQueue yields the calls of one queue after the other.
func byQueue(calls []*call) iter.Seq[[]*call] {
	return runs(calls, func(a, b *call) bool { return a.queue == b.queue })
}

// enter runs the calls of a queue. Before the calls come, in this order:
//
//   - the settings, because all else depends on them;
//   - work that is left, because no call may see it half done;
//   - the reads that the calls have planned (see prepare);
//   - due changes, so that no call finds a task in an outdated state;
//   - tasks that are handed back, because the commit of their Take is unknown.
func (t *transaction) enter(tx Tx, calls []*call) {
	q := calls[0].queue
	// A caller's transaction may lock other keys later, and the order of all locks must be one.
	alone := t.exclusive || q.exclusive || t.store.traits.Exclusive || q.locksKeys &&
		(q.joined || q.keepsHead())
	plan := &wants{
		Plan:   Plan{Exclusive: alone, LocksKeys: q.locksKeys},
		Filter: everything,
	}
	for _, c := range calls {
		plan.Exclusive = plan.Exclusive || c.exclusive || c.groups && !t.store.traits.Optimistic
		if c.task != 0 {
			plan.Get = append(plan.Get, c.task)
			held, known := q.ownLeases[c.task]
			switch {
			case !q.locksKeys: // then its key is read with those of the tasks that are taken
			case known:
				plan.change(q, held.key)
			default:
				plan.Exclusive = true
			}
		}
		if c.plan != nil {
			c.plan(q, plan)
		}
	}
	plan.Get = slices.AppendSeq(plan.Get, maps.Keys(q.inDoubt))
	plan.Exclusive = plan.Exclusive || q.locksKeys && len(q.inDoubt) > 0
	if q.lines {
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
		if c.lines && !u.workLeft() && !u.dropped {
			u.needLines()
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

// deliver delivers all units.
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

// errJoin is the error of a call that cannot be a part of a transaction of the caller's.
func errJoin(call string) error {
	return &driver.FieldError{
		Field: "the context of " + call, Value: errors.New("one with a transaction"),
		Limit: "one without, because only calls that put, settle, change or show " +
			"tasks can be part of one",
	}
}

// runJoined runs a call in a transaction of the caller's. The state of the queue in this process
// changes only when that transaction is committed. If only the caller knows of the commit,
// runJoined makes the process poll for changes.
func (s *Store) runJoined(ctx context.Context, own *driver.Tx, c *call) error {
	if !c.joins {
		return errJoin(c.name)
	}
	known := c.queue
	q := newQueue(s, known.number, known.name, settings{Settings: c.backend.wanted})
	q.joined, q.openBy, c.queue = true, known.notifiers(), q
	alone := !s.traits.Undo // a need for exclusive entry that shows later could not be undone
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
		tx.Rollback() // the changes of the call, and not those of the caller
		switch {
		case errors.Is(err, errNotExclusive) && !alone:
			alone = true
		case !s.traits.Undo || try == maxTriesJoined || !s.again(ctx, err, try):
			return failed(c.name, q.name, err)
		}
	}
}

// joinedCommitted is called when a caller has committed a transaction in which a call ran, at the
// time run. It makes the committer deliver the units of that call before its next transaction.
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
		counted := reflect.ValueOf(&u.stats).Elem() // only in this unit
		for i := range counted.NumField() {
			if f := counted.Field(i); f.CanUint() {
				f.SetUint(f.Uint() + reflect.ValueOf(u.q.stats).Field(i).Uint())
			}
		}
		u.deliver()
	}
}

// maxTriesJoined limits the tries of a call in a caller's transaction. A failed try keeps the
// locks of the rest of that transaction, so a deadlock may come again.
const maxTriesJoined = 3
