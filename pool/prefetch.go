package pool

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/fairq/fairq/task"
)

// prefetcher takes tasks from the only queue of a pool before workers are free for them, so that
// no worker waits for a transaction. It takes them in batches, in the background, and they start
// in order.
//
// It holds no more tasks than needed, because other processes may have workers for the rest: twice
// the number of quick tasks that ended while the last batch was taken (or since the batch before,
// if that came right before). So a pool with few tasks, or with long ones, holds none. A task that
// has waited too long is handed back.
type prefetcher[V any] struct {
	pool       *Pool[V]
	class      *class[V]
	limit      int            // Options.Prefetch
	pauseWatch *task.Watch[V] // the queue has changed: it may be paused or closed

	mu    sync.Mutex // protects the fields below; nothing is called under it
	tasks []prefetchedTask[V]
	// desired number of tasks; when half of them are left, a batch is taken
	target     int
	taking     bool          // a batch is being taken
	batchTime  time.Duration // how long taking the last batch took
	quickTasks int           // quick tasks that have ended since then
	batchEnd   time.Time     // when that was
	recalls    int           // calls of recall: a batch being taken is handed back too
	timer      *time.Timer   // hands back tasks that wait too long; nil until needed
}

// prefetchedTask is a task that was taken and waits for a worker.
type prefetchedTask[V any] struct {
	task       *task.Task[V]
	handBackAt time.Time
}

// maxPrefetchTime is how long a task may wait for a worker.
const maxPrefetchTime = time.Second / 2

// slowFactor separates quick from slow tasks: a quick task runs for less than slowFactor times the
// time of taking a batch. Slow tasks are not prefetched, because waiting for a batch is a small
// part of their workers' time.
const slowFactor = 16

// newPrefetchedTask returns a task that was just taken. It waits for at most an eighth of its
// lease, because the handler needs the rest. If the lease seems to be over already, the store has
// another clock.
func newPrefetchedTask[V any](t *task.Task[V], now time.Time) prefetchedTask[V] {
	d := maxPrefetchTime
	if left := t.Info().Until.Sub(now); left > 0 {
		d = min(d, left/8)
	}
	return prefetchedTask[V]{t, now.Add(d)}
}

func newPrefetcher[V any](p *Pool[V], c *class[V], most int) *prefetcher[V] {
	s := &prefetcher[V]{pool: p, class: c, limit: most}
	s.pauseWatch = c.consumer.Watch(func() { p.runInBackground(s.recallIfPaused) })
	return s
}

// next returns the next task, or nil, and whether there may be more. The worker was idle, or has
// finished a task.
func (s *prefetcher[V]) next(w *worker, wasIdle bool) (t *task.Task[V], more bool) {
	s.mu.Lock()
	now := time.Now()
	if !wasIdle && now.Sub(w.started) < slowFactor*s.batchTime {
		s.quickTasks++
	}
	back := s.cutLateLocked(now)
	if len(s.tasks) > 0 {
		t = s.tasks[0].task
		s.tasks = slices.Delete(s.tasks, 0, 1)
		s.pool.prefetched.Add(-1)
	}
	more = len(s.tasks) > 0 || !s.taking && !s.class.watching.Load()
	// A batch is taken when half of the target is used up.
	needs := s.target > 0 && len(s.tasks) <= s.target/2
	s.mu.Unlock()
	s.handBack(back)
	if needs {
		s.begin()
	}
	return t, more
}

// begin takes a batch in the background, unless one is being taken, or taskWatch is armed, which
// calls wake when there is a task.
func (s *prefetcher[V]) begin() {
	s.mu.Lock()
	begin := !s.taking && !s.class.watching.Load()
	s.taking = s.taking || begin
	s.mu.Unlock()
	if begin {
		s.pool.runInBackground(s.takeBatch)
	}
}

// cutLocked removes tasks from the list, and returns them.
func (s *prefetcher[V]) cutLocked(from, to int) []prefetchedTask[V] {
	cut := slices.Clone(s.tasks[from:to])
	s.tasks = slices.Delete(s.tasks, from, to)
	return cut
}

// cutLateLocked removes tasks that have waited too long, and returns them.
func (s *prefetcher[V]) cutLateLocked(now time.Time) []prefetchedTask[V] {
	return s.cutSomeLocked(func(h prefetchedTask[V]) bool { return !now.Before(h.handBackAt) })
}

func (s *prefetcher[V]) cutSomeLocked(
	which func(prefetchedTask[V]) bool,
) (cut []prefetchedTask[V]) {
	s.tasks = slices.DeleteFunc(s.tasks, func(h prefetchedTask[V]) bool {
		is := which(h)
		if is {
			cut = append(cut, h)
		}
		return is
	})
	return cut
}

