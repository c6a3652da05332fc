package faulttest

import (
	"context"
	"fmt"
	"time"

	"github.com/fairq/fairq/task"
)

// workOnSomething takes some tasks, and settles each in a random way.
func (l *load) workOnSomething() error {
	if l.chance(10) {
		if _, err := l.queue.Kick(context.Background(), task.ListOptions{Limit: 5}); err != nil {
			return err
		}
	}
	if l.chance(10) {
		return l.workOnListed()
	}
	n := 1
	if l.chance(20) {
		n = 4
	}
	tasks, err := l.queue.TakeBatch(l.Stop, n)
	if err != nil {
		return err
	}
	leases := make([]lease, len(tasks))
	for i, t := range tasks {
		leases[i] = l.took(t)
	}
	for _, t := range leases {
		if err := l.workOn(t); err != nil {
			return err
		}
	}
	return nil
}

// workOnListed counts and lists tasks that are ready, and works on one of them.
func (l *load) workOnListed() error {
	o := task.ListOptions{State: task.Ready, Limit: 10}
	if l.chance(50) {
		o.Kind = new("")
	}
	if _, err := l.queue.Count(context.Background(), o); err != nil {
		return err
	}
	tasks, err := l.queue.List(context.Background(), o)
	if err != nil || len(tasks) == 0 {
		return err
	}
	t, err := l.queue.TakeID(l.Stop, tasks[l.rand.IntN(len(tasks))].ID)
	if err != nil {
		return expected(err)
	}
	return l.workOn(l.took(t))
}

// lease is a task with the number that its take has in the journal.
type lease struct {
	*task.Task[string]
	take int64
}

func (l *load) took(t *task.Task[string]) lease {
	take, info := l.Journal.call.Add(1), t.Info()
	l.Journal.write(line{
		Op: "took", Take: take, Queue: l.name, Name: t.Payload, ID: t.ID, Until: nanos(info.Until),
		Took: &took{
			Key: t.Key, Attempts: t.Attempts, Created: nanos(info.Created), ReadyAt: nanos(info.ReadyAt),
		},
	})
	return lease{t, take}
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func (l *load) workOn(t lease) error {
	how := "ack"
	switch p := l.rand.IntN(1000); {
	case p < 20 && !t.Info().Until.IsZero(), p < 5:
		// The task stays held until its lease runs out, or the process ends. So its consumer must not
		// hand back all of its tasks, as ackAndTake does.
		l.consumer = l.queue.NewConsumer(task.Filter{})
		return nil
	case p < 100:
		if err := l.settle(t, "touch"); err != nil {
			return err
		}
	case p < 200:
		how = "release"
	case p < 250:
		how = "snooze"
	case p < 320:
		how = "bury"
	case p < 420:
		how = "discard"
	case p < 520:
		return l.ackAndTake(t)
	}
	return l.settle(t, how)
}

// begin writes the begin of a call that settles a lease, and returns the function that writes its
// end.
func (l *load) begin(how string, t lease) func(line) {
	return l.Journal.begin(line{Op: how, Queue: l.name, Name: t.Payload, ID: t.ID, Take: t.take})
}

// ackAndTake acks a task, and works on the next one or hands it back.
func (l *load) ackAndTake(t lease) error {
	done, taken := l.begin("ack", t), new(task.Task[string])
	ok, err := l.consumer.AckAndTake(context.Background(), t.Task, taken)
	done(line{Err: class(err)})
	if !ok || err != nil {
		return expected(err)
	}
	next := l.took(taken)
	if l.chance(50) {
		return l.workOn(next)
	}
	done = l.begin("snooze", next)
	err = l.consumer.ReleaseAll(context.Background())
	done(line{Err: class(err)})
	return expected(err)
}

func (l *load) delay() time.Duration { return time.Duration(l.rand.IntN(2)*50) * time.Millisecond }

func (l *load) settle(t lease, how string) (err error) {
	ctx, done := context.Background(), l.begin(how, t)
	switch how {
	case "ack":
		err = t.Ack(ctx)
	case "touch":
		d := 50 * time.Millisecond
		if t.Info().Until.IsZero() {
			d = 0 // it does not run out
		}
		err = t.Touch(ctx, d)
	case "release":
		err = t.Release(ctx, l.delay())
	case "snooze":
		err = t.Snooze(ctx, l.delay())
	case "bury":
		err = t.Bury(ctx, fmt.Errorf("buried %s", t.Payload))
	case "discard":
		err = t.Discard(ctx, fmt.Errorf("discarded %s", t.Payload))
	}
	done(line{Err: class(err), Until: nanos(t.Info().Until)})
	return expected(err)
}
