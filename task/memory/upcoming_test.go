package memory

import (
	"time"

	"github.com/fairq/fairq/internal/driver"
)

// TimeUpcoming returns how long Upcoming holds the lock of the queue of that name.
func (m *Store) TimeUpcoming(name string, n int) time.Duration {
	found := make([]driver.UpcomingTask, n)
	clear(found)
	start := time.Now()
	if _, err := m.queues[name].upcoming(found[:0]); err != nil {
		panic(err)
	}
	return time.Since(start)
}
