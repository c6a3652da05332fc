package task

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/fairq/fairq"
)

const (
	mostSpare  = 64   // tasks and keys that are kept to be used again
	spareBands = 16   // bands that a queue keeps though they are empty
	someTimers = 1000 // how many timers one call handles at most
)

// newItem returns an empty item.
func (q *memoryQueue) newItem() *item {
	if n := len(q.spare); n > 0 {
		it := q.spare[n-1]
		q.spare = q.spare[:n-1]
		return it
	}
	return new(item)
}

// account returns that of a key. A weight of 0 leaves the key's as it is.
func (q *memoryQueue) account(key string, weight int) *account {
	k := q.keys[key]
	if k == nil {
		if n := len(q.spareKeys); n > 0 {
			k = q.spareKeys[n-1]
			q.spareKeys = q.spareKeys[:n-1]
		} else {
			k = new(account)
		}
		k.name, k.weight = key, 1
		q.keys[key] = k
	}
	if weight > 0 {
		k.weight = weight
	}
	return k
}

// forgetKey forgets a key that there is nothing to be known of.
func (q *memoryQueue) forgetKey(k *account) {
	if k.tasks[0] > 0 || k.paused {
		return
	}
	delete(q.keys, k.name)
	if len(q.spareKeys) < mostSpare {
		*k = account{lines: k.lines[:0]}
		q.spareKeys = append(q.spareKeys, k)
	}
}

// line returns the line that the task is, or belongs, in.
func (q *memoryQueue) line(it *item) *line {
	for _, l := range it.key.lines {
		if l.band.priority == int(it.priority) {
			return l
		}
	}
	b := q.band(int(it.priority))
	b.lines++
	var l *line
	if lines := it.key.lines; len(lines) < cap(lines) && lines[:len(lines)+1][len(lines)] != nil {
		l = lines[:len(lines)+1][len(lines)] // one that was used before
		l.key = it.key
		if l.band != b {
			*l = line{key: it.key, band: b}
		}
	} else {
		l = &line{key: it.key, band: b}
	}
	it.key.lines = append(it.key.lines, l)
	return l
}

// retire forgets a line if it is empty and has no turn.
func (q *memoryQueue) retire(l *line) {
	if l.len > 0 || l.linked > 0 || len(l.owed) > 0 {
		return
	}
	i := slices.Index(l.key.lines, l)
	last := len(l.key.lines) - 1
	l.key.lines[i], l.key.lines[last] = l.key.lines[last], l
	l.key.lines = l.key.lines[:last]
	l.band.lines--
}

// band returns the band of a priority.
func (q *memoryQueue) band(priority int) *band {
	i, ok := slices.BinarySearchFunc(q.bands, priority, func(b *band, p int) int { return b.priority - p })
	if !ok {
		b := &band{priority: priority, limited: q.settings.MaxInFlightPerKey > 0, reserve: q.reserves()}
		b.turns.Newcomers = q.settings.Newcomers
		b.turns.Weight = func(key string) int { return q.keys[key].weight }
		q.bands = slices.Insert(q.bands, i, b)
	}
	return q.bands[i]
}

// reserves tells whether tasks have their turns from Put on.
func (q *memoryQueue) reserves() bool {
	return q.settings.KeepPlace && q.settings.MaxInFlightPerKey == 0
}

// makeRoom finds out whether there is room for a task, and makes it if it may.
func (q *memoryQueue) makeRoom(n *New) (victim *Record, err error) {
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
			victim = new(Record)
			q.record(it, victim)
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
}

func newWaiting() *waiting {
	w := &waiting{tickets: map[*item]fairq.Ticket{}}
	w.tasks.Weight = func(string) int { return 1 }
	return w
}

