package pool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/fairq/fairq/task"
)

// DeadLetter is a task that a pool could not do, with everything known of it.
type DeadLetter[V any] struct {
	// Task describes the task as of its last attempt, or as it was put if there was none. A task that
	// was in no queue has no ID. For an item of a FairQueue, Task has only the number of attempts.
	Task task.Info

	Payload V
	Class   string // the class it was in; empty if the pool has none
	Reason  Reason
	Err     error // the last failure; a *task.Error in a letter from a file
	At      time.Time
}

// PutOptions returns the options to put the task again now. They have its class, priority, kind,
// unique key, metadata, deadline and limit of attempts, and the rest of its delay and time to
// live. If its time to live is over, the deadline is the end of that.
func (l *DeadLetter[V]) PutOptions(now time.Time) PutOptions {
	i := &l.Task
	p := PutOptions{task.PutOptions{
		Priority: i.Priority, Cost: i.Cost, Kind: i.Kind, UniqueKey: i.UniqueKey, TTR: i.TTR,
		MaxAttempts: i.MaxAttempts, Deadline: i.Deadline, Metadata: i.Metadata,
	}, l.Class}
	if i.State == task.Delayed {
		p.Delay = max(i.Until.Sub(now), 0)
	}
	if i.Expires.IsZero() || i.Expires.Equal(i.Deadline) {
		return p
	}
	if p.TTL = min(i.Expires.Sub(now)-p.Delay, task.MaxDuration); p.TTL <= 0 {
		p.TTL, p.Deadline = 0, i.Expires // a TTL cannot end before the delay, a Deadline can
	}
	return p
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

func newDeadLetter[V any](class string, t *task.Task[V], reason Reason, err error) *DeadLetter[V] {
	l := &DeadLetter[V]{
		Task: t.Info(), Payload: t.Payload, Class: class, Reason: reason, Err: err, At: time.Now(),
	}
	l.Task.Metadata = maps.Clone(l.Task.Metadata) // because other goroutines may have the task
	return l
}

// post hands a letter to the outbox. When the sink has taken or refused it, the Observer gets it
// too. a is the attempt of the letter's task, nil if the task is in no queue any more.
func (p *Pool[V]) post(letter *DeadLetter[V], a *attempt[V], settle func(refused error)) {
	l := &outgoing{
		key: letter.Task.Key,
		send: func(ctx context.Context) error {
			if a != nil && a.class.queue != nil { // the pool may have lost the task again
				if err := p.touch(&a.task, 0); err != nil {
					return lostError{err}
				}
			}
			return p.sink(ctx, letter)
		},
		settle: func(refused error) {
			if lost, is := refused.(lostError); is { //nolint:errorlint // not a sink's
				a.ended(EventLost, 0, lost.error)
				return
			}
			defer settle(refused) // even if the Observer ends the goroutine
			if errors.Is(refused, errNotSent) {
				return
			}
			if refused == nil {
				p.counts[0][EventDeadLetter].Add(1)
			}
			p.observe(func() Event[V] {
				return Event[V]{Kind: EventDeadLetter, Class: letter.Class, Letter: letter, Err: refused}
			})
		},
		done: make(chan struct{}),
	}
	if a == nil {
		p.outbox.post(l)
		return
	}
	held := a.task // a copy, because Touch changes it
	p.outbox.post(l)
	if held.Info().TTR > 0 {
		p.runInBackground(func() { p.keepLease(&held, l.done) })
	}
	p.outbox.waitForRoom(p.ctx, p.ctx)
}

// lostError is the error of a letter whose task the pool has lost.
type lostError struct{ error }

// touch extends the lease of a task, and returns an error if the pool may have lost it.
func (p *Pool[V]) touch(t *task.Task[V], by time.Duration) error {
	return p.settle(p.storeCtx, t, t.Info().Until,
		func(ctx context.Context) error { return t.Touch(ctx, by) })
}

// keepLease extends the lease of a task while its letter is in hand.
func (p *Pool[V]) keepLease(t *task.Task[V], done <-chan struct{}) {
	ttr := t.Info().TTR
	by := ttr
	for wait := min(max(time.Until(t.Info().Until), 0), ttr) / 2; ; wait, by = ttr/2, ttr/2 {
		select {
		case <-done:
			return
		case <-time.After(wait):
		}
		if p.touch(t, by) != nil {
			return
		}
	}
}
