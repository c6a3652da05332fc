package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// Pool is workers that drain one or more task queues. [New] and [Func] make one. All methods may be called at any time by any
// goroutine.
type Pool[V any] struct {
	crew

	lines    lines[V]
	handler  Handler[*task.Task[V]]
	policy   Policy
	forTask  func(*task.Task[V], Policy) Policy
	whenFull WhenFull
	delay    time.Duration
	deadline time.Duration
	sink     Sink[V]
	observer Observer[V]
	byKey    *keyCounter // nil if keys are not counted

	mostUnsettled int64 // how many tasks are settled in the background at most
	// submitting is how many put a task just now, plus sealed when none may come any more. It is not an RWMutex because those who
	// come too late, the sinks of others among them, must not wait for those who were in time.
	submitting atomic.Int64
	sending    atomic.Int64            // letters of tasks that are in no queue
	through    chan struct{}           // has a token when the last of them is through
	open       context.Context         // done when Shutdown was called
	shut       context.CancelCauseFunc // of open

	following sync.WaitGroup     // goroutines of tasks with CancelWithContext
	followed  context.Context    // of these
	unfollow  context.CancelFunc // ends it

	finish    sync.Once   // of Shutdown
	cut       atomic.Bool // it has found tasks that were to be done
	leftMu    sync.Mutex  // protects leftovers
	leftovers []DeadLetter[V]
}

// New returns a pool that drains a queue, which stays the caller's. nil options are the defaults. New
// panics if the options do not make sense; see Options.Validate.
func New[V any](queue *task.Queue[V], handler Handler[*task.Task[V]], options *Options[V]) *Pool[V] {
	if queue == nil {
		panic("pool: New: the queue is nil")
	}
	return newPool(queue, handler, options)
}

// Func returns a pool with a queue of its own in memory. Unless the options say otherwise, a task that
// fails is tried up to ten times, [DefaultMaxAttempts], over some 8.5 minutes; Policy.MaxAttempts 1 means
// once. The queue has no limit unless Capacity is set; when it is full, Submit waits for room.
//
// If the options name classes, it has a queue for each. What is in it when the pool has been shut down is
// handed to DeadLetters, or else returned by Leftovers. nil options are the defaults. Func panics if the
// options do not make sense; see Options.Validate.
func Func[V any](handler Handler[*task.Task[V]], options *Options[V]) *Pool[V] {
	return newPool(nil, handler, options)
}

func newPool[V any](queue *task.Queue[V], handler Handler[*task.Task[V]], options *Options[V]) *Pool[V] {
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
		handler: handler, policy: o.Policy, forTask: o.ForTask, whenFull: o.WhenFull, delay: o.Delay, deadline: o.Deadline,
		sink: o.DeadLetters, observer: o.Observer, through: make(chan struct{}, 1),
	}
	p.open, p.shut = context.WithCancelCause(context.Background())
	p.crew.setup = *setup
	if o.CountKeys > 0 {
		p.byKey = &keyCounter{counts: fairq.NewKeyCounter[string](o.CountKeys)}
	}
	l := &p.lines
	l.pool, l.order, l.epoch, l.kinds = p, o.Order, time.Now(), slices.Clone(o.Kinds)
	l.filter = task.Filter{Kinds: l.kinds}
	l.turns.Weight = func(i int) int { return l.classes[i].weight }
	for _, c := range o.Classes {
		line := &class[V]{name: c.Name, weight: max(c.Weight, 1), queue: c.Queue}
		if line.queue == nil {
			p.openOwn(line, &o, c.Capacity)
		}
		line.direct = line.queue.InMemory()
		l.add(line)
	}
	most := max(defaultPrefetch, p.base.Max)
	p.mostUnsettled = int64(most)
	if o.Prefetch == 0 {
		o.Prefetch = min(most, task.MaxBatch)
	}
	if only := l.classes[0]; len(l.classes) == 1 && !only.direct {
		l.stock = newStock(p, only, max(o.Prefetch, 0))
	}
	l.setLimitsLocked(o.Limits)
	p.start(l)
	p.followed, p.unfollow = context.WithCancel(p.steady)
	return p
}

// openOwn makes the queue of a class that is the pool's own.
func (p *Pool[V]) openOwn(c *class[V], o *Options[V], capacity int) {
	c.own = true
	settings := task.Options[V]{
		Capacity: capacity, KeyCapacity: o.KeyCapacity, CountOnlyWaiting: true, MaxInFlightPerKey: o.MaxInFlightPerKey, Weight: o.Weight,
		OnExpire: p.gone(c, Deadline, ErrDeadline),
	}
	switch o.WhenFull {
	case EvictOldest:
		settings.WhenFull = fairq.EvictOldest
	case EvictHeaviest:
		settings.WhenFull = fairq.EvictHeaviest
	}
	if settings.WhenFull != fairq.Reject {
		settings.OnEvict = p.gone(c, Overflow, fairq.ErrFull)
	}
	queue, err := task.Open(context.Background(), new(task.Memory), "pool", &settings)
	if err != nil {
		panic(err) // complete has checked the options
	}
	c.queue = queue
}

