package pool

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fairq/fairq/task"
)

// class is a queue that is drained.
type class[V any] struct {
	pool     *Pool[V]
	name     string
	weight   int
	queue    *task.Queue[V] // nil if it is of items, see NewWorkers
	queued   func() int     // how many items are
	done     func(item V)   // reports the end of an item to a FairQueue
	own      bool           // the pool made it, and will close it
	inMemory bool           // the store is in memory, so no call takes long
	consumer *task.Consumer[V]

	// takeOne takes a task into a zero one. If it was the last one, or there is none, it arms the
	// watch, which will call due. more is true if the watch is not armed, although idle workers may
	// rely on it.
	takeOne func(ctx context.Context, into *task.Task[V], wasIdle bool) (found, more bool, err error)

	disarm    func()         // disarms the watch
	taskWatch *task.Watch[V] // the watch, nil if it is of items
	watch     atomic.Int32   // watchOff, watchArmed or watchDue

	over    atomic.Bool // the queue was closed or dropped
	repeats sync.Map    // ids of tasks that this pool has put again by Repeat, which no store marks
	refused sync.Map    // ids of tasks that are being buried, because the sink refused their letters

	// goneHandled counts the evicted and expired tasks of the pool's own queue that deadLetter has
	// handled.
	goneHandled atomic.Uint64

	served int // how often, at least as often for its weight as others; protected by Pool.roundMu
}

// The states of the watch of a class.
const (
	watchOff   = iota
	watchArmed // there was no task
	watchDue   // there may be one again, and nobody has looked since
)

// due is called by the watch.
func (c *class[V]) due() {
	c.watch.Store(watchDue)
	c.pool.wake()
}

// addClass adds a class of tasks.
func (p *Pool[V]) addClass(c *class[V], filter task.Filter) {
	c.consumer = c.queue.NewConsumer(filter)
	c.taskWatch = c.consumer.Watch(c.due)
	c.disarm = c.taskWatch.Disarm
	c.takeOne = func(ctx context.Context, into *task.Task[V], _ bool) (found, more bool, err error) {
		found, armed, err := c.taskWatch.Take(ctx, into)
		return found, !armed, err
	}
	p.classes = append(p.classes, c)
}

// take implements source.
func (p *Pool[V]) take(w *worker, wasIdle bool) (job, bool, error) {
	if p.prefetcher != nil {
		t, more := p.prefetcher.next()
		if t == nil {
			return nil, false, nil
		}
		return &attempt[V]{task: *t, class: p.classes[0], worker: w}, more, nil
	}
	a, more, err := p.takeFromAny(w, wasIdle)
	if a == nil {
		return nil, false, err
	}
	return a, more, err
}

// takeFromAny asks the classes in turn until one has a task.
func (p *Pool[V]) takeFromAny(
	w *worker, wasIdle bool,
) (a *attempt[V], more bool, failed error) {
	if len(p.classes) == 1 {
		return p.classes[0].take(w, wasIdle)
	}
	open := false
	for _, c := range p.inTurn() {
		p.serve(c, 1) // before the take, for other workers
		a, more, err := c.take(w, wasIdle)
		if a != nil {
			// Of another class that is due, nobody but this worker may know.
			return a, more || slices.ContainsFunc(p.classes, func(c *class[V]) bool {
				return c.watch.Load() != watchArmed && !c.over.Load()
			}), failed
		}
		p.serve(c, -1)
		if isOver(err) {
			c.over.Store(true)
			continue
		}
		open, failed = true, cmp.Or(err, failed)
	}
	if !open {
		failed = task.ErrClosed
	}
	return nil, false, failed
}

// inTurn returns the classes that may have tasks, in the order in which a worker asks them. The
// first is the class that was served least for its weight. A class that had no task for a while is
// not further behind than the class that was served last.
func (p *Pool[V]) inTurn() []*class[V] {
	p.roundMu.Lock()
	defer p.roundMu.Unlock()
	turns := slices.DeleteFunc(slices.Clone(p.classes),
		func(c *class[V]) bool { return c.over.Load() })
	if p.strict {
		return turns
	}
	for _, c := range turns {
		c.served = max(c.served, (p.lastServed.served-1)*c.weight/p.lastServed.weight)
	}
	slices.SortStableFunc(turns, func(a, b *class[V]) int {
		return cmp.Compare(a.served*b.weight, b.served*a.weight)
	})
	return turns
}

// serve counts a start of a class, or with -1 undoes that.
func (p *Pool[V]) serve(c *class[V], n int) {
	p.roundMu.Lock()
	c.served += n
	p.lastServed = c
	p.roundMu.Unlock()
}

// take takes a task of the class for a worker; see takeOne.
func (c *class[V]) take(w *worker, wasIdle bool) (a *attempt[V], more bool, err error) {
	c.watch.Store(watchArmed) // before the call, during which it may become due
	a = c.newAttempt(w)
	found, more, err := c.takeOne(c.pool.ctx, &a.task, wasIdle)
	if more {
		c.watch.Store(watchOff)
	}
	if err == nil {
		c.pool.sourceWorks()
	}
	if !found {
		w.spare = a
		return nil, false, err
	}
	return a, more, err
}

// newAttempt returns an attempt of a worker without a task: its spare one, or a new one.
func (c *class[V]) newAttempt(w *worker) *attempt[V] {
	a, _ := w.spare.(*attempt[V])
	if a == nil {
		return &attempt[V]{class: c, worker: w}
	}
	w.spare = nil
	a.task, a.class = task.Task[V]{}, c
	return a
}

// disarm implements source.
func (p *Pool[V]) disarm(mayTake bool) (any bool) {
	if p.prefetcher != nil && !mayTake {
		// A batch that is being taken is followed by a wake, which hands that back too.
		p.prefetcher.handBack(func(prefetchedTask[V]) bool { return true })
	}
	for _, c := range p.classes {
		if c.watch.CompareAndSwap(watchDue, watchOff) {
			c.disarm()
			c.watch.Store(watchOff) // a worker may have armed it just now
			any = true
		}
	}
	return any
}

// class returns the class of that name; the first one if it is empty.
func (p *Pool[V]) class(name string) (*class[V], error) {
	for _, c := range p.classes {
		if name == "" || c.name == name {
			return c, nil
		}
	}
	return nil, invalid("there is no class %q", name)
}
