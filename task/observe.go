package task

import (
	"errors"

	"github.com/fairq/fairq"
)

// KeyCounts returns the n keys that were served, refused and evicted most, heaviest first; if
// fewer are counted, all. A task is served each time it is taken; of those that are put, by Put or
// PutBatch, one is refused if that returns an [ErrFull]. It counts what was done with this Queue:
// where several have the queue open, in this process or in others, each counts what it did itself.
// It is O(Options.CountKeys * log Options.CountKeys). Without Options.CountKeys there are none.
func (q *Queue[V]) KeyCounts(n int) []fairq.KeyCount[string] { return q.counts.Top(n) }

// countRefusal counts a Put that does not wait.
func (q *Queue[V]) countRefusal(key string, err error) {
	if errors.Is(err, fairq.ErrFull) {
		q.counts.Add(key, fairq.Counts{Refused: 1})
	}
}
