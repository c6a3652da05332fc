package pool

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// taskSource is the source of a [Pool]: the queues of its classes.
//
// If a class has no task, its taskWatch reports the next one. Until then the class is skipped.
// With several classes, or with limits, takes go one by one, under mu, so that each knows the
// takes of the others. With one class and no limits, all workers take at the same time.
type taskSource[V any] struct {
	pool    *Pool[V]
	classes []*class[V]
	strict  bool

	running    atomic.Int64   // taken tasks that are not done, without those in Yield
	serial     atomic.Bool    // takes go one by one: there are several classes, or limits
	prefetcher *prefetcher[V] // nil if nothing is prefetched; not used while serial is true

	// mu protects the fields below. If serial is true, a take holds it, so that each knows the
	// takes of the others. Unlike other locks, it is held during calls of a queue, because no
	// other take could proceed anyway.
	mu           sync.Mutex
	limits       []Limit
	kinds        []string
	filter       task.Filter // the filter of all consumers
	turns        fairq.Queue[int, struct{}]
	takeCount    uint64      // calls of takeSerial
	mayHaveTasks atomic.Bool // a class may have tasks again, but has no turns
}

// class is a queue that is drained.
type class[V any] struct {
	pool      *Pool[V]
	name      string
	weight    int
	queue     *task.Queue[V]                    // nil if it is of items, see itemSource
	learn     func(t *task.Task[V], cost int64) // reports the cost of a task to a queue
	done      func(item V)                      // reports the end of an item to a FairQueue
	own       bool                              // the pool made it, and will close it
	inMemory  bool                              // the store is in memory, so no call takes long
	consumer  *task.Consumer[V]
	taskWatch *task.Watch[V] // there may be a task
	loadWatch *task.Watch[V] // enough tasks wait for another worker

	// watching is true while the queue has no task to take, and taskWatch is armed. When taskWatch
	// is due, woken is true until the next look at the queue.
	watching, woken atomic.Bool

	over     atomic.Bool // the queue was closed or dropped
	failures failures
	repeats  repeats
	refused  sync.Map // ids of tasks that are being buried, because the sink refused their letters

	// goneHandled counts the evicted and expired tasks of the pool's own queue that deadLetter has
	// handled.
	goneHandled atomic.Uint64

	// Protected by taskSource.mu:
	inTurn  bool   // the class has its turns in taskSource.turns
	askedAt uint64 // the takeCount of the last call that found no task in the class
}

// add adds a class.
func (s *taskSource[V]) add(c *class[V]) {
	// it learns: see Options.complete
	c.learn = func(t *task.Task[V], cost int64) { _ = c.queue.ReportCost(t.Key, cost) }
	c.consumer = c.queue.NewConsumer(s.filter)
	c.taskWatch = c.consumer.Watch(func() {
		c.woken.Store(true)
		c.watching.Store(false)
		s.mayHaveTasks.Store(true)
		s.pool.dispatch()
	})
	c.loadWatch = c.consumer.Watch(s.pool.dispatch)
	s.classes = append(s.classes, c)
}

// runNext implements source.
func (s *taskSource[V]) runNext(w *worker) (bool, error) {
	a, err := s.take(w)
	if a == nil {
		return false, err
	}
	a.do(w)
	return true, err
}

// takeOrWatch implements source.
func (s *taskSource[V]) takeOrWatch() (job, error) {
	a, err := s.take(nil)
	if a == nil {
		return nil, err
	}
	return a, nil
}

// take takes the next task, for a worker that has just finished one. Without a worker the call is
// for dispatch: if there is no task, it arms the watches. It returns nil if there is none.
func (s *taskSource[V]) take(w *worker) (*attempt[V], error) {
	if s.serial.Load() {
		return s.takeSerial()
	}
	c := s.classes[0]
	if s.prefetcher != nil {
		return c.attempt(s.prefetcher.next(w)), nil
	}
	if c.watching.Load() {
		return nil, nil
	}
	if w == nil {
		return c.takeOrWatch(s.pool.ctx)
	}
	t, _, err := c.consumer.TryTake(s.pool.ctx)
	return c.attempt(t), err
}

// watches implements source.
func (s *taskSource[V]) watches() bool {
	return !s.serial.Load() && s.prefetcher == nil && s.classes[0].watching.Load()
}