// takeBatch takes a batch of tasks.
func (s *prefetcher[V]) takeBatch() {
	p, c := s.pool, s.class
	free, begin := p.freeWorkers(), time.Now()
	s.mu.Lock()
	n := min(max(free+s.target-len(s.tasks), 1), task.MaxBatch)
	before, recalls := s.quickTasks, s.recalls
	s.mu.Unlock()
	s.pauseWatch.CountTo(math.MaxInt) // before the batch is taken, or it could miss a pause
	tasks, err := c.takeBatchOrWatch(p.ctx, n)
	now := time.Now()
	var back []prefetchedTask[V]
	s.mu.Lock()
	s.taking = false
	s.batchTime = now.Sub(begin)
	// Tasks that ended before this batch was begun count only if it began right after the last
	// one.
	if begin.Sub(s.batchEnd) > s.batchTime {
		s.quickTasks -= before
	}
	s.target = min(2*s.quickTasks, s.limit)
	s.quickTasks, s.batchEnd = 0, now
	for _, t := range tasks {
		s.tasks = append(s.tasks, newPrefetchedTask(t, now))
	}
	p.prefetched.Add(int64(len(tasks)))
	if s.recalls != recalls {
		back = s.cutLocked(len(s.tasks)-len(tasks), len(s.tasks))
	}
	s.setTimerLocked(now)
	s.mu.Unlock()
	s.handBack(back)
	if err == nil {
		p.sourceWorks()
		p.wake()
	} else {
		p.sourceFailed(err)
	}
}

// setTimerLocked sets the timer for the task that must be handed back first.
func (s *prefetcher[V]) setTimerLocked(now time.Time) {
	if len(s.tasks) == 0 {
		return
	}
	first := slices.MinFunc(s.tasks, func(a, b prefetchedTask[V]) int {
		return a.handBackAt.Compare(b.handBackAt)
	})
	resetTimer(&s.timer, first.handBackAt.Sub(now), s.handBackLate)
}

// handBackLate hands back tasks that have waited too long.
func (s *prefetcher[V]) handBackLate() {
	s.mu.Lock()
	now := time.Now()
	back := s.cutLateLocked(now)
	if len(back) > 0 {
		s.target = 0
	}
	s.setTimerLocked(now)
	s.mu.Unlock()
	s.handBack(back)
}

// recall hands back all tasks, and the tasks of a batch that is being taken.
func (s *prefetcher[V]) recall() {
	s.mu.Lock()
	s.recalls++
	s.target = 0
	back := s.cutLocked(0, len(s.tasks))
	s.mu.Unlock()
	s.handBack(back)
}

// recallKey hands back the tasks of a held key.
func (s *prefetcher[V]) recallKey(key string) {
	s.mu.Lock()
	back := s.cutSomeLocked(func(h prefetchedTask[V]) bool { return h.task.Key == key })
	s.mu.Unlock()
	s.handBack(back)
}

// recallIfPaused recalls all tasks if the queue is paused or closed.
func (s *prefetcher[V]) recallIfPaused() {
	s.mu.Lock()
	idle := len(s.tasks) == 0 && !s.taking
	s.mu.Unlock()
	if idle {
		return
	}
	for armed := false; ; armed = true {
		if q, err := s.class.queue.Stats(s.pool.ctx); q.Paused || isOver(err) {
			s.recall()
			s.pool.wake()
			return
		}
		if armed {
			return
		}
		// Look again, because it may have been paused in between.
		s.pauseWatch.CountTo(math.MaxInt)
	}
}

// stop is called when no more tasks are taken.
func (s *prefetcher[V]) stop() {
	s.pauseWatch.Disarm()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
	}
}

// handBack hands tasks back untried.
func (s *prefetcher[V]) handBack(tasks []prefetchedTask[V]) {
	for _, h := range tasks {
		s.pool.runInBackground(func() {
			defer s.pool.prefetched.Add(-1)
			// If that fails, closing the consumer does it.
			_ = s.pool.settle(s.pool.storeCtx, h.task, h.task.Return)
		})
	}
}

// takeBatchOrWatch takes up to n tasks, and arms taskWatch if there are no more.
func (c *class[V]) takeBatchOrWatch(ctx context.Context, n int) ([]*task.Task[V], error) {
	c.watching.Store(true)
	c.woken.Store(false)
	tasks, armed, err := c.taskWatch.TakeBatch(ctx, n)
	if !armed {
		c.watching.Store(false)
	}
	return tasks, err
}
