package rows

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/fairq/fairq/internal/life"
	"github.com/fairq/fairq/task/driver"
)

// Processes that share a database learn of each other's changes by looking: when they are told
// (Store.Changed), and now and then if they are not. Who looks asks DB.Changed first, and only then
// begins a transaction.

// Changed says that others have changed something in a queue, or in all if the number is 0. It
// waits for nothing.
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

// hurry has those who wait look again and again, as soon as a transaction of the caller's may be
// committed.
func (q *queue) hurry() {
	q.pause.Store(int64(firstPause))
	at := time.Now().Add(firstPause)
	q.poll.Store(at.UnixNano())
	q.wake(at)
}

// firstPause is how long after a call in a transaction of the caller's it is first looked for its
// end; then twice as long.
const firstPause = time.Millisecond

// Tick implements driver.Backend.
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

// lookAgain is when somebody who has passed over what others have locked looks again.
const lookAgain = 10 * time.Millisecond

// passedOver is called by who has found nothing more to take after n tasks. If there is something
// that others have locked, perhaps not to take it, he looks again soon: nobody tells when they have
// done.
func (u *unit) passedOver(f Filter, n int) {
	if q := u.q; n == 0 && !u.plan.Exclusive && !u.head.Paused && q.waits() && must(u.v.AnyReady(f)) {
		u.later(func() { time.AfterFunc(lookAgain, func() { q.store.Changed(q.number) }) })
	}
}

// look finds out what others have done that somebody here waits for.
func (u *unit) look() {
	u.notice(notice{what: look})
	u.arm(must(u.v.Times()).Wake) // nobody else may be there by then
	u.lookForEnds()
	if u.q.listens() || len(u.q.held) > u.q.losable { // what transactions of callers have settled must not pile up
		u.lost()
		u.cancelled()
		u.later(func() { u.q.losable = 2*len(u.q.held) + pageSize })
	}
}

// Outcomes are looked at in the order in which they are written, so that it does not matter how
// many tasks are awaited. They stay for some time after they can be asked for. If somebody has not
// looked for that long, or an outcome was replaced by that of another task with the same unique
// key, it is missed: so now and then it is asked whether what is awaited is still there.
const (
	keepEnds  = 2 * checkEnds
	checkEnds = time.Minute
)

// follow has look find all tasks that end from now on. It is called before it is asked whether one
// has ended.
func (u *unit) follow() {
	if u.q.mark == "" && !u.follows {
		_, mark := must2(u.v.Ended(""))
		u.follows = true
		u.later(func() { u.q.mark, u.q.checked = mark, u.now })
	}
}

// lookForEnds tells which tasks have ended.
func (u *unit) lookForEnds() {
	q, missing := u.q, map[uint64]bool{}
	if q.mark == "" {
		return
	}
	checks := u.now >= life.Plus(q.checked, checkEnds)
	if checks { // before the outcomes are looked at, or some could end in between
		for ids := range slices.Chunk(q.awaited(), pageSize) {
			for _, id := range ids {
				missing[id] = true
			}
			for _, r := range must(u.v.Peek(ids, false)) {
				if r.State != driver.Buried {
					delete(missing, r.ID)
				}
			}
		}
	}
	ends, mark := must2(u.v.Ended(q.mark))
	for _, o := range ends {
		u.ended(o.ID, *o)
		delete(missing, o.ID)
	}
	for id := range missing {
		u.ended(id, Outcome{How: Deleted}) // nothing is known any more of how
	}
	u.later(func() {
		if q.mark = mark; checks {
			q.checked = u.now
			if q.awaited() == nil { // who is about to wait asks for the outcome once more
				q.mark = ""
			}
		}
	})
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
			u.notice(notice{what: event, event: &driver.Event{
				Type: driver.EventTTR, Time: timeOf(u.now), Task: driver.Info{ID: driver.ID(id), Key: h.key}, Lease: h.lease,
			}})
		}
	}
}

// cancelled finds out of which leases of members others have cancelled the group.
func (u *unit) cancelled() {
	groups := map[string]*Group{}
	for id, h := range u.q.held {
		if h.group == "" || h.cancelled || u.saysOver(h.lease) {
			continue
		}
		g, known := groups[h.group]
		if !known {
			g = must(u.v.Group(h.group))
			groups[h.group] = g
		}
		if g != nil && g.Cancelled {
			u.notice(notice{what: event, event: &driver.Event{
				Type: driver.EventCancel, Time: timeOf(u.now), Lease: h.lease,
				Task: driver.Info{ID: driver.ID(id), Key: h.key, Group: h.group, State: driver.Taken},
			}})
		}
	}
}

// saysOver tells whether it will be told that a lease is over.
func (u *unit) saysOver(lease uint64) bool {
	return slices.ContainsFunc(u.notices, func(n notice) bool { return n.what == leaseOver && n.lease == lease })
}
