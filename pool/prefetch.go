package pool

import (
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
// as many as usually start while a batch is taken. So it holds none for a single worker whose
// tasks run for longer than it takes to get a batch. The number is a guess from the last tasks:
// when a task runs for longer than these, others may wait behind it. A task that has waited too
// long is handed back.
type prefetcher[V any] struct {
	pool  *Pool[V]
	class *class[V]
	limit int // Options.Prefetch

	mu       sync.Mutex // protects the fields below; no store is called under it
	tasks    []prefetchedTask[V]
	target   int  // desired number of tasks; when half of them are left, a batch is taken
	taking   bool // a batch is being taken
	started  int  // tasks that have started since the end of the last batch
	batchEnd time.Time
}

// prefetchedTask is a task that was taken and waits for a worker.
type prefetchedTask[V any] struct {
	task       *task.Task[V]
	handBackAt time.Time
}

// next returns the next task, or nil, and whether there are more.
func (s *prefetcher[V]) next() (t *task.Task[V], more bool) {
	s.handBackLate()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.tasks) > 0 {
		t = s.tasks[0].task
		s.tasks = slices.Delete(s.tasks, 0, 1)
		s.started++
		s.pool.prefetched.Add(-1)
	}
	if len(s.tasks) <= s.target/2 && (t == nil || s.wantedLocked() > 0) && !s.taking &&
		s.class.watch.Load() != watchArmed { // the watch calls wake when there is a task
		s.taking = true
		s.pool.runInBackground(s.takeBatch)
	}
	// If no batch is wanted, a worker may just become idle: it asks in vain while a batch is taken.
	return t, len(s.tasks) > 0 || !s.taking && s.class.watch.Load() != watchArmed
}

// wantedLocked returns how many further tasks are wanted.
func (s *prefetcher[V]) wantedLocked() int {
	return s.pool.freeWorkers() + s.target - len(s.tasks)
}

// takeBatch takes a batch of tasks.
func (s *prefetcher[V]) takeBatch() {
	p, c, begin := s.pool, s.class, time.Now()
	s.mu.Lock()
	n := min(max(s.wantedLocked(), 1), task.MaxBatch)
	s.mu.Unlock()
	c.watch.Store(watchArmed)
	tasks, armed, err := c.taskWatch.TakeBatch(p.ctx, n)
	if !armed {
		c.watch.Store(watchOff)
	}
	now, wait := time.Now(), time.Second/2 // how long a task may wait for a worker
	for _, t := range tasks {
		// A task waits for at most an eighth of its lease, because the handler needs the rest. If
		// the lease seems to be over already, the store has another clock.
		if left := t.Info().Until.Sub(now); left > 0 {
			wait = min(wait, left/8)
		}
	}
	s.mu.Lock()
	s.taking = false
	took, since := now.Sub(begin), max(now.Sub(s.batchEnd), 1)
	s.target = min(int(2*float64(s.started)*float64(took)/float64(since)), s.limit)
	s.started, s.batchEnd = 0, now
	for _, t := range tasks {
		s.tasks = append(s.tasks, prefetchedTask[V]{t, now.Add(wait)})
	}
	p.prefetched.Add(int64(len(tasks)))
	s.mu.Unlock()
	if len(tasks) > 0 {
		time.AfterFunc(wait, s.handBackLate)
	}
	if err == nil {
		p.sourceWorks()
		p.wake()
	} else {
		p.sourceFailed(err)
	}
}

// handBackLate hands back tasks that have waited too long.
func (s *prefetcher[V]) handBackLate() {
	s.handBack(func(h prefetchedTask[V]) bool { return time.Until(h.handBackAt) <= 0 })
}

// handBack hands tasks back untried.
func (s *prefetcher[V]) handBack(which func(prefetchedTask[V]) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tasks = slices.DeleteFunc(s.tasks, func(h prefetchedTask[V]) bool {
		if !which(h) {
			return false
		}
		s.target = 0
		s.pool.runInBackground(func() {
			defer s.pool.prefetched.Add(-1)
			// If that fails, closing the consumer does it.
			_ = s.pool.settle(s.pool.storeCtx, h.task, h.task.Info().Until, h.task.Return)
		})
		return true
	})
}
