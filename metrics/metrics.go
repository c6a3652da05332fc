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
	"reflect"
	"slices"
	"strings"
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
	Sum                   // they go up and down, and make sense added up
)

// Metric is a measured quantity.
type Metric struct {
	Name string // in lower case, with dots, such as fairq.queue.items
	Unit string // "s" for seconds; the counted thing, in braces; or empty
	Help string
	Kind Kind

	// Values has a number for each value of the attribute, such as each state of tasks. Without an
	// attribute it has one number, at "". A Histogram has no Values.
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

// New returns a Set of the sources, and of the queues that the pools among them drain. The Set
// names up to n keys of each source. A key gets its name when it has one percent of the items
// served or refused between two looks, and keeps it for an hour after the last time. All other
// keys together are "other". The sources must count by key: see CountKeys of [fairq.Options]. New
// panics if two sources, or a pool and its queue, have the same name.
func New(n int, sources ...*monitor.Source) *Set {
	set := &Set{keys: n}
	add := func(s *monitor.Source) (isNew bool) {
		if slices.ContainsFunc(set.sources,
			func(other *exported) bool { return other.Name() == s.Name() }) {
			return false
		}
		set.sources = append(set.sources, &exported{Source: s, turn: make(chan struct{}, 1)})
		return true
	}
	for _, s := range sources {
		if queue := s.Queue(); !add(s) || queue != nil && queue.Name() == s.Name() {
			panic(fmt.Sprintf("metrics: two sources have the name %q", s.Name()))
		}
	}
	for _, s := range sources {
		if queue := s.Queue(); queue != nil {
			add(queue)
		}
	}
	return set
}

// All returns the metrics that Look may return, without values.
func (s *Set) All() []Metric {
	all := append(keyMetrics(), up(false), oldestTask.empty())
	for stats := range tables {
		all = append(all, of(reflect.Zero(stats).Interface(), true)...)
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
// same time. A FairQueue and a pool always answer. Look reads a queue of tasks in a database until
// ctx is done, for 3 seconds at most. A source that has not answered by then has fairq.up 0, and
// only the metrics that this process has counted itself. Look takes at most 4 seconds, whatever
// the sources do.
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
	if _, ok := stats.(task.Stats); ok && err == nil {
		if oldest, err := e.KeyStats(ctx, 1, fairq.ByOldest); err == nil {
			age := oldestTask.empty()
			for _, k := range append(oldest, fairq.KeyStat[string]{})[:1] {
				age.Values = map[string]float64{"": k.OldestAge.Seconds()}
			}
			found = append(found, age)
		}
	}
	if keys > 0 {
		found = append(found, e.keys.metrics(ctx, e.Source, stats, keys, err == nil)...)
	}
	return found
}

// metric describes a metric. Its values are fields of a Stats: one, or one for each value of the
// attribute.
type metric struct {
	name, unit, help string
	kind             Kind
	attribute        string
	fields           string // such as "Len", or "push Pushed pop Popped"
}

// oldestTask is not in the Stats.
var oldestTask = metric{
	"fairq.taskqueue.oldest.age", "s", "How long the oldest ready task has waited, as counted last.",
	Gauge, "", "",
}

// empty returns the metric without values.
func (m *metric) empty() Metric {
	return Metric{Name: m.name, Unit: m.unit, Help: m.help, Kind: m.kind, Attribute: m.attribute}
}

// of returns the metrics of a fairq.Stats, task.Stats, pool.Stats or admit.Stats.
func of(stats any, isUp bool) (all []Metric) {
	s := reflect.ValueOf(stats)
	if !s.IsValid() || !isUp && s.IsZero() { // it is closed, otherwise its counters stay
		return nil
	}
	table := tables[s.Type()]
	if !isUp {
		table = table[:ownMetrics]
	}
	for _, m := range table {
		one := m.empty()
		switch words := strings.Fields(m.fields); {
		case m.kind == Histogram:
			one.Histogram = s.FieldByName(m.fields).Interface().(fairq.Histogram)
		case len(words) > 1:
			one.Values = map[string]float64{}
			for i := 0; i < len(words); i += 2 {
				one.Values[words[i]] = float(s.FieldByName(words[i+1]))
			}
		case m.attribute != "":
			one.Values = map[string]float64{}
			if text := s.FieldByName(m.fields).String(); text != "" {
				one.Values[text] = 1
			}
		default:
			one.Values = map[string]float64{"": float(s.FieldByName(m.fields))}
		}
		all = append(all, one)
	}
	return all
}

func float(v reflect.Value) float64 {
	switch x := v.Interface().(type) {
	case time.Duration:
		return x.Seconds()
	case bool:
		return flag(x)
	}
	return v.Convert(reflect.TypeFor[float64]()).Float()
}

func flag(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func up(is bool) Metric {
	return Metric{
		Name: "fairq.up", Help: "Whether the source has answered.",
		Values: map[string]float64{"": flag(is)},
	}
}

// ownMetrics is how many metrics of a task queue this process counts itself. They come first.
const ownMetrics = 3

// tables are by the type of the Stats.
var tables = map[reflect.Type][]metric{
	reflect.TypeFor[fairq.Stats](): {
		{"fairq.queue.items", "{item}", "Items queued.", Sum, "", "Len"},
		{"fairq.queue.keys", "{key}", "Keys that have items queued.", Gauge, "", "Keys"},
		{"fairq.queue.taken", "{item}", "Items in hand, with ShareTime.", Sum, "", "Taken"},
		{"fairq.queue.capacity", "{item}", "How many items there may be.", Gauge, "", "Capacity"},
		{
			"fairq.queue.waiting", "{goroutine}", "Goroutines in PushWait and PopWait.", Sum,
			"call", "push WaitingPush pop WaitingPop",
		},
		{"fairq.queue.closed", "", "Whether the queue is closed.", Gauge, "", "Closed"},
		{
			"fairq.queue.events", "{item}", "Items to which something has happened.", Counter,
			"event",
			"push Pushed pop Popped remove Removed evict Evicted refuse Refused",
		},
		{"fairq.queue.cost.queued", "", "What the items queued cost.", Sum, "", "CostQueued"},
		{
			"fairq.queue.cost.served", "", "What the items delivered have cost.", Counter, "",
			"CostServed",
		},
		{
			"fairq.queue.oldest.age", "s", "How long the oldest item has been queued.", Gauge, "",
			"OldestAge",
		},
		{
			"fairq.queue.wait", "s", "How long the items delivered had been queued.", Histogram,
			"", "Wait",
		},
	},
	reflect.TypeFor[task.Stats](): {
		{
			"fairq.taskqueue.waiting", "{goroutine}",
			"Goroutines of this process in PutWait and Take.", Sum, "call",
			"put WaitingPut take WaitingTake",
		},
		{
			"fairq.taskqueue.conflicts", "{transaction}",
			"Transactions of this process that were tried again.", Counter, "", "Conflicts",
		},
		{
			"fairq.taskqueue.events", "{task}",
			"Tasks to which something has happened, as counted by this process.", Counter,
			"event",
			"put Puts take Takes ack Acks release Releases lose Losses bury Buries " +
				"kick Kicks touch Touches delete Deletes expire Expiries evict Evicted " +
				"refuse Refused",
		},
		{
			"fairq.taskqueue.tasks", "{task}", "Tasks by state.", Sum, "state",
			"ready Ready delayed Delayed taken Taken buried Buried held Held",
		},
		{"fairq.taskqueue.keys", "{key}", "Keys that have tasks.", Gauge, "", "Keys"},
		{
			"fairq.taskqueue.capacity", "{task}", "How many tasks there may be.", Gauge, "",
			"Capacity",
		},
		{
			"fairq.taskqueue.counted", "{task}", "Tasks that count in the capacity.", Sum, "",
			"Counted",
		},
		{"fairq.taskqueue.paused", "", "Whether the queue is paused.", Gauge, "", "Paused"},
	},
	reflect.TypeFor[pool.Stats](): {
		{
			"fairq.pool.workers", "{worker}",
			"Workers that are idle or run a handler, and handlers in Yield.", Sum, "state",
			"idle Idle running Running nested Nested",
		},
		{
			"fairq.pool.workers.limit", "{worker}", "How many workers there may be.", Gauge,
			"bound", "min Min max Max",
		},
		{
			"fairq.pool.tasks", "{task}", "Tasks that are with the pool but not with a handler.",
			Sum, "state", "prefetched Prefetched unsettled Unsettled",
		},
		{
			"fairq.pool.schedule", "", "Is 1 for the range of the schedule that is in force.",
			Gauge, "range", "Range",
		},
		{"fairq.pool.paused", "", "Whether the pool is paused.", Gauge, "", "Paused"},
		{"fairq.pool.closed", "", "Whether Shutdown was called.", Gauge, "", "Closed"},
		{
			"fairq.pool.started", "{attempt}", "Attempts that were started.", Counter, "",
			"Started",
		},
		{
			"fairq.pool.attempts", "{attempt}", "Attempts that have ended.", Counter, "outcome",
			"succeeded Succeeded retried Retried snoozed Snoozed failed Failed " +
				"cancelled Cancelled lost Lost returned Returned",
		},
		{
			"fairq.pool.events", "{task}", "Tasks that were not done.", Counter, "event",
			"drop Dropped expire Expired dead_letter DeadLetters",
		},
	},
	reflect.TypeFor[admit.Stats](): {
		{"fairq.limiter.limit", "{permit}", "How many permits there are.", Gauge, "", "Limit"},
		{"fairq.limiter.held", "{permit}", "Permits that are held.", Sum, "", "Held"},
		{
			"fairq.limiter.waiting", "{call}", "Calls that wait for a permit.", Sum, "",
			"Waiting",
		},
		{"fairq.limiter.keys", "{key}", "Keys that hold permits or wait.", Gauge, "", "Keys"},
		{"fairq.limiter.closed", "", "Whether the limiter is closed.", Gauge, "", "Closed"},
		{
			"fairq.limiter.events", "{call}", "Calls that were admitted or refused.", Counter,
			"event", "admit Admitted refuse Refused",
		},
		{
			"fairq.limiter.oldest.wait", "s", "How long the first call has waited.", Gauge, "",
			"OldestWait",
		},
		{
			"fairq.limiter.level", "",
			"Units of the budget that are left, below 0 if too many were taken.", Gauge, "",
			"Level",
		},
	},
}
