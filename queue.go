package fairq

import "time"

// MaxLen is the greatest number of items in one queue: half a billion.
const MaxLen = 1 << 29

// MaxWeight is the greatest weight of a key.
const MaxWeight = 1000

// Queue is the bare fair queue: it delivers the items of many keys in the rounds that the package
// documentation describes. The zero value is an empty queue, ready to use. A Queue has no
// capacity, no lock, no clock and no goroutine: its order depends on the calls alone. To share one
// between goroutines use a [FairQueue], or a lock: Peek, Position, Order, Len, Keys and KeyLen
// only read, so they may share a [sync.RWMutex].
//
// All keys that are not equal to themselves, such as NaN or a struct with a NaN in it, count as
// the same key. Their items leave under the first of these keys, until none has an item.
//
// All methods are O(1) unless they say otherwise. A Queue must not be copied after its first use.
type Queue[K comparable, V any] struct {
	// Weight, if not nil, returns the number of items of a key in a round, 1 to [MaxWeight]; nil
	// means 1 for all. Each push calls it, and panics if the weight is out of range.
	Weight func(K) int

	// Cost, if not nil, returns the work of an item, in units of your choice: tokens, bytes,
	// seconds. Then the keys share the work, and not the number of items: see [Options].Cost. Each
	// push calls it, and panics if the cost is out of range.
	Cost func(V) int64

	// Quantum is the work of a key of weight 1 in a round, in the units of Cost, 1 to [MaxQuantum].
	Quantum int64

	// SettleCosts makes Cost the declared cost of an item, and [Queue.ReportCost] reports the true
	// one: see [Options].SettleCosts. A change of Cost, Quantum or SettleCosts takes effect when the
	// queue is empty.
	SettleCosts bool

	// Every item has a node, and a node is on two lists. The list of its key has the items of the
	// key, oldest first. The ring of its round has turns: each node there is a turn of its key. A
	// key has as many turns as items.
	//
	// An item leaves at the turn of its own node, unless an item before it in its key is removed.
	// Then the key gives up its last turn, and each item behind the removed one moves up: it leaves
	// at the turn of an earlier node. So a node may hold a turn and no item, or an item and no turn.
	// In the list of a key, all nodes with a turn come before all nodes without.
	nodes   allocator
	links   column[link]
	values  column[V]
	tickets column[uint64] // the tickets given out; a chunk is made when it gets its first

	keys   keyTable[K]
	rounds rounds
	len    int    // items
	active int    // keys that have items; the others in the table are idle
	hand   uint32 // the bucket that forgetIdle looked at last
	reach  uint64 // at least the Round of each idle key's account

	costs     costs
	turnCosts column[turnCost] // only with costs
	levels    *levels          // nil unless some items have no turns and one was evicted
	identity  bool             // its address identifies the queue in tickets
	issued    uint64           // tickets given out so far
	waitTimes *waitTimes       // nil unless waiting times are measured
	shares    *sharing[K]      // nil without Options.ShareTime
}

// link is a node's place in its two lists. Two links are stale: prevItem of a key's first node,
// and prevTurn of a ring's first turn. No code reads them, and resetting them would touch memory
// that is in no cache.
type link struct {
	key                uint32 // slot of the key, with two flags
	prevItem, nextItem uint32 // in the list of the key
	prevTurn, nextTurn uint32 // in the ring of the round; nextTurn is 0 if the node holds no turn
}

const (
	firstOfRound = 1 << 31 // flag in link.key: this turn is the first one of its key in its round
	itemGone     = 1 << 30 // flag in link.key: the item has left, and the node still holds a turn
	keyMask      = itemGone - 1
	runEnd       = 1 << 63 // flag in a ticket: it is the other end of a run, see addToRun
)

// keyState is the state of a key.
type keyState[K comparable] struct {
	key          K
	hash         uint32
	nextInBucket uint32 // the next key in the same bucket
	oldest       uint32 // node of the oldest item
	newest       uint32 // node of the newest item, the last one of the list
	lastTurn     uint32 // node of the last turn; it differs from newest only if items have moved up
	len          uint32
	usage
}

// usage is a key's account as of its last turn, see package account. Without costs each turn costs
// 1, and the share is the key's weight. So round is the round of the last turn, and used is the
// number of turns that the key has, or had, in it.
type usage struct {
	round       uint64
	used        uint32
	turnsBefore uint16 // used of the round before; 0 if unknown. Not used with costs
}

// keyRef is the place of a key in the table, the zero value if it has none. It is valid until an
// item is removed.
type keyRef[K comparable] struct {
	slot  uint32
	state *keyState[K]
}

// len returns the number of items queued under the key.
func (r keyRef[K]) len() int {
	if r.state == nil {
		return 0
	}
	return int(r.state.len)
}

