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
	pool      *Pool[V]
	name      string
	weight    int
	queue     *task.Queue[V] // nil if it is of items, see itemSource
	done      func(item V)   // reports the end of an item to a FairQueue
	own       bool           // the pool made it, and will close it
	inMemory  bool           // the store is in memory, so no call takes long
	consumer  *task.Consumer[V]
	taskWatch *task.Watch[V] // there may be a task

	// watching is true while the queue has no task to take, and taskWatch is armed. When taskWatch
	// is due, woken is true until the next look at the queue.
	watching, woken atomic.Bool

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

// add adds a class.
func (s *taskSource[V]) add(c *class[V]) {
	// it learns: see Options.complete
	c.consumer = c.queue.NewConsumer(s.filter)
	c.taskWatch = c.consumer.Watch(func() {
		c.woken.Store(true)
		c.watching.Store(false)
		s.pool.wake()
	})
	s.classes = append(s.classes, c)
}

// take implements source.
func (s *taskSource[V]) take(w *worker, first bool) (job, bool, error) {
	if s.prefetcher != nil {
		t, more := s.prefetcher.next(w, first)
		if t == nil {
			return nil, false, nil
		}
		return s.classes[0].attempt(t), first && more, nil
	}
	if s.filterOf != nil {
		s.filtering <- struct{}{}
		defer func() { <-s.filtering }()
		s.setFilter()
	}
	a, more, err := s.takeFromAny(w, first)
	if a == nil {
		return nil, false, err
	}
	return a, more, err
}

// takeFromAny asks the classes in turn until one has a task.
func (s *taskSource[V]) takeFromAny(w *worker, first bool) (
	a *attempt[V], more bool, failed error,
) {
	if len(s.classes) == 1 {
		return s.classes[0].take(s.pool.ctx, first || w.dry)
	}
	var asked map[*class[V]]bool // in vain
	for {
		c := s.reserve(asked)
		if c == nil {
			return nil, false, cmp.Or(failed, s.allOver())
		}
		a, more, err := c.take(s.pool.ctx, first)
		if a != nil {
			// Of another class that is due, nobody but this worker may know.
			return a, more || first && slices.ContainsFunc(s.classes, (*class[V]).mayHaveTask), failed
		}
		s.giveBack(c)
		if asked == nil {
			asked = map[*class[V]]bool{}
		}
		asked[c] = true
		if isOver(err) { // whatever it is, the other classes are asked
			c.over.Store(true)
		} else if err != nil {
			failed = err
		}
	}
}

// reserve returns the next class to ask, except these, and counts it as served; nil if there is
// none. In strict order each class is asked, even a class without a task: its taskWatch may be
// about to report one, and an urgent task must be the very next to start.
func (s *taskSource[V]) reserve(except map[*class[V]]bool) (next *class[V]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.classes {
		switch {
		case c.over.Load() || except[c] || !s.strict && c.watching.Load():
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

func (c *class[V]) mayHaveTask() bool { return !c.watching.Load() && !c.over.Load() }

// take takes a task of the class. If there is none, or first is true, it arms taskWatch if that is
// the last one; more is true if others may rely on a watch that is not armed now.
func (c *class[V]) take(ctx context.Context, first bool) (a *attempt[V], more bool, err error) {
	if !first {
		if c.watching.Load() && !c.pool.tasks.strict {
			return nil, false, nil
		}
		t, _, err := c.consumer.TryTake(ctx)
		if err == nil {
			c.pool.sourceWorks()
		}
		if t != nil || err != nil || c.watching.Load() {
			return c.attempt(t), false, err
		}
	}
	// watching before woken: if taskWatch, armed before, is due in between, watching is false
	// after this, and the queue is asked again.
	c.watching.Store(true)
	c.woken.Store(false)
	a = &attempt[V]{class: c}
	found, armed, err := c.taskWatch.Take(ctx, &a.task)
	if !armed {
		c.watching.Store(false)
	}
	if !found {
		return nil, false, err
	}
	c.pool.sourceWorks()
	return a.taken(), !armed, err
}

// attempt returns an attempt for a taken task; nil if t is nil.
func (c *class[V]) attempt(t *task.Task[V]) *attempt[V] {
	if t == nil {
		return nil
	}
	return (&attempt[V]{task: *t, class: c}).taken()
}

// taken counts an attempt whose task was taken.
func (a *attempt[V]) taken() *attempt[V] {
	if p := a.class.pool; p.tasks.filterOf != nil {
		p.taken.Add(1)
	}
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

// rested implements source.
func (s *taskSource[V]) rested() {
	if s.prefetcher != nil {
		s.prefetcher.begin()
	}
}

// disarm implements source.
func (s *taskSource[V]) disarm(mayTake bool) (any bool) {
	if s.prefetcher != nil && !mayTake {
		s.prefetcher.recall()
	}
	for _, c := range s.classes {
		if c.woken.Swap(false) {
			c.taskWatch.Disarm()
			c.watching.Store(false) // a worker may have set it just now
			any = true
		}
	}
	return any
}

// drains implements source.
func (s *taskSource[V]) drains(queue any) bool {
	return slices.ContainsFunc(s.classes, func(c *class[V]) bool { return any(c.queue) == queue })
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
