package task

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// consumer is one who takes tasks.
type consumer struct {
	id       string
	leases   list  // in the order in which they were taken
	deadline int64 // when they are lost; 0 if it has not left
}

func (q *memoryQueue) consumer(id string) *consumer {
	c := q.taker
	if c != nil && c.id == id {
		return c
	}
	if c = q.consumers[id]; c == nil {
		c = &consumer{id: id}
		q.consumers[id] = c
	}
	q.taker = c
	return c
}

// Leave implements [Backend].
func (q *memoryQueue) Leave(_ context.Context, id string, after time.Duration) error {
	now, err := q.enter()
	if err != nil {
		return err
	}
	defer q.mu.Unlock()
	if q.consumers[id] == nil && after == 0 {
		return nil
	}
	c := q.consumer(id)
	now = q.sure(now)
	if after == 0 {
		for it := c.leases.last; it != nil; it = c.leases.last {
			it.attempts--
			q.stats.Releases++
			q.giveBack(it, now)
		}
		q.forgetConsumer(c)
		return nil
	}
	if c.deadline == 0 {
		q.leaving = append(q.leaving, c)
	}
	c.deadline = now + int64(after)
	q.announce()
	return nil
}

// giveBack is handBack for a task whose attempt does not count.
func (q *memoryQueue) giveBack(it *item, now int64) {
	lease := it.lease
	q.unset(it)
	q.back(it, true, EventRelease, now, lease)
}

func (q *memoryQueue) forgetConsumer(c *consumer) {
	delete(q.consumers, c.id)
	q.taker = nil
	q.leaving = slices.DeleteFunc(q.leaving, func(l *consumer) bool { return l == c })
}

// Rejoin implements [Backend].
func (q *memoryQueue) Rejoin(_ context.Context, id string) ([]Record, error) {
	if _, err := q.enter(); err != nil {
		return nil, err
	}
	defer q.mu.Unlock()
	c := q.consumers[id]
	if c == nil {
		return nil, fmt.Errorf("%w: consumer %q", ErrNotFound, id)
	}
	c.deadline = 0
	q.leaving = slices.DeleteFunc(q.leaving, func(l *consumer) bool { return l == c })
	held := make([]Record, 0, c.leases.len)
	for it := c.leases.first; it != nil; it = it.next {
		held = append(held, q.record(it))
	}
	return held, nil
}
