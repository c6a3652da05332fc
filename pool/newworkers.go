package pool

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// Workers drain a FairQueue; [NewWorkers] makes them. All methods may be called at any time by any goroutine.
type Workers struct {
	crew
	queued func() int // items
}

// NewWorkers returns workers that call a handler for each item of a FairQueue, which stays the caller's: who pushes to it decides
// what happens when it is full. Each item is handled once at most; one that failed goes to DeadLetters. What a queue of tasks is
// needed for, retries, delays, kinds and priorities, is not to be had here, but this is several times faster. The workers start at
// once; to end them, close the queue, Wait, and then Shutdown. nil options are the defaults. NewWorkers panics if they do not
// make sense, or if other fields are set than Workers, Scale, Schedule, Policy.Timeout, DeadLetters, AbandonAfter, Observer and
// Logger.
func NewWorkers[K comparable, V any](queue *fairq.FairQueue[K, V], handler Handler[V], options *Options[V]) *Workers {
	if queue == nil || handler == nil {
		panic("pool: NewWorkers: the queue or the handler is nil")
	}
	var o Options[V]
	if options != nil {
		o = *options
	}
	setup, err := o.completeForItems()
	if err != nil {
		panic(err)
	}
	w := &Workers{queued: queue.Len}
	w.setup = *setup
	s := &items[K, V]{crew: &w.crew, queue: queue, handler: handler, timeout: o.Policy.Timeout, sink: o.DeadLetters, observer: o.Observer}
	s.some = queue.Watch(func() {
		s.armed.Store(false)
		w.fetch()
	})
	s.many = queue.Watch(w.fetch)
	w.start(s)
	return w
}

// items is the source of Workers: a FairQueue.
type items[K comparable, V any] struct {
	crew     *crew
	queue    *fairq.FairQueue[K, V]
	handler  Handler[V]
	timeout  time.Duration
	sink     Sink[V]
	observer Observer[V]
	some     *fairq.Watch[K, V] // an item is queued
	many     *fairq.Watch[K, V] // so many are that another worker is needed
	armed    atomic.Bool        // some is
}

// item is an item that was taken, for a worker to handle.
type item[K comparable, V any] struct {
	source *items[K, V]
	value  V
}

func (i *item[K, V]) do(w *worker) { i.source.do(w, i.value) }

// work implements source.
func (s *items[K, V]) work(w *worker) (bool, error) {
	value, ok := s.queue.Pop()
	if ok {
		s.do(w, value)
	}
	return ok, nil
}

// fetch implements source.
func (s *items[K, V]) fetch() (work, error) {
	for {
		if value, ok := s.queue.Pop(); ok {
			return &item[K, V]{s, value}, nil
		}
		s.armed.Store(true)
		if s.some.Arm(1) {
			return nil, nil
		}
		if stats := s.queue.Stats(); stats.Closed && stats.Len == 0 {
			return nil, fairq.ErrClosed
		}
	}
}

// release implements source.
func (s *items[K, V]) release(bool) {
	if s.armed.Swap(false) {
		s.some.Disarm()
	}
}

// await implements source.
func (s *items[K, V]) await(fullness float64) bool {
	level := 1
	if capacity := s.queue.Stats().Capacity; capacity < fairq.MaxLen {
		level = wakeLevel(fullness, capacity)
	}
	return s.many.Arm(level)
}

// below implements source.
func (s *items[K, V]) below(fullness float64) bool {
	q := s.queue.Stats()
	if q.Capacity == fairq.MaxLen {
		return q.Len == 0
	}
	return float64(q.Len+q.WaitingPush)/float64(q.Capacity) < fullness
}

// more implements source.
func (*items[K, V]) more(int64) {}

// do handles an item.
func (s *items[K, V]) do(w *worker, value V) {
	inc(&w.counts.started)
	var t *task.Task[V] // for the observer
	var started time.Time
	o := &s.observer
	if o.times() {
		t, started = &task.Task[V]{Payload: value}, time.Now()
	}
	if o.Started != nil {
		s.crew.observe("Started", func() { o.Started(w.ctx, "", t, 0) })
	}
	err := errGoexit
	defer func() { // also if the handler ends the goroutine
		if err != nil {
			if v := recover(); v != nil {
				inc(&w.counts.panics)
				err = newPanicError(v)
			}
			s.fail(w, t, value, sound(err), started)
			return
		}
		inc(&w.counts.succeeded)
		if o.Succeeded != nil {
			s.crew.observe("Succeeded", func() { o.Succeeded(s.crew.steady, "", t, time.Since(started)) })
		}
	}()
	if s.timeout == 0 {
		err = s.handler(w.ctx, value)
		return
	}
	ctx, cancel := context.WithTimeoutCause(w.ctx, s.timeout, ErrTimeout)
	defer cancel()
	if err = s.handler(ctx, value); err != nil && errors.Is(err, context.DeadlineExceeded) && errors.Is(context.Cause(ctx), ErrTimeout) {
		err = timedOut(ErrTimeout, err)
	}
}

// fail is called with an item that was not done.
func (s *items[K, V]) fail(w *worker, t *task.Task[V], value V, err error, started time.Time) {
	inc(&w.counts.failed)
	c := s.crew
	if f := s.observer.Failed; f != nil {
		c.observe("Failed", func() { f(c.steady, "", t, time.Since(started), err) })
	}
	c.log.Warn("pool: an item failed", about("", &task.Info{}, err)...)
	if s.sink == nil {
		return
	}
	letter := &DeadLetter[V]{Payload: value, Reason: Failed, Err: err, Attempts: 1, At: time.Now()}
	if c.ctx.Err() != nil {
		letter.Reason = Shutdown
	}
	if bad := send(c.steady, c, &s.observer, s.sink, letter); bad != nil {
		c.log.Error("pool: an item was lost, because no letter of it could be sent", "payload", value, "error", bad)
	}
}

// Shutdown ends the workers: nothing is taken from the queue any more, and what runs is finished. As long as a handler is in
// [Yield], tasks are taken, for it may wait for one. If ctx is done first the contexts of the handlers are cancelled, with the cause
// [ErrShutdown]. The items that are queued stay in the queue.
//
// It returns nil if all handlers came to their own end, the cause of ctx if they had to be cancelled; and a [*AbandonedError] if
// some have not returned Options.AbandonAfter later. It can be called again, also at the same time, for instance with another ctx. In the goroutine of a handler it would wait for itself: there it does nothing, and returns an
// [ErrInvalid]. To work the backlog off first, close the queue and call Wait.
func (w *Workers) Shutdown(ctx context.Context) error {
	if err := w.outside("Shutdown"); err != nil {
		return err
	}
	return w.abandoned(ctx, w.shutdown(ctx))
}

// Wait waits until all workers are idle and nothing is queued. If Shutdown has left something, it returns [ErrShutdown]. If ctx is
// done first it returns its error. A handler must not wait for it; in its goroutine it returns an [ErrInvalid].
func (w *Workers) Wait(ctx context.Context) error {
	err := w.outside("Wait")
	ended := func() bool { return w.done.Err() != nil }
	for atOnce := false; !atOnce && err == nil; {
		atOnce, err = w.calm(ctx, func() bool { return w.queued() == 0 || ended() })
	}
	if err == nil && ended() && w.queued() > 0 {
		return ErrShutdown
	}
	return err
}
