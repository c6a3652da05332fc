package pool

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// lines is the source of a [Pool]: the queues of its classes.
type lines[V any] struct {
	pool    *Pool[V]
	classes []*class[V]
	order   Order
	epoch   time.Time
	running atomic.Int64 // tasks that were taken and are not done, without those whose handlers are in Yield
	limited atomic.Bool  // takes go by mu: there are several classes, or there are limits
	stock   *stock[V]    // nil if nothing is taken ahead; it is not used while limited is true

	// mu protects all that follows. If limited is true, it is held by whoever takes a task, so that each knows what the others have
	// taken. It is more of a turn than of a lock: a queue may be asked under it, as nobody else has anything to do then.
	mu      sync.Mutex
	limits  []Limit
	kinds   []string
	filter  task.Filter // as it is set for all consumers
	turns   fairq.Queue[int, struct{}]
	takes   uint64      // how often a task was to be taken
	changed atomic.Bool // a class may have tasks again
}

// class is a queue that is drained.
type class[V any] struct {
	name     string
	weight   int
	queue    *task.Queue[V]
	own      bool // it is the pool's
	direct   bool // it is in memory
	consumer *task.Consumer[V]
	watch    *task.Watch[V] // there is a task
	many     *task.Watch[V] // there are so many that another worker is needed

	// waiting is true if there is nothing that could be taken, and watch tells when there is. Then roused is true, until watch is asked, and
	// arrived is when that was, in nanoseconds since lines.epoch.
	waiting, roused atomic.Bool
	arrived         atomic.Int64

	over     atomic.Bool  // the queue was closed
	taken    atomic.Int64 // tasks that were taken and whose handlers have not returned
	failures failures
	told     atomic.Uint64 // tasks that have left it by themselves, and whose letters are through; only if it is the pool's

	// Protected by lines.mu:
	inTurn bool      // it has its turns in lines.turns
	asked  uint64    // the last one of lines.takes in which it had nothing
	since  time.Time // when it was served last, or began to have tasks, as far as Order.Ageing must know
}

// add adds a class.
func (l *lines[V]) add(c *class[V]) {
	c.consumer = c.queue.NewConsumer(l.filter)
	c.watch = c.consumer.Watch(func() {
		if l.order.Ageing > 0 {
			c.arrived.Store(int64(time.Since(l.epoch)))
		}
		c.roused.Store(true)
		c.waiting.Store(false)
		l.changed.Store(true)
		l.pool.fetch()
	})
	c.many = c.consumer.Watch(l.pool.fetch)
	l.classes = append(l.classes, c)
}

// work implements source.
func (l *lines[V]) work(w *worker) (bool, error) {
	r, err := l.take(w)
	if r == nil {
		return false, err
	}
	r.do(w)
	return true, err
}

// fetch implements source.
func (l *lines[V]) fetch() (work, error) {
	r, err := l.take(nil)
	if r == nil {
		return nil, err
	}
	return r, nil
}

// take takes the next task, for a worker that has just done one. If there is none, and no worker either, the watches tell when
// there is.
func (l *lines[V]) take(w *worker) (*run[V], error) {
	if l.limited.Load() {
		return l.takeLimited()
	}
	c := l.classes[0]
	if l.stock != nil {
		return l.begin(c, l.stock.next(w)), nil
	}
	if c.waiting.Load() {
		return nil, nil
	}
	if w == nil {
		t, err := c.wait(l.pool.ctx)
		return l.begin(c, t), err
	}
	t, _, err := c.consumer.TryTake(l.pool.ctx)
	return l.begin(c, t), err
}

// wait takes a task if there is one after all, else watch tells when there is.
func (c *class[V]) wait(ctx context.Context) (*task.Task[V], error) {
	c.waiting.Store(true) // before roused: what the watch tells in between must not be forgotten
	c.roused.Store(false)
	t, armed, err := c.watch.Take(ctx)
	if !armed {
		c.waiting.Store(false)
	}
	return t, err
}

func (l *lines[V]) begin(c *class[V], t *task.Task[V]) *run[V] {
	if t == nil {
		return nil
	}
	l.running.Add(1)
	c.taken.Add(1)
	return &run[V]{pool: l.pool, class: c, task: t}
}

