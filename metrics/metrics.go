// Package metrics tells in numbers how queues and pools are doing. It is for what exports numbers
// to other systems: the modules metrics/prometheus and metrics/otel do.
//
//	sources := []*metrics.Source{
//		metrics.FairQueue("jobs", queue, 10),
//		metrics.TaskQueue("emails", tasks, 0),
//		metrics.Pool("workers", workers, 0),
//	}
//
// All functions and methods may be called at any time by any goroutine.
package metrics

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// Kind says what can be done with the values of a metric.
type Kind uint8

// The kinds.
const (
	Gauge     Kind = iota // they go up and down
	Counter               // they only grow, as long as the process runs
	Histogram             // they count durations by size
)

// Metric is something that is measured.
type Metric struct {
	Name string // in lower case, with dots, such as fairq.queue.items
	Unit string // "s" for seconds; what is counted, in braces; or empty
	Help string
	Kind Kind

	// Values are by the value of an attribute, such as the state of tasks; or there is one, at "",
	// and the name of the attribute is empty. There are none in a Histogram.
	Attribute string
	Values    map[string]float64
	Histogram fairq.Histogram
}

// Source is a queue or a pool with a name.
type Source struct {
	name    string
	metrics []Metric
	look    func(ctx context.Context) (metrics []Metric, isUp bool)
}

// Name returns the name. It differs from those of all other sources that are exported together.
func (s *Source) Name() string { return s.name }

// Metrics returns what Look may return, without looking.
func (s *Source) Metrics() []Metric { return s.metrics }

// timeout is how long Look waits for an answer.
const timeout = 3 * time.Second

// Look returns the metrics as of now. One reports whether the source has answered. A FairQueue and a
// pool always do; a queue of tasks in a database is read once by each call, until ctx is done, and
// for 3 seconds at most. If it has not answered, there are only the metrics that this process has
// counted itself.
func (s *Source) Look(ctx context.Context) []Metric {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	m, isUp := s.look(ctx)
	return append(m, up(isUp))
}

func newSource[S any](
	name string, stats func(context.Context) (S, error), of func(s *S, isUp bool) []Metric, keys func() []Metric,
) *Source {
	if name == "" || !utf8.ValidString(name) {
		panic(fmt.Sprintf("metrics: the name of a source is %q; it must be valid UTF-8, and not empty", name))
	}
	return &Source{
		name:    name,
		metrics: append(append(of(new(S), true), keyMetrics()...), up(false)),
		look: func(ctx context.Context) ([]Metric, bool) {
			s, err := stats(ctx)
			return append(of(&s, err == nil), keys()...), err == nil
		},
	}
}

// FairQueue returns a source that is a [fairq.FairQueue]. It has up to so many keys by name: the
// heaviest of those that the queue counts, see CountKeys of [fairq.Options], each as long as it is
// among the first 2*keys, so that a key does not come and go. Oldest age and waiting times are 0
// and empty without TrackWait. It panics if the name is empty or no UTF-8.
func FairQueue[K comparable](name string, q interface {
	Stats() fairq.Stats
	KeyCounts(n int) []fairq.KeyCount[K]
}, keys int,
) *Source {
	stats := func(context.Context) (fairq.Stats, error) { return q.Stats(), nil }
	return newSource(name, stats, ofFairQueue, heaviest(keys, q.KeyCounts))
}

// TaskQueue returns a source that is a [task.Queue]. For the rest see [FairQueue]. What has
// happened is counted by each process for itself. For how long tasks wait and run see [Observe].
func TaskQueue(name string, q interface {
	Stats(ctx context.Context) (task.Stats, error)
	KeyCounts(n int) []fairq.KeyCount[string]
}, keys int,
) *Source {
	return newSource(name, q.Stats, ofTaskQueue, heaviest(keys, q.KeyCounts))
}

// Pool returns a source that is a [pool.Pool], or a [pool.Workers], which counts no keys. For the
// rest see [FairQueue]. For how long tasks wait and run see [Observe].
func Pool(name string, p interface{ Stats() pool.Stats }, keys int) *Source {
	stats := func(context.Context) (pool.Stats, error) { return p.Stats(), nil }
	counter, ok := p.(interface {
		KeyCounts(n int) []fairq.KeyCount[string]
	})
	if !ok {
		return newSource(name, stats, ofPool, heaviest[string](0, nil))
	}
	return newSource(name, stats, ofPool, heaviest(keys, counter.KeyCounts))
}

// one is the only value of a metric.
func one[N int | uint64 | float64](n N) map[string]float64 { return map[string]float64{"": float64(n)} }

func flag(is bool) map[string]float64 {
	if is {
		return one(1)
	}
	return one(0)
}

func up(is bool) Metric {
	return Metric{Name: "fairq.up", Help: "Whether the source has answered.", Values: flag(is)}
}

