package rows

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/life"
)

// Processes that share a database learn of each other's changes in two ways. A driver that gets
// notices calls Changed; and while a caller here waits for a change of others, this process polls
// DB.Changed. If others have changed something and a caller waits, the process makes a transaction
// that calls findChanges. Without waiting callers it makes none, because otherwise each change
// would cost all processes a transaction.
//
// The process finds other changes when a caller begins to wait, or when a change is due here. Some
// change is due within task.Options.Grace, when the process looks for consumers that have died.

// Changed reports that others have changed a queue, or any if the number is 0. It does not block.
func Changed(s *Store, number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queues {
		if number == 0 || q.number == number {
			q.others.Store(true)
			q.wakeToLook()
		}
	}
}

// lookPause is the shortest pause between two looks for changes of others, while no call waits for
// a task. So a process notices within this time that it has lost a lease. If a call waits, the
// process looks immediately.
const lookPause = 25 * time.Millisecond

// lookAt returns the time to look for changes of others, 0 for never. No change is missed: a
// caller that begins to wait first registers and then calls wakeToLook, and Changed first sets
// others and then calls lookAt. So one of the two sees the other.
func (q *queue) lookAt() int64 {
	switch {
	case !q.others.Load():
	case q.waits():
		return 1
	case q.listens():
		return q.lookedAt.Load() + int64(lookPause)
	}
	return 0
}

// wakeToLook makes the notifiers call Tick when it is time to look.
func (q *queue) wakeToLook() {
	if at := q.lookAt(); at != 0 {
		q.wake(timeOf(at))
	}
}

// wake makes the notifiers call Tick at that time.
func (q *queue) wake(at time.Time) {
	for _, n := range q.notifiers() {
		n.Due(at)
	}
}

// startPolling begins to poll, unless it has begun.
func (q *queue) startPolling() {
	if q.pollAt.Load() == 0 {
		q.pollAt.Store(time.Now().Add(q.store.options.Poll).UnixNano())
	}
}

// pollOften polls from now on in short intervals, which grow, because a transaction of the
// caller's may be committed soon without a report.
func (q *queue) pollOften() {
	q.pollPause.Store(int64(firstPollPause))
	at := time.Now().Add(firstPollPause)
	q.pollAt.Store(at.UnixNano())
	q.wake(at)
}

// firstPollPause is the time between a call in a caller's transaction and the first poll. Each
// further pause is twice as long as the one before.
const firstPollPause = time.Millisecond

// Tick implements driver.Backend.
func (b *backend) Tick(ctx context.Context) (next time.Time, err error) {
	q, now := b.queue, time.Now().UnixNano()
	if at := q.pollAt.Load(); at != 0 && at <= now {
		if err := q.askForChanges(ctx); err != nil {
			return time.Time{}, err
		}
	}
	if at := sooner(q.dueAt.Load(), q.lookAt()); at != 0 && at <= now {
		looks := q.others.Swap(false)
		err := b.call(ctx, "Tick", call{order: puts, run: func(u *unit) error {
			if looks {
				u.findChanges()
			}
			return nil
		}})
		if err != nil {
			q.others.Store(looks || q.others.Load())
			return time.Time{}, err
		}
		if looks {
			q.lookedAt.Store(now)
		}
	}
	return timeOf(sooner(sooner(q.dueAt.Load(), q.pollAt.Load()), q.lookAt())), nil
}

// askForChanges asks the database for changes of others, and sets the time to ask again.
func (q *queue) askForChanges(ctx context.Context) error {
	q.pollAt.Store(0)
	changed, err := q.store.db.Changed(ctx)
	if err != nil {
		q.startPolling()
		return err
	}
	if changed {
		Changed(q.store, 0)
		q.pollPause.Store(0)
	}
	switch pause := time.Duration(q.pollPause.Load()) * 2; {
	case pause > 0 && pause < q.store.options.Poll:
		q.pollPause.Store(int64(pause))
		q.pollAt.Store(time.Now().Add(pause).UnixNano())
	case q.waits() || q.listens():
		q.pollPause.Store(0)
		q.startPolling()
	}
	return nil
}

// pollLockedAfter is the time after which a take that has passed over locked tasks looks again.
const pollLockedAfter = 10 * time.Millisecond

// lookAgainIfLocked is called after a take of n tasks. If n is 0 because others have locked all
// takeable tasks, the process looks again soon: these may be unlocked without a report.
func (u *unit) lookAgainIfLocked(f Filter, n int) {
	if q := u.q; n == 0 && !u.plan.Exclusive && !u.stopped() && q.waits() && u.anyReady(f) {
		u.onCommit(func() { time.AfterFunc(pollLockedAfter, func() { Changed(q.store, q.number) }) })
	}
}

