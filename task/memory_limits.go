package task

import (
	"github.com/fairq/fairq"
)

// makeRoom finds out whether there is room for a task, and makes it if it may.
func (q *memoryQueue) makeRoom(n *New, g *group) (victim *Record, err error) {
	held := 0
	if k := q.keys[n.Key]; k != nil {
		held = k.tasks[0]
	}
	if held >= q.settings.KeyCapacity && q.settings.KeyCapacity < q.settings.Capacity {
		return nil, &fairq.FullError{Len: held, Limit: q.settings.KeyCapacity, Key: true}
	}
	if q.stats.Len() < q.settings.Capacity {
		return nil, nil
	}
	if q.waiting != nil {
		if it := q.waiting.heaviest(n.Key, n.Weight); it != nil {
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
	return nil, &fairq.FullError{Len: q.stats.Len(), Limit: q.settings.Capacity}
}

// waiting knows which key has the most tasks that are ready or delayed. It is a fairq.Queue that nothing is ever popped from:
// there the furthest round is that of the key with the most items by its weight.
type waiting struct {
	tasks   fairq.Queue[string, *item]
	tickets map[*item]fairq.Ticket
	weight  int // of the key that is being added
}

func newWaiting() *waiting {
	w := &waiting{tickets: map[*item]fairq.Ticket{}}
	w.tasks.Weight = func(string) int { return w.weight }
	return w
}

func (w *waiting) add(it *item) {
	w.weight = it.key.weight
	w.tickets[it] = w.tasks.Add(it.key.name, it)
}

func (w *waiting) remove(it *item) {
	w.tasks.Remove(w.tickets[it])
	delete(w.tickets, it)
}

// heaviest returns the newest task of the key with the most of them, nil if the given key has as many.
func (w *waiting) heaviest(key string, weight int) *item {
	victim, it, ok := w.tasks.Evict()
	if !ok {
		return nil
	}
	rounds := func(n, weight int) int { return (n + weight - 1) / weight }
	heavier := rounds(w.tasks.KeyLen(victim)+1, it.key.weight) > rounds(w.tasks.KeyLen(key), weight)
	w.add(it) // to where it was: it is the last one of its key and its round
	if !heavier || key == victim {
		return nil
	}
	return it
}
