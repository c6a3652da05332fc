// Package totals says which fields of the Stats of queues, pools and limiters count the same.
package totals

import (
	"github.com/fairq/fairq"
	"github.com/fairq/fairq/admit"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// Of returns the counts over all keys of a fairq.Stats, task.Stats, pool.Stats or admit.Stats.
func Of(stats any) fairq.Counts {
	switch s := stats.(type) {
	case fairq.Stats:
		return fairq.Counts{Served: s.Popped, Refused: s.Refused, Evicted: s.Evicted, Cost: s.CostServed}
	case task.Stats:
		return fairq.Counts{Served: s.Takes, Refused: s.Refused, Evicted: s.Evicted}
	case pool.Stats:
		return fairq.Counts{Served: s.Started, Evicted: s.Dropped}
	case admit.Stats:
		return fairq.Counts{Served: s.Admitted, Refused: s.Refused}
	}
	return fairq.Counts{}
}
