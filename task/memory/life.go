package memory

import (
	"fmt"
	"math"
	"time"

	"github.com/fairq/fairq/task/driver"
)

// put puts a task. If it returns a victim, that was evicted.
func (q *queue) put(n *driver.New, now int64) (id driver.ID, victim *driver.Record, err error) {
	if n.UniqueKey != "" {
		if it := q.findUniqueKey(n.UniqueKey, now); it != nil {
			return 0, nil, fmt.Errorf("%w: %q is task %d", driver.ErrDuplicate, n.UniqueKey, it.id)
		}
	}
	var g *group
	if n.Group != "" {
		if g = q.group(n.Group); g.cancelled {
			return 0, nil, fmt.Errorf("%w: %q", driver.ErrGroupCancelled, n.Group)
		}
	}
	if q.counted() >= q.settings.Capacity || q.settings.KeyCapacity < q.settings.Capacity {
		victim, err = q.makeRoom(n, g)
		if err != nil {
			q.stats.Refused++
			return 0, nil, err
		}
	}
	it := q.newItem()
	q.ids.add(it)
	it.key = q.account(n.Key, n.Weight)
	it.payload, it.kind, it.priority = n.Payload, n.Kind, int16(n.Priority)
	it.ttr, it.maxAttempts, it.created = n.TTR, int32(n.MaxAttempts), now
	q.places++
	it.place = q.places
	if n.TTL > 0 {
		it.expires = after(now, n.TTL+n.Delay)
	}
	if n.Delay > 0 {
		it.until = after(now, n.Delay)
	}
	if n.UniqueKey != "" || n.Group != "" || !n.Deadline.IsZero() {
		it.more = &more{uniqueKey: n.UniqueKey, deadline: n.Deadline}
		if !n.Deadline.IsZero() {
			it.more.end = q.at(n.Deadline, now)
		}
		if n.UniqueKey != "" {
			q.uniqueKeys[n.UniqueKey] = it
			q.outcomes.forget(n.UniqueKey)
		}
		if g != nil {
			q.joinGroup(it, g, n.Role)
		}
	}
	if q.reserves() {
		q.line(it).link()
	}
	q.stats.Puts++
	if it.key.tasks[0]++; it.key.tasks[0] == 1 {
		q.stats.Keys++
	}
	q.wait(it, now)
	q.event(driver.EventPut, it, now, 0)
	id = it.id
	if it.isDue(now) { // its deadline was over
		q.fire(it)
	}
	return id, victim, nil
}

// wait makes a task held, delayed or ready, whichever it is.
func (q *queue) wait(it *item, now int64) {
	switch {
	case it.heldByGroup():
		q.set(it, driver.Held)
	case it.until > 0:
		q.set(it, driver.Delayed)
	default:
		it.readyAt = now
		q.set(it, driver.Ready)
	}
}

// set puts a task that is in no state into one.
func (q *queue) set(it *item, state driver.State) {
	q.freed(it.key, it.state, state)
	it.state = state
	it.key.tasks[state]++
	*q.gauge(state)++
	wake := it.ends()
	switch state {
	case driver.Ready:
		q.line(it).add(it)
		if k := it.key; !k.blocked && k.tasks[driver.Ready] <= q.slots(k) {
			q.ready(int(it.priority), it.kind)
		} else if !k.blocked && !k.uniform() {
			q.look() // no more tasks than before can be taken, but perhaps by others
		}
	case driver.Delayed:
		if wake == 0 || it.until < wake {
			wake = it.until
		}
	case driver.Taken:
		it.consumer.leases.append(it)
		wake = it.until
		q.block(it.key)
	case driver.Buried:
		q.buried.append(it)
	}
	if q.waiting != nil && (state == driver.Ready || state == driver.Delayed) {
		q.waiting.add(it)
	}
	q.arm(it, wake)
}

// unset takes a task out of its state.
func (q *queue) unset(it *item) {
	switch it.state {
	case driver.Ready:
		l := q.line(it)
		l.remove(it)
		q.retire(l)
	case driver.Taken:
		it.consumer.leases.remove(it)
	case driver.Buried:
		q.buried.remove(it)
	}
	q.leaveState(it)
}

