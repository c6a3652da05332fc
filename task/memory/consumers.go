package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/life"
)

// consumer is a consumer of tasks.
type consumer struct {
	driver.Handle
	leases   list  // in the order in which they were taken
	deadline int64 // the time at which they are lost; 0 if it has not left
	index    int32 // in queue.leaving
}

func (a *consumer) before(b *consumer) bool {
	return a.deadline < b.deadline
}
func (a *consumer) at() *int32 { return &a.index }

// consumer returns the consumer of a handle, or ErrResumed if its epoch is over.
func (q *queue) consumer(h driver.Handle) (*consumer, error) {
	c := q.consumers[h.ID]
	if c == nil {
		c = &consumer{Handle: h}
		q.consumers[h.ID] = c
	}
	if c.Epoch != h.Epoch {
		return nil, driver.ErrResumed
	}
	return c, nil
}

// consumerOf returns the consumer of a taker, which is usually the last consumer that took a task.
func (q *queue) consumerOf(by *driver.Taker) (c *consumer, err error) {
	if c = q.consumerTaking; by == q.taker && c.Epoch == by.Epoch {
		return c, nil
	}
	if c, err = q.consumer(by.Handle); err == nil {
		q.taker, q.consumerTaking = by, c
	}
	return c, err
}

// Leave implements [driver.Backend].
func (q *queue) Leave(_ context.Context, h driver.Handle, grace time.Duration) error {
	now, err := q.enter()
	if err != nil {
		return err
	}
	defer q.exit()
	if q.consumers[h.ID] == nil && grace == 0 {
		return nil
	}
	c, err := q.consumer(h)
	if err != nil {
		return err
	}
	now = q.clock(now)
	if grace == 0 {
		q.handBackAll(c, now)
		q.forgetConsumer(c)
		return nil
	}
	q.cancelLeave(c)
	c.deadline = life.Plus(now, grace)
	q.leaving.push(c)
	q.announce()
	return nil
}

// handBackAll hands back what a consumer holds.
func (q *queue) handBackAll(c *consumer, now int64) {
	for it := c.leases.first; it != nil; it = c.leases.first {
		q.charge(it, now, (*life.Wait).Refund)
		q.apply(it, it.Return(now, &q.stats), now)
	}
}

// Return implements [driver.Backend].
func (q *queue) Return(_ context.Context, h driver.Handle) error {
	now, err := q.enter()
	if err != nil {
		return err
	}
	defer q.exit()
	if q.consumers[h.ID] == nil {
		return nil
	}
	c, err := q.consumer(h)
	if err == nil {
		q.handBackAll(c, q.clock(now))
	}
	return err
}

func (q *queue) forgetConsumer(c *consumer) {
	delete(q.consumers, c.ID)
	q.taker, q.consumerTaking = nil, nil
	q.cancelLeave(c)
}

// cancelLeave takes a consumer out of queue.leaving.
func (q *queue) cancelLeave(c *consumer) {
	if c.deadline != 0 {
		q.leaving.remove(c)
		c.deadline = 0
	}
}

// Rejoin implements [driver.Backend].
func (q *queue) Rejoin(
	_ context.Context, id string,
) (epoch uint64, held []driver.Record, err error) {
	now, err := q.enter()
	if err != nil {
		return 0, nil, err
	}
	defer q.exit()
	c := q.consumers[id]
	if c == nil || c.deadline != 0 && c.deadline <= now { // due, behind other due changes
		return 0, nil, fmt.Errorf("%w: consumer %q", driver.ErrNotFound, id)
	}
	q.cancelLeave(c)
	c.Epoch++
	held = make([]driver.Record, 0, c.leases.len)
	for it := c.leases.first; it != nil; it = it.next {
		old := it.lease
		q.leases++
		it.lease = q.leases
		q.event(driver.EventResume, it, now, old)
		held = append(held, q.record(it))
	}
	q.look() // so that waiting calls of the former owner see the new epoch
	return c.Epoch, held, nil
}