func ofFairQueue(s *fairq.Stats, _ bool) []Metric {
	return []Metric{
		{Name: "fairq.queue.items", Unit: "{item}", Help: "Items queued.", Values: one(s.Len)},
		{Name: "fairq.queue.keys", Unit: "{key}", Help: "Keys that have items queued.", Values: one(s.Keys)},
		{Name: "fairq.queue.capacity", Unit: "{item}", Help: "How many items there may be.", Values: one(s.Capacity)},
		{
			Name: "fairq.queue.waiting", Unit: "{goroutine}", Help: "Goroutines in PushWait and PopWait.", Attribute: "call",
			Values: map[string]float64{"push": float64(s.WaitingPush), "pop": float64(s.WaitingPop)},
		},
		{Name: "fairq.queue.closed", Help: "Whether the queue is closed.", Values: flag(s.Closed)},
		{
			Name: "fairq.queue.events", Unit: "{item}", Help: "Items to which something has happened.", Kind: Counter, Attribute: "event",
			Values: map[string]float64{
				"push": float64(s.Pushed), "pop": float64(s.Popped), "remove": float64(s.Removed), "evict": float64(s.Evicted),
				"drain": float64(s.Drained), "refuse": float64(s.Refused),
			},
		},
		{Name: "fairq.queue.cost.queued", Help: "What the items queued cost.", Values: one(s.CostQueued)},
		{Name: "fairq.queue.cost.served", Help: "What the items delivered have cost.", Kind: Counter, Values: one(s.CostServed)},
		{Name: "fairq.queue.oldest.age", Unit: "s", Help: "How long the oldest item has been queued.", Values: one(s.OldestAge.Seconds())},
		{Name: "fairq.queue.wait", Unit: "s", Help: "How long the items delivered had been queued.", Kind: Histogram, Histogram: s.Wait},
	}
}

func ofTaskQueue(s *task.Stats, isUp bool) []Metric {
	if !isUp && *s == (task.Stats{}) { // the queue is closed: its counters do not begin anew
		return nil
	}
	own := []Metric{
		{
			Name: "fairq.taskqueue.waiting", Unit: "{goroutine}", Help: "Goroutines of this process in PutWait and Take.", Attribute: "call",
			Values: map[string]float64{"put": float64(s.WaitingPut), "take": float64(s.WaitingTake)},
		},
		{
			Name: "fairq.taskqueue.conflicts", Unit: "{transaction}", Help: "Transactions of this process that were tried again.", Kind: Counter,
			Values: one(s.Conflicts),
		},
		{
			Name: "fairq.taskqueue.events", Unit: "{task}", Help: "Tasks to which something has happened, as counted by this process.",
			Kind: Counter, Attribute: "event",
			Values: map[string]float64{
				"put": float64(s.Puts), "take": float64(s.Takes), "ack": float64(s.Acks), "release": float64(s.Releases), "lose": float64(s.Losses),
				"bury": float64(s.Buries), "kick": float64(s.Kicks), "touch": float64(s.Touches), "delete": float64(s.Deletes),
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
				"ready": float64(s.Ready), "delayed": float64(s.Delayed), "taken": float64(s.Taken), "buried": float64(s.Buried), "held": float64(s.Held),
			},
		},
		{Name: "fairq.taskqueue.keys", Unit: "{key}", Help: "Keys that have tasks.", Values: one(s.Keys)},
		{Name: "fairq.taskqueue.capacity", Unit: "{task}", Help: "How many tasks there may be.", Values: one(s.Capacity)},
		{Name: "fairq.taskqueue.counted", Unit: "{task}", Help: "Tasks that count in the capacity.", Values: one(s.Counted)},
		{Name: "fairq.taskqueue.paused", Help: "Whether the queue is paused.", Values: flag(s.Paused)},
	}...)
}

func ofPool(s *pool.Stats, _ bool) []Metric {
	ranges := map[string]float64{}
	if s.Range != "" {
		ranges[s.Range] = 1
	}
	return []Metric{
		{
			Name: "fairq.pool.workers", Unit: "{worker}", Help: "Workers that are idle or run a handler, and handlers in Yield.", Attribute: "state",
			Values: map[string]float64{"idle": float64(s.Idle), "running": float64(s.Running), "nested": float64(s.Nested)},
		},
		{
			Name: "fairq.pool.workers.limit", Unit: "{worker}", Help: "How many workers there may be.", Attribute: "bound",
			Values: map[string]float64{"min": float64(s.Min), "max": float64(s.Max)},
		},
		{
			Name: "fairq.pool.tasks", Unit: "{task}", Help: "Tasks that are with the pool but not with a handler.", Attribute: "state",
			Values: map[string]float64{"prefetched": float64(s.Prefetched), "unsettled": float64(s.Unsettled)},
		},
		{Name: "fairq.pool.schedule", Help: "Is 1 for the range of the schedule that is in force.", Attribute: "range", Values: ranges},
		{Name: "fairq.pool.paused", Help: "Whether the pool is paused.", Values: flag(s.Paused)},
		{Name: "fairq.pool.closed", Help: "Whether Shutdown was called.", Values: flag(s.Closed)},
		{Name: "fairq.pool.started", Unit: "{attempt}", Help: "Attempts that were started.", Kind: Counter, Values: one(s.Started)},
		{
			Name: "fairq.pool.attempts", Unit: "{attempt}", Help: "Attempts that have ended.", Kind: Counter, Attribute: "outcome",
			Values: map[string]float64{
				"succeeded": float64(s.Succeeded), "retried": float64(s.Retried), "snoozed": float64(s.Snoozed), "failed": float64(s.Failed),
				"cancelled": float64(s.Cancelled), "lost": float64(s.Lost), "returned": float64(s.Returned),
			},
		},
		{Name: "fairq.pool.panics", Unit: "{panic}", Help: "Handlers that have panicked.", Kind: Counter, Values: one(s.Panics)},
		{
			Name: "fairq.pool.events", Unit: "{task}", Help: "Tasks that were not done.", Kind: Counter, Attribute: "event",
			Values: map[string]float64{
				"drop": float64(s.Dropped), "expire": float64(s.Expired), "dead_letter": float64(s.DeadLetters), "leave_over": float64(s.Leftovers),
				"refuse": float64(s.Refused),
			},
		},
	}
}