// gone returns a function for tasks that have left a queue of the pool's own by themselves.
func (p *Pool[V]) gone(c *class[V], reason Reason, err error) func(*task.Task[V]) {
	return func(t *task.Task[V]) {
		defer p.settle() // also if the observer ends the goroutine
		defer c.told.Add(1)
		_ = p.letter(p.steady, c.name, t, reason, err)
	}
}

// Queue returns the queue of a class, the first one's if the name is empty; nil if there is no such class.
func (p *Pool[V]) Queue(class string) *task.Queue[V] {
	c, err := p.lines.class(class)
	if err != nil {
		return nil
	}
	return c.queue
}

// Submit puts a task of a key into the queue that the pool drains, or the first of them, with the pool's defaults. What happens if
// there is no room is up to Options.WhenFull. If ctx is done it returns its error, after Shutdown [ErrShutdown], unless it is called
// with the context of a handler of the pool.
//
// By that context, or one that was made of it, the pool knows a handler's own call, in whatever goroutine it is made: while it waits for
// room the handler counts as waiting, and its place is another one's, as in [Yield]. If all handlers wait so, and only they
// could make room, the last one of these calls fails at once with an error that Is [ErrFull] and says so: its handler can
// return that error, and will be tried again. When a handler has returned, its context is done, and what has
// been made of it with context.WithoutCancel is one like any other.
func (p *Pool[V]) Submit(ctx context.Context, key string, payload V) error {
	_, err := p.Put(ctx, key, payload, PutOptions{})
	return err
}

// Put is Submit with options, and returns the task's id. That is 0 if the task was dropped.
func (p *Pool[V]) Put(ctx context.Context, key string, payload V, options PutOptions) (task.ID, error) {
	return p.submit(ctx, key, payload, options, p.whenFull)
}

// TrySubmit is Put that says at once if there is no room: where that would wait, or make a letter of the task, it returns a
// [*FullError], and the task remains the caller's.
func (p *Pool[V]) TrySubmit(ctx context.Context, key string, payload V, options PutOptions) (task.ID, error) {
	return p.submit(ctx, key, payload, options, Reject)
}

// submit is Put with a policy of its own.
func (p *Pool[V]) submit(ctx context.Context, key string, payload V, options PutOptions, whenFull WhenFull) (id task.ID, err error) {
	c, err := p.lines.class(options.Class)
	if err != nil {
		return 0, err
	}
	p.fill(&options)
	o := options.Task()
	p.offered(ctx, c, key, payload, &o)
	defer p.leaveQueue()
	if err = p.enterQueue(ctx); err == nil {
		id, err = p.put(ctx, c, key, payload, o, whenFull)
	}
	switch {
	case err != nil:
		p.refuse(ctx, c, key, payload, &o, err)
	case options.CancelWithContext && id != 0:
		p.follow(ctx, c, o.UniqueKey, id)
	}
	return id, err
}

// put puts a task into the queue of a class.
func (p *Pool[V]) put(ctx context.Context, c *class[V], key string, payload V, options task.PutOptions, whenFull WhenFull) (task.ID, error) {
	if until := p.until(ctx); c.own && whenFull == Block && until == p.open && ctx.Done() == nil {
		id, err := c.queue.PutWait(until, key, payload, options) // as makeRoom, but cheaper
		if until.Err() != nil && errors.Is(err, until.Err()) {
			err = ErrShutdown
		}
		return id, err
	}
	id, err := c.queue.Put(ctx, key, payload, options)
	if errors.Is(err, fairq.ErrFull) {
		return p.makeRoom(ctx, c, key, payload, options, whenFull, err)
	}
	return id, err
}

// makeRoom does with a task that there is no room for as the policy says.
func (p *Pool[V]) makeRoom(
	ctx context.Context, c *class[V], key string, payload V, options task.PutOptions, whenFull WhenFull, full error,
) (id task.ID, err error) {
	switch whenFull {
	case DropNew:
		return 0, p.letter(ctx, c.name, newTask(key, payload, &options), Overflow, full)
	case Reject, EvictOldest, EvictHeaviest:
		return 0, full
	}
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.until(ctx), func() { cancel(ErrShutdown) })()
	put := func() { id, err = c.queue.PutWait(waiting, key, payload, options) }
	if p.isHandler(ctx) { // else all workers could wait for room, which they alone can make
		p.yield(ctx, &submission{end: func() { cancel(errStuck) }, hopeless: p.hopeless}, put)
	} else {
		put()
	}
	switch {
	case err == nil || ctx.Err() != nil || waiting.Err() == nil:
		return id, err
	case errors.Is(context.Cause(waiting), errStuck):
		return 0, fmt.Errorf("%w: %w", errStuck, full)
	}
	return id, ErrShutdown
}

