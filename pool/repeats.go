package pool

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fairq/fairq/task"
)

// repeats are the tasks of a class that this pool has put again by Repeat. No store marks them, so
// other processes do not know that they repeat.
type repeats struct {
	mu   sync.Mutex       // protects ids
	ids  map[task.ID]bool // tasks that others have deleted stay until a Wait looks for them
	used atomic.Bool      // there were ids; in most pools there are none
}

func (r *repeats) has(id task.ID) bool {
	if !r.used.Load() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ids[id]
}

func (r *repeats) remove(id task.ID) {
	if r.used.Load() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.ids, id)
	}
}

func (r *repeats) add(id task.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used.Store(true); r.ids == nil {
		r.ids = map[task.ID]bool{}
	}
	r.ids[id] = true
}

// countAwaited returns how many of the tasks that are left Wait waits for: not for repeating tasks
// that are delayed, and, if the pool has stopped, that are ready or running.
func (c *class[V]) countAwaited(ctx context.Context, left int) int {
	c.repeats.mu.Lock()
	ids := slices.Collect(maps.Keys(c.repeats.ids))
	c.repeats.mu.Unlock()
	if left > len(ids) {
		return left
	}
	for _, id := range ids {
		t, err := c.queue.Peek(ctx, id)
		switch {
		case errors.Is(err, task.ErrNotFound):
			c.repeats.remove(id)
		case err != nil:
		case t.Info().State == task.Delayed,
			c.pool.accepting.Err() != nil && t.Info().State < task.Buried:
			left--
		}
	}
	return left
}

// addRepeating counts a run of a repeating task that begins (1) or has ended (-1).
func (ws *workerSet) addRepeating(n int) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.repeating += n
	ws.notifyQuietLocked()
}
