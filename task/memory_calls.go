package task

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fairq/fairq/task/driver"
)

// Put implements [driver.Backend].
func (q *memoryQueue) Put(_ context.Context, tasks []driver.New, ids []ID) (n int, evicted []driver.Record, err error) {
	now, err := q.enter()
	if err != nil {
		return 0, nil, err
	}
	defer q.exit()
	now = q.sure(now)
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

// putOne is Put for one task. It allocates nothing but what stays.
func (q *memoryQueue) putOne(n *driver.New) (id ID, victim *driver.Record, err error) {
	now, err := q.enter()
	if err != nil {
		return 0, nil, err
	}
	defer q.exit()
	return q.put(n, q.sure(now))
}

// Take implements [driver.Backend].
func (q *memoryQueue) Take(_ context.Context, consumer driver.Handle, filter Filter, into []driver.Record) (n int, err error) {
	now, err := q.enter()
	if err != nil {
		return 0, err
	}
	defer q.exit()
	for ; n < len(into); n++ {
		it, err := q.take(consumer, &filter, now)
		if it == nil {
			return n, err
		}
		into[n] = q.record(it)
	}
	return n, nil
}

// takeOne is Take for one task, if there is one. It allocates nothing.
func (q *memoryQueue) takeOne(consumer driver.Handle, filter *Filter, taken func(*item)) error {
	now, err := q.enter()
	if err != nil {
		return err
	}
	defer q.exit()
	it, err := q.take(consumer, filter, now)
	if it != nil {
		taken(it)
	}
	return err
}

// Settle implements [driver.Backend].
func (q *memoryQueue) Settle(_ context.Context, lease driver.Lease, how driver.Settlement) error {
	now, err := q.enter()
	if err != nil {
		return err
	}
	defer q.exit()
	it := q.held(lease, now)
	if it == nil {
		return ErrLeaseLost
	}
	if how.Err != nil {
		it.setMore().err = how.Err
	}
	switch {
	case how.Bury:
		q.unset(it)
		q.bury(it, q.sure(now), lease.Number)
	case how.Discard:
		q.unset(it)
		q.gone(it, EventDelete, now, lease.Number, it.error())
	case how.Release:
		q.stats.Releases++
		q.handBack(it, q.sure(now), how.Delay, EventRelease, !how.Uncounted)
	default:
		q.stats.Acks++
		q.unset(it)
		q.gone(it, EventAck, now, lease.Number, nil)
	}
	return nil
}

// held returns the task of a lease, nil if it is lost.
func (q *memoryQueue) held(lease driver.Lease, now int64) *item {
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
func (q *memoryQueue) find(id ID, now int64) *item {
	it := q.ids.get(id)
	for it != nil && it.isDue(now) {
		q.fire(it)
		it = q.ids.get(id)
	}
	return it
}

// findUniqueKey returns the task with that unique key, nil if there is none.
func (q *memoryQueue) findUniqueKey(uniqueKey string, now int64) *item {
	if it := q.uniqueKeys[uniqueKey]; it != nil {
		return q.find(it.id, now)
	}
	return nil
}

// Touch implements [driver.Backend].
func (q *memoryQueue) Touch(_ context.Context, lease driver.Lease, d time.Duration) (time.Time, error) {
	now, err := q.enter()
	if err != nil {
		return time.Time{}, err
	}
	defer q.exit()
	it := q.held(lease, now)
	if it == nil {
		return time.Time{}, ErrLeaseLost
	}
	if d > 0 && it.until > 0 {
		it.until = after(it.until, d)
		q.arm(it, it.until)
		q.stats.Touches++
		q.event(EventTouch, it, now, 0)
	}
	return q.time(it.until), nil
}

// Change implements [driver.Backend].
func (q *memoryQueue) Change(_ context.Context, id ID, change driver.Change, reason *Error) error {
	now, err := q.enter()
	if err != nil {
		return err
	}
	defer q.exit()
	it := q.find(id, now)
	if it == nil || change == driver.KickOne && it.state != Buried {
		return ErrNotFound
	}
	switch lease := it.lease; {
	case change == driver.KickOne:
		q.kick(it, q.sure(now))
	case change == driver.Delete:
		q.unset(it)
		q.gone(it, EventDelete, now, lease, ErrDeleted)
	case it.state == Buried:
		it.setMore().err = reason
	default:
		it.setMore().err = reason
		q.unset(it)
		q.bury(it, q.sure(now), lease)
	}
	return nil
}

// Kick implements [driver.Backend].
func (q *memoryQueue) Kick(_ context.Context, n int) (kicked int, err error) {
	now, err := q.enter()
	if err != nil {
		return 0, err
	}
	defer q.exit()
	for ; kicked < n && q.buried.first != nil; kicked++ {
		q.kick(q.buried.first, q.sure(now))
	}
	return kicked, nil
}

// Peek implements [driver.Backend].
func (q *memoryQueue) Peek(_ context.Context, id ID) (driver.Record, error) {
	now, err := q.enter()
	if err != nil {
		return driver.Record{}, err
	}
	defer q.exit()
	it := q.find(id, now)
	if it == nil {
		return driver.Record{}, ErrNotFound
	}
	return q.record(it), nil
}

// List implements [driver.Backend]. Between two blocks of tasks it lets others go on.
func (q *memoryQueue) List(_ context.Context, o ListOptions) (records []driver.Record, err error) {
	var some []driver.Record
	for number, more := o.After>>blockBits, true; more && len(records) < o.Limit; number++ {
		if some, number, more, err = q.listBlock(some[:0], number, &o); err != nil {
			return nil, err
		}
		records = append(records, some...)
	}
	return records[:min(len(records), o.Limit)], nil
}

// listBlock adds the tasks of the first block with that number or a greater one, and returns its number, or that there is none.
func (q *memoryQueue) listBlock(to []driver.Record, number ID, o *ListOptions) (_ []driver.Record, _ ID, ok bool, err error) {
	if _, err := q.enter(); err != nil {
		return nil, 0, false, err
	}
	defer q.exit()
	b := q.ids.from(number)
	if b == nil {
		return to, 0, false, nil
	}
	for _, it := range b.items {
		if it != nil && it.id > o.After && (o.State == 0 || it.state == o.State) && (o.Key == nil || it.key.name == *o.Key) &&
			(o.Kind == nil || it.kind == *o.Kind) && (o.Group == "" || it.group() == o.Group) {
			to = append(to, q.record(it))
		}
	}
	return to, b.number, true, nil
}

// Pause implements [driver.Backend].
func (q *memoryQueue) Pause(_ context.Context, key *string, paused bool) error {
	if _, err := q.enter(); err != nil {
		return err
	}
	defer q.exit()
	if key == nil {
		q.paused = paused
		q.look()
		return nil
	}
	k := q.account(*key, 0)
	k.paused = paused
	q.block(k)
	q.look()
	q.forgetKey(k)
	return nil
}

// Truncate implements [driver.Backend].
func (q *memoryQueue) Truncate(context.Context) (n int, err error) {
	now, err := q.enter()
	if err != nil {
		return 0, err
	}
	defer q.exit()
	return q.truncate(now, ErrDeleted), nil
}

// Drop implements [driver.Backend].
func (q *memoryQueue) Drop(context.Context) error {
	q.store.mu.Lock()
	defer q.store.mu.Unlock()
	now, err := q.enter()
	if err != nil {
		return err
	}
	defer q.exit()
	q.truncate(now, ErrDropped)
	q.dropped = true
	delete(q.store.queues, q.name)
	for _, n := range q.notifiers {
		n.Dropped()
	}
	return nil
}

// Outcome implements [driver.Backend].
func (q *memoryQueue) Outcome(_ context.Context, uniqueKey string) (driver.Outcome, error) {
	now, err := q.enter()
	if err != nil {
		return driver.Outcome{}, err
	}
	defer q.exit()
	if it := q.findUniqueKey(uniqueKey, now); it != nil {
		o := driver.Outcome{ID: it.id, Done: it.state == Buried}
		if o.Done {
			o.Err = it.error()
		}
		return o, nil
	}
	if o, ok := q.outcomes.get(uniqueKey, q.sure(now)); ok {
		return o, nil
	}
	return driver.Outcome{}, fmt.Errorf("%w: unique key %q", ErrNotFound, uniqueKey)
}

// Stats implements [driver.Backend].
func (q *memoryQueue) Stats(context.Context) (Stats, error) {
	if _, err := q.enter(); err != nil {
		return Stats{}, err
	}
	defer q.exit()
	s := q.stats
	s.Counted = q.counted()
	s.Capacity, s.Paused = q.settings.Capacity, q.paused
	return s, nil
}

// KeyStats implements [driver.Backend].
func (q *memoryQueue) KeyStats(_ context.Context, n int) ([]KeyStat, error) {
	if _, err := q.enter(); err != nil {
		return nil, err
	}
	all := make([]KeyStat, 0, len(q.keys))
	for _, k := range q.keys {
		all = append(all, KeyStat{
			Key: k.name, Ready: k.tasks[Ready], Delayed: k.tasks[Delayed], Taken: k.tasks[Taken],
			Buried: k.tasks[Buried], Held: k.tasks[Held], Paused: k.paused,
		})
	}
	q.exit()
	slices.SortFunc(all, func(a, b KeyStat) int { return b.Len() - a.Len() })
	return slices.Clone(all[:min(n, len(all))]), nil
}
