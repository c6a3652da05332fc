package rows

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/fairq/fairq/task"
)

// Processes that share a database learn of each other's changes by looking: when they are told (Store.Changed), and now and
// then if they are not. Who looks asks DB.Changed first, and only then begins a transaction.

// Changed says that others have changed something in a queue, or in all if the number is 0. It waits for nothing.
func (s *Store) Changed(number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queues {
		if number == 0 || q.number == number {
			q.others.Store(true)
			q.wake(time.Now())
		}
	}
}

// wake has Tick called at that time.
func (q *queue) wake(at time.Time) {
	for _, n := range q.notifiers() {
		n.Due(at)
	}
}

// pollSoon has somebody who begins to wait look for what others do.
func (q *queue) pollSoon() {
	if q.poll.Load() == 0 {
		q.poll.Store(time.Now().Add(q.store.options.Poll).UnixNano())
	}
}

// hurry has those who wait look again and again, as soon as a transaction of the caller's may be committed.
func (q *queue) hurry() {
	q.pause.Store(int64(firstPause))
	at := time.Now().Add(firstPause)
	q.poll.Store(at.UnixNano())
	q.wake(at)
}

// firstPause is how long after a call in a transaction of the caller's it is first looked for its end; then twice as long.
const firstPause = time.Millisecond

// Tick implements [task.Backend].
func (b *backend) Tick(ctx context.Context) (next time.Time, err error) {
	q, now := b.queue, time.Now().UnixNano()
	if at := q.poll.Load(); at != 0 && at <= now {
		if err := q.ask(ctx); err != nil {
			return time.Time{}, err
		}
	}
	due := q.next.Load()
	looks := q.others.Swap(false)
	if looks || due != 0 && due <= now {
		err := b.call(ctx, "Tick", call{rank: third, run: func(u *unit) error {
			if looks {
				u.look()
			}
			return nil
		}})
		if err != nil {
			q.others.Store(looks || q.others.Load())
			return time.Time{}, err
		}
	}
	return timeOf(sooner(q.next.Load(), q.poll.Load())), nil
}

// ask asks whether others have changed something.
func (q *queue) ask(ctx context.Context) error {
	q.poll.Store(0)
	changed, err := q.store.db.Changed(ctx)
	if err != nil {
		q.pollSoon()
		return err
	}
	if changed {
		q.store.Changed(0)
		q.pause.Store(0)
	}
	switch pause := time.Duration(q.pause.Load()) * 2; {
	case pause > 0 && pause < q.store.options.Poll:
		q.pause.Store(int64(pause))
		q.poll.Store(time.Now().Add(pause).UnixNano())
	case q.waits():
		q.pause.Store(0)
		q.pollSoon()
	}
	return nil
}

// look finds out what others have done that somebody here waits for.
func (u *unit) look() {
	u.notice(notice{what: look})
	u.arm(must(u.v.NextWake())) // nobody else may be there by then
	for id, address := range u.q.awaited {
		if !u.q.awaits(id) {
			u.later(func() { delete(u.q.awaited, id) }) // who is about to wait asks for the outcome once more
		} else if o, ok := u.endOf(id, address); ok {
			u.ended(id, o)
		}
	}
	if u.q.listens() || len(u.q.held) > u.q.losable { // what transactions of callers have settled must not pile up
		u.lost()
		u.later(func() { u.q.losable = 2*len(u.q.held) + pageSize })
	}
}

// endOf tells how a task ended, if it did.
func (u *unit) endOf(id uint64, address string) (Outcome, bool) {
	if r := u.findAddress(address); r != nil && r.ID == id {
		return outcomeOf(r), r.State == task.Buried
	}
	if o := must(u.v.Outcome(address)); o != nil && o.ID == id {
		return *o, true
	}
	return Outcome{How: Deleted}, true // it was so long ago that nothing is known any more
}

// lost finds out which leases of members are lost.
func (u *unit) lost() {
	still := map[uint64]uint64{}
	for _, c := range u.q.members {
		maps.Copy(still, must(u.v.Leases(c.number)))
	}
	for id, h := range u.q.held {
		if still[id] != h.lease && !u.saysOver(h.lease) {
			u.notice(notice{what: leaseOver, id: id, lease: h.lease})
			u.notice(notice{what: event, event: &task.Event{
				Type: task.EventTTR, Time: timeOf(u.now), Task: task.Info{ID: task.ID(id), Key: h.key}, Lease: h.lease,
			}})
		}
	}
}

// saysOver tells whether it will be told that a lease is over.
func (u *unit) saysOver(lease uint64) bool {
	return slices.ContainsFunc(u.notices, func(n notice) bool { return n.what == leaseOver && n.lease == lease })
}