func (w *waiting) add(it *item) {
	w.tasks.Weight = func(string) int { return it.key.weight }
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

// consumer is one who takes tasks.
type consumer struct {
	id       string
	leases   list  // in the order in which they were taken
	deadline int64 // when they are lost; 0 if it has not left
}

func (q *memoryQueue) consumer(id string) *consumer {
	c := q.consumers[id]
	if c == nil {
		c = &consumer{id: id}
		q.consumers[id] = c
	}
	return c
}

// Leave implements [Backend].
func (q *memoryQueue) Leave(_ context.Context, id string, after time.Duration) error {
	now, err := q.enter()
	if err != nil {
		return err
	}
	defer q.mu.Unlock()
	c := q.consumers[id]
	if c == nil {
		return nil
	}
	now = q.sure(now)
	if after == 0 {
		for it := c.leases.last; it != nil; it = c.leases.last {
			it.attempts--
			q.stats.Releases++
			q.giveBack(it, now)
		}
		q.forgetConsumer(c)
		return nil
	}
	if c.deadline == 0 {
		q.leaving = append(q.leaving, c)
	}
	c.deadline = now + int64(after)
	q.announce()
	return nil
}

// giveBack is handBack for a task whose attempt does not count.
func (q *memoryQueue) giveBack(it *item, now int64) {
	lease := it.lease
	q.unset(it)
	q.back(it, true, EventRelease, now, lease)
}

func (q *memoryQueue) forgetConsumer(c *consumer) {
	delete(q.consumers, c.id)
	q.leaving = slices.DeleteFunc(q.leaving, func(l *consumer) bool { return l == c })
}

// Rejoin implements [Backend].
func (q *memoryQueue) Rejoin(_ context.Context, id string) ([]Record, error) {
	if _, err := q.enter(); err != nil {
		return nil, err
	}
	defer q.mu.Unlock()
	c := q.consumers[id]
	if c == nil {
		return nil, fmt.Errorf("%w: consumer %q", ErrNotFound, id)
	}
	c.deadline = 0
	q.leaving = slices.DeleteFunc(q.leaving, func(l *consumer) bool { return l == c })
	held := make([]Record, 0, c.leases.len)
	for it := c.leases.first; it != nil; it = it.next {
		held = append(held, Record{})
		q.record(it, &held[len(held)-1])
	}
	return held, nil
}

// arm sets the time at which something happens to a task by itself; 0 means never.
func (q *memoryQueue) arm(it *item, wake int64) {
	if wake == it.wake {
		return
	}
	it.wake = wake
	switch t := (byTime{it}); {
	case wake == 0:
		q.timers.remove(t)
	case it.timer == 0:
		q.timers.push(t)
	default:
		q.timers.fix(t)
	}
	q.announce()
}

// next returns when Tick must be called, 0 for never.
func (q *memoryQueue) next() (at int64) {
	if len(q.timers) > 0 {
		at = q.timers[0].wake
	}
	for _, c := range q.leaving {
		if at == 0 || c.deadline < at {
			at = c.deadline
		}
	}
	if o := q.outcomes.first; o != nil && (at == 0 || o.until < at) {
		at = o.until
	}
	return at
}

// announce tells the notifiers if Tick must be called sooner than they know.
func (q *memoryQueue) announce() {
	at := q.next()
	if at == 0 || q.due != 0 && at >= q.due {
		return
	}
	q.due = at
	for _, n := range q.notifiers {
		n.Due(q.time(at))
	}
}

// Tick implements [Backend].
func (q *memoryQueue) Tick(context.Context) (time.Time, error) {
	if _, err := q.enter(); err != nil {
		return time.Time{}, err
	}
	defer q.mu.Unlock()
	q.outcomes.expire(q.now())
	q.due = q.next()
	return q.time(q.due), nil
}

// advance makes happen what is due, the given number of things at most.
func (q *memoryQueue) advance(now int64, most int) {
	for ; most > 0 && len(q.timers) > 0 && q.timers[0].wake <= now; most-- {
		q.fire(q.timers[0].item)
	}
	for _, c := range slices.Clone(q.leaving) {
		if c.deadline > now {
			continue
		}
		for ; most > 0 && c.leases.last != nil; most-- {
			q.stats.Losses++
			q.handBack(c.leases.last, c.deadline, 0, EventTTR)
		}
		if c.leases.last == nil {
			q.forgetConsumer(c)
		}
	}
}

// fire makes happen what is due for a task.
func (q *memoryQueue) fire(it *item) {
	at := it.wake
	switch {
	case it.state == Taken:
		q.stats.Losses++
		q.handBack(it, at, 0, EventTTR)
	case it.expires > 0 && it.expires <= at:
		q.unset(it)
		outcome := error(ErrExpired)
		if it.state == Buried {
			outcome = it.error()
		}
		q.gone(it, EventTTL, at, 0, outcome)
	default:
		q.unset(it)
		it.until = 0
		if !q.settings.KeepPlace {
			q.newTurn(it)
		}
		q.set(it, Ready)
		q.event(EventDelay, it, at, 0)
	}
}

// record tells about a task.
func (q *memoryQueue) record(it *item, r *Record) {
	*r = Record{Info: q.info(it), Lease: it.lease, Payload: it.payload}
}

func (q *memoryQueue) info(it *item) Info {
	info := Info{
		ID: it.id, Key: it.key.name, Kind: it.kind, State: it.state, Priority: int(it.priority), Attempts: int(it.attempts),
		MaxAttempts: int(it.maxAttempts), Created: q.time(it.created), Until: q.time(it.until), Expires: q.time(it.expires),
	}
	if it.consumer != nil {
		info.Consumer = it.consumer.id
	}
	if m := it.more; m != nil {
		info.Address, info.Err, info.Role, info.Group = m.address, m.err, m.role, it.group()
	}
	return info
}

// event tells the notifiers what happened to a task, if they want to know.
func (q *memoryQueue) event(what EventType, it *item, now int64, lease uint64) {
	for _, n := range q.notifiers {
		if n.listens() {
			n.Event(Event{Type: what, Time: q.time(q.sure(now)), Task: q.info(it), Lease: lease})
		}
	}
}

// group is some tasks that wait for each other.
type group struct {
	name      string
	started   bool
	cancelled bool
	ended     bool
	members   int // those that are not AtEnd or AtAbort
	tasks     map[*item]struct{}
}

// holds tells whether a task of the group must not be ready.
func (g *group) holds(it *item) bool { return it.more.role != Member || !g.started }

// drops tells whether a task of the group must not wait any more.
func (g *group) drops(it *item) bool { return g.cancelled && it.more.role == Member }

func (it *item) group() string {
	if it.more == nil || it.more.group == nil {
		return ""
	}
	return it.more.group.name
}

func (q *memoryQueue) joinGroup(it *item, name string, role Role) {
	g := q.groups[name]
	if g == nil {
		g = &group{name: name, tasks: map[*item]struct{}{}}
		q.groups[name] = g
	}
	it.more.group, it.more.role = g, role
	g.tasks[it] = struct{}{}
	if role == Member {
		g.members++
	}
}

// Group implements [Backend].
func (q *memoryQueue) Group(_ context.Context, name string, cancel bool) error {
	now, err := q.enter()
	if err != nil {
		return err
	}
	defer q.mu.Unlock()
	now = q.sure(now)
	g := q.groups[name]
	switch {
	case g == nil:
		return fmt.Errorf("%w: group %q", ErrNotFound, name)
	case g.cancelled && !cancel:
		return fmt.Errorf("%w: %q", ErrGroupCancelled, name)
	case g.cancelled || g.started && !cancel:
		return nil
	}
	tasks := g.sorted()
	g.started, g.cancelled = true, cancel
	for _, it := range tasks {
		switch {
		case it.more.role != Member:
		case cancel && it.state != Taken:
			q.unset(it)
			q.gone(it, EventDelete, now, 0, ErrDeleted)
		case it.state == Held:
			q.release(it, now)
		}
	}
	q.endGroup(g, now)
	return nil
}

// sorted returns the group's tasks in the order in which they were put.
func (g *group) sorted() []*item {
	tasks := make([]*item, 0, len(g.tasks))
	for it := range g.tasks {
		tasks = append(tasks, it)
	}
	slices.SortFunc(tasks, func(a, b *item) int { return int(a.id) - int(b.id) })
	return tasks
}

// release makes a task ready that its group held.
func (q *memoryQueue) release(it *item, now int64) {
	q.unset(it)
	if it.until <= now {
		it.until = 0
	}
	if !q.settings.KeepPlace {
		q.newTurn(it)
	}
	q.wait(it)
	q.event(EventStart, it, now, 0)
}

// leaveGroup takes a task that is gone out of its group.
func (q *memoryQueue) leaveGroup(it *item, g *group, now int64) {
	delete(g.tasks, it)
	if it.more.role == Member {
		g.members--
	}
	q.endGroup(g, now)
}

// endGroup ends a group that is started, or cancelled, and has no members any more: of the other tasks it makes ready those
// whose time has come, and removes the rest.
func (q *memoryQueue) endGroup(g *group, now int64) {
	if g.started && g.members == 0 && !g.ended {
		g.ended = true
		now = q.sure(now)
		role := AtEnd
		if g.cancelled {
			role = AtAbort
		}
		for _, it := range g.sorted() {
			if it.more.role == role {
				it.more.group = nil
				delete(g.tasks, it)
				if it.state == Held {
					q.release(it, now)
				}
			} else {
				q.unset(it)
				q.gone(it, EventDelete, now, 0, ErrDeleted)
			}
		}
	}
	if len(g.tasks) == 0 {
		delete(q.groups, g.name)
	}
}

// index finds tasks by their ids. These are given out in order, so it is a map of blocks of neighbours, each of which lasts
// as long as one of its tasks.
type index struct {
	last        ID
	blocks      map[ID]*block
	first, open *block // the blocks are linked in order; open is the last one
	spare       *block
}

const blockBits = 6

type block struct {
	number     ID
	used       int
	prev, next *block
	items      [1 << blockBits]*item
}

func (x *index) add(it *item) ID {
	x.last++
	number := x.last >> blockBits
	if x.open == nil || x.open.number != number {
		b := x.spare
		if x.spare = nil; b == nil {
			b = new(block)
		}
		b.number, b.prev, b.next = number, x.open, nil
		if x.open == nil {
			x.first = b
		} else {
			x.open.next = b
		}
		x.open = b
		if x.blocks == nil {
			x.blocks = map[ID]*block{}
		}
		x.blocks[number] = b
	}
	x.open.items[x.last&(1<<blockBits-1)] = it
	x.open.used++
	return x.last
}

func (x *index) block(id ID) *block {
	if number := id >> blockBits; x.open == nil || x.open.number != number {
		return x.blocks[number]
	}
	return x.open
}

func (x *index) get(id ID) *item {
	if b := x.block(id); b != nil {
		return b.items[id&(1<<blockBits-1)]
	}
	return nil
}

func (x *index) remove(id ID) {
	b := x.block(id)
	b.items[id&(1<<blockBits-1)] = nil
	b.used--
	if b.used > 0 || b == x.open {
		return
	}
	delete(x.blocks, b.number)
	if b.prev == nil {
		x.first = b.next
	} else {
		b.prev.next = b.next
	}
	b.next.prev = b.prev
	x.spare = b
}

// after iterates over the tasks with greater ids. The one that it is at may be removed, and others too.
func (x *index) after(id ID) iter.Seq[*item] {
	return func(yield func(*item) bool) {
		var blocks []*block
		for b := x.first; b != nil; b = b.next {
			if b.number >= (id+1)>>blockBits {
				blocks = append(blocks, b)
			}
		}
		for _, b := range blocks {
			for _, it := range b.items {
				if it != nil && it.id > id && !yield(it) {
					return
				}
			}
		}
	}
}

// outcomes remembers how tasks with addresses ended, for a while.
type outcomes struct {
	by          map[string]*ending
	first, last *ending // in the order in which they are forgotten
}

type ending struct {
	address    string
	id         ID
	err        error
	until      int64
	prev, next *ending
}

func (o *outcomes) add(address string, id ID, err error, until int64) {
	o.forget(address)
	e := &ending{address: address, id: id, err: err, until: until, prev: o.last}
	if o.last == nil {
		o.first = e
	} else {
		o.last.next = e
	}
	o.last = e
	if o.by == nil {
		o.by = map[string]*ending{}
	}
	o.by[address] = e
}

func (o *outcomes) get(address string) (Outcome, bool) {
	if e := o.by[address]; e != nil {
		return Outcome{ID: e.id, Done: true, Err: e.err}, true
	}
	return Outcome{}, false
}

func (o *outcomes) forget(address string) {
	e := o.by[address]
	if e == nil {
		return
	}
	delete(o.by, address)
	if e.prev == nil {
		o.first = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		o.last = e.prev
	} else {
		e.next.prev = e.prev
	}
}

func (o *outcomes) expire(now int64) {
	for o.first != nil && o.first.until <= now {
		o.forget(o.first.address)
	}
}