// takeLimited is take if there are several classes or limits.
func (l *lines[V]) takeLimited() (*run[V], error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stock != nil && !l.limited.Load() { // not any more
		return l.begin(l.classes[0], l.stock.next(nil)), nil
	}
	l.refilterLocked()
	now := l.now()
	if l.changed.Swap(false) {
		for i, c := range l.classes {
			if !c.waiting.Load() && !c.inTurn && !c.over.Load() {
				c.inTurn, c.since = true, l.epoch.Add(time.Duration(c.arrived.Load()))
				for range c.weight {
					l.turns.Push(i, struct{}{})
				}
			}
		}
	}
	l.takes++
	var failed error
	for {
		i, ok := l.nextLocked(now)
		if !ok {
			return nil, cmp.Or(failed, l.endLocked())
		}
		c := l.classes[i]
		t, ok, err := c.consumer.TryTake(l.pool.ctx)
		if !ok && err == nil && !c.waiting.Load() {
			t, err = c.wait(l.pool.ctx)
		}
		if t != nil {
			c.inTurn, c.since = true, now
			if !l.order.Strict {
				l.turns.Push(i, struct{}{})
			}
			if c.waiting.Load() {
				l.restLocked(i)
			}
			return l.begin(c, t), nil
		}
		l.restLocked(i)
		c.asked = l.takes
		switch { // the others go on
		case isOver(err):
			c.over.Store(true)
		case err != nil:
			failed = err
			l.changed.Store(true)
		}
	}
}

// endLocked returns an error if the queues of all classes were closed.
func (l *lines[V]) endLocked() error {
	for _, c := range l.classes {
		if !c.over.Load() {
			return nil
		}
	}
	return task.ErrClosed
}

// restLocked takes its turns from a class until it has tasks again.
func (l *lines[V]) restLocked(i int) {
	l.turns.RemoveKey(i)
	l.classes[i].inTurn = false
}

// now returns the time if it matters.
func (l *lines[V]) now() (now time.Time) {
	if l.order.Ageing > 0 {
		now = time.Now()
	}
	return now
}

// nextLocked returns the class whose turn it is. If the order is strict, those are asked that are waiting, too: the watch of a more urgent
// one may be just about to tell that it has a task, and that must be the very next start.
func (l *lines[V]) nextLocked(now time.Time) (next int, ok bool) {
	if !l.order.Strict {
		next, _, ok = l.turns.Pop()
		return next, ok
	}
	next = -1
	oldest := now
	for i, c := range l.classes {
		switch {
		case c.inTurn && (next < 0 || l.order.Ageing > 0 && now.Sub(c.since) >= l.order.Ageing && c.since.Before(oldest)):
			next, oldest = i, c.since
		case next < 0 && c.asked != l.takes && !c.over.Load():
			next = i
		}
		if next >= 0 && l.order.Ageing == 0 {
			break
		}
	}
	return next, next >= 0
}

// release implements source.
func (l *lines[V]) release(all bool) {
	if all {
		l.recall()
	}
	for _, c := range l.classes {
		if c.roused.Swap(false) {
			c.watch.Disarm()
			c.waiting.Store(false) // a worker may have armed it just now
			l.changed.Store(true)
		}
	}
}

// recall hands back what was taken ahead.
func (l *lines[V]) recall() {
	if l.stock != nil {
		l.stock.recall()
	}
}

// await implements source.
func (l *lines[V]) await(fullness float64) bool {
	for _, c := range l.classes {
		if c.over.Load() {
			continue
		}
		for before := -1; ; { // what came before CountTo is not counted by it
			waiting, room, err := c.load(l.pool.ctx)
			level := 1
			if room > 0 {
				level = wakeLevel(fullness, room)
			}
			if err != nil || waiting >= level { // fetch finds out what is wrong
				return false
			}
			if waiting <= before {
				break
			}
			c.many.CountTo(level - waiting)
			before = waiting
		}
	}
	return true
}

// below implements source.
func (l *lines[V]) below(fullness float64) bool {
	for _, c := range l.classes {
		waiting, room, err := c.load(l.pool.ctx)
		switch {
		case c.over.Load():
		case err != nil, room == 0 && waiting > 0, room > 0 && float64(waiting)/float64(room) >= fullness:
			return false
		}
	}
	return true
}