// takeOrWatch takes a task, or arms taskWatch if there is none.
func (c *class[V]) takeOrWatch(ctx context.Context) (*attempt[V], error) {
	// watching before woken: if taskWatch, armed before, is due in between, watching is false
	// after this, and the queue is asked again.
	c.watching.Store(true)
	c.woken.Store(false)
	a := &attempt[V]{class: c}
	found, armed, err := c.taskWatch.Take(ctx, &a.task)
	if !armed {
		c.watching.Store(false)
	}
	if !found {
		return nil, err
	}
	return a.taken(), err
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
	a.class.pool.tasks.running.Add(1)
	return a
}

// takeSerial is take with several classes, or limits. It asks the classes in turn until one has a
// task. A class without tasks loses its turns until it may have tasks again.
func (s *taskSource[V]) takeSerial() (*attempt[V], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.prefetcher != nil && !s.serial.Load() { // the limits were removed in between
		return s.classes[0].attempt(s.prefetcher.next(nil)), nil
	}
	s.updateFilterLocked()
	if s.mayHaveTasks.Swap(false) {
		for i, c := range s.classes {
			if !c.watching.Load() && !c.inTurn && !c.over.Load() {
				c.inTurn = true
				for range c.weight {
					s.turns.Push(i, struct{}{})
				}
			}
		}
	}
	s.takeCount++
	var failed error
	for {
		i, ok := s.nextClassLocked()
		if !ok {
			return nil, cmp.Or(failed, s.allOverLocked())
		}
		c := s.classes[i]
		// First without a watch, which is expensive, because usually there is a task.
		t, _, err := c.consumer.TryTake(s.pool.ctx)
		a := c.attempt(t)
		if t == nil && err == nil && !c.watching.Load() {
			a, err = c.takeOrWatch(s.pool.ctx)
		}
		if a != nil {
			c.inTurn = true
			if !s.strict {
				s.turns.Push(i, struct{}{})
			}
			if c.watching.Load() {
				s.dropTurnsLocked(i)
			}
			return a, nil
		}
		s.dropTurnsLocked(i)
		c.askedAt = s.takeCount
		switch { // whatever it is, the other classes are asked
		case isOver(err):
			c.over.Store(true)
		case err != nil:
			failed = err
			s.mayHaveTasks.Store(true)
		}
	}
}

// allOverLocked returns an error if the queues of all classes were closed or dropped.
func (s *taskSource[V]) allOverLocked() error {
	for _, c := range s.classes {
		if !c.over.Load() {
			return nil
		}
	}
	return task.ErrClosed
}

// dropTurnsLocked takes all turns from a class until it may have tasks again.
func (s *taskSource[V]) dropTurnsLocked(i int) {
	s.turns.RemoveKey(i)
	s.classes[i].inTurn = false
}

// nextClassLocked returns the next class. In strict order each class is asked once, even one
// without a task: its taskWatch may be about to report one, and an urgent task must be the very
// next to start.
func (s *taskSource[V]) nextClassLocked() (next int, ok bool) {
	if !s.strict {
		next, _, ok = s.turns.Pop()
		return next, ok
	}
	next = slices.IndexFunc(s.classes, func(c *class[V]) bool {
		return c.inTurn || c.askedAt != s.takeCount && !c.over.Load()
	})
	return next, next >= 0
}

// disarm implements source.
func (s *taskSource[V]) disarm(handBack bool) {
	if handBack {
		s.recall()
	}
	// A due taskWatch must be asked again or disarmed: until then, other waiting calls of that
	// queue may have to wait for this pool.
	for _, c := range s.classes {
		if c.woken.Swap(false) {
			c.taskWatch.Disarm()
			c.watching.Store(false) // a worker may have set it just now
			s.mayHaveTasks.Store(true)
		}
	}
}

// recall hands back prefetched tasks.
func (s *taskSource[V]) recall() {
	if s.prefetcher != nil {
		s.prefetcher.recall()
	}
}

// watchLoad implements source.
func (s *taskSource[V]) watchLoad() bool {
	for _, c := range s.classes {
		if c.over.Load() {
			continue
		}
		for before := -1; ; { // until nothing comes between counting and CountTo
			waiting, room, err := c.readLoad(s.pool.ctx)
			level := 1
			if room > 0 {
				level = loadLevel(room)
			}
			if err != nil || waiting >= level { // takeOrWatch finds out what is wrong
				return false
			}
			if waiting <= before {
				break
			}
			c.loadWatch.CountTo(level - waiting)
			before = waiting
		}
	}
	return true
}

