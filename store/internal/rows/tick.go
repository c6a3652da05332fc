package rows

import (
	"time"

	"github.com/fairq/fairq/internal/life"
)

// maxDue is of how many tasks and consumers one transaction makes happen what is due.
const maxDue = 1000

// lockedPause is how long to wait if what is due is locked by others.
const lockedPause = 100 * time.Millisecond

// advance makes happen what is due: of tasks, of keys, of consumers, and of what is kept for a time.
// What it does not come to is due again at once, so it goes on with the next transaction. No call
// may depend on its coming to everything: see unit.get and unit.take.
func (u *unit) advance() {
	q := u.q
	if q.joined || u.asIs {
		return // in a joined one what is due for the task of the call happens anyway, see get
	}
	u.renewConsumers()
	u.checkLeases()
	if q.due == 0 || q.due > u.now {
		return
	}
	limit := u.room(maxDue)
	if limit == 0 {
		return // work that was left has used it up
	}
	rows := must(u.v.Due(u.now, limit, u.needsPayload()))
	left := limit - len(rows)
	u.readFor(false, rows)
	done := u.each(rows, func(r *Row) {
		if r = u.reread(r); r != nil && r.isDue(u.now) {
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
	}
	// If this process could not renew its own consumers in time, others could perhaps not either:
	// the database was away, or a transaction of a caller's had the queue. They get time to do so
	// before their consumers are expired.
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
	if next.Deadline != 0 {
		u.schedule(max(u.retryAt(life.Plus(next.Deadline, q.store.traits.Skew), idle), q.noExpiryBefore))
	}
	u.schedule(u.retryAt(u.forgetAt(next.Outcome), next.Outcome == q.outcomeUntil)) // the same one was left last time
	u.onCommit(func() { q.outcomeUntil = next.Outcome })
	u.schedule(next.History)
}

// endWaits ends the waits of n keys that have waited long enough, and tells how many more it might
// have ended, and whether it came to all that it has found. It also forgets keys whose buckets are
// full.
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
	var spans []span
	for _, name := range names {
		if s := shownSpan(name, false); u.head.readyTasks[name][s] == nil {
			spans = append(spans, s)
		}
	}
	u.fetch(u.head.unknownKeys(names), spans, false)
	for _, name := range names {
		if u.workLeft() || u.isLarge() || u.room(1) == 0 {
			return 0, false
		}
		u.endWait(name)
	}
	return n - len(names), true
}

// forgetAt returns when an outcome is deleted that can be asked for until then. That may be later,
// so it is done for many at a time.
func (u *unit) forgetAt(until int64) int64 {
	if until == 0 {
		return 0
	}
	return life.Plus(until, keepEnds+u.q.settings.Retention/4)
}

// retryAt returns when to look at something that is due at some time: then, but later if others
// have it locked. That is so if it is due by now, and idle says that nothing has happened.
func (u *unit) retryAt(at int64, idle bool) int64 {
	if idle && at != 0 && at <= u.now {
		return life.Plus(u.now, lockedPause)
	}
	return at
}

// reread returns a row as it is by now, if something that happened before may have changed it.
func (u *unit) reread(r *Row) *Row {
	if r.Group == "" {
		return u.withCurrentTurn(r)
	}
	return must(u.v.Get(r.ID, u.needsPayload()))
}

// sweepServed deletes up to n rows, for each priority, of lines that have used nothing of the round
// being served and of those to come.
func (u *unit) sweepServed(n int) {
	if u.q.newcomersJoin || u.q.costs {
		for priority := range u.head.Rounds {
			if u.q.costs {
				u.forgetAccounts(priority)
			}
			check(u.v.SweepServed(priority, u.currentRound(priority), n))
		}
	}
}