// load returns how many tasks wait for a worker or for room, and the room that the queue has for tasks that are ready or delayed,
// beside what else counts in its capacity; 0 means any.
func (c *class[V]) load(ctx context.Context) (waiting, room int, err error) {
	s, err := c.queue.Stats(ctx)
	if s.Capacity < fairq.MaxLen {
		room = max(s.Capacity-s.Counted+s.Ready+s.Delayed, 1)
	}
	return s.Ready + s.WaitingPut, room, err
}

// refilterLocked tells the consumers which tasks may be taken now.
func (l *lines[V]) refilterLocked() {
	f := task.Filter{Kinds: l.kinds}
	running := int(l.running.Load())
	for _, limit := range l.limits {
		if running >= limit.Running && (f.MaxPriority == nil || *f.MaxPriority >= limit.Priority) {
			f.MaxPriority = new(limit.Priority - 1)
		}
	}
	old := l.filter
	if slices.Equal(f.Kinds, old.Kinds) && (f.Kinds == nil) == (old.Kinds == nil) && (f.MaxPriority == nil) == (old.MaxPriority == nil) &&
		(f.MaxPriority == nil || *f.MaxPriority == *old.MaxPriority) {
		return
	}
	l.filter = f
	for _, c := range l.classes {
		c.consumer.SetFilter(f)
	}
}

// more implements source.
func (l *lines[V]) more(n int64) {
	l.running.Add(n)
	if l.limited.Load() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.refilterLocked()
	}
}

// SetKinds changes which kinds of tasks are taken: these, or all if kinds is nil. What runs goes on. So kinds can be drained one
// after the other.
func (p *Pool[V]) SetKinds(kinds []string) {
	p.lines.mu.Lock()
	p.lines.kinds = slices.Clone(kinds)
	p.lines.refilterLocked()
	p.lines.mu.Unlock()
	p.lines.recall()
	p.fetch()
}

// SetLimits changes [Options.Limits] for what is started from now on.
func (p *Pool[V]) SetLimits(limits []Limit) error {
	if err := validateLimits("SetLimits", limits); err != nil {
		return err
	}
	l := &p.lines
	l.mu.Lock()
	l.setLimitsLocked(limits)
	l.refilterLocked()
	l.mu.Unlock()
	l.recall()
	p.fetch()
	return nil
}

func (l *lines[V]) setLimitsLocked(limits []Limit) {
	l.limits = slices.Clone(limits)
	l.changed.Store(true)
	l.limited.Store(len(l.limits) > 0 || len(l.classes) > 1)
}

// validateLimits checks that less urgent tasks have no more room than urgent ones.
func validateLimits(field string, limits []Limit) error {
	sorted := slices.SortedFunc(slices.Values(limits), func(a, b Limit) int { return a.Priority - b.Priority })
	for i, limit := range sorted {
		least := 0
		if limit.Priority == 0 {
			least = 1 // or nothing would ever be started
		}
		switch {
		case limit.Priority < 0 || limit.Priority > task.MaxPriority:
			return invalid("%s: Priority is %d; the limits are 0 and %d", field, limit.Priority, task.MaxPriority)
		case limit.Running < least || limit.Running > MaxWorkers:
			return invalid("%s: Running of priority %d is %d; the limits are %d and %d", field, limit.Priority, limit.Running, least, MaxWorkers)
		case i > 0 && limit.Priority == sorted[i-1].Priority:
			return invalid("%s: priority %d has two limits, %d and %d", field, limit.Priority, sorted[i-1].Running, limit.Running)
		case i > 0 && limit.Running > sorted[i-1].Running:
			return invalid("%s: Running of priority %d is %d; the limit is %d, that of the more urgent priority %d",
				field, limit.Priority, limit.Running, sorted[i-1].Running, sorted[i-1].Priority)
		}
	}
	return nil
}

// class returns the class of that name; the first one if it is empty.
func (l *lines[V]) class(name string) (*class[V], error) {
	for _, c := range l.classes {
		if c.name == name || name == "" {
			return c, nil
		}
	}
	return nil, invalid("there is no class %q", name)
}
