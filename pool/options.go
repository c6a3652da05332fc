package pool

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"slices"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// Handler does a task. T is a *task.Task[V], or the item of a FairQueue. If it returns nil, the
// task is done. If it returns an error, or panics, the task has failed: it is retried, unless that
// was its last attempt. [Permanent], [RetryAfter], [Snooze] and [HoldKey] make errors that change
// this. A panic is recorded as a [*task.PanicError]. An item of a FairQueue is not retried. For a
// T of *DeadLetter[V] see Options.DeadLetters.
type Handler[T any] func(ctx context.Context, t T) error

// Options configure a pool. The zero value of each field is its default.
type Options[V any] struct {
	// Workers is the number of workers; 0 means [runtime.GOMAXPROCS]. It is short for a Scale with
	// this Min and Max, so one of the two must be zero.
	Workers int

	// Scale makes the number of workers depend on the load.
	Scale Scale

	// Schedule replaces Scale at certain times of the day. Ranges may overlap: the first range that
	// applies is in force. Where none applies, Scale is.
	Schedule []Range

	// Policy is how each task runs.
	Policy Policy

	// Queue configures a queue of the pool's own: its capacities, WhenFull, MaxInFlightPerKey,
	// Weight, Quantum, CountKeys and so on. Running tasks do not count in its capacities, and a
	// retry is never refused. Evicted tasks go to DeadLetters. OnEvict, OnExpire and AsIs are the
	// pool's, and must be zero.
	Queue task.Options[V]

	// Classes are the queues of a pool that has several; see [Class].
	Classes []Class[V]

	// Strict serves a class only if the classes before it have no task. Otherwise classes are
	// served in rounds, each as often in a round as its weight. Either way no worker is idle while
	// any class has a task that it may take.
	Strict bool

	// Filter selects the tasks to take; the zero Filter passes all. Several pools may drain one
	// queue: make the second one with the same task.Queue, or with Pool.Queue of the first. If its
	// Filter has a MaxPriority of 0, its workers stay free for urgent tasks.
	Filter task.Filter

	// Prefetch limits the tasks that are taken before workers are free for them, so that workers need
	// not wait for a transaction. It is at most [task.MaxBatch]; 0 means 256, or Scale.Max if that is
	// more, and a negative value means none. A pool prefetches only with one class, and from a queue
	// that is not in memory.
	//
	// Taking a batch needs some time. The pool holds twice as many tasks as usually start in that
	// time, and none if tasks run for longer. It hands a task that has found no worker back after at
	// most half a second.
	Prefetch int

	// DeadLetters, the sink, receives tasks that could not be done. The pool calls it in goroutines
	// of its own, as many as workers at the same time. If it returns an error, panics or ends the
	// goroutine, it has not taken the letter. After the context of a sink is done, Shutdown waits for
	// it for AbandonAfter. If the sink has not returned by then, it has not taken the letter,
	// whatever it does later.
	//
	// If DeadLetters is nil, a task that has failed for good is buried in its queue. In a queue of
	// the pool's own it is forgotten, after Observer, Logger and waiting calls have its error. See
	// the package documentation.
	DeadLetters Handler[*DeadLetter[V]]

	// AbandonAfter is how long Shutdown waits for handlers after it has cancelled their contexts.
	// Then it hands their tasks back although they still run. 0 means a second.
	AbandonAfter time.Duration

	// Observer gets the events of a pool as they happen, in their goroutines, so it should be fast.
	// Without an Observer no event is made, and no clock is read for it. If it panics, the Logger
	// logs that, and the pool goes on.
	//
	// The context lasts as long as the pool. An Observer that calls Submit, Wait or the like of this
	// pool must pass this context. By it the pool sees that the call must not wait.
	Observer func(ctx context.Context, e Event[V])

	// Logger logs lost tasks and unreadable queues at level Error. At Warn it logs tasks that have
	// failed for good or could not be settled, letters that were left, and that Shutdown cancels
	// handlers. For each of these reasons it gets at most one line a second, with the number of tasks
	// and the attributes of the last one. nil means [slog.Default].
	Logger *slog.Logger
}