// leaveState is the part of unset that a Take needs. Events tell the state that the task was in until it is in another one.
func (q *queue) leaveState(it *item) {
	state := it.state
	if q.waiting != nil && (state == driver.Ready || state == driver.Delayed) {
		q.waiting.remove(it)
	}
	it.key.tasks[state]--
	*q.gauge(state)--
	if state == driver.Taken {
		it.lease, it.consumer, it.until = 0, nil, 0
		q.block(it.key)
		q.slotFreed(it.key)
	}
}

func (q *queue) gauge(state driver.State) *int {
	switch state {
	case driver.Ready:
		return &q.stats.Ready
	case driver.Delayed:
		return &q.stats.Delayed
	case driver.Taken:
		return &q.stats.Taken
	case driver.Buried:
		return &q.stats.Buried
	default:
		return &q.stats.Held
	}
}

// block finds out whether a key is blocked.
func (q *queue) block(k *account) {
	blocked := k.paused || q.slots(k) == 0
	if blocked == k.blocked {
		return
	}
	k.blocked = blocked
	for _, l := range k.lines {
		l.block(blocked)
	}
}

// slots returns how many more tasks of a key may be taken.
func (q *queue) slots(k *account) int {
	if q.settings.MaxInFlightPerKey == 0 {
		return math.MaxInt
	}
	return q.settings.MaxInFlightPerKey - k.tasks[driver.Taken]
}

// uniform tells whether all ready tasks of the key are of one priority and kind.
func (k *account) uniform() bool { return len(k.lines) == 1 && len(k.lines[0].lanes) == 1 }

// slotFreed tells that one more task of a key can be taken, if that is so.
func (q *queue) slotFreed(k *account) {
	if k.blocked || k.tasks[driver.Ready] < q.slots(k) {
		return
	}
	if k.uniform() {
		q.ready(k.lines[0].band.priority, k.lines[0].lanes[0].kind.name)
	} else {
		q.look() // who can have it depends on its priority and kind, and it may be one of several
	}
}

// take takes the first task that the filter passes, nil if there is none.
func (q *queue) take(consumer driver.Handle, filter *driver.Filter, now int64) (*item, error) {
	c, err := q.consumer(consumer)
	if q.paused || err != nil {
		return nil, err
	}
	it := q.first(filter)
	for n := 1; it != nil && it.isDue(now); n++ { // it has expired, but there were too many to be handled before
		q.leaveState(it)
		q.gone(it, driver.EventTTL, it.wake, 0, driver.ErrExpired)
		if n%someTimers == 0 {
			q.mu.Unlock() // let others have their turn
			q.mu.Lock()
			if c, err = q.consumer(consumer); q.paused || q.dropped || err != nil {
				return nil, err
			}
		}
		it = q.first(filter)
	}
	if it == nil {
		return nil, nil
	}
	q.leaveState(it)
	q.leases++
	it.lease, it.consumer, it.until = q.leases, c, 0
	it.attempts++
	if it.ttr > 0 {
		now = q.sure(now)
		it.until = after(now, it.ttr)
	}
	q.set(it, driver.Taken)
	q.stats.Takes++
	q.event(driver.EventTake, it, now, 0)
	return it, nil
}

// first takes the first task in order out of its line.
func (q *queue) first(f *driver.Filter) *item {
	for _, b := range q.bands {
		if f.MaxPriority != nil && b.priority > *f.MaxPriority {
			return nil
		}
		if it := b.next(f); it != nil {
			q.retire(q.line(it))
			return it
		}
	}
	return nil
}

// handBack ends a lease whose task is not done.
func (q *queue) handBack(it *item, now int64, delay time.Duration, why driver.EventType, counts bool) {
	lease := it.lease
	q.unset(it)
	switch {
	case !counts:
		it.attempts--
	case it.maxAttempts > 0 && it.attempts >= it.maxAttempts:
		if it.more == nil || it.more.err == nil {
			it.setMore().err = &driver.Error{Message: fmt.Sprintf("not done after %d attempts", it.attempts)}
		}
		q.event(why, it, now, lease)
		q.bury(it, now, 0)
		return
	}
	if delay > 0 {
		it.until = after(now, delay)
		if it.expires > 0 {
			it.expires = after(it.expires, delay)
		}
	}
	q.back(it, delay == 0, why, now, lease)
}

// back makes a task that is in no state wait again, or removes it if it must not. If keep is true, it keeps its turn and is
// first.
func (q *queue) back(it *item, keep bool, why driver.EventType, now int64, lease uint64) {
	if end, outcome := it.unwanted(now); end != 0 {
		q.event(why, it, now, lease)
		q.gone(it, end, now, 0, outcome)
		return
	}
	if !keep {
		q.newTurn(it)
	}
	q.wait(it, now)
	q.event(why, it, now, lease)
}

