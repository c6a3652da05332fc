package pool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// DeadLetter is a task that a pool could not do, with what there is to know about it.
type DeadLetter[V any] struct {
	// Task is as of the last attempt, or as it was put. If it was in no queue it has no ID. It is
	// empty for an item of a FairQueue.
	Task task.Info

	Payload  V
	Class    string // the class it was in; empty if the pool has none
	Reason   Reason
	Err      error // the last failure; of one that was read from a file it is a *task.Error
	Attempts int   // how often it was tried
	At       time.Time
}

// PutOptions returns the options to put the task again, as of now: its class, priority, kind,
// unique key, metadata, deadline and limit of attempts, and what is left of its delay and its time
// to live. If nothing is left of that, the deadline is when it ended.
func (l *DeadLetter[V]) PutOptions(now time.Time) PutOptions {
	p := resubmitOptions(&l.Task, now)
	p.Class = l.Class
	return p
}

// Reason is why a task was not done.
type Reason uint8

// The reasons.
const (
	Overflow Reason = iota + 1 // there was no room for it
	Failed                     // it was tried as often as it may, or failed for good
	Deadline                   // its time was over before it was done
	Shutdown                   // the pool was shut down, and its queue with it
)

var reasonNames = [...]string{Overflow: "overflow", Failed: "failed", Deadline: "deadline", Shutdown: "shutdown"}

// String returns the reason in lower case.
func (r Reason) String() string {
	if int(r) < len(reasonNames) && r > 0 {
		return reasonNames[r]
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// Sink takes dead letters. It is called in a goroutine of its own. If it returns an error, panics
// or ends the goroutine, it has not taken the letter. Shutdown does not wait for a sink that goes
// on after its context is done for longer than Options.AbandonAfter: that letter counts as not
// taken, whatever the sink does with it.
type Sink[V any] func(ctx context.Context, letter *DeadLetter[V]) error

func newDeadLetter[V any](class string, t *task.Task[V], reason Reason, err error) *DeadLetter[V] {
	l := &DeadLetter[V]{Task: t.Info(), Payload: t.Payload, Class: class, Reason: reason, Err: err, Attempts: t.Attempts, At: time.Now()}
	l.Task.Metadata = maps.Clone(l.Task.Metadata) // for others may have the task
	return l
}

// callSink hands a dead letter to a sink, counts it, and tells the Observer. It waits no longer
// than sinkCtx lasts: then the sink is abandoned, and its letter counts as not taken.
func callSink[V any](ctx context.Context, ws *workerSet, o *Observer[V], sink Sink[V], letter *DeadLetter[V]) error {
	if ws.storeCtx.Err() != nil {
		return ErrShutdown // Shutdown must not have to wait for yet another one
	}
	result := sink.take(ctx, letter, ws.known, func(err error) {
		if err == nil {
			ws.deadLetters.Add(1)
		}
		if o.DeadLetter != nil {
			ws.observe("DeadLetter", func() { o.DeadLetter(ctx, letter, err) })
		}
	})
	select {
	case err := <-result:
		return err
	case <-ws.sinkCtx.Done():
		ws.abandonedSinks.Add(1)
		go func() {
			<-result //nolint:errcheck // nobody wants to know any more
			ws.abandonedSinks.Add(-1)
		}()
		return errSinkAbandoned
	}
}

var (
	errSinkAbandoned = fmt.Errorf("%w: the sink does not end", ErrShutdown)
	errSinkGoexit    = errors.New("pool: sink called runtime.Goexit")
)

// take hands a dead letter to the sink, and calls then with its error. It does so in a goroutine
// of its own, so that it does not matter to the caller how the sink ends, or whether; all that
// happens in there is called by start.
func (s Sink[V]) take(ctx context.Context, letter *DeadLetter[V], start func(func()), then func(error)) <-chan error {
	result := make(chan error, 1)
	go start(func() {
		err := errSinkGoexit
		defer func() {
			if v := recover(); v != nil {
				err = newPanicError("the sink", v)
			}
			err = safeError(err)
			defer func() { result <- err }() // also if the observer ends the goroutine
			then(err)
		}()
		err = s(ctx, letter)
	})
	return result
}

// ToDeadLetters returns a function that sends the tasks it is given to a sink: for OnEvict and
// OnExpire of a queue of one's own, with the reasons Overflow and Deadline. What the sink does not
// take is handed to lost, with the error.
func ToDeadLetters[V any](sink Sink[V], reason Reason, lost func(*task.Task[V], error)) func(*task.Task[V]) {
	return func(t *task.Task[V]) {
		err := fairq.ErrFull
		if reason == Deadline {
			err = ErrDeadline
		}
		if err := <-sink.take(context.Background(), newDeadLetter("", t, reason, err), func(f func()) { f() }, func(error) {}); err != nil {
			lost(t, err)
		}
	}
}
