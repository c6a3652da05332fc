package task

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fairq/fairq/internal/driver"
)

// Task is a task and, if it comes from Take, a lease: the proof that its consumer holds it. A
// lease ends with Ack, Release, Snooze, Return, Fail, HoldKey, Repeat, Bury or Discard; when its
// time to run is over; when its consumer is closed, resumed or gone for too long; and when another
// call buries or deletes the task. Then all methods of the Task return [ErrLeaseLost] and change
// nothing. A Task from Peek or List has no lease.
//
// A Task has the values of the call that returned it, except for two. Touch changes Info.Until.
// The call that ends the lease changes Info.State: it is 0 if the task is gone. In a transaction
// of the caller's own both change when the store commits it (InTx), and never if the caller does
// (WithTx).
//
// All methods are safe for concurrent use, except with reads of the fields that they change.
//
// A consumer may change Priority before a Release, Snooze, Return, Fail, HoldKey, Repeat or Bury:
// then the task has the new priority, and queues there like new work, even with KeepPlace.
type Task[V any] struct {
	ID       ID
	Key      string
	Kind     string
	Payload  V
	Priority int
	Attempts int // how often it was taken; see Info

	number   uint64 // of the lease; 0 without one
	created  int64
	began    uint32 // see Begin: the milliseconds of work, 0 if that is not measured
	state    State
	more     *driver.Details // nil if it is plain, see details; the Details never change
	consumer *Consumer[V]    // that holds it; without a lease it has only its name
}

// NewTask returns a task without a queue and a lease, for tests of handlers and hooks.
func NewTask[V any](info Info, payload V) *Task[V] {
	of := driver.Info(info)
	r := driver.RecordOf(&of)
	t := &Task[V]{Payload: payload}
	t.show(&r)
	return t
}

// begin makes t a task that a consumer has taken, without its payload.
func (t *Task[V]) begin(a *driver.Attempt, c *Consumer[V]) {
	t.ID, t.Key, t.Kind, t.Priority, t.Attempts = a.ID, a.Key, a.Kind, a.Priority, a.Attempts
	t.state, t.number, t.created, t.more, t.consumer = Taken, a.Lease, a.Created, a.More, c
	if c != nil && c.queue.options.ShareTime {
		t.began = work()
	}
}

var started = time.Now()

// work returns the time in milliseconds, which may overflow, but is not 0.
func work() uint32 { return cmp.Or(uint32(time.Since(started).Milliseconds()), 1) }

// Begin is for a queue with Options.ShareTime and a consumer that takes tasks ahead: the attempt
// begins now, and not when Take returned. Package pool calls Begin and End.
func (t *Task[V]) Begin() {
	if atomic.LoadUint32(&t.began) != 0 {
		atomic.StoreUint32(&t.began, work())
	}
}

// End is for a queue with Options.ShareTime and a consumer that settles a task some time after its
// work. The attempt ends now, and not with the lease. The second End of a Task does nothing.
func (t *Task[V]) End() {
	if atomic.LoadUint32(&t.began) == 0 {
		return
	}
	if began := atomic.SwapUint32(&t.began, 0); began != 0 {
		q := t.consumer.queue
		q.notifier.learned.Learn(t.Key, min(int64(work()-began), q.options.costLimit()))
	}
}

// show makes t the task of a record, without its payload and without a lease.
func (t *Task[V]) show(r *driver.Record) {
	a := r.Attempt()
	t.begin(&a, nil)
	t.state, t.number = r.State, 0
	if r.Consumer != "" {
		t.consumer = &Consumer[V]{handle: driver.Handle{ID: r.Consumer}}
	}
}

// details returns the details of the task. A plain task has no options and was ready at once. Most
// tasks are plain, so that a Task is small.
func (t *Task[V]) details() driver.Details {
	d := driver.Details{ReadyAt: t.created, Cost: 1}
	if t.more != nil {
		d = *t.more
	}
	d.State, d.Lease, d.Created = t.state, t.number, t.created
	return d
}

// Info returns all fields of the task but its payload. Its Metadata is the same map each time.
func (t *Task[V]) Info() Info {
	r := driver.Record{
		ID: t.ID, Key: t.Key, Kind: t.Kind, Priority: t.Priority, Attempts: t.Attempts,
		Details: t.details(),
	}
	if t.consumer != nil {
		r.Consumer = t.consumer.handle.ID
	}
	return Info(r.Info())
}

// Expires reports whether the task has an Info.Expires or an Info.Deadline.
func (t *Task[V]) Expires() bool {
	return t.more != nil &&
		(t.more.Expires != 0 || t.more.Rare != nil && !t.more.Rare.Deadline.IsZero())
}

// Ack reports the task as done, and removes it.
func (t *Task[V]) Ack(ctx context.Context) error { return t.settle(ctx, driver.Settlement{}) }

// Release hands back the task after an attempt in vain: at once, or after a delay, it queues like
// new work. After its last attempt it is buried instead.
func (t *Task[V]) Release(ctx context.Context, delay time.Duration) error {
	if err := checkDelay("Release: the delay", delay); err != nil {
		return err
	}
	how := driver.Settlement{Method: driver.Release, Delay: delay, Priority: t.Priority}
	return t.settle(ctx, how)
}

