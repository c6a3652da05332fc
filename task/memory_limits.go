package task

import (
	"context"
	"errors"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task/driver"
)

// makeRoom finds out whether there is room for a task, and makes it if it may.
func (q *memoryQueue) makeRoom(n *driver.New, g *group) (victim *driver.Record, err error) {
	held := 0
	if k := q.keys[n.Key]; k != nil {
		held = q.settings.Counted(&k.tasks)
	}
	if held >= q.settings.KeyCapacity && q.settings.KeyCapacity < q.settings.Capacity {
		return nil, &fairq.FullError{Len: held, Limit: q.settings.KeyCapacity, Key: true}
	}
	if q.counted() < q.settings.Capacity {
		return nil, nil
	}
	if q.waiting != nil {
		if it := q.waiting.victim(n.Key, n.Weight); it != nil {
			victim = new(q.record(it))
			if g != nil {
				g.joining = true
				defer func() { g.joining = false }()
			}
			q.unset(it)
			q.gone(it, EventEvict, 0, 0, ErrDeleted)
			return victim, nil
		}
	}
	return nil, &fairq.FullError{Len: q.counted(), Limit: q.settings.Capacity}
}

// counted returns how many tasks count in the capacity.
func (q *memoryQueue) counted() int {
	if q.settings.CountOnlyWaiting {
		return q.stats.Ready + q.stats.Delayed
	}
	return q.stats.Len()
}

// freed makes known that there is room if a task of a key leaves a state that counts for one that does not.
func (q *memoryQueue) freed(k *account, from, to State) {
	if !q.settings.Counts(from) || q.settings.Counts(to) {
		return
	}
	q.putters.roomOf(k.name)
	for _, n := range q.notifiers { // of a Store that has this one behind it
		n.Room(k.name)
	}
}

// putWait puts a task of a Put that was refused when there is room for it.
func (b *memoryBackend) putWait(ctx context.Context, n *driver.New) (id ID, victim *driver.Record, err error) {
	if _, err := b.enter(); err != nil {
		return 0, nil, err
	}
	w := &putter{key: n.Key, wake: make(chan struct{}, 1), task: n}
	b.putters.join(w)
	b.exit() // which lets it in if there is room by now
	b.notifier.waitsForRoom(1)
	defer b.notifier.waitsForRoom(-1)
	select {
	case <-w.wake:
		return w.id, w.victim, w.err
	case <-b.notifier.ctx.Done():
		err = b.notifier.over()
	case <-ctx.Done():
		err = ctx.Err()
	}
	b.mu.Lock()
	left := b.putters.leave(w)
	b.exit()
	if left {
		return 0, nil, err
	}
	<-w.wake // it was let in at the same moment, and that cannot be undone
	return w.id, w.victim, w.err
}

// exit lets in those who wait for room, as long as there is some or they may make it, and gives the lock back.
func (q *memoryQueue) exit() {
	var in *putter
	for q.putters.line.Len() > 0 && (q.counted() < q.settings.Capacity || q.waiting != nil) && !q.dropped {
		_, w, _ := q.putters.line.Peek()
		w.id, w.victim, w.err = q.put(w.task, q.now())
		keyFull := errors.Is(w.err, fairq.ErrKeyFull)
		if errors.Is(w.err, fairq.ErrFull) && !keyFull { // it could not evict any
			break
		}
		q.putters.line.Pop()
		if keyFull {
			q.putters.bar(w)
			continue
		}
		if w.err != nil {
			q.putters.roomOf(w.key) // the room for which it got into line, if it was barred, is the next one's
		}
		w.next, in = in, w
	}
	q.mu.Unlock()
	for in != nil {
		w := in
		in = w.next
		w.wake <- struct{}{}
	}
}

// waiting knows which key has the most tasks that are ready or delayed. It is a fairq.Queue that nothing is ever popped from:
// there the furthest round is that of the key with the most items by its weight.
type waiting struct {
	policy  fairq.WhenFull
	tasks   fairq.Queue[string, *item]
	tickets map[*item]fairq.Ticket
	weight  int // of the key that is being added
}

func newWaiting(policy fairq.WhenFull) *waiting {
	w := &waiting{policy: policy, tickets: map[*item]fairq.Ticket{}}
	w.tasks.Weight = func(string) int { return w.weight }
	return w
}

func (w *waiting) add(it *item) {
	w.weight = it.key.weight
	w.tickets[it] = w.tasks.Add(it.key.name, it)
}

// remove forgets a task. It may be the victim, which is not there any more.
func (w *waiting) remove(it *item) {
	w.tasks.Remove(w.tickets[it])
	delete(w.tickets, it)
}

// victim returns the task that is evicted for one of the given key, nil if none may be.
func (w *waiting) victim(key string, weight int) *item {
	heaviest, it, ok := w.tasks.Evict()
	if !ok {
		return nil
	}
	rounds := func(n, weight int) int { return (n + weight - 1) / weight }
	heavier := rounds(w.tasks.KeyLen(heaviest)+1, it.key.weight) > rounds(w.tasks.KeyLen(key), weight)
	own := !heavier || key == heaviest
	w.add(it) // to where it was: it is the last one of its key and its round
	switch {
	case w.policy == fairq.EvictOldest:
		if own {
			heaviest = key
		}
		it, _ = w.tasks.RemoveOldest(heaviest) // its ticket stands for nothing then, see remove
		return it
	case own:
		return nil
	}
	return it
}
