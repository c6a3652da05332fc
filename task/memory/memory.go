// Package memory keeps queues of tasks in the memory of the process, for package task.
//
//	tasks, err := task.Open[Job](ctx, new(memory.Store), "emails", nil)
package memory

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/life"
)

// Store is a [driver.Store] in memory: its tasks are gone when the process ends. The zero value is
// ready to use. Payloads are never encoded; a queue that is opened twice must have the same
// payload type, and the same values for the queue's task.Options, each time. A Store must not
// be copied after first use.
//
// Put, Take, Ack and the other calls for a single task are O(log keys), plus O(log n) where timers
// are involved (n tasks that have a delay, a time to live, a deadline or a time to run). Each
// priority in use adds a little to Take, and so does each kind of its filter. If more than a
// thousand changes are due at the same time, each call makes a thousand of them, so that none
// takes long. CancelGroup, Truncate, List, KeyStats and closing a consumer are O(tasks or keys
// concerned).
//
// An empty queue keeps up to 1.5 MB of memory to use again: a thousand tasks and keys, and maps of
// the size for these.
type Store struct {
	mu     sync.Mutex
	queues map[string]*queue
}

// queue is a queue in memory.
//
// The invariants, whenever the lock is free (check, in the tests, verifies them):
//
//   - A task outside inbox is in ids, and in the place of its state: Ready in the line of its key
//     and priority, Taken in the leases of its consumer, Buried in buried. It is in timers if its
//     wake is not 0, in uniqueKeys if it has such a key, and in a group's tasks if it has a group.
//     If the queue evicts tasks, it is in evictable while it is Ready or Delayed.
//   - The counters agree with that: the field tasks of the queue and of each key.
//   - A key is in keys while it has tasks, is paused or waits, has limits of its own, or a bucket
//     that is not full. It may stay there for a while as an idle one. It is in waiting while
//     wait.Until is not 0.
//   - The notifiers know of a time that is no later than the first of timers, waiting, leaving and
//     outcomes.
//
// A task changes its state by unset, which takes it out of the places of the old one, and set.
type queue struct {
	store    *Store
	name     string
	settings driver.Settings
	limited  bool // settings.LimitsKeys
	payload  reflect.Type
	epoch    time.Time     // the zero of all times here
	unixBase time.Duration // the epoch, since 1970

	// admit is PutOne with the lock held.
	admit func(context.Context, driver.New) (driver.ID, *driver.Record, error)

	inbox inbox

	// mu protects all fields that follow. Notifiers are called under it; they never wait, and run no
	// code of the user's.
	mu        sync.Mutex
	notifiers []notifier // it is changed with inbox.mu too, and read with either
	listens   bool       // the queue had listeners when the lock was taken
	waits     bool       // and waiting callers; later ones look themselves, when they have the lock
	room      bool       // there may be new room since waiting callers were last admitted
	dropped   bool
	paused    bool
	stats     driver.Stats         // counters, and keys
	tasks     [driver.Held + 1]int // by state; in all states at 0

	ids            index
	keys           map[string]*keyState
	ownLimits      int     // keys that have some
	bands          []*band // by priority
	buried         list    // in the order in which they were buried
	timers         heap[byTime]
	waiting        heap[*keyState]
	all            keyState // it has no tasks: its wait is that of the queue, for Options.Rate
	uniqueKeys     map[string]*item
	groups         map[string]*group
	consumers      map[string]*consumer
	taker          *driver.Taker   // the last one; nil if its consumer is gone
	consumerTaking *consumer       // the consumer of taker
	leaving        heap[*consumer] // consumers that have left, and may come back
	outcomes       outcomes
	evictable      *evictable // only with EvictHeaviest or EvictOldest
	places         uint64     // the last place given to a task
	leases         uint64     // the number of the last lease
	due            int64      // the time of the next Tick that the notifiers know; 0 for never
	spare          []*item
	idle           []*keyState // some have tasks again

	peakKeys, peakUniqueKeys int // see remove
}

