package pool

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

// Pool is workers that drain one or more task queues. [New] and [Func] make one. All methods may
// be called at any time by any goroutine.
type Pool[V any] struct {
	workerSet

	handler  Handler[*task.Task[V]]
	policy   Policy
	sink     Handler[*DeadLetter[V]]
	observer func(context.Context, Event[V])

	classes    []*class[V]
	strict     bool
	prefetcher *prefetcher[V] // nil if nothing is prefetched

	roundMu    sync.Mutex // protects lastServed, and served of the classes
	lastServed *class[V]

	closeOnce sync.Once       // calls close
	leftovers []DeadLetter[V] // protected by mu
	unsettled sync.Map        // copies of tasks that a call could not settle so far, by the tasks

	// submitting is the number of running submits, plus sealed when no more are let in. It is not
	// an RWMutex because late calls, for instance by sinks of other pools, must not wait for
	// earlier ones. It is the last field, away from fields that workers read for each task.
	submitting  atomic.Int64
	submitsDone chan struct{} // gets a token when the last submit of a sealed pool ends
}

// New returns a pool that drains a queue, which stays the caller's. nil options are the defaults.
// New panics if the options do not make sense; see Options.Validate. It waits until a worker has
// asked for a first task, so that a Pause right after it holds up all later tasks.
func New[V any](queue *task.Queue[V], handler Handler[*task.Task[V]],
	options *Options[V],
) *Pool[V] {
	if queue == nil {
		panic("pool: New: the queue is nil")
	}
	return newPool(queue, handler, options)
}

// Func returns a pool with a queue of its own in memory. If the options name classes, it has a
// queue for each. nil options are the defaults. Func panics if the options do not make sense; see
// [Options.Validate].
//
// By default, a failing task is tried up to ten times over some 8.5 minutes; with a
// Policy.MaxAttempts of 1, once. The queue has no limit unless Capacity is set; when it is full,
// Submit waits for room.
//
// The last call should usually be StopAndWait. Shutdown does not do the tasks that are left in the
// queue: they go to DeadLetters, or are in Leftovers, and then it returns an error.
func Func[V any](handler Handler[*task.Task[V]], options *Options[V]) *Pool[V] {
	return newPool(nil, handler, options)
}

func newPool[V any](queue *task.Queue[V], handler Handler[*task.Task[V]],
	options *Options[V],
) *Pool[V] {
	if handler == nil {
		panic("pool: the handler is nil")
	}
	var o Options[V]
	if options != nil {
		o = *options
	}
	if queue != nil {
		if len(o.Classes) > 0 {
			panic(invalid("New: the options have classes; these are for Func"))
		}
		o.Classes = []Class[V]{{Queue: queue}}
	}
	setup, err := o.complete()
	if err != nil {
		panic(err)
	}
	p := &Pool[V]{
		handler: handler, policy: o.Policy,
		sink: o.DeadLetters, observer: o.Observer, submitsDone: make(chan struct{}, 1),
		strict: o.Strict,
	}
	p.workerSet.workerSettings = *setup
	for _, c := range o.Classes {
		added := &class[V]{pool: p, name: c.Name, weight: max(c.Weight, 1), queue: c.Queue}
		if added.queue == nil {
			p.openOwn(added, &o)
		}
		added.inMemory = added.queue.InMemory()
		p.addClass(added, o.Filter)
	}
	if only := p.classes[0]; len(p.classes) == 1 && !only.inMemory {
		limit := cmp.Or(o.Prefetch, min(max(256, p.base.Max), task.MaxBatch))
		p.prefetcher = &prefetcher[V]{pool: p, class: only, limit: max(limit, 0)}
	}
	p.lastServed = p.classes[0]
	p.start(p)
	return p
}

// openOwn makes the pool's own queue of a class.
func (p *Pool[V]) openOwn(c *class[V], o *Options[V]) {
	c.own = true
	settings := o.Queue
	settings.CountOnlyWaiting = true
	settings.OnExpire = p.onGone(c, EventExpired, ReasonDeadline, ErrDeadline)
	if o.Policy.InOrder {
		settings.MaxInFlightPerKey, settings.KeepPlace = 1, true
	}
	if settings.WhenFull >= fairq.EvictHeaviest {
		settings.OnEvict = p.onGone(c, EventDropped, ReasonOverflow, fairq.ErrFull)
	}
	queue, err := task.Open(context.Background(), new(memory.Store), "pool", &settings)
	if err != nil {
		panic(err) // complete has checked the options
	}
	c.queue = queue
}

