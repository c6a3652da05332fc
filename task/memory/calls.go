package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/life"
)

// Put implements [driver.Backend].
func (q *queue) Put(
	_ context.Context, tasks []driver.New, ids []driver.ID,
) (n int, evicted []driver.Record, err error) {
	now := q.now() // before others have to wait for it
	if _, err := q.enter(); err != nil {
		return 0, nil, err
	}
	defer q.exit()
	q.beginPut()
	defer q.endPut()
	for i := range tasks {
		id, victim, err := q.put(&tasks[i], now)
		if victim != nil {
			evicted = append(evicted, *victim)
		}
		if err != nil {
			return i, evicted, err
		}
		ids[i] = id
	}
	return len(tasks), evicted, nil
}

// PutOne implements [driver.Backend]. It allocates only memory that the task keeps. Calls for one
// task are methods of backend itself, because methods of the embedded queue would be called
// through a wrapper that copies their arguments.
func (b *backend) PutOne(
	_ context.Context, n driver.New,
) (id driver.ID, evicted *driver.Record, err error) {
	q := b.queue
	now := q.now()
	if id, ok := q.putPlain(&n, now); ok {
		return id, nil, nil
	}
	if _, err := q.enter(); err != nil {
		return 0, nil, err
	}
	id, evicted, err = q.putOne(&n, now)
	q.exit()
	return id, evicted, err
}

// Joined implements [driver.Backend].
func (*queue) Joined(context.Context) *driver.Tx { return nil }

// Take implements [driver.Backend].
func (q *queue) Take(
	_ context.Context, by *driver.Taker, into []driver.Record,
) (n int, err error) {
	now, err := q.enter()
	if err != nil {
		return 0, err
	}
	defer q.exit()
	for ; n < len(into); n++ {
		it, err := q.take(by, now)
		if it == nil {
			return n, err
		}
		into[n] = q.record(it)
	}
	return n, nil
}

// TakeOne implements [driver.Backend]. It allocates nothing.
func (b *backend) TakeOne(_ context.Context, by *driver.Taker) (a driver.Attempt, err error) {
	q := b.queue
	now, err := q.enter()
	if err != nil {
		return a, err
	}
	it, err := q.take(by, now)
	if it != nil {
		q.attempt(it, &a)
	}
	q.exit()
	return a, err
}

// TakeID implements [driver.Backend].
func (q *queue) TakeID(
	_ context.Context, consumer driver.Handle, id driver.ID,
) (r driver.Record, err error) {
	now, err := q.enter()
	if err != nil {
		return r, err
	}
	defer q.exit()
	it, err := q.takeID(consumer, id, q.clock(now))
	if err == nil {
		r = q.record(it)
	}
	return r, err
}

// Settle implements [driver.Backend].
func (b *backend) Settle(
	_ context.Context, lease driver.Lease, how driver.Settlement,
) (driver.State, error) {
	q := b.queue
	now, err := q.enter()
	if err != nil {
		return 0, err
	}
	state, err := q.settle(lease, &how, now)
	q.exit()
	return state, err
}

// SettleAndTakeOne implements [driver.Backend]. It takes the lock once, and allocates nothing.
func (b *backend) SettleAndTakeOne(
	_ context.Context, lease driver.Lease, how driver.Settlement, by *driver.Taker,
) (state driver.State, next driver.Attempt, err error) {
	q := b.queue
	now, err := q.enter()
	if err != nil {
		return 0, next, err
	}
	if state, err = q.settle(lease, &how, now); err == nil {
		if it, _ := q.take(by, now); it != nil {
			q.attempt(it, &next)
		}
	}
	q.exit()
	return state, next, err
}

func (q *queue) settle(
	lease driver.Lease, how *driver.Settlement, now int64,
) (driver.State, error) {
	it := q.held(lease, now)
	if it == nil {
		return 0, driver.ErrLeaseLost
	}
	if !how.Ends() {
		now = q.clock(now)
	}
	if life.Moves(how, int(it.priority)) {
		q.reprioritize(it, how.Priority)
	}
	if how.Method == driver.Return {
		q.charge(it, now, (*life.Wait).Refund)
	}
	f := it.Settle(how, now, &q.stats)
	if how.HoldsKey(f.State) {
		q.hold(it.key, life.Plus(now, how.Delay), now, life.Failed(how, it.id))
	}
	q.apply(it, f, now)
	if f.State == 0 {
		return 0, nil
	}
	return it.State, nil // not f.State: a follower may have replaced the task
}

// held returns the task of a lease, nil if it is lost.
func (q *queue) held(lease driver.Lease, now int64) *item {
	it := q.ids.get(lease.ID)
	if it == nil || it.lease != lease.Number || it.lease == 0 {
		return nil
	}
	if it.isDue(now) {
		q.fire(it)
		return nil
	}
	return it
}

