package fairq

import (
	"fmt"
	"time"
)

// Check walks the queue and returns an error that names a broken invariant.
func (q *FairQueue[K, V]) Check() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, err := range []error{q.queue.check(), q.producers.check(), q.keyBlocked.check()} {
		if err != nil {
			return err
		}
	}
	limit := q.fastLimit
	q.setFastLimitLocked()
	switch {
	case q.fastLimit != limit:
		return fmt.Errorf("pushes are fast below %d items, not %d", q.fastLimit, limit)
	case q.consumers.Len() > 0 && (q.queue.ready() > 0 || q.closed && q.queue.len == 0):
		return fmt.Errorf("%d consumers wait though %d items of %d may be taken", q.consumers.Len(),
			q.queue.ready(), q.queue.len)
	case q.producers.len > 0 && q.queue.len < q.options.Capacity:
		return fmt.Errorf("%d producers wait though there are only %d items of %d", q.producers.len,
			q.queue.len, q.options.Capacity)
	}
	for waiting := range q.keyBlocked.Order() {
		key := waiting.Key
		k := hashed(key)
		least := q.options.KeyCapacity
		if q.options.WhenFull == RejectOverShare {
			least = 1 // the share may have grown
		}
		if n := q.queue.find(&k).len() + q.producers.find(&k).len(); n < least {
			return fmt.Errorf("producers wait for key %v though it has only %d items and "+
				"others who wait, of %d", key, n, least)
		}
	}
	return nil
}

// TimeSnapshot returns how long Snapshot holds the lock.
func (q *FairQueue[K, V]) TimeSnapshot() time.Duration {
	c := q.queue.blank()
	start := time.Now()
	q.mu.Lock()
	q.queue.copyTo(&c)
	q.mu.Unlock()
	return time.Since(start)
}
