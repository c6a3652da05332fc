package pool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// DeadLetter is a task that a pool could not do, with everything known of it.
type DeadLetter[V any] struct {
	// Task is as of the last attempt, or as it was put. If it was in no queue it has no ID. It is
	// empty for an item of a FairQueue.
	Task task.Info

	Payload  V
	Class    string // the class it was in; empty if the pool has none
	Reason   Reason
	Err      error // the last failure; a *task.Error in a letter from a file
	Attempts int   // how often it was tried
	At       time.Time
}

// PutOptions returns the options to put the task again now: its class, priority, kind, unique key,
// metadata, deadline and limit of attempts, and the rest of its delay and time to live. If its
// time to live is over, its end is the deadline.
func (l *DeadLetter[V]) PutOptions(now time.Time) PutOptions {
	return PutOptions{resubmitOptions(&l.Task, now), l.Class}
}

// Reason is why a task was not done.
type Reason uint8

// The reasons.
const (
	ReasonOverflow Reason = iota + 1 // there was no room for it
	ReasonFailed                     // it was tried as often as it may, or failed for good
	ReasonDeadline                   // its time was over before it was done
	ReasonShutdown                   // the pool was shut down, and its queue with it
)

var reasonNames = [...]string{
	ReasonOverflow: "overflow", ReasonFailed: "failed",
	ReasonDeadline: "deadline", ReasonShutdown: "shutdown",
}

// String returns the reason in lower case.
func (r Reason) String() string {
	if int(r) < len(reasonNames) && r > 0 {
		return reasonNames[r]
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// Sink takes dead letters. The pool calls it in a goroutine of its own. If it returns an error,
// panics or ends the goroutine, it has not taken the letter. Shutdown does not wait for a sink
// that goes on after its context is done for longer than Options.AbandonAfter: that letter counts
// as not taken, whatever the sink does with it.
type Sink[V any] func(ctx context.Context, letter *DeadLetter[V]) error

func newDeadLetter[V any](class string, t *task.Task[V], reason Reason, err error) *DeadLetter[V] {
	l := &DeadLetter[V]{
		Task: t.Info(), Payload: t.Payload, Class: class, Reason: reason, Err: err,
		Attempts: t.Attempts, At: time.Now(),
	}
	l.Task.Metadata = maps.Clone(l.Task.Metadata) // because other goroutines may have the task
	return l
}

// send hands a letter to the pool's sink, calls the Observer, and counts it. It is the only way to
// the sink. When sinkCtx is done it stops waiting: the letter counts as not taken, whatever the
// sink does later.
func (p *Pool[V]) send(letter *DeadLetter[V]) error {
	if p.storeCtx.Err() != nil {
		return ErrShutdown // Shutdown must not have to wait for yet another one
	}
	var outcome atomic.Pointer[error]
	p.holdLetter(func() {
		done := p.sink.take(p.storeCtx, letter, func(err error) {
			if !outcome.CompareAndSwap(nil, &err) {
				defer p.abandonedSinks.Add(-1) // even if the observer ends the goroutine
				err = errSinkAbandoned
			}
			p.observe(p.storeCtx, func() Event[V] {
				return Event[V]{Kind: EventDeadLetter, Class: letter.Class, Letter: letter, Err: err}
			})
		})
		select {
		case <-done: //nolint:errcheck // the outcome has it
		case <-p.sinkCtx.Done():
			if outcome.CompareAndSwap(nil, &errSinkAbandoned) {
				p.abandonedSinks.Add(1)
			}
		}
		if *outcome.Load() == nil {
			p.counts[EventDeadLetter].Add(1)
		}
	})
	return *outcome.Load()
}

// holdLetter calls f, which hands a letter to the sink and settles its task. Wait and Shutdown
// wait for it, so that no second letter of the task is written.
func (ws *workerSet) holdLetter(f func()) {
	ws.mu.Lock()
	if ws.letters++; ws.letters == 1 {
		ws.lettersGone = make(chan struct{})
	}
	ws.mu.Unlock()
	defer func() { // even if f ends the goroutine
		ws.mu.Lock()
		defer ws.mu.Unlock()
		if ws.letters--; ws.letters == 0 {
			close(ws.lettersGone)
			ws.lettersGone = nil
		}
		ws.notifyQuietLocked()
	}()
	f()
}

// letterContext returns a context for settling a task whose letter the sink has taken or refused.
// It lasts abandonAfter longer than the sink, or the task could outlive its letter.
func (ws *workerSet) letterContext() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ws.storeCtx))
	stop := context.AfterFunc(ws.sinkCtx, func() { time.AfterFunc(ws.abandonAfter, cancel) })
	return ctx, func() { stop(); cancel() }
}

// waitForLetters waits until no letter is in hand, and until the handlers have ended or sinkCtx is
// done. After that, letters have abandonAfter to be settled.
func (ws *workerSet) waitForLetters() {
	ws.mu.Lock()
	gone := ws.lettersGone
	ws.mu.Unlock()
	if gone == nil {
		return
	}
	ended := ws.done.Done()
	if ws.done.Err() != nil {
		ended = gone
	}
	select {
	case <-ended:
		ws.stop()
	case <-ws.sinkCtx.Done():
		select {
		case <-gone:
		case <-time.After(ws.abandonAfter):
		}
	}
}

var (
	errSinkAbandoned = fmt.Errorf("%w: the sink does not end", ErrShutdown)
	errSinkGoexit    = errors.New("pool: sink called runtime.Goexit")
)

// take hands a dead letter to the sink, and calls then with its error. It uses a goroutine of its
// own, so the caller does not depend on the end of the sink.
func (s Sink[V]) take(ctx context.Context, letter *DeadLetter[V],
	then func(error),
) <-chan error {
	result := make(chan error, 1)
	go func() {
		err := errSinkGoexit
		defer func() {
			if v := recover(); v != nil {
				err = newPanicError("the sink", v)
			}
			err = safeError(err)
			defer func() { result <- err }() // even if the observer ends the goroutine
			then(err)
		}()
		err = s(ctx, letter)
	}()
	return result
}

// ToDeadLetters returns a function that sends tasks to a sink: for OnEvict and OnExpire of a queue
// of your own, with the reasons ReasonOverflow and ReasonDeadline. If the sink returns an error,
// lost gets the letter and the error.
func ToDeadLetters[V any](sink Sink[V], reason Reason,
	lost func(*task.Task[V], error),
) func(*task.Task[V]) {
	return func(t *task.Task[V]) {
		err := fairq.ErrFull
		if reason == ReasonDeadline {
			err = ErrDeadline
		}
		if err := <-sink.take(context.Background(), newDeadLetter("", t, reason, err),
			func(error) {}); err != nil {
			lost(t, err)
		}
	}
}
