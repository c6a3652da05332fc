package memory

import (
	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/life"
)

// putOne is put for a single task.
func (q *queue) putOne(n *driver.New, now int64) (id driver.ID, victim *driver.Record, err error) {
	q.beginPut()
	id, victim, err = q.put(n, now)
	q.endPut()
	return id, victim, err
}

// put puts a task, between beginPut and endPut, and returns the task that it has evicted, if any.
// All reasons for an error come before newItem. After that nothing fails, so a Put with an error
// leaves no half of a task.
func (q *queue) put(n *driver.New, now int64) (id driver.ID, victim *driver.Record, err error) {
	var first *item // that the task follows
	if n.UniqueKey != "" {
		if first = q.findUniqueKey(n.UniqueKey, now); first != nil {
			if id, err = q.replace(first, n, now); id != 0 || err != nil {
				return id, nil, err
			}
			follower := *n
			follower.UniqueKey = ""
			n = &follower
		}
	}
	var g *group
	if n.Group != "" {
		g = q.group(n.Group)
		if err := g.Admits(n.Group); err != nil {
			return 0, nil, err
		}
	}
	if life.Free(&q.settings, q.settings.Counted(&q.tasks)) <= 0 {
		if victim, err = q.makeRoom(n, g); err != nil {
			q.stats.Refused++
			return 0, nil, err
		}
	}
	q.inbox.last++
	id = q.inbox.last
	var a arrival
	a.set(n, id, now)
	it := q.newItem(&a)
	if isRare(n) || first != nil {
		it.Rare = &life.Rare{UniqueKey: n.UniqueKey, Role: n.Role}
		q.setRare(it, n, now)
		if n.UniqueKey != "" {
			q.uniqueKeys[n.UniqueKey] = it
			q.outcomes.forget(n.UniqueKey)
		}
		if g != nil {
			q.joinGroup(it, g)
		}
	}
	if first != nil {
		first.Follower = id
	}
	q.set(it, it.Put(n, first != nil, now))
	q.event(driver.EventPut, it, now, 0)
	if it.isDue(now) { // its deadline was over
		q.fire(it)
	}
	return id, victim, nil
}

// setRare gives a task the rare fields that a task in its place replaces.
func (q *queue) setRare(it *item, n *driver.New, now int64) {
	it.Deadline, it.End, it.Metadata = n.Deadline, 0, n.Metadata
	if !n.Deadline.IsZero() {
		it.End = q.at(n.Deadline, now)
	}
}

// replace puts a new task in the place of the task with its unique key; if that is taken, in the
// place of its follower. If there is no follower, it returns 0: the new task is to be the
// follower.
func (q *queue) replace(it *item, n *driver.New, now int64) (driver.ID, error) {
	is, id := q.info(it), it.id
	now = q.clock(now)
	f, err := it.Replace(n, &is, q.settings.Quantum > 0, now)
	if err != nil {
		return 0, err
	}
	if f.State == driver.Taken {
		if next := q.follower(it, now); next != nil {
			return q.replace(next, n, now)
		}
		return 0, nil
	}
	it.TTR, it.MaxAttempts, it.cost, it.learned = n.TTR, int32(n.MaxAttempts),
		uint32(n.Cost), n.Learned
	q.setRare(it, n, now)
	q.amend(it, &driver.Amendment{Priority: &n.Priority, Payload: &n.Payload}, f, now)
	q.endHold(it)
	if it.isDue(now) { // its deadline was over
		q.fire(it)
	}
	return id, nil
}

// follower returns the follower of a task, nil if there is none. A follower that was buried does
// not follow any more.
func (q *queue) follower(it *item, now int64) *item {
	next := q.ids.get(it.Follower)
	switch {
	case next == nil || next.State != driver.Held:
		return nil
	case next.isDue(now):
		q.fire(next)
		return nil
	}
	return next
}