// find returns the task of that id, nil if there is none.
func (q *queue) find(id driver.ID, now int64) *item {
	it := q.ids.get(id)
	for it != nil && it.isDue(now) {
		q.fire(it)
		it = q.ids.get(id)
	}
	return it
}

// findUniqueKey returns the task with that unique key, nil if there is none.
func (q *queue) findUniqueKey(uniqueKey string, now int64) *item {
	if it := q.uniqueKeys[uniqueKey]; it != nil {
		return q.find(it.id, now)
	}
	return nil
}

// Touch implements [driver.Backend].
func (q *queue) Touch(_ context.Context, lease driver.Lease, d time.Duration) (time.Time, error) {
	now, err := q.enter()
	if err != nil {
		return time.Time{}, err
	}
	defer q.exit()
	it := q.held(lease, now)
	if it == nil {
		return time.Time{}, driver.ErrLeaseLost
	}
	if it.Touch(d, &q.stats) {
		q.arm(it, it.Until)
		q.event(driver.EventTouch, it, now, 0)
	}
	if d == 0 && it.Cancelled() {
		err = driver.ErrGroupCancelled
	}
	return q.time(it.Until), err
}

// Change implements [driver.Backend].
func (q *queue) Change(
	_ context.Context, id driver.ID, change driver.Change, unlessTaken bool, reason *driver.Error,
) error {
	return q.with(id, func(it *item, now int64) error {
		f, err := it.Change(change, unlessTaken, reason, now, &q.stats)
		if err == nil {
			q.apply(it, f, now)
		}
		return err
	})
}

// Amend implements [driver.Backend].
func (q *queue) Amend(_ context.Context, id driver.ID, a driver.Amendment) error {
	return q.with(id, func(it *item, now int64) error {
		f, err := it.Amend(&a, int(it.priority), now)
		if err == nil {
			q.amend(it, &a, f, now)
		}
		return err
	})
}

// with calls f with the task of that id and the time, with the lock held.
func (q *queue) with(id driver.ID, f func(it *item, now int64) error) error {
	now, err := q.enter()
	if err != nil {
		return err
	}
	defer q.exit()
	it := q.find(id, now)
	if it == nil {
		return driver.ErrNotFound
	}
	return f(it, q.clock(now))
}

// Kick implements [driver.Backend].
func (q *queue) Kick(_ context.Context, o driver.ListOptions) (kicked int, err error) {
	now, err := q.enter()
	if err != nil {
		return 0, err
	}
	defer q.exit()
	var ids []driver.ID
	for it := q.buried.first; it != nil && len(ids) < o.Limit; it = it.next {
		if it.isOf(&o) {
			ids = append(ids, it.id)
		}
	}
	for _, id := range ids {
		if it := q.ids.get(id); it != nil && it.State == driver.Buried { // else its group has just ended
			now = q.clock(now)
			q.apply(it, it.Kick(now, &q.stats), now)
			kicked++
		}
	}
	return kicked, nil
}

// Peek implements [driver.Backend].
func (q *queue) Peek(
	_ context.Context, id driver.ID, uniqueKey string,
) (r driver.Record, err error) {
	now, err := q.enter()
	if err != nil {
		return r, err
	}
	defer q.exit()
	it := q.find(id, now)
	if id == 0 {
		it = q.findUniqueKey(uniqueKey, now)
	}
	if it == nil {
		return r, driver.ErrNotFound
	}
	return q.record(it), nil
}

// List implements [driver.Backend].
func (q *queue) List(
	_ context.Context, o driver.ListOptions,
) (records []driver.Record, err error) {
	if o.NextFirst {
		return q.nextFirst(&o)
	}
	err = q.each(&o, func(it *item) {
		records = append(records, q.record(it))
	}, func() bool { return len(records) < o.Limit })
	if err != nil {
		return nil, err
	}
	return records[:min(len(records), o.Limit)], nil
}

// nextFirst returns tasks that are delayed or buried in the order in which they come.
func (q *queue) nextFirst(o *driver.ListOptions) (records []driver.Record, err error) {
	if _, err := q.enter(); err != nil {
		return nil, err
	}
	defer q.mu.Unlock()
	items := q.buried.all()
	if o.State == driver.Delayed {
		items = func(yield func(*item) bool) {
			for t := range inOrder(q.timers) {
				if !yield(t.item) {
					return
				}
			}
		}
	}
	for it := range items {
		if len(records) == o.Limit {
			break
		}
		if it.isOf(o) {
			records = append(records, q.record(it))
		}
	}
	return records, nil
}

