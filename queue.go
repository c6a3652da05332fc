package fairq

import "time"

// MaxLen is the number of items that one queue can hold at most: half a billion.
const MaxLen = 1 << 29

// MaxWeight is the greatest weight that a key can have.
const MaxWeight = 1000

// Queue is the fair queue itself: it delivers the items of many keys in rounds, as the package
// documentation tells. The zero value is an empty queue, ready to use. A Queue has no capacity, no
// lock, no clock and no goroutine, and what it delivers depends on nothing but the calls made. To
// share one between goroutines use a [FairQueue], or a lock: Peek, Position, Order, Len, Keys and
// KeyLen only read, so with a [sync.RWMutex] these may run at the same time.
//
// Keys that are not equal to themselves, such as NaN or a struct with a NaN in it, are all one
// key, however they differ: their items leave under the first of them, until none of them has an
// item.
//
// All methods are O(1) unless they say otherwise. A Queue must not be copied after its first use.
type Queue[K comparable, V any] struct {
	// Newcomers says which round a key joins that has nothing queued. A change concerns later
	// pushes.
	Newcomers Newcomers

	// Weight, if not nil, tells how many items a key may put into a round, 1 to [MaxWeight]; nil
	// means 1 for all. It is called at each push, which panics if the weight is out of range.
	Weight func(K) int

	// Cost, if not nil, tells how much work an item is, in units of your choice: tokens, bytes,
	// seconds. Then the keys share the work, and not the number of items: see [Options].Cost. It
	// is called at each push, which panics if the cost is out of range.
	Cost func(V) int64

	// Quantum is how much work a key of weight 1 may have done in a round, in the same units, 1 to
	// [MaxQuantum].
	Quantum int64

	// SettleCosts says that Cost is what items are declared to cost, and [Queue.ReportCost] tells
	// what they have cost: see [Options].SettleCosts.
	SettleCosts bool

	// PriorCost, 1 to 65,536 quanta, is there instead of Cost if costs are learned with
	// [Queue.ReportCost]: what an item of a key costs of which nothing is known. See
	// [Options].PriorCost. A change of it, of Cost, Quantum or SettleCosts takes effect when the
	// queue is empty.
	PriorCost int64

	// Every item has a node, and a node is on two lists. The list of its key says what is served
	// next of that key: its items, oldest first. The ring of its round says when: each node there
	// is a turn of its key. A key has as many turns as items.
	//
	// An item leaves at the turn of its own node, as long as no item before it in its key is
	// removed. If one is, the key gives up its last turn, and each item behind the removed one
	// moves up: it leaves at the turn of an earlier node. So a node may hold a turn and no item,
	// or an item and no turn. In the list of a key, all nodes with a turn come before those
	// without.
	nodes   allocator
	links   column[link]
	values  column[V]
	tickets column[uint64] // the tickets given out; a chunk is made when it gets its first

	keys   keyTable[K]
	rounds rounds
	len    int    // items
	active int    // keys that have items; the others in the table are idle
	hand   uint32 // the bucket that forgetIdle looked at last
	reach  uint64 // no idle key's account has a Round beyond this one

	costs     costs
	turnCosts column[turnCost] // only with costs
	levels    *levels          // nil unless some items have no turns and one was evicted
	identity  bool             // tickets know the queue by its address
	issued    uint64           // tickets given out so far
	waitTimes *waitTimes       // nil unless waiting times are measured
	shares    *sharing[K]      // nil without Options.ShareTime
}

// link is a node's place in its two lists. prevItem of a key's first node, and prevTurn of a
// ring's first turn, are stale: nothing needs them, and resetting them would touch memory that is
// in no cache.
type link struct {
	key                uint32 // slot of the key, with two flags
	prevItem, nextItem uint32 // in the list of the key
	prevTurn, nextTurn uint32 // in the ring of the round; nextTurn is 0 if the node holds no turn
}

const (
	firstOfRound = 1 << 31 // flag in link.key: this turn is the first one of its key in its round
	itemGone     = 1 << 30 // flag in link.key: the item has left, and the turn is still needed
	keyMask      = itemGone - 1
	runEnd       = 1 << 63 // flag in a ticket: it is none, but the other end of a run, see addToRun
)

// keyState is what the queue knows of a key.
type keyState[K comparable] struct {
	key          K
	hash         uint32
	nextInBucket uint32 // the next key in the same bucket
	oldest       uint32 // node of the oldest item
	newest       uint32 // node of the newest item, the last one of the list
	lastTurn     uint32 // node of the last turn; it differs from newest only if items have moved up
	len          uint32
	usage
	servedRound uint64 // the round in which the key was served last; 0 if it was not
}

// usage is how far a key has used the rounds: its account as of its last turn, see package account.
// Without costs each turn costs 1 of a share that is the key's weight, so round is that of the last
// turn, and used is how many turns the key has, or had, in it.
type usage struct {
	round       uint64
	used        uint32
	turnsBefore uint16 // used of the round before; 0 if that is not known. Not used with costs
	passed      bool   // forgetIdle has passed the key since it became idle
}

// keyRef is where a key is in the table, the zero value if it is not there. It is valid until an
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

// is reports whether it is where that key is.
func (r keyRef[K]) is(k *itemKey[K]) bool {
	return r.state != nil && r.state.hash == k.hash && r.state.key == k.key
}

// itemKey is the key of an item with what a push must know of it. A FairQueue computes it before
// it takes its lock.
type itemKey[K comparable] struct {
	key    K
	hash   uint32
	weight uint16
	cost   uint32
}

// hashed returns a key for an item of weight 1 that costs 1.
func hashed[K comparable](key K) itemKey[K] { return itemKey[K]{key, hashOf(key), 1, 1} }

