package rows

import (
	"slices"
	"time"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/life"
)

// maxDue is the greatest number of tasks and consumers whose due changes one transaction makes.
const maxDue = 1000

// forgetPause is the time between two searches for keys with full buckets, which are forgotten.
const forgetPause = 10 * time.Second

// lockedPause is the time to wait if others have locked due tasks.
const lockedPause = 100 * time.Millisecond

// advance makes the due changes of tasks, keys and consumers, and deletes outcomes and history. If
// one transaction cannot make all of them, the next one goes on. No call may rely on advance to
// have made all due changes: see unit.get and unit.take.
func (u *unit) advance() {
	q := u.q
	if q.joined || u.asIs {
		return // in a joined one get makes the due change of the call's task
	}
	u.renewConsumers()
	u.checkLeases()
	if q.due == 0 || q.due > u.now {
		return
	}
	limit := u.room(maxDue)
	if limit == 0 {
		return // earlier work has used it up
	}
	if q.locksKeys && !u.plan.Exclusive {
		limit = min(limit, maxLocks)
	}
	rows := u.holdThose(must(u.v.Due(u.now, limit, u.needsPayload())))
	rows = slices.DeleteFunc(rows, func(r *Row) bool { return !u.isDue(r, u.now) })
	left := limit - len(rows)
	u.readFor(keysOf(rows))
	done := u.each(rows, func(r *Row) {
		if r = u.reread(r); r != nil && u.isDue(r, u.now) {
			u.fire(r)
		}
	})
	if !done {
		return
	}
	if u.keysWait() {
		if left, done = u.endWaits(left); !done {
			return
		}
		if left = u.forgetFull(left); left == 0 {
			return
		}
	}
	// If this process could not renew its own consumers in time, other processes perhaps could not
	// either. Perhaps the database was away, or a caller's transaction had locked the queue. They get
	// time to renew their consumers before this process expires them.
	if u.now >= q.noExpiryBefore {
		left = u.expireConsumers(left)
	}
	if left > 0 {
		check(u.v.SweepOutcomes(u.now-int64(keepEnds), left))
		check(u.v.SweepHistory(u.now, left))
		u.sweepServed(left)
	}
	u.advanced = true
	idle := left == limit
	next := must(u.v.Times(u.keysWait()))
	u.schedule(u.retryAt(next.Wake, idle))
	if next.Full != 0 {
		u.schedule(life.Plus(max(next.Full, u.now), forgetPause))
	}
	if next.Deadline != 0 {
		u.schedule(max(u.retryAt(life.Plus(next.Deadline, q.store.traits.Skew), idle), q.noExpiryBefore))
	}
	wasLeft := next.Outcome == q.outcomeUntil // the last transaction could not delete it
	u.schedule(u.retryAt(u.forgetAt(next.Outcome), wasLeft))
	u.onCommit(func() { q.outcomeUntil = next.Outcome })
	if next.History != 0 { // many at a time, as in addHistory
		u.schedule(life.Plus(next.History, u.q.store.options.History/4))
	}
}

// endWaits ends the waits of keys that are due, at most n. left is how many more it could have
// ended. If done is false it has left due waits to another transaction.
func (u *unit) endWaits(n int) (left int, done bool) {
	if n == 0 {
		return 0, true
	}
	u.saveKeys()
	keys := must(u.v.DueKeys(u.now, n))
	if len(keys) == 0 {
		return n, true
	}
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.Key
	}
	u.hold(names...)
	u.readKeys(names...)
	for _, name := range names {
		if u.workLeft() || u.isLarge() {
			return 0, false
		}
		u.endWait(name)
	}
	return n - len(names), true
}

// forgetFull forgets keys whose buckets are full, at most n, so that an idle queue keeps no keys.
// It returns how many more it could have forgotten.
func (u *unit) forgetFull(n int) int {
	if n == 0 {
		return 0
	}
	u.saveKeys()
	keys := must(u.v.FullKeys(u.now, n))
	for _, k := range keys {
		u.hold(k.Key)
	}
	for _, k := range keys {
		u.changeKey(k.Key, func(*Key) {})
	}
	return n - len(keys)
}

// forgetAt returns the time to delete an outcome that is kept until a time. It returns a later
// time, so that many outcomes are deleted at once.
func (u *unit) forgetAt(until int64) int64 {
	if until == 0 {
		return 0
	}
	return life.Plus(until, keepEnds+u.q.settings.Retention/4)
}

// retryAt returns when to make a change that is due at the time at. That is at, with one
// exception: if at is over and this transaction has changed nothing (idle), others have locked the
// rows. Then retryAt returns a time after a pause.
func (u *unit) retryAt(at int64, idle bool) int64 {
	if idle && at != 0 && at <= u.now {
		return life.Plus(u.now, lockedPause)
	}
	return at
}

// reread reads a row again if this transaction may have changed it since: by the end of its group,
// or of the task that it follows.
func (u *unit) reread(r *Row) *Row {
	if r.Group == "" && r.State != driver.Held {
		return r
	}
	return must(u.v.Get(r.ID, u.needsPayload()))
}

// sweepServed deletes up to n void rows of the table of Served, for each priority.
func (u *unit) sweepServed(n int) {
	if u.q.costs {
		for priority := range u.head.Rounds {
			check(u.v.SweepServed(priority, u.currentRound(priority), n))
		}
	}
}
