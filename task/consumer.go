package task

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fairq/fairq/internal/driver"
)

// Consumer takes tasks, and owns the leases on them. A [Queue] can have any number;
// Queue.NewConsumer and Queue.ResumeConsumer make one. Calls of the zero Consumer return an
// [ErrInvalid], or panic if they cannot return an error. All methods are safe for concurrent use.
type Consumer[V any] struct {
	queue        *Queue[V]
	handle       driver.Handle
	number       int // in the order in which the consumers of the queue were made
	state        consumerState
	disconnected atomic.Bool // it keeps its tasks
}

func (q *Queue[V]) newConsumer(h driver.Handle, filter Filter) *Consumer[V] {
	c := &Consumer[V]{queue: q, handle: h}
	c.state.filter.Store(set(&filter, c.handle))
	if q.options.AsIs {
		c.state.why.Store(new(error(errAsIs)))
		return c
	}
	q.mu.Lock()
	older := q.consumers[h.ID]
	if older != nil && older.handle.Epoch > h.Epoch { // it was resumed again since
		older = c
	} else {
		q.made++
		c.number, q.consumers[h.ID] = q.made, c
	}
	q.mu.Unlock()
	if older != nil {
		q.notifier.mu.Lock()
		defer q.notifier.mu.Unlock()
		older.endLocked(ErrResumed)
	}
	return c
}

// NewConsumer returns a consumer that takes the tasks that the filter passes. The caller must
// Close or Disconnect it: until then the Queue keeps some 260 bytes for it.
func (q *Queue[V]) NewConsumer(filter Filter) *Consumer[V] {
	return q.newConsumer(driver.Handle{ID: rand.Text()}, filter)
}