// keyState is the state of a key, see the invariants.
type keyState struct {
	name    string
	given   int                  // the weight that the last put has given it
	own     *driver.KeyLimits    // nil if it has none
	tasks   [driver.Held + 1]int // by state; in all states at 0
	wait    life.Wait
	timer   int32 // place in the heap of waiting keys
	paused  bool
	blocked bool     // it is paused or waits, or has as many tasks taken as it may
	isIdle  bool     // it is in queue.idle
	lines   []*line  // one for each priority that it has tasks of, in that order
	lineBuf [1]*line // the first array of lines, in the same allocation
	hidden  []*entry // see band
}

// item is a task. Its times are nanoseconds since the epoch of the queue.
type item struct {
	life.Task
	id         driver.ID
	block      *block // of the index
	key        *keyState
	payload    any
	kind       string
	place      uint64
	turn       uint64 // the round in which it was taken; 0 if it has no turn of its own
	lease      uint64 // 0 unless it is taken
	consumer   *consumer
	prev, next *item // in the list of its lane, its consumer or buried tasks
	created    int64
	wake       int64 // the time of its next due change; see life.Task.Wake
	timer      int32 // place in the heap of timers
	early      int32 // place in its lane's heap
	cost       uint32
	priority   int16
	learned    bool // cost is the learned cost of the key, of the Put or of the turn
}

// remove deletes a key of a map, and replaces the map by a small one if few keys are left.
func remove[K comparable, V any](m *map[K]V, peak *int, key K) {
	*peak = max(*peak, len(*m))
	delete(*m, key)
	if len(*m) <= maxSpare && *peak > 8*maxSpare {
		small := make(map[K]V, len(*m))
		maps.Copy(small, *m)
		*m, *peak = small, 0
	}
}

func (k *keyState) before(other *keyState) bool { return k.wait.Until < other.wait.Until }
func (k *keyState) at() *int32                  { return &k.timer }

type byTime struct{ *item }

func (a byTime) before(b byTime) bool {
	return a.wake < b.wake || a.wake == b.wake && a.id < b.id
}

func (a byTime) at() *int32 { return &a.timer }

// list is a list of items. An item is in at most one.
type list struct {
	first, last *item
	len         int
}

func (l *list) append(it *item) {
	it.prev, it.next = l.last, nil
	if l.last == nil {
		l.first = it
	} else {
		l.last.next = it
	}
	l.last = it
	l.len++
}

func (l *list) remove(it *item) {
	if it.prev == nil {
		l.first = it.next
	} else {
		it.prev.next = it.next
	}
	if it.next == nil {
		l.last = it.prev
	} else {
		it.next.prev = it.prev
	}
	it.prev, it.next = nil, nil
	l.len--
}

// all iterates over the items. The list must not change during the iteration.
func (l *list) all() iter.Seq[*item] {
	return func(yield func(*item) bool) {
		for it := l.first; it != nil && yield(it); it = it.next {
		}
	}
}

// Open implements [Store].
func (m *Store) Open(
	_ context.Context, name string, settings driver.Settings, n driver.Notifier,
) (driver.Backend, error) {
	payload := n.InMemory()
	m.mu.Lock()
	defer m.mu.Unlock()
	if q := m.queues[name]; q != nil {
		return q.join(settings, payload, n)
	}
	if settings.AsIs {
		return nil, fmt.Errorf("%w: queue %q", driver.ErrNotFound, name)
	}
	q := &queue{
		store: m, name: name, settings: settings, payload: payload, epoch: time.Now().Add(-1),
		keys: map[string]*keyState{}, uniqueKeys: map[string]*item{}, groups: map[string]*group{},
		consumers: map[string]*consumer{},
	}
	q.limited = settings.LimitsKeys()
	q.unixBase = time.Duration(q.epoch.UnixNano())
	q.inbox.free = q.freeInInbox(0)
	q.admit = func(_ context.Context, n driver.New) (driver.ID, *driver.Record, error) {
		return q.putOne(&n, q.now())
	}
	if settings.WhenFull >= fairq.EvictHeaviest {
		q.evictable = newEvictable(settings.WhenFull)
	}
	if m.queues == nil {
		m.queues = map[string]*queue{}
	}
	m.queues[name] = q
	return q.join(settings, payload, n)
}