// follow decides about next, the follower of a task that is no longer taken after a transition: it
// takes the place of the task, or gets its unique key and starts. If the task has left the queue,
// its item is not read.
func (q *queue) follow(it, next *item, uniqueKey string, f life.Transition, now int64) {
	if f.Waits() {
		r := q.record(next)
		n := r.New(q.unix(now))
		n.Learned, n.MaxDelay = next.learned, next.MaxDelay(now)
		q.apply(next, next.Delete(driver.ErrDeleted, &q.stats), now)
		_, _ = q.replace(it, &n, now) // what could be refused was refused when the follower was put
		return
	}
	if f.State == driver.Buried {
		it.UniqueKey = ""
	}
	next.UniqueKey = uniqueKey
	q.uniqueKeys[uniqueKey] = next
	q.outcomes.forget(uniqueKey)
	q.apply(next, next.Start(now), now)
}

// isRare reports whether a task needs a life.Rare.
func isRare(n *driver.New) bool {
	return n.UniqueKey != "" || n.Group != "" || !n.Deadline.IsZero() || n.Metadata != nil
}

// newItem makes the item of an accepted task. It has no state yet.
func (q *queue) newItem(a *arrival) *item {
	var it *item
	if last := len(q.spare) - 1; last >= 0 {
		it, q.spare = q.spare[last], q.spare[:last]
	} else {
		it = new(item)
	}
	it.id, it.payload, it.kind, it.priority = a.id, a.payload, a.kind, a.priority
	it.cost, it.learned = a.cost, a.learned
	it.TTR, it.MaxAttempts, it.created = a.ttr, a.maxAttempts, a.created
	it.key = q.keyState(a.key, int(a.weight))
	q.ids.add(it)
	q.places++
	it.place = q.places
	q.stats.Puts++
	q.tasks[0]++
	if it.key.tasks[0]++; it.key.tasks[0] == 1 {
		q.stats.Keys++
	}
	return it
}

// set puts a task into the places of a new state.
//
// The invariant between calls: all places that find a task by its state agree with State, and so
// do all counters. The places are its line, the leases of its consumer, the buried tasks, the
// evictable ones and its timer. To change the state, unset takes the task out of all these but the
// timer. It leaves State as it was, because the events of the change need it. Then set is called.
func (q *queue) set(it *item, state driver.State) {
	if q.waits {
		q.freed(it.key, it.State, state)
	}
	it.State = state
	it.key.tasks[state]++
	q.tasks[state]++
	it.block.count(state, 1)
	switch state {
	case driver.Ready:
		if it.place == 0 {
			q.places++
			it.place = q.places
		}
		if q.settings.KeepPlace && it.turn != 0 && it.isBehind() {
			it.turn = 0
		}
		q.line(it).add(it)
		if k := it.key; !q.waits || k.blocked {
			break
		} else if k.tasks[driver.Ready] <= q.slots(k) {
			q.ready(int(it.priority), it.kind)
		} else if !k.isUniform() {
			q.look() // the number of takeable tasks is the same, but other takers may want them
		}
	case driver.Taken:
		it.consumer.leases.append(it)
		if q.limited {
			q.block(it.key)
		}
	case driver.Buried:
		q.buried.append(it)
	}
	if q.evictable != nil && (state == driver.Ready || state == driver.Delayed) {
		q.evictable.add(it)
	}
	q.arm(it, it.Wake(state))
}

// unset takes a task out of its state.
func (q *queue) unset(it *item) {
	switch it.State {
	case driver.Ready:
		l := q.line(it)
		l.remove(it)
		q.dropIfEmpty(l)
	case driver.Taken:
		it.consumer.leases.remove(it)
	case driver.Buried:
		q.buried.remove(it)
	}
	q.leaveState(it)
	if it.State == driver.Ready {
		q.endHold(it)
	}
}

// leaveState is the part of unset that a Take needs, because first has taken the task out of its
// line.
func (q *queue) leaveState(it *item) {
	state := it.State
	if q.evictable != nil && (state == driver.Ready || state == driver.Delayed) {
		q.evictable.remove(it)
	}
	it.key.tasks[state]--
	q.tasks[state]--
	it.block.count(state, -1)
	if state == driver.Taken {
		it.lease, it.consumer = 0, nil
		if k := it.key; q.limited {
			q.block(k)
			q.wake(k, min(1, k.tasks[driver.Ready]-q.slots(k)+1))
		}
	}
}