// is reports whether r is the place of k.
func (r keyRef[K]) is(k *itemKey[K]) bool {
	return r.state != nil && r.state.hash == k.hash && r.state.key == k.key
}

// itemKey is the key of an item with its hash, weight and cost. A FairQueue computes it before it
// takes its lock.
type itemKey[K comparable] struct {
	key    K
	hash   uint32
	weight uint16
	cost   uint32
}

// hashed returns a key for an item of weight 1 that costs 1.
func hashed[K comparable](key K) itemKey[K] { return itemKey[K]{key, hashOf(key), 1, 1} }

// Ticket identifies an item queued with Add. It is valid until the item leaves the queue, and only
// for that queue. No two items ever have the same ticket. The zero Ticket identifies no item.
type Ticket struct {
	queue *bool
	id    uint64
	node  uint32
}

// configure sets up the queue of a FairQueue, which must not have been used. The times of waits
// and of ShareTime count from the epoch.
func (q *Queue[K, V]) configure(o *Options[K, V], epoch time.Time) {
	q.Cost, q.Quantum, q.SettleCosts = o.Cost, o.Quantum, o.SettleCosts
	if o.TrackWait {
		q.waitTimes = new(waitTimes)
	}
	if o.ShareTime {
		q.shares = &sharing[K]{epoch: epoch}
		q.shares.MaxHeld = o.MaxInFlightPerKey
	}
	if q.beginCosts(); q.lacksTurns() && o.WhenFull >= EvictHeaviest {
		q.keepLevels()
	}
}

// takeAll leaves the queue empty, and returns another one from which its items can be popped.
func (q *Queue[K, V]) takeAll() (all Queue[K, V]) {
	all = *q
	*q = Queue[K, V]{
		Weight: all.Weight, Cost: all.Cost, Quantum: all.Quantum, SettleCosts: all.SettleCosts,
		issued: all.issued, shares: all.shares,
	}
	q.beginCosts()
	q.costs.served = all.costs.served
	if all.levels != nil {
		all.levels = nil
		q.keepLevels()
	}
	if s := all.shares; s != nil {
		all.shares = s.copy()
		s.Clear(s.now())
	}
	if w := all.waitTimes; w != nil {
		all.waitTimes = nil
		q.waitTimes = &waitTimes{now: w.now, total: w.total}
	}
	return all
}

// Push queues an item of the given key. It panics if the queue holds MaxLen items.
func (q *Queue[K, V]) Push(key K, value V) {
	k := hashed(key)
	if q.Weight != nil || q.Cost != nil || q.costs.areOn() || q.len >= MaxLen {
		q.checkPush(&k, value)
	}
	q.pushTo(q.find(&k), &k, value)
}

// Add is Push, and returns a ticket for [Queue.Remove] and [Queue.Position].
func (q *Queue[K, V]) Add(key K, value V) Ticket {
	k := hashed(key)
	q.checkPush(&k, value)
	return q.issue(q.push(&k, value))
}

// Pop takes the next item in fair order out of the queue. If there is none, ok is false.
func (q *Queue[K, V]) Pop() (key K, value V, ok bool) {
	if q.len == 0 {
		return key, value, false
	}
	if q.rounds.head == 0 || q.costs.oneTurn {
		q.reachTurn()
	}
	key = q.keys.at(q.links.at(q.rounds.head).key & keyMask).key
	return key, q.pop(), true
}

// Peek returns the item that Pop would return, and leaves it in the queue. If there is none, ok is
// false.
func (q *Queue[K, V]) Peek() (key K, value V, ok bool) {
	if q.len == 0 {
		return key, value, false
	}
	s := q.keys.at(q.links.at(q.next()).key & keyMask)
	return s.key, *q.values.at(s.oldest), true
}

// Len returns the number of items queued.
func (q *Queue[K, V]) Len() int { return q.len }

// KeyLen returns the number of items queued under a key.
func (q *Queue[K, V]) KeyLen(key K) int {
	k := hashed(key)
	return q.find(&k).len()
}

// find looks a key up.
func (q *Queue[K, V]) find(k *itemKey[K]) keyRef[K] {
	return q.keys.find(k.key, k.hash)
}

// push queues an item and returns its node.
func (q *Queue[K, V]) push(k *itemKey[K], value V) (node uint32) {
	return q.pushTo(q.find(k), k, value)
}

