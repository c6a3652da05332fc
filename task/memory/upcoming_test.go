package memory

import (
	"context"
	"time"
)

// TimeUpcoming returns how long Upcoming holds the lock of the queue of that name.
func (m *Store) TimeUpcoming(name string, n int) time.Duration {
	q := m.queues[name]
	w, err := q.newWalk(context.Background(), n)
	if err != nil {
		panic(err)
	}
	start := time.Now()
	w.now, _ = q.enter()
	w.upcoming(n)
	q.exit()
	return time.Since(start)
}