// block updates whether a key is blocked.
func (q *queue) block(k *keyState) {
	if k.blocked = k.paused || k.wait.Waits || q.slots(k) <= 0; k.blocked {
		return
	}
	for _, e := range k.hidden {
		e.show()
	}
	k.hidden = k.hidden[:0]
}

// slots returns how many more tasks of a key may be taken, less than 0 if the limit was higher.
func (q *queue) slots(k *keyState) int {
	return life.MaxInFlight(&q.settings, k.own) - k.tasks[driver.Taken]
}

// wake reports that n more tasks of a key can be taken, unless it is blocked.
func (q *queue) wake(k *keyState, n int) {
	switch {
	case k.blocked || n <= 0:
	case n == 1 && k.isUniform():
		q.ready(k.lines[0].band.priority, k.lines[0].lanes[0].kind.name)
	default:
		q.look() // priority and kind decide who can take them, and there may be several
	}
}

// isUniform reports whether all ready tasks of the key have one priority and kind.
func (k *keyState) isUniform() bool { return len(k.lines) == 1 && len(k.lines[0].lanes) == 1 }

// take takes the first task that the filter of a taker passes, nil if there is none.
func (q *queue) take(by *driver.Taker, now int64) (*item, error) {
	c, err := q.consumerOf(by)
	if q.paused || q.all.blocked || err != nil {
		return nil, err
	}
	it := q.first(&by.Filter)
	for n := 1; it != nil && it.isDue(now); n++ { // expired, but too many were due before
		f := it.Due(it.wake, &q.stats)
		q.leaveState(it)
		q.finishApply(it, f, it.wake, 0)
		if n%timersPerCall == 0 {
			q.mu.Unlock() // for other calls
			q.lock()
			if c, err = q.consumerOf(by); q.paused || q.all.blocked || q.dropped || err != nil {
				return nil, err
			}
		}
		it = q.first(&by.Filter)
	}
	if it == nil {
		return nil, nil
	}
	q.leaveState(it)
	q.grant(it, c, now)
	return it, nil
}

// grant begins a lease of a task without a state.
func (q *queue) grant(it *item, c *consumer, now int64) {
	q.leases++
	it.lease, it.consumer = q.leases, c
	if it.TTR > 0 || q.settings.KeyRate.Limit+q.settings.Rate.Limit > 0 || it.key.own != nil {
		now = q.clock(now)
	}
	it.Take(now)
	q.charge(it, now, (*life.Wait).Spend)
	q.set(it, driver.Taken)
	q.stats.Takes++
	q.event(driver.EventTake, it, now, 0)
}

// takeID takes a task by its id. The task uses no turn, so it gets a new one if it is handed back.
func (q *queue) takeID(consumer driver.Handle, id driver.ID, now int64) (*item, error) {
	c, err := q.consumer(consumer)
	if err != nil {
		return nil, err
	}
	it := q.find(id, now)
	if it == nil {
		return nil, driver.ErrNotFound
	}
	for _, k := range [...]*keyState{it.key, &q.all} {
		if k.wait.Until != 0 && k.wait.Until <= now { // too many changes were due before
			q.settleWait(k, now)
		}
	}
	f, err := it.Hurry(q.paused || q.all.blocked || it.key.blocked, now, &q.stats)
	if err != nil {
		return nil, err
	}
	q.apply(it, f, now)
	q.unset(it)
	it.turn = 0
	if !q.settings.KeepPlace {
		it.place = 0
	}
	q.grant(it, c, now)
	return it, nil
}

// first takes the first task in order out of its line.
func (q *queue) first(f *driver.Filter) *item {
	for _, b := range q.bands {
		if f.MaxPriority != nil && b.priority > *f.MaxPriority {
			return nil
		}
		if lane := b.first(f.Kinds); lane != nil {
			it := b.take(lane)
			q.dropIfEmpty(lane.line)
			return it
		}
	}
	return nil
}

