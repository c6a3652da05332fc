package pool

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fairq/fairq/task"
)

// taskSource is the source of a [Pool]: the queues of its classes.
//
// If a class has no task, its taskWatch reports the next one. Until then the class is skipped.
type taskSource[V any] struct {
	pool       *Pool[V]
	classes    []*class[V]
	strict     bool
	filterOf   func(running int) task.Filter // Options.Filter
	prefetcher *prefetcher[V]                // nil if nothing is prefetched

	// filtering has a token for the only take that runs at a time if filterOf is set, because each
	// must know the running tasks of the others.
	filtering chan struct{}
	filter    task.Filter // of all consumers

	mu    sync.Mutex // protects round, and those of the classes; nothing is called under it
	round int64      // of the class that was served last
}

// class is a queue that is drained.
type class[V any] struct {
	pool     *Pool[V]
	name     string
	weight   int
	queue    *task.Queue[V] // nil if it is of items, see NewWorkers
	done     func(item V)   // reports the end of an item to a FairQueue
	own      bool           // the pool made it, and will close it
	inMemory bool           // the store is in memory, so no call takes long
	consumer *task.Consumer[V]

	// takeOne takes a task into a zero one. If it was the last one, or there is none, it arms the
	// watch, which will call due. more is true if idle workers may rely on a watch that is not armed.
	takeOne func(ctx context.Context, into *task.Task[V], wasIdle bool) (found, more bool, err error)

	taskWatch *task.Watch[V] // there may be a task
	watch     atomic.Int32   // watchOff, watchArmed or watchDue

	over    atomic.Bool // the queue was closed or dropped
	repeats sync.Map    // ids of tasks that this pool has put again by Repeat, which no store marks
	refused sync.Map    // ids of tasks that are being buried, because the sink refused their letters

	// goneHandled counts the evicted and expired tasks of the pool's own queue that deadLetter has
	// handled.
	goneHandled atomic.Uint64

	// A class is served up to weight times in a round. Both are protected by taskSource.mu.
	round  int64
	served int // in this round
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

// add adds a class.
func (s *taskSource[V]) add(c *class[V]) {
	c.consumer = c.queue.NewConsumer(s.filter)
	c.taskWatch = c.consumer.Watch(c.due)
	c.takeOne = func(ctx context.Context, into *task.Task[V], _ bool) (found, more bool, err error) {
		found, armed, err := c.taskWatch.Take(ctx, into)
		return found, !armed, err
	}
	s.classes = append(s.classes, c)
}

// take implements source.
func (s *taskSource[V]) take(w *worker, wasIdle bool) (job, bool, error) {
	if s.prefetcher != nil {
		t, more := s.prefetcher.next()
		if t == nil {
			return nil, false, nil
		}
		return &attempt[V]{task: *t, class: s.classes[0], worker: w}, more, nil
	}
	if s.filterOf != nil {
		s.filtering <- struct{}{}
		defer func() { <-s.filtering }()
		s.setFilter()
	}
	a, more, err := s.takeFromAny(w, wasIdle)
	if a == nil {
		return nil, false, err
	}
	if s.filterOf != nil {
		s.pool.taken.Add(1)
	}
	return a, more, err
}

// takeFromAny asks the classes in turn until one has a task.
func (s *taskSource[V]) takeFromAny(
	w *worker, wasIdle bool,
) (a *attempt[V], more bool, failed error) {
	if len(s.classes) == 1 {
		return s.classes[0].take(w, wasIdle)
	}
	var asked []*class[V] // in vain
	for {
		c := s.reserve(asked)
		if c == nil {
			return nil, false, cmp.Or(failed, s.allOver())
		}
		a, more, err := c.take(w, wasIdle)
		if a != nil {
			// Of another class that is due, nobody but this worker may know.
			return a, more || slices.ContainsFunc(s.classes, func(c *class[V]) bool {
				return c.watch.Load() != watchArmed && !c.over.Load()
			}), failed
		}
		s.giveBack(c)
		asked = append(asked, c)
		if isOver(err) { // whatever it is, the other classes are asked
			c.over.Store(true)
		} else if err != nil {
			failed = err
		}
	}
}

// reserve returns the next class to ask, except these, and counts it as served; nil if there is
// none.
func (s *taskSource[V]) reserve(except []*class[V]) (next *class[V]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.classes {
		switch {
		case c.over.Load() || slices.Contains(except, c):
			continue
		case c.round < s.round: // it had no task then; an unused share is not credited
			c.round, c.served = s.round, 0
		}
		if next == nil || !s.strict && (c.round < next.round ||
			c.round == next.round && c.served*next.weight < next.served*c.weight) {
			next = c
		}
	}
	if next != nil {
		s.round = next.round
		if next.served++; next.served == next.weight {
			next.round, next.served = next.round+1, 0
		}
	}
	return next
}

// giveBack undoes reserve.
func (s *taskSource[V]) giveBack(c *class[V]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.served--; c.served < 0 {
		c.round, c.served = c.round-1, c.weight-1
	}
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

// newAttempt returns an attempt of a worker without a task: the one that it has to spare, or else a
// new one.
func (c *class[V]) newAttempt(w *worker) *attempt[V] {
	a, _ := w.spare.(*attempt[V])
	if a == nil {
		a = new(attempt[V])
	}
	w.spare = nil
	*a = attempt[V]{class: c, worker: w}
	return a
}

// allOver returns an error if the queues of all classes were closed or dropped.
func (s *taskSource[V]) allOver() error {
	for _, c := range s.classes {
		if !c.over.Load() {
			return nil
		}
	}
	return task.ErrClosed
}

// disarm implements source.
func (s *taskSource[V]) disarm(mayTake bool) (any bool) {
	if s.prefetcher != nil && !mayTake {
		s.prefetcher.recall()
	}
	for _, c := range s.classes {
		if c.taskWatch != nil && c.watch.CompareAndSwap(watchDue, watchOff) {
			c.taskWatch.Disarm()
			c.watch.Store(watchOff) // a worker may have armed it just now
			any = true
		}
	}
	return any
}

// setFilter sets the tasks that consumers may take now, by Options.Filter.
func (s *taskSource[V]) setFilter() {
	f, old := s.filter, s.filter
	s.pool.guard("Options.Filter", func() { f = s.filterOf(int(s.pool.taken.Load())) })
	if slices.Equal(f.Kinds, old.Kinds) && (f.Kinds == nil) == (old.Kinds == nil) &&
		(f.MaxPriority == nil) == (old.MaxPriority == nil) &&
		(f.MaxPriority == nil || *f.MaxPriority == *old.MaxPriority) {
		return
	}
	f.Kinds = slices.Clone(f.Kinds)
	s.filter = f
	for _, c := range s.classes {
		c.consumer.SetFilter(f)
	}
}

// class returns the class of that name; the first one if it is empty.
func (s *taskSource[V]) class(name string) (*class[V], error) {
	if name == "" {
		return s.classes[0], nil
	}
	for _, c := range s.classes {
		if c.name == name {
			return c, nil
		}
	}
	return nil, invalid("there is no class %q", name)
}
