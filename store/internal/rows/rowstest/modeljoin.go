package rowstest

import (
	"context"
	"errors"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task"
)

// joiner may be implemented by a DB: Join begins a transaction of the caller's own, and returns a context that carries it.
type joiner interface {
	Join(ctx context.Context) (context.Context, rows.Tx, error)
}

// faulty may be implemented by a DB: Faults makes some of its transactions fail with errors for which Again returns true.
type faulty interface {
	Faults(seed uint64)
}

// join makes some calls in a transaction of the caller's own, which is committed, or rolled back: then nothing has happened.
func (m *model) join() {
	id := m.some()
	ctx, tx, err := m.own.Join(context.Background())
	m.ok("Join", err)
	if m.chance(2) {
		m.say("Join, in vain")
		for range 1 + m.rnd.IntN(4) {
			m.tryInVain(ctx, id)
		}
		tx.Rollback()
		return
	}
	m.say("Join")
	m.ctx = ctx
	for range 1 + m.rnd.IntN(4) {
		pick(m.rnd, m.put, m.put, m.settle, m.settle, m.kick, m.change, m.group)()
	}
	m.ctx = context.Background()
	m.say("Commit")
	m.ok("Commit", tx.Commit())
}

// tryInVain makes a call that will be undone.
func (m *model) tryInVain(ctx context.Context, id task.ID) {
	s, b := m.side(), m.task()
	var err error
	switch op := m.rnd.IntN(8); {
	case op < 2:
		_, err = s.Put(ctx, b.Key, b.Payload, b.Options)
	case op == 2:
		_, err = s.Kick(ctx, 2)
	case op == 3:
		err = s.Delete(ctx, id)
	case op == 4:
		err = s.Bury(ctx, id, nil)
	case op == 5 && m.groups != nil:
		err = s.CancelGroup(ctx, m.groups[0])
	case len(m.leases) > 0 && op == 6:
		err = pick(m.rnd, m.leases...).got.Ack(ctx)
	case len(m.leases) > 0:
		err = pick(m.rnd, m.leases...).got.Release(ctx, m.duration())
	}
	m.say("... error %v", err)
	for _, mayBe := range mayFail {
		if errors.Is(err, mayBe) {
			return
		}
	}
	m.ok("a call in vain", err)
}

// now returns of the stats those that do not count what has happened.
func now(s task.Stats) task.Stats {
	return task.Stats{
		Ready: s.Ready, Delayed: s.Delayed, Taken: s.Taken, Buried: s.Buried, Held: s.Held, Keys: s.Keys, Capacity: s.Capacity,
		Paused: s.Paused,
	}
}