// Ticket stands for an item queued with Add. It is valid until the item leaves the queue, in
// whatever way, and only for the queue it is from. No two items ever have the same ticket. The
// zero Ticket stands for none.
type Ticket struct {
	queue *bool
	id    uint64
	node  uint32
}

// configure sets what the options of a FairQueue say of its queue, which must not have been used.
// Waiting times are counted from the epoch, and so is what the keys hold with ShareTime.
func (q *Queue[K, V]) configure(o *Options[K, V], epoch time.Time) {
	q.Newcomers = o.Newcomers
	q.Cost, q.Quantum, q.PriorCost, q.SettleCosts = o.Cost, o.Quantum, o.PriorCost, o.SettleCosts
	if o.TrackWait {
		q.waitTimes = new(waitTimes)
	}
	if o.ShareTime {
		q.shares = &sharing[K]{epoch: epoch}
	}
	if q.beginCosts(); q.lacksTurns() && o.WhenFull >= EvictHeaviest {
		q.keepLevels()
	}
}

// takeAll leaves the queue empty, and returns another one from which its items can be popped.
func (q *Queue[K, V]) takeAll() (all Queue[K, V]) {
	all = *q
	*q = Queue[K, V]{
		Newcomers: all.Newcomers, Weight: all.Weight, Cost: all.Cost, Quantum: all.Quantum, PriorCost: all.PriorCost,
		SettleCosts: all.SettleCosts, issued: all.issued, shares: all.shares,
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
	if q.Weight != nil || q.hasCosts() || q.costs.areOn() || q.len >= MaxLen {
		q.checkPush(&k, value)
	}
	q.pushTo(q.find(&k), &k, value)
}

// Add is Push, and returns a ticket by which the item can be found again.
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

// Peek returns the item that Pop would take out, and leaves it where it is. If there is none, ok
// is false.
func (q *Queue[K, V]) Peek() (key K, value V, ok bool) {
	if q.len == 0 {
		return key, value, false
	}
	s := q.keys.at(q.links.at(q.next()).key & keyMask)
	return s.key, *q.values.at(s.oldest), true
}

// Len returns the number of items queued.
func (q *Queue[K, V]) Len() int { return q.len }

// Keys returns the number of keys that have items queued.
func (q *Queue[K, V]) Keys() int { return q.active }

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

	// Whether the key has other items is as good as random, so no branch depends on it: a first node
	// becomes the next one of node 0, whose link nobody reads.
	active, oldest, newest, lastTurn := q.active, s.oldest, s.newest, s.lastTurn
	if s.len == 0 {
		active, oldest, newest, lastTurn = active+1, node, 0, 0
	}
	q.active, s.oldest = active, oldest
	turn, l := node, q.links.at(node)
	l.key, l.prevItem, l.nextItem, l.nextTurn = slot, newest, 0, 0
	q.links.at(newest).nextItem = node
	if lastTurn != newest { // turns are given out in the order of the items
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

	// A new turn can join the next round, or under ThisRound the current one if the key was not
	// served in it.
	join := q.rounds.current + 1
	if q.Newcomers == ThisRound && q.rounds.open && s.servedRound != q.rounds.current {
		join--
	}
	round := join
	switch {
	case q.costs.areOn():
		if round = q.enterCost(s, slot, node, turn, join, k); round == 0 {
			return node // the key has its one turn ahead
		}
	case s.round < join:
		s.turnsBefore, s.round, s.used = uint16(s.used), join, 1
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
	var tail *ring
	switch {
	case round == q.rounds.current:
		tail = q.ring(round)
	case q.costs.areOn() || round > q.rounds.last:
		tail = q.rounds.add(round)
	default:
		tail = q.rounds.later(round)
	}
	q.appendTurn(tail, turn, l)
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

// addKey puts a key into the table, where it is not.
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
// nextTurn of the current round's tail is stale; this function makes it the first of the turns
// left.
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
	s.servedRound = q.rounds.current
	node := turn
	if s.oldest != turn { // rare; written so that takeValue need not wait until s is read
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
	if q.issued > 0 || !q.nodes.cacheSlot(turn) { // as a rule without a call
		q.freeNode(turn)
	}
	q.len--
	s.len--
	if q.costs.areOn() {
		q.rest(s)
	} else if s.len == 0 {
		q.deactivate(s, slot)
	}
	if q.len == 0 || q.hasManyIdle(maxIdle) { // as a rule without a call
		q.tidy()
	}
	return value
}

// reachTurn begins the next round if nothing is left of the current one. A turn that is reached
// while its key owes further rounds moves on, and nobody is served by it. The queue must not be
// empty.
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

// popWithKey is pop, and returns the key and what the item has cost, 0 without costs.
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

// firstPaid is not in next, for what is returned from within such a loop is allocated.
func (q *Queue[K, V]) firstPaid() (node uint32) {
	for _, node = range q.order(nil) {
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

// deactivate forgets a key without items, or makes it idle.
func (q *Queue[K, V]) deactivate(s *keyState[K], slot uint32) {
	if q.costs.areOn() || s.round > q.rounds.current || q.Newcomers == ThisRound && q.isNeeded(s) {
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

// freeNode gives a node back.
func (q *Queue[K, V]) freeNode(node uint32) {
	q.voidTicket(node)
	if !q.nodes.cacheSlot(node) {
		q.nodes.flushCache(q.nodes.maxCached/2, q.dropChunk)
		q.nodes.cacheSlot(node)
	}
}

// dropChunk gives back the memory of a chunk of nodes.
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

// valid tells whether the item of a ticket is queued.
func (q *Queue[K, V]) valid(t Ticket) bool {
	return t.queue == &q.identity && q.tickets.has(t.node) && *q.tickets.at(t.node) == t.id
}
