// Package metrics has the numbers of queues and pools. It is for programs that export them to
// other systems, like the modules metrics/prometheus and metrics/otel.
//
//	set := metrics.New(10,
//		monitor.FairQueue("jobs", queue, nil),
//		monitor.TaskQueue("emails", tasks, nil),
//		monitor.Pool("workers", workers, nil))
//
// All functions and methods may be called at any time by any goroutine.
package metrics

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/admit"
	"github.com/fairq/fairq/monitor"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// Kind is the kind of a metric.
type Kind uint8

// The kinds.
const (
	Gauge     Kind = iota // they go up and down
	Counter               // they only grow, as long as the process runs
	Histogram             // they count durations by size
)

// Metric is a measured quantity.
type Metric struct {
	Name string // in lower case, with dots, such as fairq.queue.items
	Unit string // "s" for seconds; the counted thing, in braces; or empty
	Help string
	Kind Kind

	// Values are by the value of an attribute, such as the state of tasks. Without an attribute
	// there is one value, at "". A Histogram has none.
	Attribute string
	Values    map[string]float64
	Histogram fairq.Histogram
}

// Set is the sources that are exported together.
type Set struct {
	sources []*exported
	keys    int
}

type exported struct {
	*monitor.Source
	turn chan struct{} // has room for one: the sender may use the rest
	keys keyValues
}

// New returns a Set. Of each source it has up to n keys by name: the keys with one percent of the
// items served or refused between two looks, for an hour after; all others together are "other".
// See CountKeys of [fairq.Options]. It panics if two sources have the same name.
func New(n int, sources ...*monitor.Source) *Set {
	set := &Set{keys: n}
	for _, s := range sources {
		if slices.ContainsFunc(set.sources,
			func(other *exported) bool { return other.Name() == s.Name() }) {
			panic(fmt.Sprintf("metrics: two sources have the name %q", s.Name()))
		}
		set.sources = append(set.sources, &exported{Source: s, turn: make(chan struct{}, 1)})
	}
	return set
}

// All returns the metrics that Look may return, without values.
func (s *Set) All() []Metric {
	all := append(keyMetrics(), up(false))
	for _, stats := range []any{fairq.Stats{}, task.Stats{}, pool.Stats{}, admit.Stats{}} {
		all = append(all, of(stats, true)...)
	}
	return all
}

// timeout is how long Look waits for an answer, and grace for the end of a call that was
// cancelled.
const (
	timeout = 3 * time.Second
	grace   = time.Second
)

// Look returns the metrics of each source as of now, by its name. It looks at all sources at the
// same time. A FairQueue and a pool always answer; a queue of tasks in a database is read, until
// ctx is done, and for 3 seconds at most. Without an answer there are only the metrics that this
// process has counted itself, and fairq.up is 0. Look takes at most 4 seconds, whatever the
// sources do.
func (s *Set) Look(ctx context.Context) map[string][]Metric {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	type result struct {
		name  string
		found []Metric
	}
	results := make(chan result, len(s.sources))
	byName := make(map[string][]Metric, len(s.sources))
	for _, source := range s.sources {
		byName[source.Name()] = []Metric{up(false)}
		go func() { results <- result{source.Name(), source.look(ctx, s.keys)} }()
	}
	end := time.NewTimer(timeout + grace)
	defer end.Stop()
	for range s.sources {
		select {
		case r := <-results:
			byName[r.name] = r.found
		case <-end.C:
			return byName
		}
	}
	return byName
}

// look returns the metrics of a source. It waits for other looks at the source.
func (e *exported) look(ctx context.Context, keys int) []Metric {
	select {
	case e.turn <- struct{}{}:
	case <-ctx.Done():
		return []Metric{up(false)}
	}
	defer func() { <-e.turn }()
	stats, err := e.Stats(ctx)
	found := append(of(stats, err == nil), up(err == nil))
	if keys > 0 {
		found = append(found, e.keys.metrics(ctx, e.Source, stats, keys)...)
	}
	return found
}

// of returns the metrics of a fairq.Stats, task.Stats, pool.Stats or admit.Stats.
func of(stats any, isUp bool) []Metric {
	switch s := stats.(type) {
	case fairq.Stats:
		return ofFairQueue(&s)
	case task.Stats:
		return ofTaskQueue(&s, isUp)
	case pool.Stats:
		return ofPool(&s)
	case admit.Stats:
		return ofLimiter(&s)
	}
	return nil
}

