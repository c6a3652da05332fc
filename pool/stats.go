package pool

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairq/fairq/internal/printable"
	"github.com/fairq/fairq/task"
)

// Stats has the counters and gauges of a pool.
type Stats struct {
	Workers int `json:"workers"` // goroutines, without those of handlers in Yield
	Idle    int `json:"idle"`    // workers that wait for a task
	Running int `json:"running"` // handlers, without those in Yield
	Nested  int `json:"nested"`  // handlers in Yield

	// Tasks that were taken and not started, see Options.Prefetch.
	Prefetched int `json:"prefetched"`

	// Handlers that have returned and whose tasks are being settled.
	Unsettled int `json:"unsettled"`
	Min       int `json:"min"` // as of now, see Options.Schedule and SetWorkers
	Max       int `json:"max"`

	// The Time of the Schedule's range in force; empty if none is.
	Range  string `json:"range"`
	Paused bool   `json:"paused"`
	Closed bool   `json:"closed"` // Shutdown was called

	// Counters. Each started attempt ends in one of the next seven.
	Started   uint64 `json:"started"` // attempts
	Succeeded uint64 `json:"succeeded"`
	Retried   uint64 `json:"retried"` // failures after which the task is tried again
	Snoozed   uint64 `json:"snoozed"`
	Failed    uint64 `json:"failed"` // failures for good

	// Attempts whose task was deleted while it ran, and whose handler used its context.
	Cancelled uint64 `json:"cancelled"`

	// Attempts that could not be settled for another reason, mostly an expired lease.
	Lost     uint64 `json:"lost"`
	Returned uint64 `json:"returned"` // interrupted by Shutdown; does not count as an attempt
	Panics   uint64 `json:"panics"`   // handlers that panicked

	// Tasks without room, as far as the pool knows.
	Dropped uint64 `json:"dropped"`

	// Tasks whose time was over before they were done, as far as the pool knows.
	Expired     uint64 `json:"expired"`
	DeadLetters uint64 `json:"dead_letters"` // dead letters that were taken

	// Tasks left after Shutdown and taken by no sink, see Pool.Leftovers.
	Leftovers uint64 `json:"leftovers"`

	// Tasks for which Submit and the like have returned an error.
	Refused uint64 `json:"refused"`
}

// String shows the fields that are not zero.
func (s Stats) String() string { return printable.Fields(s) }

type counter = atomic.Uint64

// counters count events of tasks.
type counters struct {
	started, succeeded, retried, snoozed, failed, cancelled, lost, returned, panics counter
}

func inc(n *counter) { n.Add(1) }

// addTo adds the counters to s.
func (c *counters) addTo(s *Stats) {
	s.Started += c.started.Load()
	s.Succeeded += c.succeeded.Load()
	s.Retried += c.retried.Load()
	s.Snoozed += c.snoozed.Load()
	s.Failed += c.failed.Load()
	s.Cancelled += c.cancelled.Load()
	s.Lost += c.lost.Load()
	s.Returned += c.returned.Load()
	s.Panics += c.panics.Load()
}

// Stats returns counters and gauges of about one moment, because handlers go on. It is O(workers).
func (p *Pool[V]) Stats() Stats { return p.stats() }

// Stats returns counters and gauges of about one moment, because handlers go on. It is O(workers).
func (w *Workers) Stats() Stats { return w.stats() }

func (ws *workerSet) stats() Stats {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	s := ws.endedStats
	s.Workers, s.Idle, s.Nested = ws.active, len(ws.idle), ws.yielding
	s.Running = s.Workers - s.Idle
	s.Min, s.Max, s.Paused, s.Closed = ws.scale.Min, ws.scale.Max, ws.paused, ws.closing
	s.Dropped, s.Expired, s.Refused = ws.dropped.Load(), ws.expired.Load(), ws.refused.Load()
	s.DeadLetters, s.Leftovers = ws.deadLetters.Load(), ws.leftoverCount.Load()
	s.Prefetched, s.Unsettled = int(ws.prefetched.Load()), int(ws.settling.Load())
	if i := ws.scheduleClock.current; i >= 0 {
		s.Range = ws.ranges[i].Time
	}
	ws.backgroundCounts.addTo(&s)
	for w := range ws.all {
		w.counts.addTo(&s)
	}
	return s
}

// Failure is a task, or an item of a FairQueue, that has failed for good.
type Failure struct {
	At        time.Time
	Task      task.ID // 0 for an item
	Key, Kind string  // of a task
	Err       error   // a [*PanicError] has the stack
}

// recent keeps the last failures. It is a ring.
type recent struct {
	mu    sync.Mutex
	ring  [100]Failure
	count int
}

func (r *recent) add(f Failure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ring[r.count%len(r.ring)] = f
	r.count++
}

// Failures returns the last 100 failures for good, the oldest first.
func (p *Pool[V]) Failures() []Failure { return p.recent.all() }

// Failures returns the last 100 failures for good, the oldest first.
func (w *Workers) Failures() []Failure { return w.recent.all() }

func (r *recent) all() []Failure {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(r.count, len(r.ring))
	all := make([]Failure, n)
	for i := range all {
		all[i] = r.ring[(r.count-n+i)%len(r.ring)]
	}
	return all
}