// Count implements [driver.Backend].
func (q *queue) Count(_ context.Context, o driver.ListOptions) (n int, err error) {
	if o.Kind == nil && o.Group == "" {
		return q.counts(o.State, o.Key)
	}
	o.After = 0
	err = q.each(&o, func(*item) { n++ }, func() bool { return true })
	return n, err
}

// counts returns how many tasks there are of a state, or all if that is 0, and of a key if one is
// given.
func (q *queue) counts(state driver.State, key *string) (int, error) {
	if _, err := q.enter(); err != nil {
		return 0, err
	}
	defer q.mu.Unlock()
	switch {
	case key == nil:
		return q.tasks[state], nil
	case q.keys[*key] == nil:
		return 0, nil
	}
	return q.keys[*key].tasks[state], nil
}

// each calls f for each task, in the order of ids. Between two blocks of tasks it lets others go
// on, and asks whether there is more to do.
func (q *queue) each(o *driver.ListOptions, f func(*item), more func() bool) error {
	for number := o.After >> blockBits; more(); number++ {
		if _, err := q.enter(); err != nil {
			return err
		}
		b := q.ids.from(number)
		for n := 0; b != nil && b.lacks(o.State) && n < timersPerCall; n++ {
			b = b.next
		}
		if b == nil {
			q.exit()
			return nil
		}
		for _, it := range b.items {
			if it != nil && it.id > o.After && it.isOf(o) {
				f(it)
			}
		}
		number = b.number
		q.exit()
	}
	return nil
}

// isOf reports whether the options select a task.
func (it *item) isOf(o *driver.ListOptions) bool {
	return (o.State == 0 || it.State == o.State) && (o.Key == nil || it.key.name == *o.Key) &&
		(o.Kind == nil || it.kind == *o.Kind) && (o.Group == "" || it.groupName() == o.Group)
}

// Pause implements [driver.Backend].
func (q *queue) Pause(_ context.Context, key *string, paused bool) error {
	if _, err := q.enter(); err != nil {
		return err
	}
	defer q.exit()
	if key == nil {
		q.paused = paused
		q.look()
		return nil
	}
	k := q.keyState(*key, 0)
	if k.paused = paused; paused {
		q.block(k)
	} else {
		k.wait.Hold = 0
		q.settleWait(k, q.now())
	}
	return nil
}

// HoldKey implements [driver.Backend].
func (q *queue) HoldKey(_ context.Context, key string, d time.Duration) error {
	if _, err := q.enter(); err != nil {
		return err
	}
	defer q.exit()
	now := q.now()
	q.hold(q.keyState(key, 0), life.Plus(now, d), now, 0)
	return nil
}

// SetKey implements [driver.Backend].
func (q *queue) SetKey(_ context.Context, key string, limits driver.KeyLimits) error {
	if err := life.CheckLimits(&q.settings); err != nil {
		return err
	}
	if _, err := q.enter(); err != nil {
		return err
	}
	defer q.exit()
	k, now := q.keyState(key, 0), q.now()
	was := q.rate(k)
	if k.own != nil {
		q.ownLimits--
	}
	if k.own = nil; limits != (driver.KeyLimits{}) {
		k.own = &limits
		q.ownLimits++
	}
	if rate := q.rate(k); rate != was {
		k.wait.SetRate(was, rate, now)
	}
	q.settleWait(k, now)
	q.look() // even if the key was not blocked: more of its tasks can be taken than callers know
	return nil
}

// LimitedKeys implements [driver.Backend].
func (q *queue) LimitedKeys(
	_ context.Context, from string, n int,
) (all []driver.LimitedKey, err error) {
	if _, err := q.enter(); err != nil {
		return nil, err
	}
	defer q.exit()
	if q.ownLimits == 0 {
		return nil, nil
	}
	for _, k := range q.keys {
		if k.own != nil && k.name >= from {
			all = append(all, driver.LimitedKey{Key: k.name, KeyLimits: *k.own})
		}
	}
	slices.SortFunc(all, func(a, b driver.LimitedKey) int { return cmp.Compare(a.Key, b.Key) })
	return all[:min(n, len(all))], nil
}

// DeleteSome implements [driver.Backend].
func (q *queue) DeleteSome(_ context.Context, o driver.ListOptions) (n int, err error) {
	if known, err := q.counts(o.State, o.Key); known == 0 {
		return 0, err
	}
	var ids []driver.ID
	err = q.each(&o, func(it *item) { ids = append(ids, it.id) }, func() bool { return true })
	if err != nil {
		return 0, err
	}
	for some := range slices.Chunk(ids, timersPerCall) {
		now, err := q.enter()
		if err != nil {
			return n, err
		}
		for _, id := range some {
			it := q.find(id, now)
			if it != nil && it.isOf(&o) && (it.State != driver.Taken || o.State == driver.Taken) {
				q.apply(it, it.Delete(driver.ErrDeleted, &q.stats), q.clock(now))
				n++
			}
		}
		q.exit()
	}
	return n, nil
}