// one is the only value of a metric.
func one[N int | uint64 | float64](n N) map[string]float64 {
	return map[string]float64{"": float64(n)}
}

func flag(is bool) map[string]float64 {
	if is {
		return one(1)
	}
	return one(0)
}

func up(is bool) Metric {
	return Metric{Name: "fairq.up", Help: "Whether the source has answered.", Values: flag(is)}
}

func ofFairQueue(s *fairq.Stats) []Metric {
	return []Metric{
		{Name: "fairq.queue.items", Unit: "{item}", Help: "Items queued.", Values: one(s.Len)},
		{
			Name: "fairq.queue.keys", Unit: "{key}", Help: "Keys that have items queued.",
			Values: one(s.Keys),
		},
		{
			Name: "fairq.queue.capacity", Unit: "{item}", Help: "How many items there may be.",
			Values: one(s.Capacity),
		},
		{
			Name: "fairq.queue.waiting", Unit: "{goroutine}", Help: "Goroutines in PushWait and PopWait.",
			Attribute: "call",
			Values:    map[string]float64{"push": float64(s.WaitingPush), "pop": float64(s.WaitingPop)},
		},
		{Name: "fairq.queue.closed", Help: "Whether the queue is closed.", Values: flag(s.Closed)},
		{
			Name: "fairq.queue.events", Unit: "{item}", Help: "Items to which something has happened.",
			Kind: Counter, Attribute: "event",
			Values: map[string]float64{
				"push": float64(s.Pushed), "pop": float64(s.Popped), "remove": float64(s.Removed),
				"evict": float64(s.Evicted),
				"drain": float64(s.Drained), "refuse": float64(s.Refused),
			},
		},
		{
			Name: "fairq.queue.cost.queued", Help: "What the items queued cost.",
			Values: one(s.CostQueued),
		},
		{
			Name: "fairq.queue.cost.served", Help: "What the items delivered have cost.", Kind: Counter,
			Values: one(s.CostServed),
		},
		{
			Name: "fairq.queue.oldest.age", Unit: "s", Help: "How long the oldest item has been queued.",
			Values: one(s.OldestAge.Seconds()),
		},
		{
			Name: "fairq.queue.wait", Unit: "s", Help: "How long the items delivered had been queued.",
			Kind: Histogram, Histogram: s.Wait,
		},
	}
}

func ofTaskQueue(s *task.Stats, isUp bool) []Metric {
	if !isUp && *s == (task.Stats{}) { // the queue is closed: its counters stay
		return nil
	}
	own := []Metric{
		{
			Name: "fairq.taskqueue.waiting", Unit: "{goroutine}",
			Help: "Goroutines of this process in PutWait and Take.", Attribute: "call",
			Values: map[string]float64{"put": float64(s.WaitingPut), "take": float64(s.WaitingTake)},
		},
		{
			Name: "fairq.taskqueue.conflicts", Unit: "{transaction}",
			Help: "Transactions of this process that were tried again.", Kind: Counter,
			Values: one(s.Conflicts),
		},
		{
			Name: "fairq.taskqueue.events", Unit: "{task}",
			Help: "Tasks to which something has happened, as counted by this process.",
			Kind: Counter, Attribute: "event",
			Values: map[string]float64{
				"put": float64(s.Puts), "take": float64(s.Takes), "ack": float64(s.Acks),
				"release": float64(s.Releases), "lose": float64(s.Losses),
				"bury": float64(s.Buries), "kick": float64(s.Kicks), "touch": float64(s.Touches),
				"delete": float64(s.Deletes),
				"expire": float64(s.Expiries), "evict": float64(s.Evicted), "refuse": float64(s.Refused),
			},
		},
	}
	if !isUp {
		return own
	}
	return append(own, []Metric{
		{
			Name: "fairq.taskqueue.tasks", Unit: "{task}", Help: "Tasks by state.", Attribute: "state",
			Values: map[string]float64{
				"ready": float64(s.Ready), "delayed": float64(s.Delayed), "taken": float64(s.Taken),
				"buried": float64(s.Buried), "held": float64(s.Held),
			},
		},
		{
			Name: "fairq.taskqueue.keys", Unit: "{key}", Help: "Keys that have tasks.",
			Values: one(s.Keys),
		},
		{
			Name: "fairq.taskqueue.capacity", Unit: "{task}", Help: "How many tasks there may be.",
			Values: one(s.Capacity),
		},
		{
			Name: "fairq.taskqueue.counted", Unit: "{task}", Help: "Tasks that count in the capacity.",
			Values: one(s.Counted),
		},
		{Name: "fairq.taskqueue.paused", Help: "Whether the queue is paused.", Values: flag(s.Paused)},
	}...)
}

