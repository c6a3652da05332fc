package pool

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/fairq/fairq/task"
)

// Event is a thing that has happened to a task.
type Event[V any] struct {
	Kind  EventKind
	Class string // the Class.Name; empty if the pool has no classes

	// Task is the handler's, and must not be changed or settled; nil for EventDeadLetter. An
	// item of a FairQueue has only the Payload, and 1 as Attempts.
	Task *task.Task[V]

	// Took is, at the end of an attempt, how long the handler ran. For EventStarted it is how
	// long the task had been ready, 0 for an item of a FairQueue.
	Took time.Duration

	Delay  time.Duration  // of EventRetried and EventSnoozed: until the next attempt
	Err    error          // the reason; of EventDeadLetter, why the sink has not taken it
	Letter *DeadLetter[V] // of EventDeadLetter
}

// EventKind is the kind of an event. Each counter of [Stats] is the number of its events.
type EventKind uint8

// The kinds of events.
const (
	EventStarted EventKind = iota // a handler begins

	// Each started attempt ends in one of these; see the counters of [Stats].
	EventSucceeded
	EventRetried
	EventSnoozed
	EventFailed
	EventCancelled
	EventLost
	EventReturned

	EventDropped    // a task without room
	EventExpired    // a task whose time was over before it was done
	EventDeadLetter // a letter was handed to DeadLetters

	eventKinds
)

var eventNames = [...]string{
	"started", "succeeded", "retried", "snoozed", "failed", "cancelled", "lost",
	"returned", "dropped", "expired", "dead letter",
}

// String returns the kind in lower case.
func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// observe calls the Observer, if there is one. A panic in it must neither end the process nor
// change the outcome of a task.
func (p *Pool[V]) observe(event func() Event[V]) {
	if p.observer != nil {
		p.guard("the Observer", func() { p.observer(p.storeCtx, event()) })
	}
}

// guard calls a function of the user whose outcome nobody waits for.
func (ws *workerSet) guard(name string, call func()) {
	defer func() {
		if v := recover(); v != nil {
			ws.log.Error("pool: "+name+" panicked", "panic", v, "stack", string(debug.Stack()))
		}
	}()
	call()
}

// happened counts and observes an event of an attempt.
func (a *attempt[V]) happened(kind EventKind, took, delay time.Duration, err error) {
	p := a.class.pool
	a.worker.counts[kind].Add(1)
	p.observe(func() Event[V] {
		return Event[V]{
			Kind: kind, Class: a.class.name, Task: &a.task, Took: took, Delay: delay, Err: err,
		}
	})
}

// ended is happened for the end of an attempt.
func (a *attempt[V]) ended(kind EventKind, delay time.Duration, err error) {
	p, t, what := a.class.pool, &a.task, ""
	switch kind {
	case EventFailed:
		p.addFailure(Failure{At: time.Now(), Task: t.ID, Key: t.Key, Kind: t.Kind, Err: err})
		what = "failed for good"
	case EventLost:
		what = "could not be settled"
	}
	a.happened(kind, a.extra.ran, delay, err)
	if what != "" {
		p.warn("pool: a task "+what, 1, logAttrs(a.class.name, t, err, "attempts", t.Attempts))
	}
}

// observeTask counts and observes an event of a task that need not run.
func (p *Pool[V]) observeTask(kind EventKind, class string, t *task.Task[V]) {
	p.counts[0][kind].Add(1)
	p.observe(func() Event[V] { return Event[V]{Kind: kind, Class: class, Task: t} })
}
