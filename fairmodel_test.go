package fairq

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"
)

// fairModel is a naive FairQueue that predicts the result of every call, waiting included. keyOf
// has the key of each item.
type fairModel struct {
	*model
	o          Options[float64, int]
	keyOf      map[int]int
	producers  *model // the items of producers that wait for room
	keyBlocked *model
	consumers  []int // by the number of their call
	closed     bool
	counts     Stats // with the gauges that compareFair does not fill in left out
	evicted    []int
	byKey      map[int]Counts
	done       map[int]outcome   // of the calls that wait or have waited, by their number
	since      map[int]time.Time // when each item was pushed
	waits      map[int]Histogram // by key, since it had no items
	taken      []int             // the delivered items that have not ended
}

// outcome is the result of a call that may wait. A PushWait is known by its item.
type outcome struct {
	item int
	err  error
}

func newFairModel(o Options[float64, int], weights map[int]int, p pricing) *fairModel {
	m := &fairModel{
		o: o, model: newModel(weights, p),
		producers:  newModel(weights, pricing{}),
		keyBlocked: newModel(weights, pricing{}),
		keyOf:      map[int]int{}, byKey: map[int]Counts{}, done: map[int]outcome{},
		since: map[int]time.Time{}, waits: map[int]Histogram{},
	}
	if s, ok := m.turns.(*shared); ok {
		s.rule.MaxHeld = o.MaxInFlightPerKey
	}
	return m
}

// ready returns how many items may be taken.
func (m *fairModel) ready() int {
	if s, ok := m.turns.(*shared); ok {
		ready, _ := s.ready()
		return ready
	}
	return m.len()
}

func (m *fairModel) full() bool { return m.len() >= m.o.Capacity }

// keyFull reports whether a key with n items may have no more.
func (m *fairModel) keyFull(key, n int) bool {
	limit := m.limit(key)
	return limit < m.o.Capacity && n >= limit
}

// limit returns how many items a key may have now.
func (m *fairModel) limit(key int) int {
	limit := m.o.Capacity
	if m.o.KeyCapacity > 0 {
		limit = m.o.KeyCapacity
	}
	if m.o.WhenFull == RejectOverShare {
		limit = min(limit, max(1, m.weight(key)*(m.o.Capacity-m.len()-1)))
	}
	return limit
}

// makeRoom makes room for an item of a key, by an eviction if it must, or returns an error.
func (m *fairModel) makeRoom(key int) error {
	if m.closed {
		return ErrClosed
	}
	m.letIn(key)
	switch {
	case m.keyFull(key, m.keyLen(key)):
		return ErrKeyFull
	case !m.full():
		return nil
	case m.o.WhenFull == Reject || m.o.WhenFull == RejectOverShare:
		return ErrFull
	}
	if heaviest, _, _ := m.heaviest(); m.o.WhenFull == EvictHeaviest && heaviest[key] {
		return ErrFull
	}
	m.evict(key)
	return nil
}

// evict makes room for an item of a key.
func (m *fairModel) evict(key int) {
	heaviest, victim, oldest := m.heaviest()
	if m.o.WhenFull == EvictOldest {
		victim = oldest
		if heaviest[key] {
			victim = m.keys[key][0]
		}
	}
	m.counts.Evicted++
	m.countKey(victim, Counts{Evicted: 1})
	m.evicted = append(m.evicted, victim)
	m.remove(victim)
	m.unbar(m.keyOf[victim])
}

// letIn admits the producers that wait for an item of a key to leave.
func (m *fairModel) letIn(key int) {
	for m.unbar(key) {
		m.admit()
	}
	m.admit()
}

func (m *fairModel) enter(item int) {
	if m.keyLen(m.keyOf[item]) == 0 {
		delete(m.waits, m.keyOf[item])
	}
	m.push(m.keyOf[item], item)
	m.since[item] = time.Now()
	m.counts.Pushed++
}

// pushed is called after an item was queued.
func (m *fairModel) pushed() {
	m.handOver()
	if m.o.WhenFull == EvictOldest {
		m.admit()
	}
}

// handOver gives items to the consumers who wait.
func (m *fairModel) handOver() {
	for len(m.consumers) > 0 && (m.ready() > 0 || m.closed && m.len() == 0) {
		next := outcome{err: ErrClosed}
		if m.ready() > 0 {
			item, _ := m.poll()
			next = outcome{item: item}
		}
		m.done[m.consumers[0]] = next
		m.consumers = m.consumers[1:]
	}
}

// offer is Push.
func (m *fairModel) offer(item int) error {
	key := m.keyOf[item]
	err := m.makeRoom(key)
	switch {
	case err == nil:
		m.enter(item)
		m.pushed()
		return nil
	case m.closed:
		return err
	}
	m.counts.Refused++
	m.countKey(item, Counts{Refused: 1})
	if errors.Is(err, ErrKeyFull) {
		return &FullError{Len: m.keyLen(key), Limit: m.limit(key), PerKey: true}
	}
	return &FullError{Len: m.len(), Limit: m.o.Capacity}
}

// pushWait is PushWait. The call has returned when done has its number.
func (m *fairModel) pushWait(item int) {
	key := m.keyOf[item]
	switch err := m.makeRoom(key); {
	case err == nil:
		m.enter(item)
		m.pushed()
		m.done[item] = outcome{}
	case m.closed:
		m.done[item] = outcome{err: err}
	case m.keyFull(key, m.keyLen(key)+m.producers.keyLen(key)):
		m.keyBlocked.push(key, item)
	default:
		m.producers.push(key, item)
	}
}

// popWait is PopWait.
func (m *fairModel) popWait(call int) {
	switch item, ok := m.poll(); {
	case ok:
		m.done[call] = outcome{item: item}
	case m.closed && m.len() == 0:
		m.done[call] = outcome{err: ErrClosed}
	default:
		m.consumers = append(m.consumers, call)
	}
}

