package memory

import (
	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/life"
)

// makeRoom finds out whether there is room for a task, and makes it if it may.
func (q *queue) makeRoom(n *driver.New, g *group) (victim *driver.Record, err error) {
	ofKey, weight := 0, n.Weight
	if k := q.keys[n.Key]; k != nil {
		ofKey, weight = q.settings.Counted(&k.tasks), life.Weight(n.Weight, k.own)
	}
	full := life.Room(&q.settings, weight, q.settings.Counted(&q.tasks), ofKey)
	if full == nil {
		return nil, nil
	}
	if full.PerKey || q.evictable == nil {
		return nil, full
	}
	it := q.evictable.victim(n.Key, weight)
	if it == nil {
		return nil, full
	}
	victim = new(q.record(it))
	if g != nil { // it must not end by the eviction, though the victim may be its last member
		g.Join(driver.Member)
		defer g.Leave(driver.Member)
	}
	q.apply(it, it.Evict(&q.stats), 0)
	return victim, nil
}

// freed reports room if a task of a key leaves a state that counts for a state that does not.
func (q *queue) freed(k *keyState, from, to driver.State) {
	if !q.settings.Counts(from) || q.settings.Counts(to) {
		return
	}
	q.room = true
	for _, n := range q.notifiers {
		n.Room(k.name)
	}
}

// evictable knows which key has the most tasks that are ready or delayed. It is a fairq.Queue from
// which nothing is ever popped. So its furthest round has the key with the most items for its
// weight.
type evictable struct {
	policy  fairq.WhenFull
	tasks   fairq.Queue[string, *item]
	tickets map[*item]fairq.Ticket
	weight  int // of the key that is being added
}

func newEvictable(policy fairq.WhenFull) *evictable {
	w := &evictable{policy: policy, tickets: map[*item]fairq.Ticket{}}
	w.tasks.Weight = func(string) int { return w.weight }
	return w
}

func (w *evictable) add(it *item) {
	w.weight = it.key.weight()
	w.tickets[it] = w.tasks.Add(it.key.name, it)
}

// remove forgets a task. It may be the victim, which is not there any more.
func (w *evictable) remove(it *item) {
	w.tasks.Remove(w.tickets[it])
	delete(w.tickets, it)
}

// victim returns the task that is evicted for one of the given key, nil if none may be.
func (w *evictable) victim(key string, weight int) *item {
	heaviest, it, ok := w.tasks.Evict()
	if !ok {
		return nil
	}
	rounds := func(tasks, weight int) int { return (tasks + weight - 1) / weight }
	most := rounds(w.tasks.KeyLen(heaviest)+1, it.key.weight())
	own := heaviest == key || rounds(w.tasks.KeyLen(key), weight) >= most
	w.add(it) // to where it was: it is the last one of its key and its round
	if w.policy == fairq.EvictOldest {
		if own {
			heaviest = key
		}
		it, _ = w.tasks.RemoveOldest(heaviest) // its ticket stands for nothing then, see remove
		return it
	}
	if own {
		return nil
	}
	return it
}
