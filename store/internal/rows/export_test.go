package rows

// Held returns how many leases are remembered.
func (s *Store) Held() (n int) {
	for _, q := range s.queues {
		n += len(q.ownLeases)
	}
	return n
}