// Scale is the number of workers. If all are busy and a task is ready, another one starts.
type Scale struct {
	// Min and Max, up to 1<<20, limit the number of workers. No worker starts before there is a task.
	// With a Min of 0 all of them end when there is none.
	Min, Max int

	// IdleTimeout is how long a worker above Min stays without work before it ends. 0 means a minute.
	IdleTimeout time.Duration
}

// Policy is how a task runs.
type Policy struct {
	// Timeout is how long a handler has before its context is done, with the cause [ErrTimeout]. 0
	// means no limit.
	Timeout time.Duration

	// MaxAttempts limits the attempts of a task without a limit of its own. 0 means 10, a negative
	// value no limit. An attempt counts when the task is taken. So it counts even if its lease was
	// lost or its process died, and even if the task was only prefetched (see Options.Prefetch).
	MaxAttempts int

	// Backoff is the delay after a failure.
	Backoff Backoff

	// InOrder makes workers do the tasks of a key strictly one after the other, in the order of their
	// puts, even when they fail. While a task waits for its retry, or is snoozed, its whole key
	// waits, as with [HoldKey]. When the task has failed for good, or is deleted, the key goes on.
	// [task.Queue.ResumeKey] ends the wait sooner.
	//
	// The queue must have a MaxInFlightPerKey of 1 and KeepPlace; in a queue of its own the pool sets
	// both. Priorities come before order, and a key does not wait for a task that was put with a
	// Delay. A handler must not wait for another task of its key.
	InOrder bool
}

// maxWorkers is the largest Scale.Max.
const maxWorkers = 1 << 20

// Class is a queue of a pool that drains several. Within a class keys are served in rounds, as in
// any queue.
type Class[V any] struct {
	Name   string         // unique in the pool
	Weight int            // the share of the starts, unless Options.Strict; 0 means 1
	Queue  *task.Queue[V] // nil means a queue of the pool's own, by the Options
}

// workerSettings are the options of a workerSet.
type workerSettings struct {
	log          *slog.Logger
	abandonAfter time.Duration
	base         Scale
	schedule     []clockRange
}

// Validate returns an error that names the field, its value and the limit, if the options do not
// make sense, so that [New] and [Func] would panic. Programs whose options come from their users
// call it.
func (o Options[V]) Validate() error {
	_, err := o.complete()
	return err
}

// complete checks the options of a Pool, and sets the defaults.
func (o *Options[V]) complete() (*workerSettings, error) {
	own, err := o.completeClasses()
	if err != nil {
		return nil, err
	}
	evicts := o.Queue.WhenFull >= fairq.EvictHeaviest
	queue := o.Queue
	if evicts {
		queue.OnEvict = func(*task.Task[V]) {}
	}
	bad := queue.Validate()
	switch {
	case evicts && o.DeadLetters == nil:
		return nil, invalid("Options.DeadLetters is nil; with Options.Queue.WhenFull %v it must be "+
			"set, or tasks would be lost in silence", o.Queue.WhenFull)
	case !own && !reflect.ValueOf(o.Queue).IsZero():
		return nil, invalid("Options.Queue is set; a queue that is not the pool's own has " +
			"its task.Options already")
	case o.Queue.OnEvict != nil || o.Queue.OnExpire != nil || o.Queue.AsIs:
		return nil, invalid("Options.Queue has an OnEvict, OnExpire or AsIs; these are the pool's")
	case bad != nil:
		return nil, invalid("Options.Queue: %v", bad)
	case o.Policy.InOrder && slices.ContainsFunc(o.Classes,
		func(c Class[V]) bool { return c.Queue != nil && !c.Queue.KeepsOrder() }):
		return nil, invalid("Options.Policy.InOrder is true; a queue that is not the pool's own must " +
			"have a MaxInFlightPerKey of 1 and KeepPlace for that")
	case o.Policy.InOrder && o.Queue.MaxInFlightPerKey > 1:
		return nil, invalid("Options.Queue.MaxInFlightPerKey is %d; it must be 0 or 1, with "+
			"Options.Policy.InOrder", o.Queue.MaxInFlightPerKey)
	case o.Prefetch > task.MaxBatch:
		return nil, invalid("Options.Prefetch is %d; the limit is %d", o.Prefetch, task.MaxBatch)
	case o.Filter.Kinds != nil && len(o.Filter.Kinds) == 0:
		return nil, invalid("Options.Filter.Kinds is empty; it must be nil, for all kinds, or name " +
			"one, or no task would ever be started")
	}
	return o.completeCommon()
}

