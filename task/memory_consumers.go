package task

import (
	"context"
	"fmt"
	"time"
)

// consumer is one who takes tasks.
type consumer struct {
	id       string
	leases   list  // in the order in which they were taken
	deadline int64 // when they are lost; 0 if it has not left
	left     int   // how many had left before it did
	index    int32 // in the heap of those that have left
}

func (a *consumer) before(b *consumer) bool {
	return a.deadline < b.deadline || a.deadline == b.deadline && a.left < b.left
}
func (a *consumer) at() *int32 { return &a.index }

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
func (q *memoryQueue) Leave(_ context.Context, id string, grace time.Duration) error {
	now, err := q.enter()
	if err != nil {
		return err
	}
	defer q.exit()
	if q.consumers[id] == nil && grace == 0 {
		return nil
	}
	c := q.consumer(id)
	now = q.sure(now)
	if grace == 0 {
		for it := c.leases.first; it != nil; it = c.leases.first {
			q.stats.Releases++
			q.handBack(it, now, 0, EventRelease, false)
		}
		q.forgetConsumer(c)
		return nil
	}
	q.rejoin(c)
	q.left++
	c.left, c.deadline = q.left, after(now, grace)
	q.leaving.push(c)
	q.announce()
	return nil
}

func (q *memoryQueue) forgetConsumer(c *consumer) {
	delete(q.consumers, c.id)
	q.taker = nil
	q.rejoin(c)
}

// rejoin takes a consumer out of those that have left.
func (q *memoryQueue) rejoin(c *consumer) {
	if c.deadline != 0 {
		q.leaving.remove(c)
		c.deadline = 0
	}
}

// Rejoin implements [Backend].
func (q *memoryQueue) Rejoin(_ context.Context, id string) ([]Record, error) {
	now, err := q.enter()
	if err != nil {
		return nil, err
	}
	defer q.exit()
	c := q.consumers[id]
	if c == nil || c.deadline != 0 && c.deadline <= now { // so many are due that it is not its turn yet
		return nil, fmt.Errorf("%w: consumer %q", ErrNotFound, id)
	}
	q.rejoin(c)
	held := make([]Record, 0, c.leases.len)
	for it := c.leases.first; it != nil; it = it.next {
		held = append(held, q.record(it))
	}
	return held, nil
}