// reprioritize gives a task without a line another priority, and a place behind all of its key.
func (q *queue) reprioritize(it *item, priority int) {
	it.priority = int16(priority)
	q.places++
	it.place, it.turn = q.places, 0
}

// reportEnd reports the outcome of a task with a unique key to waiting callers.
func (q *queue) reportEnd(id driver.ID, outcome error) {
	for _, n := range q.notifiers {
		n.Ended(id, outcome)
	}
}

// amend makes the changes of a caller to a task, and the transition that follows.
func (q *queue) amend(it *item, a *driver.Amendment, f life.Transition, now int64) {
	if a.Payload != nil {
		it.payload = *a.Payload
	}
	moves := f.Event != 0
	if moves {
		q.unset(it)
	}
	if f.Turn == life.NewPlace {
		q.reprioritize(it, *a.Priority)
	}
	if moves {
		q.finishApply(it, f, now, 0)
	} else {
		q.arm(it, it.Wake(it.State))
		q.event(driver.EventChange, it, now, 0)
	}
}

// apply makes a transition of a task.
func (q *queue) apply(it *item, f life.Transition, now int64) {
	if f.Event != 0 {
		lease := it.lease
		q.unset(it)
		q.finishApply(it, f, now, lease)
	}
}

// finishApply is apply for a task that has left its state, and so its lease.
func (q *queue) finishApply(it *item, f life.Transition, now int64, lease uint64) {
	if it.Rare != nil && it.Follower != 0 {
		now = q.clock(now)
		next, uniqueKey := q.follower(it, now), it.UniqueKey
		it.Follower = 0
		if q.finishApply(it, f, now, lease); next != nil {
			q.follow(it, next, uniqueKey, f, now)
		}
		return
	}
	if f.First != 0 {
		q.event(f.First, it, now, lease)
		lease = 0
	}
	if f.Second != 0 {
		q.event(f.Second, it, now, lease)
		lease = 0
	}
	if f.State == 0 {
		q.forget(it, f.Event, now, lease, f.Outcome)
		return
	}
	if f.Turn != life.SameTurn {
		it.turn = 0
	}
	if f.Turn == life.NewTurn && !q.settings.KeepPlace { // behind all others of its key
		q.places++
		it.place = q.places
	}
	q.set(it, f.State)
	q.event(f.Event, it, now, lease)
	if f.State == driver.Buried && it.Rare != nil && it.UniqueKey != "" {
		q.reportEnd(it.id, f.Outcome)
	}
}

// forget removes a task without a state, and reports its outcome.
func (q *queue) forget(
	it *item, why driver.EventType, now int64, lease uint64, outcome error,
) {
	if why == driver.EventTTL {
		q.expired(it)
	}
	q.event(why, it, now, lease)
	q.arm(it, 0)
	q.ids.remove(it)
	k := it.key
	if it.Rare != nil && it.UniqueKey != "" {
		remove(&q.uniqueKeys, &q.peakUniqueKeys, it.UniqueKey)
		q.outcomes.add(it.UniqueKey, it.id, outcome, q.clock(now)+int64(q.settings.Retention))
		q.announce()
		q.reportEnd(it.id, outcome)
	}
	q.tasks[0]--
	if k.tasks[0]--; k.tasks[0] == 0 {
		q.stats.Keys--
	}
	if q.waits {
		q.freed(k, it.State, 0)
	}
	q.forgetKey(k)
	if g := it.group(); g != nil {
		q.leaveGroup(it, g, now)
	}
	if len(q.spare) < maxSpare {
		*it = item{}
		q.spare = append(q.spare, it)
	}
}

// truncate removes all tasks, and reports the outcome for each.
func (q *queue) truncate(now int64, outcome error) (n int) {
	for _, g := range q.groups {
		g.Tasks = 0 // so that the group has no end
	}
	clear(q.groups)
	for it := range q.ids.all() {
		if it.Rare != nil {
			it.Follower = 0
		}
		q.apply(it, it.Delete(outcome, &q.stats), now)
		n++
	}
	return n
}