// Queues implements [Store].
func (m *Store) Queues(_ context.Context, from string, n int) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := slices.Sorted(maps.Keys(m.queues))
	at, _ := slices.BinarySearch(names, from)
	if names = names[at:]; n > 0 {
		names = names[:min(n, len(names))]
	}
	return names, nil
}

// backend is a queue as opened by one task.Queue.
type backend struct {
	*queue
	notifier driver.Notifier
}

// notifier is the notifier of a backend.
type notifier struct {
	driver.Notifier
	interest *driver.Interest
}

func (q *queue) join(
	settings driver.Settings, payload reflect.Type, n driver.Notifier,
) (driver.Backend, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if payload != q.payload {
		return nil, &driver.FieldError{
			Field: "the payload type", Value: payload,
			Limit: fmt.Sprintf("that of queue %q, %v", q.name, q.payload),
		}
	}
	if !settings.AsIs {
		why := fmt.Sprintf("as queue %q was made with it", q.name)
		if err := settings.Match(q.settings, why); err != nil {
			return nil, err
		}
	}
	q.setNotifiers(append(slices.Clone(q.notifiers), notifier{n, n.Interest()}))
	q.due = 0
	q.announce()
	return &backend{q, n}, nil
}

// Close implements [driver.Backend].
func (b *backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	isOwn := func(n notifier) bool { return n.Notifier == b.notifier }
	b.setNotifiers(slices.DeleteFunc(slices.Clone(b.notifiers), isOwn))
	b.due = 0
	b.announce()
	return nil
}

// enter takes the lock, makes the due changes, and returns the time. If the queue is dropped it
// returns ErrDropped, without the lock.
func (q *queue) enter() (now int64, err error) {
	q.lock()
	if q.dropped {
		q.mu.Unlock()
		return 0, driver.ErrDropped
	}
	if len(q.timers) > 0 || len(q.waiting) > 0 || len(q.leaving) > 0 {
		now = q.now()
		q.advance(now, timersPerCall)
	}
	return now, nil
}

// lock takes the lock, reads whether the queue has listeners and waiting callers, and adds the
// tasks of the inbox.
func (q *queue) lock() {
	q.mu.Lock()
	q.listens, q.waits = q.interest()
	if q.inbox.count.Load() > 0 {
		q.emptyInbox()
	}
}

// interest reports whether the queue has listeners, and whether it has waiting callers.
func (q *queue) interest() (listens, waits bool) {
	var listening, waiting int32
	for i := range q.notifiers {
		n := q.notifiers[i].interest
		listening |= n.Listening.Load()
		waiting |= n.Waiting.Load()
	}
	return listening != 0, waiting != 0
}

// exit releases the lock. Before that it admits the callers that wait for room that this call has
// made, so that no other call overtakes them.
func (q *queue) exit() {
	for q.room {
		q.room = false
		for _, n := range q.notifiers {
			n.Admit(q.admit)
		}
	}
	q.mu.Unlock()
}

// now returns the time. It is never 0, which stands for never: the epoch is before the queue.
func (q *queue) now() int64 { return int64(time.Since(q.epoch)) }

// at converts a time of the user's, and returns now if it is over.
func (q *queue) at(t time.Time, now int64) int64 {
	wall := time.Now() // because the wall clock may have been set since the epoch
	return max(now, life.Plus(int64(wall.Sub(q.epoch)), t.Sub(wall)))
}

// unix converts a time to the form of a Record.
func (q *queue) unix(at int64) int64 {
	if at == 0 {
		return 0
	}
	return life.Plus(at, q.unixBase)
}

func (q *queue) time(at int64) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return q.epoch.Add(time.Duration(at))
}