// cancel ends the context of a call that waits.
func (m *fairModel) cancel(call int) {
	switch n := slices.Index(m.consumers, call); {
	case n >= 0:
		m.consumers = slices.Delete(m.consumers, n, n+1)
	case !m.keyBlocked.remove(call):
		m.producers.remove(call)
		m.unbar(m.keyOf[call])
	}
	m.done[call] = outcome{err: context.Canceled}
}

// waiting returns the calls that wait.
func (m *fairModel) waiting() (calls []int) {
	calls = slices.Clone(m.consumers)
	for _, t := range append(m.producers.order(), m.keyBlocked.order()...) {
		calls = append(calls, t.item)
	}
	return calls
}

// unbar and admit let producers in after an item of a key has left.
func (m *fairModel) unbar(key int) bool {
	items := m.keyBlocked.items(key)
	if len(items) == 0 || m.keyFull(key, m.keyLen(key)+m.producers.keyLen(key)) {
		return false
	}
	m.keyBlocked.remove(items[0])
	m.producers.push(key, items[0])
	return true
}

func (m *fairModel) admit() {
	for m.producers.len() > 0 && (!m.full() || m.o.WhenFull == EvictOldest) {
		key, item, _ := m.producers.pop()
		if m.keyFull(key, m.keyLen(key)) {
			m.keyBlocked.push(key, item)
			continue
		}
		if m.full() {
			m.evict(key)
		}
		m.enter(item)
		m.done[item] = outcome{}
	}
}

func (m *fairModel) countKey(item int, c Counts) {
	key := m.keyOf[item]
	all := m.byKey[key]
	m.byKey[key] = Counts{
		all.Served + c.Served, all.Refused + c.Refused, all.Evicted + c.Evicted, all.Cost + c.Cost,
	}
}

// take pops and counts.
func (m *fairModel) take() int {
	_, item, _ := m.pop()
	m.taken = append(m.taken, item)
	m.counts.Popped++
	m.counts.CostServed += m.knownCost(item)
	m.countKey(item, Counts{Served: 1, Cost: m.knownCost(item)})
	m.counts.Wait.Add(time.Since(m.since[item]))
	wait := m.waits[m.keyOf[item]]
	wait.Add(time.Since(m.since[item]))
	m.waits[m.keyOf[item]] = wait
	return item
}

// knownCost returns the cost of an item, 0 without costs.
func (m *fairModel) knownCost(item int) uint64 {
	if m.pricing.hasCosts() {
		return uint64(m.pricing.cost(item))
	}
	return 0
}

// poll is Pop.
func (m *fairModel) poll() (item int, ok bool) {
	if m.ready() == 0 {
		return 0, false
	}
	item = m.take()
	m.letIn(m.keyOf[item])
	return item, true
}

// drop is RemoveKey, or Remove for one item.
func (m *fairModel) drop(items ...int) {
	for _, item := range items {
		m.remove(item)
		m.counts.Removed++
	}
	for _, item := range items {
		m.letIn(m.keyOf[item])
	}
}

// drain is Drain. A drained queue begins again.
func (m *fairModel) drain() []int {
	items := []int{}
	for _, t := range m.order() {
		items = append(items, t.item)
	}
	m.counts.Removed += uint64(len(items))
	turns := m.turns
	m.model = newModel(m.weights, m.pricing)
	if s, ok := turns.(*shared); ok {
		s.drain()
		m.turns = s
	}
	for m.keyBlocked.len() > 0 {
		m.producers.push(firstTwo(m.keyBlocked.pop()))
	}
	m.admit()
	return items
}

func firstTwo(key, item int, _ bool) (int, int) { return key, item }

func (m *fairModel) close() {
	for _, call := range m.waiting() {
		if !slices.Contains(m.consumers, call) {
			m.done[call] = outcome{err: ErrClosed}
		}
	}
	m.producers, m.keyBlocked, m.closed = newModel(m.weights, pricing{}),
		newModel(m.weights, pricing{}), true
	m.handOver()
}

// stats returns the expected results of Stats and KeyStats.
func (m *fairModel) stats() (s Stats, keys map[int]KeyStat[float64]) {
	s, keys = m.counts, map[int]KeyStat[float64]{}
	s.Len, s.Keys, s.Capacity, s.Closed = m.len(), len(m.keys), m.o.Capacity, m.closed
	s.WaitingPush, s.WaitingPop = m.producers.len()+m.keyBlocked.len(), len(m.consumers)
	for _, turns := range m.future() {
		for _, t := range turns {
			k := keys[t.key]
			k.Backlog++
			k.Cost += m.knownCost(t.item)
			s.CostQueued += m.knownCost(t.item)
			k.Rounds = m.turns.Rounds(t.key)
			if age := time.Since(m.since[t.item]); m.o.TrackWait {
				k.OldestAge = max(k.OldestAge, age)
				s.OldestAge = max(s.OldestAge, age)
				k.Wait = m.waits[t.key]
			}
			keys[t.key] = k
		}
	}
	if shared, ok := m.turns.(*shared); ok {
		_, s.Taken = shared.ready()
		for k := range shared.rule.All {
			stat := keys[k.Key]
			stat.Taken = k.Held()
			keys[k.Key] = stat
		}
	}
	if !m.o.TrackWait {
		s.Wait = Histogram{}
	}
	return s, keys
}

// lengths returns how many items the keys have, the longest first.
func (m *fairModel) lengths() []int {
	lengths := []int{}
	for key := range maps.Keys(m.keys) {
		lengths = append(lengths, m.keyLen(key))
	}
	slices.SortFunc(lengths, func(a, b int) int { return b - a })
	return lengths
}