// pushTo is push for a key that was looked up.
func (q *Queue[K, V]) pushTo(at keyRef[K], k *itemKey[K], value V) (node uint32) {
	if at.state == nil {
		at = q.addKey(k)
	}
	slot, s := at.slot, at.state
	if node = q.nodes.takeCached(); node == 0 {
		node = q.newNode()
	}
	*q.values.at(node) = value

	// The processor cannot predict whether the key has other items, so no branch depends on that. If
	// it has none, the new node is linked behind node 0, whose link no code reads.
	active, oldest, newest, lastTurn := q.active, s.oldest, s.newest, s.lastTurn
	if s.len == 0 {
		active, oldest, newest, lastTurn = active+1, node, 0, 0
	}
	q.active, s.oldest = active, oldest
	turn, l := node, q.links.at(node)
	l.key, l.prevItem, l.nextItem, l.nextTurn = slot, newest, 0, 0
	q.links.at(newest).nextItem = node
	if lastTurn != newest { // items get turns in their order
		turn = q.links.at(lastTurn).nextItem
		l = q.links.at(turn)
	}
	s.newest = node
	s.len++
	q.len++
	if q.waitTimes != nil {
		q.waitTimes.enter(node)
	}
	if q.shares != nil {
		s.lastTurn = node
		q.enterShared(slot, s, k)
		return node
	}

	round := q.rounds.current + 1 // the first that can get a new turn
	switch {
	case q.costs.areOn():
		if round = q.enterCost(s, slot, node, turn, k); round == 0 {
			return node // the key has its one turn ahead
		}
	case s.round < round:
		s.turnsBefore, s.round, s.used = uint16(s.used), round, 1
		l.key |= firstOfRound
	case s.used < uint32(k.weight):
		round = s.round
		s.used++
	default:
		round = s.round + 1
		s.turnsBefore, s.round, s.used = uint16(s.used), round, 1
		l.key |= firstOfRound
	}
	s.lastTurn = turn
	if q.costs.areOn() || round > q.rounds.last {
		q.appendTurn(q.rounds.add(round), turn, l)
	} else {
		q.appendTurn(q.rounds.later(round), turn, l)
	}
	return node
}

// appendTurn puts a turn at the end of a ring.
func (q *Queue[K, V]) appendTurn(tail *ring, turn uint32, l *link) {
	if *tail == 0 {
		l.nextTurn = turn
		if tail == &q.rounds.tail {
			q.rounds.head = turn
		}
	} else {
		end := q.links.at(*tail)
		l.prevTurn, l.nextTurn = *tail, end.nextTurn
		end.nextTurn = turn
	}
	*tail = turn
}

// addKey adds a key to the table. It must not be there.
func (q *Queue[K, V]) addKey(k *itemKey[K]) keyRef[K] {
	slot := q.keys.insert(k.key, k.hash)
	if q.costs.areOn() {
		q.keys.beginCost(slot)
	}
	if q.shares != nil {
		q.keys.shares.reach(slot)
		*q.keys.shares.at(slot) = nil
	}
	return keyRef[K]{slot, q.keys.at(slot)}
}

// ring returns the ring of a round, which is about to get a turn, or to lose one. While a round is
// delivered, pop takes turns off its ring without touching the tail, which is in no cache. So
// nextTurn of the current round's tail is stale, and ring sets it to the first turn that is left.
func (q *Queue[K, V]) ring(round uint64) *ring {
	if round == q.rounds.current {
		if q.rounds.tail != 0 {
			q.links.at(q.rounds.tail).nextTurn = q.rounds.head
		}
		return &q.rounds.tail
	}
	return q.rounds.add(round)
}

// pop takes out the next item. The queue must not be empty.
func (q *Queue[K, V]) pop() (value V) {
	if q.rounds.head == 0 || q.costs.oneTurn {
		if q.shares != nil {
			return q.popShared()
		}
		q.reachTurn()
	}
	turn := q.rounds.head
	l := q.links.at(turn)
	if turn == q.rounds.tail {
		q.rounds.head, q.rounds.tail = 0, 0
	} else {
		q.rounds.head = l.nextTurn
	}
	slot := l.key & keyMask
	s := q.keys.at(slot)
	node := turn
	if s.oldest != turn { // rare; takeValue(turn) need not wait until s is read
		node = s.oldest
	}
	if q.waitTimes != nil {
		q.keys.addWait(slot, q.waitTimes.deliver(node))
	}
	if q.costs.areOn() {
		k := q.keys.costs.at(slot)
		cost := q.leaveCost(k, node)
		q.costs.served += cost
		if q.costs.oneTurn {
			s.set(s.account().Pay(cost, k.share))
		}
		q.setLevel(slot, s.len-1)
	}
	value = q.takeValue(node)
	if s.lastTurn == s.newest {
		s.oldest = l.nextItem
	} else {
		q.moveUp(s, slot, node, turn)
	}
	if q.issued > 0 || !q.nodes.cacheSlot(turn) { // usually without a call
		q.freeNode(turn)
	}
	q.len--
	s.len--
	if q.costs.areOn() {
		q.rest(s)
	} else if s.len == 0 {
		q.deactivate(s, slot)
	}
	if q.len == 0 || q.hasManyIdle() { // usually without a call
		q.tidy()
	}
	return value
}