// Truncate implements [driver.Backend].
func (q *queue) Truncate(context.Context) (n int, err error) {
	now, err := q.enter()
	if err != nil {
		return 0, err
	}
	defer q.exit()
	return q.truncate(now, driver.ErrDeleted), nil
}

// Drop implements [driver.Backend].
func (q *queue) Drop(_ context.Context, unlessTaken bool) error {
	q.store.mu.Lock()
	defer q.store.mu.Unlock()
	now, err := q.enter()
	if err != nil {
		return err
	}
	defer q.exit()
	if unlessTaken && q.tasks[driver.Taken] > 0 {
		return driver.ErrTaken
	}
	q.dropped = true
	q.emptyInbox()
	q.truncate(now, driver.ErrDropped)
	delete(q.store.queues, q.name)
	for _, n := range q.notifiers {
		n.Dropped()
	}
	return nil
}

// Outcome implements [driver.Backend].
func (q *queue) Outcome(_ context.Context, uniqueKey string) (driver.Outcome, error) {
	now, err := q.enter()
	if err != nil {
		return driver.Outcome{}, err
	}
	defer q.exit()
	if it := q.findUniqueKey(uniqueKey, now); it != nil {
		return it.OutcomeSoFar(it.id), nil
	}
	if o, ok := q.outcomes.get(uniqueKey, q.clock(now)); ok {
		return o, nil
	}
	return driver.Outcome{}, fmt.Errorf("%w: unique key %q", driver.ErrNotFound, uniqueKey)
}

// Stats implements [driver.Backend].
func (q *queue) Stats(context.Context) (driver.Stats, error) {
	if _, err := q.enter(); err != nil {
		return driver.Stats{}, err
	}
	defer q.exit()
	s := q.stats
	s.Ready, s.Delayed, s.Taken = q.tasks[driver.Ready], q.tasks[driver.Delayed],
		q.tasks[driver.Taken]
	s.Buried, s.Held = q.tasks[driver.Buried], q.tasks[driver.Held]
	s.Counted = q.settings.Counted(&q.tasks)
	s.Capacity, s.Paused = q.settings.Capacity, q.paused
	return s, nil
}

// KeyStats implements [driver.Backend].
func (q *queue) KeyStats(_ context.Context, n int) ([]driver.KeyStat, error) {
	if _, err := q.enter(); err != nil {
		return nil, err
	}
	all := make([]driver.KeyStat, 0, len(q.keys))
	for _, k := range q.keys {
		if k.tasks[0] > 0 || k.paused {
			all = append(all, driver.KeyStat{
				Key: k.name, Ready: k.tasks[driver.Ready], Delayed: k.tasks[driver.Delayed],
				Taken:  k.tasks[driver.Taken],
				Buried: k.tasks[driver.Buried], Held: k.tasks[driver.Held], Paused: k.paused,
				WaitsUntil: q.time(k.wait.End()), HeldUntil: q.time(k.wait.Hold),
			})
		}
	}
	q.exit()
	slices.SortFunc(all, func(a, b driver.KeyStat) int { return b.Len() - a.Len() })
	var first []driver.KeyStat
	for i, k := range all {
		if i < n || k.Paused || n == 0 && !k.WaitsUntil.IsZero() {
			first = append(first, k)
		}
	}
	return first, q.findOldest(first)
}

// findOldest looks for the oldest task of each key that is ready or delayed. It goes through the
// tasks until it has found all, and after each thousand it lets others go on.
func (q *queue) findOldest(of []driver.KeyStat) error {
	waiting := map[string]*driver.KeyStat{}
	for i := range of {
		if of[i].Ready+of[i].Delayed > 0 {
			waiting[of[i].Key] = &of[i]
		}
	}
	for number, more := driver.ID(0), true; more && len(waiting) > 0; number++ {
		if _, err := q.enter(); err != nil {
			return err
		}
		b := q.ids.from(number)
		for blocks := 0; b != nil && blocks < timersPerCall>>blockBits; blocks, b = blocks+1, b.next {
			number = b.number
			for _, it := range b.items {
				if it == nil || it.State != driver.Ready && it.State != driver.Delayed {
					continue
				}
				if k := waiting[it.key.name]; k != nil {
					k.Oldest = q.time(it.created)
					delete(waiting, k.Key)
				}
			}
		}
		more = b != nil
		q.exit()
	}
	return nil
}
