package rows

import (
	"time"

	"github.com/fairq/fairq/internal/life"
)

// mostDue is how many things one transaction makes happen because they are due.
const mostDue = 1000

// lockedPause is when to look again if what is due is locked by others.
const lockedPause = 100 * time.Millisecond

// advance makes happen what is due.
func (u *unit) advance() {
	q := u.q
	if q.joined {
		return // what concerns the task in question is looked at anyway
	}
	u.beat()
	if q.due == 0 || q.due > u.now {
		return
	}
	most := q.store.step(mostDue)
	rows := must(u.v.Due(u.now, most, u.whole()))
	left := most - len(rows)
	if u.q.byKey() {
		u.read(false, keysOf(rows)...)
	}
	for _, r := range rows {
		if r = u.again(r); r != nil && r.isDue(u.now) {
			u.fire(r)
		}
	}
	// Who has not been able to renew its own consumers leaves others the time to renew theirs: the
	// database may have been away for them too, or the queue in the hands of a transaction of a
	// caller's.
	if u.now >= q.spares {
		left = u.dead(left)
	}
	if left > 0 {
		check(u.v.SweepOutcomes(u.now-int64(keepEnds), left))
		check(u.v.SweepDone(u.now, left))
		u.sweepServed(left)
	}
	u.advanced = true
	idle := left == most
	next := must(u.v.Times())
	u.arm(u.unlocked(next.Wake, idle))
	if next.Deadline != 0 {
		u.arm(max(u.unlocked(life.Plus(next.Deadline, q.store.traits.Skew), idle), q.spares))
	}
	u.arm(u.unlocked(u.forgets(next.Outcome), next.Outcome == q.outcome)) // it was not swept the last time
	u.later(func() { q.outcome = next.Outcome })
	u.arm(next.Done)
}

// forgets returns when an outcome is forgotten that is told until then. It does not matter when, so
// it is done for many at a time.
func (u *unit) forgets(until int64) int64 {
	if until == 0 {
		return 0
	}
	return life.Plus(until, keepEnds+u.q.settings.Retention/4)
}

// unlocked returns when to look at something that is due then. If it should have happened by now,
// and idle says that nothing has happened, others have it locked.
func (u *unit) unlocked(at int64, idle bool) int64 {
	if idle && at != 0 && at <= u.now {
		return life.Plus(u.now, lockedPause)
	}
	return at
}

// again returns a row as it is by now, if something that happened before may have changed it.
func (u *unit) again(r *Row) *Row {
	if r.Group == "" {
		return u.refiled(r)
	}
	return must(u.v.Get(r.ID, u.whole()))
}

// sweepServed forgets which keys were served in rounds that are over.
func (u *unit) sweepServed(n int) {
	if u.q.thisTurn {
		for priority, round := range u.head.Rounds {
			check(u.v.SweepServed(priority, round, n))
		}
	}
}