// until returns the context that ends the waiting for room.
func (p *Pool[V]) until(ctx context.Context) context.Context {
	if p.isHandler(ctx) {
		return p.ctx
	}
	return p.open
}

// Wait waits until nothing is ready, delayed or running in the queues that the pool drains, as far as this process can see, and
// all that has happened is in Stats, and in the hands of DeadLetters. If Shutdown has left something, it returns [ErrShutdown]. If ctx
// is done first it returns its error. A handler must not wait for it; in its goroutine it returns an [ErrInvalid].
func (p *Pool[V]) Wait(ctx context.Context) error {
	if err := p.outside("Wait"); err != nil {
		return err
	}
	for {
		quiet, err := p.calm(ctx, p.sent)
		for _, c := range p.lines.classes {
			if err != nil {
				return err
			}
			var atOnce bool
			atOnce, err = p.quiet(ctx, c)
			quiet = quiet && atOnce
		}
		if err != nil || quiet && p.sent() { // what has expired meanwhile has a letter
			return err
		}
	}
}

// sent tells whether there is a letter of each task that has left a queue of the pool's own by itself, and when no task may be
// submitted any more, whether those are through that were. When that becomes so, settle is called.
func (p *Pool[V]) sent() bool {
	if p.sending.Load() > 0 || p.open.Err() != nil && p.submitting.Load() > 0 {
		return false
	}
	return !slices.ContainsFunc(p.lines.classes, func(c *class[V]) bool {
		s, err := c.queue.Stats(p.steady)
		return c.own && err == nil && s.Expiries+s.Evicted != c.told.Load()
	})
}

// quiet waits until a queue has nothing that is going to be done. It tells whether that was so at once.
func (p *Pool[V]) quiet(ctx context.Context, c *class[V]) (atOnce bool, err error) {
	for atOnce = true; ; atOnce = false {
		if ok, err := p.look(ctx, c); ok || err != nil {
			return atOnce, err
		}
		if err := ctx.Err(); err != nil {
			return false, err
		}
	}
}

// look tells whether a queue has nothing that is going to be done. If it has, it waits for something to happen.
func (p *Pool[V]) look(ctx context.Context, c *class[V]) (bool, error) {
	watched, stop := context.WithCancel(ctx)
	if !c.direct {
		watched, stop = context.WithTimeout(ctx, quietPause)
	}
	defer stop()
	defer context.AfterFunc(p.done, stop)()
	events := c.queue.Events(watched) // before the look, or it could miss one
	ended := p.done.Err() != nil
	s, err := c.queue.Stats(ctx)
	if c.own && isOver(err) {
		err = nil
	}
	left := s.Ready + s.Delayed + s.Taken
	switch {
	case err == nil && ended && (left > 0 || p.cut.Load()):
		return false, ErrShutdown
	case err != nil || left == 0:
		return true, err
	}
	for range events {
		break
	}
	return false, nil
}

// quietPause is how long look waits: of what other processes do there need not be any events.
const quietPause = time.Second

// letter hands on a task that is not in its queue, or not any more. If that fails, the log has all that is known of it, and it
// returns why. The context is for the observer.
func (p *Pool[V]) letter(ctx context.Context, class string, t *task.Task[V], reason Reason, err error) error {
	p.sending.Add(1)
	defer p.settle() // also if the observer ends the goroutine
	defer p.sending.Add(-1)
	switch {
	case reason == Deadline:
		p.expired(class, t)
	case reason == Overflow:
		p.dropped.Add(1)
		p.byKey.add(t.Key, fairq.Counts{Evicted: 1})
		if f := p.observer.Dropped; f != nil {
			p.observe("Dropped", func() { f(ctx, class, t) })
		}
	}
	if p.sink == nil {
		return nil
	}
	bad := send(p.steady, &p.crew, &p.observer, p.sink, newLetter(class, t, reason, err))
	if bad != nil {
		bad = errors.Join(err, bad)
		p.log.Error("pool: a task was lost, because no letter of it could be sent",
			about(class, &t.Info, bad, "reason", reason.String(), "payload", t.Payload)...)
	}
	return bad
}

func (p *Pool[V]) expired(class string, t *task.Task[V]) {
	p.expirations.Add(1)
	if f := p.observer.Expired; f != nil {
		p.observe("Expired", func() { f(p.steady, class, t) })
	}
}
