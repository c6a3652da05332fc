package rows

// Leases returns how many leases are remembered.
func (s *Store) Leases() (n int) {
	for _, q := range s.queues {
		n += len(q.ownLeases)
	}
	return n
}
