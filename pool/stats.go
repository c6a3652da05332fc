package pool

import (
	"slices"
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

	// Tasks without room, as far as the pool knows.
	Dropped uint64 `json:"dropped"`

	// Tasks whose time was over before they were done, as far as the pool knows.
	Expired     uint64 `json:"expired"`
	DeadLetters uint64 `json:"dead_letters"` // dead letters that were taken
}

// String shows the fields that are not zero.
func (s Stats) String() string { return printable.Fields(s) }

// counters count events by their kinds. They fill two cache lines.
type counters [16]atomic.Uint64

// Stats returns counters and gauges of about one moment, because handlers go on.
func (ws *workerSet) Stats() Stats {
	var n [eventKinds]uint64
	for i := range ws.counts {
		for kind := range n {
			n[kind] += ws.counts[i][kind].Load()
		}
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return Stats{
		Workers: ws.active, Idle: len(ws.idle), Running: ws.active - len(ws.idle), Nested: ws.yielding,
		Prefetched: int(ws.prefetched.Load()), Unsettled: int(ws.settling.Load()),
		Min: ws.scale.Min, Max: ws.scale.Max, Range: ws.inRange, Paused: ws.paused, Closed: ws.closing,
		Started: n[EventStarted], Succeeded: n[EventSucceeded], Retried: n[EventRetried],
		Snoozed: n[EventSnoozed], Failed: n[EventFailed], Cancelled: n[EventCancelled],
		Lost: n[EventLost], Returned: n[EventReturned], Dropped: n[EventDropped],
		Expired: n[EventExpired], DeadLetters: n[EventDeadLetter],
	}
}

// Failure is a task, or an item of a FairQueue, that has failed for good.
type Failure struct {
	At        time.Time
	Task      task.ID // 0 for an item
	Key, Kind string  // of a task
	Err       error   // a [*task.PanicError] has the stack
}

// addFailure adds to Failures.
func (ws *workerSet) addFailure(f Failure) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.failures = append(ws.failures[max(len(ws.failures)-99, 0):], f)
}

// Failures returns the last 100 failures for good, the oldest first.
func (ws *workerSet) Failures() []Failure {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return slices.Clone(ws.failures)
}