// clock returns now, and reads the time if that is 0: many calls need none.
func (q *queue) clock(now int64) int64 {
	if now == 0 {
		return q.now()
	}
	return now
}

const (
	maxSpare      = 1000 // tasks and keys kept to be used again
	spareBands    = 16   // bands beyond which empty ones are dropped
	timersPerCall = 1000 // the greatest number of due changes in one call
)

// keyState returns the state of a key. A weight of 0 keeps its weight.
func (q *queue) keyState(key string, weight int) *keyState {
	k := q.keys[key]
	if k == nil {
		k = &keyState{name: key, given: 1}
		k.lines = k.lineBuf[:0]
		q.keys[key] = k
	}
	if weight > 0 {
		k.given = weight
	}
	return k
}

// weight returns the weight of a key.
func (k *keyState) weight() int { return life.Weight(k.given, k.own) }

// isUsed reports whether a key has any state.
func (k *keyState) isUsed() bool {
	return k.tasks[0] > 0 || k.paused || k.wait.Until != 0 || k.own != nil
}

// forgetKey makes a key without state idle, and forgets the keys that are idle longest.
func (q *queue) forgetKey(k *keyState) {
	if k.isUsed() {
		return
	}
	k.given = 1
	if !k.isIdle {
		k.isIdle = true
		q.idle = append(q.idle, k)
	}
	if len(q.idle) < maxSpare {
		return
	}
	const some = 16 // because deleting them moves the others
	for _, oldest := range q.idle[:some] {
		if oldest.isIdle = false; !oldest.isUsed() {
			remove(&q.keys, &q.peakKeys, oldest.name)
			for len(oldest.lines) > 0 {
				q.drop(oldest.lines[0])
			}
		}
	}
	q.idle = slices.Delete(q.idle, 0, some)
}

// line returns the line of a task.
func (q *queue) line(it *item) *line {
	k, at := it.key, lineAt{int(it.priority), it.turn != 0}
	if len(k.lines) == 1 {
		if l := k.lines[0]; l.at() == at {
			return l
		} else if l.isEmpty() {
			q.drop(l)
		}
	}
	i, ok := slices.BinarySearchFunc(k.lines, at, (*line).compare)
	if !ok {
		k.lines = slices.Insert(k.lines, i, q.band(at.priority).newLine(k, at.back))
	}
	return k.lines[i]
}

// dropIfEmpty drops an empty line. It keeps the last line of a key, which may soon have a task
// again, unless the queue has too many bands or kinds for fast takes.
func (q *queue) dropIfEmpty(l *line) {
	many := len(q.bands) > spareBands || len(l.band.kinds) > spareKinds
	if l.isEmpty() && (!l.key.isUniform() || many) {
		q.drop(l)
	}
}

// drop forgets an empty line.
func (q *queue) drop(l *line) {
	k, b := l.key, l.band
	i := slices.Index(k.lines, l)
	k.lines = slices.Delete(k.lines, i, i+1)
	if b.leave(l); b.lines == 0 && len(q.bands) > spareBands {
		i, _ := slices.BinarySearchFunc(q.bands, b.priority, (*band).at)
		q.bands = slices.Delete(q.bands, i, i+1)
	}
}

// at compares a band with a priority.
func (b *band) at(priority int) int { return b.priority - priority }

// lineAt is the place of a line among the lines of its key.
type lineAt struct {
	priority int
	back     bool
}

func (l *line) at() lineAt { return lineAt{l.band.priority, l.back} }

func (l *line) compare(at lineAt) int {
	if c := l.band.at(at.priority); c != 0 || l.back == at.back {
		return c
	} else if at.back {
		return -1
	}
	return 1
}

// band returns the band of a priority.
func (q *queue) band(priority int) *band {
	i, ok := slices.BinarySearchFunc(q.bands, priority, (*band).at)
	if !ok {
		q.bands = slices.Insert(q.bands, i, &band{queue: q, priority: priority})
	}
	return q.bands[i]
}