// ResumeConsumer returns the consumer of that id, which has disconnected or whose process has
// died, and the tasks that it holds. It returns [ErrNotFound] if these have been handed back,
// because Options.Grace is over.
//
// The former owner loses the consumer, here or in another process, even if it has not
// disconnected. From then on calls of its Consumer change nothing and return [ErrResumed], unless
// that is closed. Calls of its tasks return [ErrLeaseLost].
func (q *Queue[V]) ResumeConsumer(
	ctx context.Context, id string, filter Filter,
) (*Consumer[V], []*Task[V], error) {
	if err := q.notifier.over(); err != nil {
		return nil, nil, err
	}
	if q.options.AsIs {
		return nil, nil, errAsIs
	}
	epoch, records, err := q.backend.Rejoin(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	c := q.newConsumer(driver.Handle{ID: id, Epoch: epoch}, filter)
	if err := q.notifier.over(); err != nil { // Close may not have seen it
		_ = q.backend.Leave(context.WithoutCancel(ctx), c.handle, 0)
		return nil, nil, err
	}
	return c, c.tasks(ctx, records), nil
}

// ID returns the name by which the consumer can be resumed.
func (c *Consumer[V]) ID() string { return c.handle.ID }

// SetFilter replaces the filter of the consumer, even for waiting calls.
func (c *Consumer[V]) SetFilter(filter Filter) {
	n := c.queue.notifier
	n.mu.Lock()
	defer n.mu.Unlock()
	c.state.filter.Store(set(&filter, c.handle))
	n.takers.refilter(&c.state)
}

var errZeroConsumer = invalid("the Consumer", "zero",
	"made by Queue.NewConsumer or Queue.ResumeConsumer")

// check returns the error of a call that need not begin.
func (c *Consumer[V]) check(ctx context.Context) error {
	if c == nil || c.queue == nil {
		return errZeroConsumer
	}
	return ctx.Err()
}

// Take is Queue.Take for this consumer.
func (c *Consumer[V]) Take(ctx context.Context) (t *Task[V], err error) {
	if err := c.check(ctx); err != nil {
		return nil, err
	}
	n := c.queue.notifier
	if n.takersWaiting.Load() == 0 {
		if t, err = c.tryTake(ctx); t != nil || err != nil {
			return t, err
		}
	}
	err = n.take(ctx, &c.state, func(by *driver.Taker) (bool, error) {
		t, err = c.takeOne(ctx, by, nil)
		return t != nil, err
	})
	return t, err
}

// TryTake is Queue.TryTake for this consumer.
func (c *Consumer[V]) TryTake(ctx context.Context) (t *Task[V], ok bool, err error) {
	if err := c.check(ctx); err != nil {
		return nil, false, err
	}
	t, err = c.tryTake(ctx)
	return t, t != nil, err
}

// TakeID is Queue.TakeID for this consumer, whatever its filter.
func (c *Consumer[V]) TakeID(ctx context.Context, id ID) (*Task[V], error) {
	if err := c.check(ctx); err != nil {
		return nil, err
	}
	if err := c.over(); err != nil {
		return nil, err
	}
	r, err := c.queue.backend.TakeID(ctx, c.handle, id)
	if err != nil {
		return nil, nameMissing(err, "task", id)
	}
	if err := c.took(ctx); err != nil {
		return nil, err
	}
	t, bad := c.newTaken(&r)
	if bad != nil {
		return nil, errors.Join(bad, t.Bury(ctx, bad))
	}
	c.queue.countServed(t)
	return t, nil
}

// TakeBatch is Queue.TakeBatch for this consumer.
func (c *Consumer[V]) TakeBatch(ctx context.Context, n int) (tasks []*Task[V], err error) {
	if err := checkBatch(n); err != nil {
		return nil, err
	}
	if err := c.check(ctx); err != nil {
		return nil, err
	}
	records := make([]driver.Record, n)
	err = c.queue.notifier.take(ctx, &c.state, func(by *driver.Taker) (bool, error) {
		tasks, err = c.takeSome(ctx, by, records)
		return len(tasks) > 0, err
	})
	return tasks, err
}

func checkBatch(n int) error {
	if n < 1 || n > MaxBatch {
		return invalid("TakeBatch: the number", n, fmt.Sprintf("1 to %d", MaxBatch))
	}
	return nil
}

// takeSome takes up to len(records) tasks.
func (c *Consumer[V]) takeSome(
	ctx context.Context, by *driver.Taker, records []driver.Record,
) ([]*Task[V], error) {
	for {
		got, err := c.queue.backend.Take(ctx, by, records)
		if err != nil || got == 0 {
			return nil, err
		}
		if err := c.took(ctx); err != nil {
			return nil, err
		}
		if tasks := c.tasks(ctx, records[:got]); len(tasks) > 0 {
			for _, t := range tasks {
				c.queue.countServed(t)
			}
			return tasks, nil
		}
	}
}

func (c *Consumer[V]) tryTake(ctx context.Context) (*Task[V], error) {
	if err := c.over(); err != nil {
		return nil, err
	}
	return c.takeOne(ctx, &c.state.filter.Load().Taker, nil)
}

// takeOne takes a task into t, or into a new Task if t is nil, and returns it, nil if there is
// none.
func (c *Consumer[V]) takeOne(
	ctx context.Context, by *driver.Taker, t *Task[V],
) (*Task[V], error) {
	for {
		a, err := c.queue.backend.TakeOne(ctx, by)
		if a.ID == 0 || err != nil {
			return nil, err
		}
		if t == nil {
			t = new(Task[V])
		}
		switch ok, err := c.begin(ctx, t, &a); {
		case ok:
			return t, nil
		case err != nil:
			return nil, err
		}
	}
}

// begin makes t the task that was taken. If its payload cannot be decoded, begin buries the task,
// and ok is false.
func (c *Consumer[V]) begin(
	ctx context.Context, t *Task[V], a *driver.Attempt,
) (ok bool, err error) {
	if c.over() != nil {
		return false, c.took(ctx)
	}
	t.begin(a, c)
	if bad := c.queue.fill(t, a.Payload); bad != nil {
		return false, t.Bury(ctx, bad)
	}
	if c.queue.counts != nil {
		c.queue.countServed(t)
	}
	return true, nil
}

// newTaken makes a task of a record that was taken. It returns an error if its payload cannot be
// decoded.
func (c *Consumer[V]) newTaken(r *driver.Record) (*Task[V], error) {
	t, a := new(Task[V]), r.Attempt()
	t.begin(&a, c)
	return t, c.queue.fill(t, a.Payload)
}

// AckAndTake is done.Ack, and then TryTake, as one call of the store: in memory it takes the lock
// once, and in a database it makes one transaction instead of two. It writes the taken task into
// next, which must be a zero Task. The task done must be of the same Queue, and may be of any of
// its consumers.
//
// If it returns an error, nothing has happened. If done was acked and no task was taken, ok is
// false and next stays zero: no task is ready, other callers wait for one, or TryTake would return
// an error. Within a transaction of the caller's own AckAndTake returns an [ErrInvalid].
func (c *Consumer[V]) AckAndTake(ctx context.Context, done, next *Task[V]) (ok bool, err error) {
	if err := c.check(ctx); err != nil {
		return false, err
	}
	q := c.queue
	switch {
	case done.number == 0:
		return false, ErrLeaseLost
	case done.consumer.queue != q:
		return false, invalid("AckAndTake: the task", done.ID, "one from the queue of the consumer")
	}
	if q.notifier.takersWaiting.Load() > 0 || c.over() != nil {
		return false, done.Ack(ctx)
	}
	done.End()
	by := &c.state.filter.Load().Taker
	state, a, err := q.backend.SettleAndTakeOne(ctx, done.lease(), driver.Settlement{}, by)
	if err == nil {
		done.state = state
	}
	if a.ID == 0 {
		return false, err
	}
	if ok, _ = c.begin(ctx, next, &a); ok {
		return true, nil
	}
	*next = Task[V]{}
	t, ok, _ := c.TryTake(ctx)
	if ok {
		*next = *t
	}
	return ok, nil
}

// over returns the error of a consumer that cannot be used any more, nil if it can.
func (c *Consumer[V]) over() error { return c.queue.notifier.overFor(&c.state) }

// took is called after a call has taken tasks. If the queue or the consumer was closed during the
// call, Close has not handed these tasks back, so took does.
func (c *Consumer[V]) took(ctx context.Context) error {
	err := c.over()
	if err != nil && !c.disconnected.Load() {
		_ = c.queue.backend.Leave(context.WithoutCancel(ctx), c.handle, 0)
	}
	return err
}

// tasks makes tasks of records. It buries tasks whose payloads cannot be decoded.
func (c *Consumer[V]) tasks(ctx context.Context, records []driver.Record) []*Task[V] {
	tasks := make([]*Task[V], 0, len(records))
	for i := range records {
		t, bad := c.newTaken(&records[i])
		if bad == nil {
			tasks = append(tasks, t)
		} else {
			_ = t.Bury(ctx, bad) // if that fails, the consumer holds it until it is closed
		}
	}
	return tasks
}

// ReleaseAll hands back all tasks that the consumer holds, as Close does; the attempts do not
// count. The consumer can take further tasks.
func (c *Consumer[V]) ReleaseAll(ctx context.Context) error {
	if err := c.check(ctx); err != nil {
		return err
	}
	if err := c.over(); err != nil {
		return err
	}
	return c.queue.backend.Return(ctx, c.handle)
}

// Close hands back all tasks that the consumer holds, and ends it; the attempts do not count.
// Waiting and later calls return [ErrClosed]. After an error Close can be called again; after
// success a second call does nothing.
func (c *Consumer[V]) Close(ctx context.Context) error { return c.leave(ctx, false) }

// Disconnect ends the consumer, but hands its tasks back only after Options.Grace. Until then
// Queue.ResumeConsumer can resume it by its ID.
func (c *Consumer[V]) Disconnect(ctx context.Context) error {
	return c.leave(ctx, true)
}

func (c *Consumer[V]) leave(ctx context.Context, disconnects bool) error {
	if c == nil || c.queue == nil {
		return errZeroConsumer
	}
	n := c.queue.notifier
	n.mu.Lock()
	over := c.state.over()
	switch {
	case over == nil:
		over = n.over()
	case errors.Is(over, ErrClosed): // dismiss again, in case it has failed
		over = nil
	}
	if over != nil {
		n.mu.Unlock()
		return over
	}
	c.disconnected.Store(disconnects)
	c.endLocked(ErrClosed)
	n.mu.Unlock()
	err := c.queue.dismiss(ctx, c)
	if errors.Is(err, ErrResumed) { // by another Queue
		n.mu.Lock()
		defer n.mu.Unlock()
		c.endLocked(ErrResumed)
	}
	return err
}

// endLocked ends the consumer: its calls return why from now on.
func (c *Consumer[V]) endLocked(why error) {
	c.state.why.Store(&why)
	c.queue.notifier.takers.signalEnded(&c.state)
}

// dismiss makes the backend end a consumer, once. ErrResumed means that another Queue or process
// has resumed it.
func (q *Queue[V]) dismiss(ctx context.Context, c *Consumer[V]) error {
	q.mu.Lock()
	here := q.consumers[c.handle.ID] == c
	q.mu.Unlock()
	if !here {
		return nil
	}
	after := time.Duration(0)
	if c.disconnected.Load() {
		after = q.options.Grace
	}
	err := q.backend.Leave(ctx, c.handle, after)
	switch {
	case errors.Is(err, ErrDropped):
		err = nil
	case err != nil && !errors.Is(err, ErrResumed):
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.consumers[c.handle.ID] == c {
		delete(q.consumers, c.handle.ID)
	}
	return err
}
