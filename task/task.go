package task

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairq/fairq/task/driver"
)

// Task is a task and, if it comes from Take, a lease: the proof that its consumer holds it. A lease
// ends with Ack, Release, Snooze, Return, Fail, HoldKey, Repeat, Bury or Discard; when its time to run is over; when its
// consumer is closed, resumed or has gone for too long; and when somebody else buries or deletes
// the task. Then it is lost, all its methods return [ErrLeaseLost], and change nothing. A Task from
// Peek or List is no lease.
//
// What a Task tells is as of the call that returned it, whatever has become of the task since, but
// for Info.Until, which Touch changes, and Info.State: when its lease has ended by a call of this
// Task, that is where the task is since, 0 if it is gone. A call in a transaction of the caller's own
// changes both when the store commits that, as in an InTx; of a transaction that the caller commits
// (WithTx) a Task learns nothing. The methods may be called by any goroutine at any time, but not
// while others read what they change.
//
// Priority may be changed before a Release, Snooze, Return, Fail, HoldKey, Repeat or Bury: then that is the task's
// priority from now on. It queues up there like new work, also with KeepPlace.
type Task[V any] struct {
	ID       ID
	Key      string
	Kind     string
	Payload  V
	Priority int
	Attempts int // how often it was taken; see Info

	number   uint64 // of the lease; 0 if it is none
	created  int64
	state    State
	more     *driver.Details // nil if it is plain, see details; what it points to never changes
	consumer *Consumer[V]    // who holds it; if this is no lease, no more than its name is known
}

// NewTask returns a task that is in no queue, and no lease: for tests of handlers and hooks.
func NewTask[V any](info Info, payload V) *Task[V] {
	of := driver.Info(info)
	r := driver.RecordOf(&of)
	t := &Task[V]{Payload: payload}
	t.show(&r)
	return t
}

// begin makes t a task that a consumer has taken, but for its payload.
func (t *Task[V]) begin(a *driver.Attempt, c *Consumer[V]) {
	t.ID, t.Key, t.Kind, t.Priority, t.Attempts = a.ID, a.Key, a.Kind, a.Priority, a.Attempts
	t.state, t.number, t.created, t.more, t.consumer = Taken, a.Lease, a.Created, a.More, c
}

// show makes t the task of a record, but for its payload, which is no lease.
func (t *Task[V]) show(r *driver.Record) {
	a := r.Attempt()
	t.begin(&a, nil)
	t.state, t.number = r.State, 0
	if r.Consumer != "" {
		t.consumer = &Consumer[V]{handle: driver.Handle{ID: r.Consumer}}
	}
}

// details returns those of the task. It is plain if no option was set and it was ready at once: as
// a rule it is, so what is handed out is small.
func (t *Task[V]) details() driver.Details {
	d := driver.Details{ReadyAt: t.created, Cost: 1}
	if t.more != nil {
		d = *t.more
	}
	d.State, d.Lease, d.Created = t.state, t.number, t.created
	return d
}

// Info returns all that there is to know of the task besides its payload. Its Metadata is the same
// map each time.
func (t *Task[V]) Info() Info {
	r := driver.Record{
		ID: t.ID, Key: t.Key, Kind: t.Kind, Priority: t.Priority, Attempts: t.Attempts, Details: t.details(),
	}
	if t.consumer != nil {
		r.Consumer = t.consumer.handle.ID
	}
	return Info(r.Info())
}

// Expires tells whether there is an Info.Expires, or an Info.Deadline.
func (t *Task[V]) Expires() bool {
	return t.more != nil && (t.more.Expires != 0 || t.more.Rare != nil && !t.more.Rare.Deadline.IsZero())
}

// Ack says that the task is done. It is gone then.
func (t *Task[V]) Ack(ctx context.Context) error { return t.settle(ctx, driver.Settlement{}) }

// Release hands the task back, which was tried in vain: at once, or after a delay, it queues up like
// new work. If it was its last attempt, it is buried instead.
func (t *Task[V]) Release(ctx context.Context, delay time.Duration) error {
	if err := checkDelay("Release: the delay", delay); err != nil {
		return err
	}
	return t.settle(ctx, driver.Settlement{Method: driver.Release, Delay: delay, Priority: t.Priority})
}

// Snooze is Release, but the attempt does not count, so the task is never buried by it: it is for
// work whose time has not come, not for work that has failed.
func (t *Task[V]) Snooze(ctx context.Context, delay time.Duration) error {
	if err := checkDelay("Snooze: the delay", delay); err != nil {
		return err
	}
	return t.settle(ctx, driver.Settlement{Method: driver.Snooze, Delay: delay, Priority: t.Priority})
}

// Return hands the task back untried, as Consumer.Close does with all that it holds: the attempt
// does not count, and the task keeps its turn, unless it was handed back so the last time too.
func (t *Task[V]) Return(ctx context.Context) error {
	return t.settle(ctx, driver.Settlement{Method: driver.Return, Priority: t.Priority})
}