// unwanted tells how a task that is in no state must end instead of waiting: its group is cancelled, or its time to live or
// deadline is over. If it may wait, end is 0.
func (it *item) unwanted(now int64) (end driver.EventType, outcome error) {
	if it.more != nil && it.more.group != nil && it.more.group.cancelled && it.more.role == driver.Member {
		return driver.EventDelete, driver.ErrDeleted
	}
	if ends := it.ends(); ends > 0 && ends <= now {
		return driver.EventTTL, driver.ErrExpired
	}
	return 0, nil
}

// ends returns when the task is of no use any more, 0 for never.
func (it *item) ends() int64 {
	if m := it.more; m != nil && m.end != 0 && (it.expires == 0 || m.end <= it.expires) {
		return m.end
	}
	return it.expires
}

// newTurn puts a task behind all others of its key, unless it keeps its place.
func (q *queue) newTurn(it *item) {
	if !q.settings.KeepPlace {
		q.places++
		it.place, it.turn = q.places, 0
	}
}

// bury buries a task that is in no state.
func (q *queue) bury(it *item, now int64, lease uint64) {
	q.stats.Buries++
	it.until = 0
	if end, _ := it.unwanted(now); end != 0 {
		q.event(driver.EventBury, it, now, lease)
		q.gone(it, end, now, 0, it.error())
		return
	}
	q.set(it, driver.Buried)
	q.event(driver.EventBury, it, now, lease)
	if it.more != nil && it.more.uniqueKey != "" {
		q.ended(it.id, it.error())
	}
}

// ended tells those who wait for a task with a unique key how it ended.
func (q *queue) ended(id driver.ID, outcome error) {
	for _, n := range q.notifiers {
		n.Ended(id, outcome)
	}
}

// error returns the task's last error, ErrDeleted if there is none.
func (it *item) error() error {
	if it.more != nil && it.more.err != nil {
		return it.more.err
	}
	return driver.ErrDeleted
}

func (it *item) setMore() *more {
	if it.more == nil {
		it.more = new(more)
	}
	return it.more
}

// gone forgets a task that is in no state. outcome is what those who wait for it are told.
func (q *queue) gone(it *item, why driver.EventType, now int64, lease uint64, outcome error) {
	switch why {
	case driver.EventDelete:
		q.stats.Deletes++
	case driver.EventTTL:
		q.stats.Expiries++
		q.expired(it)
	case driver.EventEvict:
		q.stats.Evicted++
	}
	q.event(why, it, now, lease)
	q.arm(it, 0)
	q.ids.remove(it)
	k := it.key
	if q.reserves() && it.turn == 0 {
		l := q.line(it)
		l.giveUp(l.linked + len(l.owed) - 1)
		q.retire(l)
	}
	var g *group
	if m := it.more; m != nil {
		g = m.group
		if m.uniqueKey != "" {
			remove(&q.uniqueKeys, &q.mostUniqueKeys, m.uniqueKey)
			q.outcomes.add(m.uniqueKey, it.id, outcome, q.sure(now)+int64(q.settings.Retention))
			q.announce()
			q.ended(it.id, outcome)
		}
	}
	if k.tasks[0]--; k.tasks[0] == 0 {
		q.stats.Keys--
	}
	q.freed(k, it.state, 0)
	q.forgetKey(k)
	if g != nil {
		q.leaveGroup(it, g, now)
	}
	if len(q.spare) < mostSpare {
		*it = item{}
		q.spare = append(q.spare, it)
	}
}

// kick makes a buried task ready, with all attempts before it.
func (q *queue) kick(it *item, now int64) {
	q.stats.Kicks++
	q.unset(it)
	it.attempts = 0
	q.back(it, false, driver.EventKick, now, 0)
}

// truncate removes all tasks. outcome is what those who wait for them are told.
func (q *queue) truncate(now int64, outcome error) (n int) {
	for _, g := range q.groups {
		g.cancelled, g.ended = true, true // so that nothing comes of it any more
	}
	for it := range q.ids.all() {
		lease := it.lease
		q.unset(it)
		q.gone(it, driver.EventDelete, now, lease, outcome)
		n++
	}
	return n
}
