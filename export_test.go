package fairq

// Check walks the queue and returns what is not as it must be.
func (q *FairQueue[K, V]) Check() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, err := range []error{q.queue.check(), q.producers.check(), q.barred.check(), q.consumers.check()} {
		if err != nil {
			return err
		}
	}
	return nil
}

// Copy is the part of Snapshot that holds the lock.
func (q *FairQueue[K, V]) Copy() {
	q.mu.Lock()
	c := q.queue.clone()
	q.mu.Unlock()
	_ = c
}