// Snooze is Release, but the attempt does not count, so Snooze never buries the task. It is for
// work whose time has not come, and not for work that has failed.
func (t *Task[V]) Snooze(ctx context.Context, delay time.Duration) error {
	if err := checkDelay("Snooze: the delay", delay); err != nil {
		return err
	}
	how := driver.Settlement{Method: driver.Snooze, Delay: delay, Priority: t.Priority}
	return t.settle(ctx, how)
}

// Return hands the task back untried, as Consumer.Close does with all its tasks: the attempt does
// not count, and the task keeps its turn, unless it was returned the last time too.
func (t *Task[V]) Return(ctx context.Context) error {
	return t.settle(ctx, driver.Settlement{Method: driver.Return, Priority: t.Priority})
}

// Fail is Release, and records the reason. If reason is, or wraps, an [*Error], Fail records its
// code with the whole message.
func (t *Task[V]) Fail(ctx context.Context, reason error, delay time.Duration) error {
	if err := checkDelay("Fail: the delay", delay); err != nil {
		return err
	}
	return t.settle(ctx, driver.Settlement{
		Method: driver.Fail, Delay: delay, Priority: t.Priority, Err: newError(reason),
	})
}

// HoldKey hands the task back at its place, first of its key, and makes the whole key wait for d,
// as [Queue.HoldKey] does, in one transaction. Use it when a provider answers 429 with
// Retry-After, or when the tasks of a key must be done in order. If reason is nil the attempt does
// not count, and the task keeps its turn, unless it was handed back untried the last time too.
//
// With a reason the attempt has failed: it counts, and is recorded as by Fail. After its last
// attempt it is buried, and the key does not wait.
//
// The wait ends when the task leaves its place, because another call deletes, buries, changes or
// replaces it, or its time to live is over. If the key also waits for another reason, such as
// Queue.HoldKey, that wait goes on.
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

// Repeat reports the task as done, and puts it again after a delay: like a new task, with all its
// attempts and without an error, but with the same id. See pool.Repeat.
func (t *Task[V]) Repeat(ctx context.Context, delay time.Duration) error {
	if err := checkDelay("Repeat: the delay", delay); err != nil {
		return err
	}
	how := driver.Settlement{Method: driver.Repeat, Delay: delay, Priority: t.Priority}
	return t.settle(ctx, how)
}

// Bury puts the task aside, with the reason, until it is kicked or deleted. A Wait for its unique
// key returns the reason, as an [*Error].
func (t *Task[V]) Bury(ctx context.Context, reason error) error {
	if reason == nil {
		reason = errBuried
	}
	how := driver.Settlement{Method: driver.Bury, Priority: t.Priority, Err: newError(reason)}
	return t.settle(ctx, how)
}

// Discard reports the task as failed for good, and removes it, as Ack does. A Wait for its unique
// key returns the reason, as an [*Error].
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

// Touch extends the lease by d. The lease of a task without a TTR has no end: for such a task
// Touch returns an [ErrInvalid], unless d is 0. If the lease is no longer held, Touch returns
// [ErrLeaseLost]. With a d of 0 it only checks that.
func (t *Task[V]) Touch(ctx context.Context, d time.Duration) error {
	if err := checkDelay("Touch: the duration", d); err != nil {
		return err
	}
	if err := t.held(); err != nil {
		return err
	}
	until, err := t.consumer.queue.backend.Touch(ctx, t.lease(), d)
	if err != nil && !errors.Is(err, ErrGroupCancelled) { // a lease in a cancelled group still holds
		return err
	}
	if t.more != nil {
		more := *t.more
		more.Until = driver.Nanos(until)
		t.consumer.queue.whenFinal(ctx, func() { t.more = &more })
	}
	if d > 0 && until.IsZero() {
		return invalid("Touch: the duration", d,
			"0 for a task without a time to run, whose lease has no end")
	}
	return nil
}

// Context returns a context that is done when parent is done, when the lease ends, or when the
// group of the task is cancelled. At the end of the lease its cause is [ErrLeaseLost], and also
// [ErrDeleted] if another call has removed the task. (An Ack ends the lease too, so read the cause
// before it. The context may be done a moment later than the lease ends.) When the group is
// cancelled, the cause is [ErrGroupCancelled]: the consumer still holds the lease, and the task is
// gone when the lease ends. Call cancel when you no longer need the context.
func (t *Task[V]) Context(
	parent context.Context,
) (ctx context.Context, cancel context.CancelFunc) {
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
	if how.Method != driver.Return {
		t.End()
	}
	state, err := t.consumer.queue.backend.Settle(ctx, t.lease(), how)
	switch tx := t.consumer.queue.backend.Joined(ctx); {
	case err != nil:
	case tx != nil:
		tx.OnCommit(func() { t.state = state })
	default: // like lasting, but without allocating a function
		t.state = state
	}
	return err
}
