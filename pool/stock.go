package pool

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/fairq/fairq/task"
)

// stock is tasks of the only queue of a pool that were taken ahead, so that no worker waits for a transaction. They are taken in
// batches, in the background, and started in order.
//
// It holds what is needed and no more, because others may have workers for it: twice as many as the quick tasks that have ended
// while the last batch was taken, or since the one before if that was just then. So a pool that has few tasks, or whose tasks take
// long, holds none. What has waited for too long nevertheless is handed back.
type stock[V any] struct {
	pool  *Pool[V]
	class *class[V]
	most  int            // as Options.Prefetch says
	look  *task.Watch[V] // the queue may have been paused or closed

	mu      sync.Mutex // protects all that follows; nothing is called under it
	held    []held[V]
	want    int           // how many there should be; when there are half as many, a batch is taken
	taking  bool          // it is
	lasted  time.Duration // taking the last batch
	quick   int           // tasks that have ended since that was there, soon after their start
	ended   time.Time     // when it was
	recalls int           // how often it was recalled
	timer   *time.Timer   // when something has waited for too long; nil if it was never needed
}

// held is a task that was taken, and how long it may wait.
type held[V any] struct {
	task  *task.Task[V]
	until time.Time
}

// patience is how long a task may wait for a worker.
const patience = time.Second / 2

// slow is how many times as long as a batch a task takes for which none is taken ahead. Workers then wait a sixteenth of the time.
const slow = 16

// newHeld returns a task that was taken just now. If its lease runs out, most of that is for the handler. If it seems to have run
// out already, the clock of the store is another one than ours.
func newHeld[V any](t *task.Task[V], now time.Time) held[V] {
	d := patience
	if left := t.Until.Sub(now); left > 0 {
		d = min(d, left/8)
	}
	return held[V]{t, now.Add(d)}
}

func newStock[V any](p *Pool[V], c *class[V], most int) *stock[V] {
	s := &stock[V]{pool: p, class: c, most: most}
	s.look = c.consumer.Watch(func() { p.background(s.check) })
	return s
}

// next returns the next task for a worker that has just done one; nil if there is none. Without a worker, it is for one that is
// idle; then, if there is none, a batch is taken, or watch tells when that can be.
func (s *stock[V]) next(w *worker) (t *task.Task[V]) {
	s.mu.Lock()
	now := time.Now()
	if w != nil && now.Sub(w.started) < slow*s.lasted {
		s.quick++
	}
	late := 0
	for late < len(s.held) && !now.Before(s.held[late].until) {
		late++
	}
	back := s.cutLocked(0, late)
	if len(s.held) > 0 {
		t = s.held[0].task
		s.held = slices.Delete(s.held, 0, 1)
		s.pool.ahead.Add(-1)
	}
	begin := !s.taking && !s.class.waiting.Load() && (t == nil && w == nil || s.want > 0 && len(s.held) <= s.want/2)
	if begin {
		s.taking = true
	}
	s.mu.Unlock()
	s.handBack(back)
	if begin {
		s.pool.background(s.take)
	}
	return t
}

// cutLocked takes out some of what is held.
func (s *stock[V]) cutLocked(from, to int) []held[V] {
	cut := slices.Clone(s.held[from:to])
	s.held = slices.Delete(s.held, from, to)
	return cut
}

// take takes a batch.
func (s *stock[V]) take() {
	p, c := s.pool, s.class
	free, begin := p.free(), time.Now()
	s.mu.Lock()
	n := min(max(free+s.want-len(s.held), 1), task.MaxBatch)
	before, recalls := s.quick, s.recalls
	s.mu.Unlock()
	s.look.CountTo(math.MaxInt) // before the batch is taken, or it could miss something
	tasks, err := c.waitBatch(p.ctx, n)
	p.lines.changed.Store(true) // if there are limits by now, who has looked has been told that this one does
	now := time.Now()
	var back []held[V]
	s.mu.Lock()
	s.taking = false
	s.lasted = now.Sub(begin)
	if begin.Sub(s.ended) > s.lasted {
		s.quick -= before
	}
	s.want = min(2*s.quick, s.most)
	s.quick, s.ended = 0, now
	for _, t := range tasks {
		s.held = append(s.held, newHeld(t, now))
	}
	p.ahead.Add(int64(len(tasks)))
	if s.recalls != recalls {
		back = s.cutLocked(len(s.held)-len(tasks), len(s.held))
	}
	s.watchTimeLocked(now)
	s.mu.Unlock()
	s.handBack(back)
	if err == nil {
		p.fetch()
	} else {
		p.failed(err)
	}
}

// watchTimeLocked sets the timer for what is held.
func (s *stock[V]) watchTimeLocked(now time.Time) {
	if len(s.held) == 0 {
		return
	}
	first := s.held[0].until
	for _, h := range s.held {
		if h.until.Before(first) {
			first = h.until
		}
	}
	if s.timer == nil {
		s.timer = time.AfterFunc(first.Sub(now), s.tire)
	} else {
		s.timer.Reset(first.Sub(now))
	}
}

// tire hands back what has waited for too long.
func (s *stock[V]) tire() {
	var back []held[V]
	s.mu.Lock()
	now := time.Now()
	s.held = slices.DeleteFunc(s.held, func(h held[V]) bool {
		late := !now.Before(h.until)
		if late {
			back = append(back, h)
		}
		return late
	})
	if len(back) > 0 {
		s.want = 0
	}
	s.watchTimeLocked(now)
	s.mu.Unlock()
	s.handBack(back)
}

// recall hands back all that is held, and what is being taken.
func (s *stock[V]) recall() {
	s.mu.Lock()
	s.recalls++
	s.want = 0
	back := s.cutLocked(0, len(s.held))
	s.mu.Unlock()
	s.handBack(back)
}

// check recalls what is held if the queue is paused or closed.
func (s *stock[V]) check() {
	s.mu.Lock()
	idle := len(s.held) == 0 && !s.taking
	s.mu.Unlock()
	if idle {
		return
	}
	for armed := false; ; armed = true {
		if q, err := s.class.queue.Stats(s.pool.ctx); q.Paused || isOver(err) {
			s.recall()
			s.pool.fetch()
			return
		}
		if armed {
			return
		}
		s.look.CountTo(math.MaxInt) // and once more, for it may have been paused in between
	}
}

// end is called when nothing is taken any more.
func (s *stock[V]) end() {
	s.look.Disarm()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
	}
}

// handBack hands tasks back, which keep their turns.
func (s *stock[V]) handBack(tasks []held[V]) {
	for _, h := range tasks {
		s.pool.background(func() {
			defer s.pool.ahead.Add(-1)
			_ = s.pool.tell(h.task, ending{how: snoozed}) // if that fails, it is handed back with all that the consumer has
		})
	}
}

// waitBatch is wait for up to n tasks.
func (c *class[V]) waitBatch(ctx context.Context, n int) ([]*task.Task[V], error) {
	c.waiting.Store(true)
	c.roused.Store(false)
	tasks, armed, err := c.watch.TakeBatch(ctx, n)
	if !armed {
		c.waiting.Store(false)
	}
	return tasks, err
}