// completeClasses checks the classes. own reports whether any queue will be the pool's own.
func (o *Options[V]) completeClasses() (own bool, err error) {
	if len(o.Classes) == 0 {
		o.Classes = []Class[V]{{}}
	}
	o.Classes = slices.Clone(o.Classes)
	for i, c := range o.Classes {
		name := fmt.Sprintf("Options.Classes[%d]", i)
		if err := within(name+".Weight", c.Weight, fairq.MaxWeight); err != nil {
			return false, err
		}
		if len(o.Classes) > 1 && c.Name == "" {
			return false, invalid("%s.Name is empty; it must not be if there are several", name)
		}
		same := func(other Class[V]) bool { return other.Name == c.Name }
		if j := slices.IndexFunc(o.Classes, same); j < i {
			return false, invalid("%s.Name is %q, and so is that of Options.Classes[%d]; they must "+
				"differ", name, c.Name, j)
		}
		own = own || c.Queue == nil
	}
	return own, nil
}

// completeCommon is the part of complete for the workers.
func (o *Options[V]) completeCommon() (*workerSettings, error) {
	base := o.Scale
	if o.Workers > 0 && (base.Min != 0 || base.Max != 0) {
		return nil, invalid("Options.Workers is %d and Options.Scale has %d to %d workers; "+
			"one of the two must be 0", o.Workers, base.Min, base.Max)
	}
	if err := cmp.Or(
		within("Options.Workers", o.Workers, maxWorkers),
		within("Options.AbandonAfter", o.AbandonAfter, task.MaxDuration),
		within("Options.Policy.Timeout", o.Policy.Timeout, task.MaxDuration),
		within("Options.Policy.Backoff.Base", o.Policy.Backoff.Base, task.MaxDuration),
		within("Options.Policy.Backoff.Max", o.Policy.Backoff.Max, task.MaxDuration),
	); err != nil {
		return nil, err
	}
	if base.Min == 0 && base.Max == 0 {
		base.Max = cmp.Or(o.Workers, runtime.GOMAXPROCS(0))
		base.Min = base.Max
	}
	if err := cmp.Or(base.complete("Options.Scale", time.Minute),
		o.Policy.Backoff.validate("Options.Policy.Backoff")); err != nil {
		return nil, err
	}
	schedule, err := compile(o.Schedule, base)
	return &workerSettings{
		log: cmp.Or(o.Logger, slog.Default()), abandonAfter: cmp.Or(o.AbandonAfter, time.Second),
		base: base, schedule: schedule,
	}, err
}

// complete checks a scale, and fills in the default of IdleTimeout.
func (s *Scale) complete(name string, idleTimeout time.Duration) error {
	s.IdleTimeout = cmp.Or(s.IdleTimeout, idleTimeout)
	if s.Min < 0 || s.Max < s.Min || s.Max > maxWorkers {
		return invalid("%s: Min and Max are %d and %d; the limits are 0 and %d, and Min must not be "+
			"greater", name, s.Min, s.Max, maxWorkers)
	}
	return within(name+".IdleTimeout", s.IdleTimeout, task.MaxDuration)
}

// within returns an error if the value of a field is not from 0 to most.
func within[T ~int | ~int64](name string, value, most T) error {
	if value < 0 || value > most {
		return invalid("%s is %v; the limits are 0 and %v", name, value, most)
	}
	return nil
}