// onGone returns a function for tasks that are evicted from a queue of the pool's own, or expire
// in it.
func (p *Pool[V]) onGone(
	c *class[V], kind EventKind, reason Reason, err error,
) func(*task.Task[V]) {
	return func(t *task.Task[V]) {
		defer p.notifyQuiet() // even if the observer ends the goroutine
		defer c.goneHandled.Add(1)
		if _, refused := c.refused.LoadAndDelete(t.ID); refused {
			return // the sink has refused its letter already
		}
		p.observeTask(kind, c.name, t)
		if p.sink == nil {
			return
		}
		p.post(newDeadLetter(c.name, t, reason, err), nil, func(refused error) {
			if refused != nil {
				p.letterLost(c.name, t, reason, errors.Join(err, refused))
			}
		})
	}
}

// letterLost logs all of a task that is in no queue, and that the sink has not taken.
func (p *Pool[V]) letterLost(class string, t *task.Task[V], reason Reason, err error) {
	p.log.Error("pool: a task was lost, because its dead letter could not be sent",
		logAttrs(class, t, err, "reason", reason.String(), "payload", t.Payload)...)
}

// Queue returns the queue of a class, or of the first class if the name is empty; nil if there is
// no such class.
func (p *Pool[V]) Queue(class string) *task.Queue[V] {
	c, err := p.class(class)
	if err != nil {
		return nil
	}
	return c.queue
}

// Wait waits until no task is ready, delayed or running in the queues of the pool, as far as this
// process can see. By then Stats and DeadLetters have all outcomes. It does not wait for a delayed
// task that this pool has put again by [Repeat], but it waits for such tasks of other processes.
//
// Wait returns [ErrShutdown] if Shutdown has left tasks, and the error of ctx if ctx is done
// first. A handler must not call it, because it would wait for itself: with the context of a
// handler Wait returns a [task.ErrInvalid].
func (p *Pool[V]) Wait(ctx context.Context) error {
	if err := p.notInHandler(ctx, "Wait"); err != nil {
		return err
	}
	for {
		started := p.Stats().Started
		quiet, err := p.waitQuiet(ctx, p.deadLettersSent)
		for _, c := range p.classes {
			if err != nil {
				return err
			}
			var empty bool
			empty, err = p.waitEmpty(ctx, c)
			quiet = quiet && empty
		}
		// Ask again, because tasks may have expired, or a handler may have begun and submitted,
		// during the first look.
		if err != nil || quiet && p.deadLettersSent() && p.Stats().Started == started {
			return err
		}
	}
}

// deadLettersSent reports whether no letter is in hand, and all evicted and expired tasks of the
// pool's own queues have been handled. If the pool has stopped accepting tasks, all submits must
// have ended too. notifyQuiet is called when one of these becomes true.
func (p *Pool[V]) deadLettersSent() bool {
	if p.outbox.busy() > 0 || p.accepting.Err() != nil && p.submitting.Load() > 0 {
		return false
	}
	return !slices.ContainsFunc(p.classes, func(c *class[V]) bool {
		if !c.own {
			return false
		}
		s, err := c.queue.Stats(p.storeCtx)
		return err == nil && s.Expiries+s.Evicted != c.goneHandled.Load()
	})
}

// waitEmpty reports whether no task of a class is going to run. Otherwise it waits for an event.
func (p *Pool[V]) waitEmpty(ctx context.Context, c *class[V]) (bool, error) {
	watched, stop := context.WithCancel(ctx)
	if !c.inMemory { // changes by other processes, or in a FairQueue, may cause no events
		watched, stop = context.WithTimeout(ctx, time.Second)
	}
	defer stop()
	defer context.AfterFunc(p.over, stop)()
	wait := func() { _, _ = p.waitQuiet(watched, func() bool { return false }) }
	if c.queue != nil {
		events := c.queue.Events(watched) // before left, or it could miss one
		wait = func() {
			for range events {
				break
			}
		}
	}
	switch left, err := c.left(ctx); {
	case err == nil && (left > 0 && p.over.Err() != nil || len(p.Leftovers()) > 0):
		return false, ErrShutdown
	case err != nil || left == 0:
		return true, err
	}
	wait()
	return false, nil
}

// left returns the number of tasks that are going to run.
func (c *class[V]) left(ctx context.Context) (int, error) {
	if c.queue == nil {
		return c.queued(), nil
	}
	s, err := c.queue.Stats(ctx)
	if c.own && isOver(err) {
		err = nil
	}
	left := s.Ready + s.Delayed + s.Taken
	c.repeats.Range(func(id, _ any) bool {
		switch t, err := c.queue.Peek(ctx, id.(task.ID)); {
		case errors.Is(err, task.ErrNotFound):
			c.repeats.Delete(id)
		case err == nil && t.Info().State == task.Delayed:
			left--
		}
		return true
	})
	return left, err
}