// findChanges finds the changes of others for which callers here wait.
func (u *unit) findChanges() {
	u.notify(driver.Notifier.Look)
	// All other processes may have ended by then.
	u.schedule(must(u.v.Times(u.keysWait())).Wake)
	u.findEnds()
	if u.q.listens() {
		u.findLostLeases()
		u.findCancelledGroups()
	}
}

// For callers that wait for tasks to end, a process reads each new outcome once (View.Ended). So
// the cost does not depend on the number of awaited tasks. The process can miss an outcome:
// outcomes are kept only for keepEnds, and another task with the same unique key replaces them. So
// every checkEnds it looks up all awaited tasks; a task that is not there any more has ended.
const (
	keepEnds  = 2 * checkEnds
	checkEnds = time.Minute
)

// followEnds makes findChanges find all tasks that end from now on. A caller that begins to wait
// calls it first, and then asks whether its task has ended. So the caller misses no end in
// between.
func (u *unit) followEnds() {
	if u.q.endsMark == "" && !u.followsEnds {
		_, mark := must2(u.v.Ended(""))
		u.followsEnds = true
		u.onCommit(func() { u.q.endsMark, u.q.endsChecked = mark, u.now })
	}
}

// findEnds notes which awaited tasks have ended.
func (u *unit) findEnds() {
	q, missing := u.q, map[uint64]bool{}
	if q.endsMark == "" {
		return
	}
	checks := u.now >= life.Plus(q.endsChecked, checkEnds)
	if checks { // before the outcomes are read: a task that ends in between is found there
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
	ends, mark := must2(u.v.Ended(q.endsMark))
	for _, o := range ends {
		u.ended(o.ID, *o)
		delete(missing, o.ID)
	}
	for id := range missing {
		u.ended(id, Outcome{Result: Deleted}) // its outcome is gone too
	}
	u.onCommit(func() {
		if q.endsMark = mark; checks {
			q.endsChecked = u.now
			if q.awaited() == nil { // a caller that begins to wait asks again after this
				q.endsMark = ""
			}
		}
	})
}

// checkLeases forgets leases that did not end by a call of this process, even without listeners.
// If callers settled all tasks in transactions of their own, the leases would pile up. It checks
// the leases when there are more than twice as many as its last check has left, and a page more.
func (u *unit) checkLeases() {
	if len(u.q.ownLeases) > u.q.leasesToCheck {
		u.findLostLeases()
		u.onCommit(func() { // deliver deletes the leases in over after this
			left := max(0, len(u.q.ownLeases)-len(u.over))
			u.q.leasesToCheck = 2*left + pageSize
		})
	}
}

// findLostLeases notes which leases of this process others have ended. If the task of a lease is
// gone it reports the task as deleted, because that is by far the most likely end.
func (u *unit) findLostLeases() {
	still, seen := map[uint64]uint64{}, map[uint64]bool{}
	for _, h := range u.q.ownLeases {
		if !seen[h.consumer] { // which may have disconnected, and so lives here no more
			seen[h.consumer] = true
			maps.Copy(still, must(u.v.Leases(h.consumer)))
		}
	}
	var lost []uint64
	for id, h := range u.q.ownLeases {
		if still[id] != h.lease && !slices.Contains(u.over, h.asLease()) {
			lost = append(lost, id)
		}
	}
	for ids := range slices.Chunk(lost, pageSize) {
		why := map[uint64]driver.EventType{}
		for _, r := range must(u.v.Peek(ids, false)) {
			why[r.ID] = driver.EventTTR
		}
		for _, id := range ids {
			h := u.q.ownLeases[id]
			u.leaseEnds(id, h.lease)
			u.notifyEvent(&driver.Event{
				Type: cmp.Or(why[id], driver.EventDelete), Time: timeOf(u.now),
				Task: driver.Info{ID: driver.ID(id), Key: h.key}, Lease: h.lease,
			})
		}
	}
}

// findCancelledGroups notes for which leases of this process others have cancelled the group.
func (u *unit) findCancelledGroups() {
	groups := map[string]*Group{}
	for id, h := range u.q.ownLeases {
		if h.group == "" || h.cancelled || slices.Contains(u.over, h.asLease()) {
			continue
		}
		g, known := groups[h.group]
		if !known {
			g = must(u.v.Group(h.group))
			groups[h.group] = g
		}
		if g != nil && g.Cancelled {
			u.notifyEvent(&driver.Event{
				Type: driver.EventCancel, Time: timeOf(u.now), Lease: h.lease,
				Task: driver.Info{ID: driver.ID(id), Key: h.key, Group: h.group, State: driver.Taken},
			})
		}
	}
}