// loadIsLow implements source.
func (s *taskSource[V]) loadIsLow() bool {
	for _, c := range s.classes {
		waiting, room, err := c.readLoad(s.pool.ctx)
		switch {
		case c.over.Load():
		case err != nil, room == 0 && waiting > 0, room > 0 && 2*waiting >= room:
			return false
		}
	}
	return true
}

// drains implements source.
func (s *taskSource[V]) drains(queue any) bool {
	return slices.ContainsFunc(s.classes, func(c *class[V]) bool { return any(c.queue) == queue })
}

// readLoad returns how many tasks wait for a worker or for room, and for how many ready tasks the
// queue has room, beside the other tasks in its capacity. A room of 0 means no limit.
func (c *class[V]) readLoad(ctx context.Context) (waiting, room int, err error) {
	s, err := c.queue.Stats(ctx)
	if s.Capacity < fairq.MaxLen {
		room = max(s.Capacity-s.Counted+s.Ready, 1)
	}
	return s.Ready + s.WaitingPut, room, err
}

// updateFilterLocked sets the tasks that consumers may take now, by limits.
func (s *taskSource[V]) updateFilterLocked() {
	f := task.Filter{Kinds: s.kinds}
	running := int(s.running.Load())
	for _, limit := range s.limits {
		if running >= limit.Running && (f.MaxPriority == nil || *f.MaxPriority >= limit.Priority) {
			f.MaxPriority = new(limit.Priority - 1)
		}
	}
	old := s.filter
	if (f.MaxPriority == nil) == (old.MaxPriority == nil) &&
		(f.MaxPriority == nil || *f.MaxPriority == *old.MaxPriority) {
		return
	}
	s.filter = f
	for _, c := range s.classes {
		c.consumer.SetFilter(f)
	}
}

// addRunning implements source.
func (s *taskSource[V]) addRunning(n int64) {
	s.running.Add(n)
	if s.serial.Load() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.updateFilterLocked()
	}
}

// SetLimits changes [Options.Limits] for tasks that start from now on.
func (p *Pool[V]) SetLimits(limits []Limit) error {
	if err := validateLimits("SetLimits", limits); err != nil {
		return err
	}
	s := &p.tasks
	s.mu.Lock()
	s.setLimitsLocked(limits)
	s.updateFilterLocked()
	s.mu.Unlock()
	s.recall()
	p.dispatch()
	return nil
}

// setLimitsLocked sets the limits, and serial by them.
func (s *taskSource[V]) setLimitsLocked(limits []Limit) {
	s.limits = slices.Clone(limits)
	s.mayHaveTasks.Store(true)
	s.serial.Store(len(s.limits) > 0 || len(s.classes) > 1)
}

// validateLimits checks that less urgent tasks have no more room than urgent ones.
func validateLimits(field string, limits []Limit) error {
	sorted := slices.SortedFunc(slices.Values(limits),
		func(a, b Limit) int { return a.Priority - b.Priority })
	for i, limit := range sorted {
		least := 0
		if limit.Priority == 0 {
			least = 1 // otherwise no task would ever start
		}
		switch {
		case limit.Priority < 0 || limit.Priority > task.MaxPriority:
			return invalid("%s: Priority is %d; the limits are 0 and %d", field, limit.Priority,
				task.MaxPriority)
		case limit.Running < least || limit.Running > MaxWorkers:
			return invalid("%s: Running of priority %d is %d; the limits are %d and %d", field,
				limit.Priority, limit.Running, least, MaxWorkers)
		case i > 0 && limit.Priority == sorted[i-1].Priority:
			return invalid("%s: priority %d has two limits, %d and %d", field, limit.Priority,
				sorted[i-1].Running, limit.Running)
		case i > 0 && limit.Running > sorted[i-1].Running:
			return invalid("%s: Running of priority %d is %d; the limit is %d, that of the "+
				"more urgent priority %d",
				field, limit.Priority, limit.Running, sorted[i-1].Running, sorted[i-1].Priority)
		}
	}
	return nil
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