// reachTurn begins the next round if the current one has no turns left. If the key of the next
// turn owes further rounds, the turn moves to a later round, and the key is not served. The queue
// must not be empty.
func (q *Queue[K, V]) reachTurn() {
	for {
		if q.rounds.head == 0 {
			q.rounds.advance()
			q.rounds.head = q.links.at(q.rounds.tail).nextTurn
		}
		if !q.costs.oneTurn {
			return
		}
		slot := q.links.at(q.rounds.head).key & keyMask
		s := q.keys.at(slot)
		if s.round <= q.rounds.current {
			return
		}
		q.moveTurn(s, slot)
	}
}

// next returns a node of the key that pop serves next. The queue must not be empty.
func (q *Queue[K, V]) next() (node uint32) {
	round := q.rounds.current
	if node = q.rounds.head; node == 0 {
		if q.shares != nil {
			return q.nextShared()
		}
		round = q.rounds.after(round)
		node = q.links.at(*q.rounds.later(round)).nextTurn
	}
	if q.costs.oneTurn && q.keys.at(q.links.at(node).key&keyMask).round > round {
		return q.firstPaid() // see reachTurn
	}
	return node
}

// popWithKey is pop, and returns the key and the cost of the item, 0 without costs.
func (q *Queue[K, V]) popWithKey() (k itemKey[K], value V, cost uint64) {
	k = q.itemKey(q.next())
	served := q.costs.served
	value = q.pop()
	return k, value, q.costs.served - served
}

// itemKey returns the key of a node's item.
func (q *Queue[K, V]) itemKey(node uint32) itemKey[K] {
	s := q.keys.at(q.links.at(node).key & keyMask)
	return itemKey[K]{key: s.key, hash: s.hash}
}

// oldest returns the oldest item of a key, which has items.
func (q *Queue[K, V]) oldest(at keyRef[K]) V { return *q.values.at(at.state.oldest) }

// firstPaid is not a part of next, because a result returned from within such a loop is allocated.
func (q *Queue[K, V]) firstPaid() (node uint32) {
	for _, node = range q.order(true) {
		break
	}
	return node
}

// takeValue takes the item out of a node. The ticket is voided by freeNode or release.
func (q *Queue[K, V]) takeValue(node uint32) (value V) {
	var zero V
	at := q.values.at(node)
	value, *at = *at, zero
	return value
}

// deactivate forgets a key without items, or makes it idle. Without costs it has used no round to
// come: its last turn was in the current round, or has been given up.
func (q *Queue[K, V]) deactivate(s *keyState[K], slot uint32) {
	if q.costs.areOn() {
		q.rest(s)
	} else {
		q.active--
		q.keys.remove(slot)
	}
}

// newNode takes a node that is not in the cache of free ones, and makes it addressable in all
// columns.
func (q *Queue[K, V]) newNode() (node uint32) {
	node = q.nodes.takeFree()
	q.links.reach(node)
	q.values.reach(node)
	if q.waitTimes != nil {
		q.waitTimes.stamps.reach(node)
	}
	if q.costs.areOn() {
		q.turnCosts.reach(node)
	}
	return node
}

// freeNode frees a node.
func (q *Queue[K, V]) freeNode(node uint32) {
	q.voidTicket(node)
	if !q.nodes.cacheSlot(node) {
		q.nodes.flushCache(q.nodes.maxCached/2, q.dropChunk)
		q.nodes.cacheSlot(node)
	}
}

// dropChunk frees the memory of a chunk of nodes.
func (q *Queue[K, V]) dropChunk(chunk int) {
	q.links.drop(chunk)
	q.values.drop(chunk)
	q.tickets.drop(chunk)
	if q.waitTimes != nil {
		q.waitTimes.stamps.drop(chunk)
	}
	q.turnCosts.drop(chunk)
}

// voidTicket makes the ticket of a node's item invalid, if it has one.
func (q *Queue[K, V]) voidTicket(node uint32) {
	if q.tickets.has(node) {
		*q.tickets.at(node) = 0
	}
}

// issue makes a ticket for the item of a node.
func (q *Queue[K, V]) issue(node uint32) Ticket {
	q.tickets.reach(node)
	q.issued++
	*q.tickets.at(node) = q.issued
	return Ticket{queue: &q.identity, id: q.issued, node: node}
}

// valid reports whether the item of a ticket is queued.
func (q *Queue[K, V]) valid(t Ticket) bool {
	return t.queue == &q.identity && q.tickets.has(t.node) && *q.tickets.at(t.node) == t.id
}