func ofPool(s *pool.Stats) []Metric {
	ranges := map[string]float64{}
	if s.Range != "" {
		ranges[s.Range] = 1
	}
	return []Metric{
		{
			Name: "fairq.pool.workers", Unit: "{worker}",
			Help: "Workers that are idle or run a handler, and handlers in Yield.", Attribute: "state",
			Values: map[string]float64{
				"idle": float64(s.Idle), "running": float64(s.Running),
				"nested": float64(s.Nested),
			},
		},
		{
			Name: "fairq.pool.workers.limit", Unit: "{worker}", Help: "How many workers there may be.",
			Attribute: "bound",
			Values:    map[string]float64{"min": float64(s.Min), "max": float64(s.Max)},
		},
		{
			Name: "fairq.pool.tasks", Unit: "{task}",
			Help: "Tasks that are with the pool but not with a handler.", Attribute: "state",
			Values: map[string]float64{
				"prefetched": float64(s.Prefetched),
				"unsettled":  float64(s.Unsettled),
			},
		},
		{
			Name: "fairq.pool.schedule", Help: "Is 1 for the range of the schedule that is in force.",
			Attribute: "range", Values: ranges,
		},
		{Name: "fairq.pool.paused", Help: "Whether the pool is paused.", Values: flag(s.Paused)},
		{Name: "fairq.pool.closed", Help: "Whether Shutdown was called.", Values: flag(s.Closed)},
		{
			Name: "fairq.pool.started", Unit: "{attempt}", Help: "Attempts that were started.",
			Kind: Counter, Values: one(s.Started),
		},
		{
			Name: "fairq.pool.attempts", Unit: "{attempt}", Help: "Attempts that have ended.",
			Kind: Counter, Attribute: "outcome",
			Values: map[string]float64{
				"succeeded": float64(s.Succeeded), "retried": float64(s.Retried),
				"snoozed": float64(s.Snoozed), "failed": float64(s.Failed),
				"cancelled": float64(s.Cancelled), "lost": float64(s.Lost), "returned": float64(s.Returned),
			},
		},
		{
			Name: "fairq.pool.panics", Unit: "{panic}", Help: "Handlers that have panicked.", Kind: Counter,
			Values: one(s.Panics),
		},
		{
			Name: "fairq.pool.events", Unit: "{task}", Help: "Tasks that were not done.", Kind: Counter,
			Attribute: "event",
			Values: map[string]float64{
				"drop": float64(s.Dropped), "expire": float64(s.Expired),
				"dead_letter": float64(s.DeadLetters), "leave_over": float64(s.Leftovers),
				"refuse": float64(s.Refused),
			},
		},
	}
}

func ofLimiter(s *admit.Stats) []Metric {
	return []Metric{
		{
			Name: "fairq.limiter.limit", Unit: "{permit}", Help: "How many permits there are.",
			Values: one(s.Limit),
		},
		{
			Name: "fairq.limiter.held", Unit: "{permit}", Help: "Permits that are held.",
			Values: one(s.Held),
		},
		{
			Name: "fairq.limiter.waiting", Unit: "{call}", Help: "Calls that wait for a permit.",
			Values: one(s.Waiting),
		},
		{
			Name: "fairq.limiter.keys", Unit: "{key}", Help: "Keys that hold permits or wait.",
			Values: one(s.Keys),
		},
		{Name: "fairq.limiter.closed", Help: "Whether the limiter is closed.", Values: flag(s.Closed)},
		{
			Name: "fairq.limiter.events", Unit: "{call}", Help: "Calls that were admitted or refused.",
			Kind: Counter, Attribute: "event",
			Values: map[string]float64{"admit": float64(s.Admitted), "refuse": float64(s.Refused)},
		},
		{
			Name: "fairq.limiter.oldest.wait", Unit: "s", Help: "How long the first call has waited.",
			Values: one(s.OldestWait.Seconds()),
		},
		{
			Name:   "fairq.limiter.level",
			Help:   "Units of the budget that are left, below 0 if too many were taken.",
			Values: one(s.Level),
		},
	}
}