// Fail is Release, and records why. If reason is, or wraps, an [*Error], its code is too, with the
// whole message.
func (t *Task[V]) Fail(ctx context.Context, reason error, delay time.Duration) error {
	if err := checkDelay("Fail: the delay", delay); err != nil {
		return err
	}
	return t.settle(ctx, driver.Settlement{Method: driver.Fail, Delay: delay, Priority: t.Priority, Err: newError(reason)})
}

// HoldKey hands the task back at its place, first of its key, and has the whole key wait for d, as
// [Queue.HoldKey] does, in one transaction: the provider has said when it may be asked again, or the
// tasks of the key are to be done in order. If reason is nil the attempt does not count, and the task
// keeps its turn, unless it was handed back so the last time too. Else it has failed, which counts
// and is recorded as by Fail. If that was its last attempt it is buried, and the key does not wait.
func (t *Task[V]) HoldKey(ctx context.Context, reason error, d time.Duration) error {
	if err := checkDelay("HoldKey: the duration", d); err != nil {
		return err
	}
	how := driver.Settlement{Method: driver.Snooze, HoldKey: true, Delay: d, Priority: t.Priority}
	if reason != nil {
		how.Method, how.Err = driver.Fail, newError(reason)
	}
	return t.settle(ctx, how)
}

// Repeat says that the task is done, and is to be done again after a delay: as a new task, with all
// its attempts before it and without the error of the last one, but with the same id. See pool.Repeat.
func (t *Task[V]) Repeat(ctx context.Context, delay time.Duration) error {
	if err := checkDelay("Repeat: the delay", delay); err != nil {
		return err
	}
	return t.settle(ctx, driver.Settlement{Method: driver.Repeat, Delay: delay, Priority: t.Priority})
}

// Bury puts the task aside, with the reason, until somebody kicks or deletes it. Who waits for its
// unique key is told the reason, as an [*Error].
func (t *Task[V]) Bury(ctx context.Context, reason error) error {
	if reason == nil {
		reason = errBuried
	}
	return t.settle(ctx, driver.Settlement{Method: driver.Bury, Priority: t.Priority, Err: newError(reason)})
}

// Discard says that the task has failed for good and is not to be kept: it is gone, as after Ack.
// Who waits for its unique key is told the reason, as an [*Error].
func (t *Task[V]) Discard(ctx context.Context, reason error) error {
	if reason == nil {
		reason = errDiscarded
	}
	return t.settle(ctx, driver.Settlement{Method: driver.Discard, Err: newError(reason)})
}

var (
	errBuried    = &Error{Message: "buried without a reason"}
	errDiscarded = &Error{Message: "discarded without a reason"}
)

// Touch makes the lease last d longer. If it lasts until the consumer is gone, because the task has
// no time to run, it returns an [ErrInvalid] instead. It also tells whether the lease is still
// held, and with a d of 0 does nothing else.
func (t *Task[V]) Touch(ctx context.Context, d time.Duration) error {
	if err := checkDelay("Touch: the duration", d); err != nil {
		return err
	}
	if err := t.held(); err != nil {
		return err
	}
	until, err := t.consumer.queue.backend.Touch(ctx, t.lease(), d)
	if err != nil && !errors.Is(err, ErrGroupCancelled) { // else it is held
		return err
	}
	if t.more != nil {
		more := *t.more
		more.Until = driver.Nanos(until)
		t.consumer.queue.lasting(ctx, func() { t.more = &more })
	}
	if d > 0 && until.IsZero() {
		return invalid("Touch: the duration", d, "0 for a task without a time to run, whose lease does not run out")
	}
	return nil
}

// Context returns a context that is done when parent is or when the lease ends, in whatever way;
// then its cause Is [ErrLeaseLost], and [ErrDeleted] if somebody else has ended the lease and there
// is no such task any more. (It is done after an Ack too, so ask for the cause before. It may be
// done a moment later than the lease ends.) It is also done when the group of the task is
// cancelled, with the cause [ErrGroupCancelled]: the lease is still held then, and however it ends,
// the task is gone. Call cancel when the context is not needed any more.
func (t *Task[V]) Context(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	if t.number == 0 {
		ctx, end := context.WithCancelCause(parent)
		end(ErrLeaseLost)
		return ctx, func() {}
	}
	return t.consumer.queue.notifier.context(parent, t.lease())
}

func (t *Task[V]) lease() driver.Lease { return driver.Lease{ID: t.ID, Number: t.number} }

func (t *Task[V]) held() error {
	if t.number == 0 {
		return ErrLeaseLost
	}
	return t.consumer.queue.notifier.over()
}

func (t *Task[V]) settle(ctx context.Context, how driver.Settlement) error {
	if err := t.held(); err != nil {
		return err
	}
	if how.Priority < 0 || how.Priority > MaxPriority {
		return invalid("Task.Priority", how.Priority, fmt.Sprintf("0 to %d", MaxPriority))
	}
	state, err := t.consumer.queue.backend.Settle(ctx, t.lease(), how)
	switch tx := t.consumer.queue.backend.Joined(ctx); {
	case err != nil:
	case tx != nil:
		tx.OnCommit(func() { t.state = state })
	default: // as lasting would, but without making a function
		t.state = state
	}
	return err
}
