package fairq

import (
	"fmt"
	"iter"
)

// MaxLen is the number of items that one queue can hold at most: half a billion.
const MaxLen = 1 << 29

// MaxWeight is the greatest weight that a key can have.
const MaxWeight = 1000

// Queue is the fair queue itself: it delivers the items of many keys in rounds, as the package documentation tells. The
// zero value is an empty queue, ready to use. A Queue has no capacity, no lock, no clock and no goroutine, and what it
// delivers depends on nothing but the calls made. To share one between goroutines use a [FairQueue], or a lock:
// Peek, Position, Order, Len, Keys and KeyLen only read, so with a [sync.RWMutex] these may run at the same time.
//
// Keys that are not equal to themselves, such as NaN or a struct with a NaN in it, are all one key, however they
// differ: their items leave under the first of them, until none of them has an item.
//
// All methods are O(1) unless they say otherwise. A Queue must not be copied after its first use.
type Queue[K comparable, V any] struct {
	// Newcomers says which round a key joins that has nothing queued. A change concerns later pushes.
	Newcomers Newcomers

	// Weight, if not nil, tells how many items a key may put into a round, 1 to [MaxWeight]; nil means 1 for all. It is called
	// at each push, which panics if the weight is out of range.
	Weight func(K) int

	// Every item is a node, and is on two lists. The list of its key says what is served next of that key: its items in the
	// order of their arrival. The ring of its round says when: each node there is a turn of its key. A key has as many turns
	// as items.
	//
	// An item leaves at the turn of its own node, unless an item ahead of it in its key was removed. Then the key gave up its
	// last turn, and each item behind the removed one moved up, to the turn of an earlier node. So a node may hold a turn and
	// no item, or an item and no turn. In the list of a key all nodes with a turn come before those without.
	nodes   rows
	links   column[link]
	values  column[V]
	tickets column[uint64] // the tickets given out; chunks come into being when the first one is needed

	keys   keyTable[K]
	rounds rounds
	len    int // items
	active int // keys that have items

	// Only under ThisRound: the keys without items that were served in this round, or earlier and not yet forgotten, in the
	// order in which they were served. They are linked through first and newest.
	resting struct{ first, last uint32 }

	identity bool   // its address is what tickets know the queue by
	issued   uint64 // tickets given out so far
	waits    *waits // nil unless waiting times are measured
}

// link is a node's place in its two lists. The first node's prev and the first turn's before are stale: nothing needs
// them, and to reset them would touch memory that is in no cache.
type link struct {
	key           uint32 // row of the key, and two flags
	prev, next    uint32 // in the list of the key
	before, after uint32 // in the ring of the round; after is 0 if the node holds no turn
}

// mostResting is how many keys rest in an empty queue at most.
const mostResting = 64

const (
	opens   = 1 << 31 // flag in link.key: the turn is the first one of its key in its round
	gone    = 1 << 30 // flag in link.key: the item has left, only the turn is still needed
	keyMask = gone - 1
	runEnd  = 1 << 63 // flag in a ticket: this is none, but the other end of a run of gone nodes, see leaveGone
)

// keyState is what the queue knows of a key.
type keyState[K comparable] struct {
	key    K
	hash   uint32
	chain  uint32 // the next key in the same bucket of the table
	first  uint32 // node of the oldest item
	newest uint32 // node of the newest item, the last one of the list
	turn   uint32 // node of the last turn; another than newest only if an item was removed out of the middle
	len    uint32
	last   uint64 // round of the last turn
	served uint64 // the round that the key was last served in; 0 if it was not
	count  uint16 // turns that the key has been given in the round of the last turn
	before uint16 // and in the round before; 0 if that is not known any more
}

// label is what the queue must know of an item. A FairQueue finds it out without its lock.
type label[K comparable] struct {
	key    K
	hash   uint32
	weight uint16
}

// Ticket stands for an item queued with Add. It is valid until the item leaves the queue, in whatever way, and only for
// the queue it is from. No two items ever have the same ticket. The zero Ticket stands for none.
type Ticket struct {
	queue *bool
	id    uint64
	node  uint32
}

// Push queues an item of the given key. It panics if the queue holds MaxLen items.
func (q *Queue[K, V]) Push(key K, value V) {
	l := label[K]{key, hashOf(key), 1}
	if q.Weight != nil || q.len >= MaxLen {
		q.admit(&l)
	}
	q.push(&l, value)
}

// Add is Push, and returns a ticket by which the item can be found again.
func (q *Queue[K, V]) Add(key K, value V) Ticket {
	l := label[K]{key, hashOf(key), 1}
	q.admit(&l)
	return q.issue(q.push(&l, value))
}

// Pop takes the next item in fair order out of the queue. If there is none, ok is false.
func (q *Queue[K, V]) Pop() (key K, value V, ok bool) {
	if q.len == 0 {
		return key, value, false
	}
	key = q.keys.at(q.links.at(q.next()).key & keyMask).key
	return key, q.pop(), true
}

// Peek returns the item that Pop would take out, and leaves it where it is. If there is none, ok is false.
func (q *Queue[K, V]) Peek() (key K, value V, ok bool) {
	if q.len == 0 {
		return key, value, false
	}
	s := q.keys.at(q.links.at(q.next()).key & keyMask)
	return s.key, *q.values.at(s.first), true
}

// Position returns how many items leave before the one that the ticket stands for. If that is no longer queued, ok is
// false. It is O(items that leave before).
func (q *Queue[K, V]) Position(t Ticket) (position int, ok bool) {
	if !q.valid(t) {
		return 0, false
	}
	for _, node := range q.order() {
		if node == t.node {
			return position, true
		}
		position++
	}
	panic("fairq: a queued item has no turn")
}

// Len returns the number of items queued.
func (q *Queue[K, V]) Len() int { return q.len }

// Keys returns the number of keys that have items queued.
func (q *Queue[K, V]) Keys() int { return q.active }

// KeyLen returns the number of items queued under a key.
func (q *Queue[K, V]) KeyLen(key K) int {
	return q.keyLen(key, hashOf(key))
}

// Order iterates over what is queued, in the order in which it will leave if nothing else is pushed or removed. The
// queue must not be changed meanwhile.
func (q *Queue[K, V]) Order() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, node := range q.order() {
			if !yield(q.keys.at(q.links.at(node).key&keyMask).key, *q.values.at(node)) {
				return
			}
		}
	}
}

// order iterates over the nodes whose items will leave, in that order, with the rounds in which they
// will. A turn delivers the oldest item of its key that no earlier turn delivers; where keys have lost
// no item out of their middle, that is the turn's own.
func (q *Queue[K, V]) order() iter.Seq2[uint64, uint32] {
	return func(yield func(uint64, uint32) bool) {
		moved := map[uint32]uint32{} // by key: the next item, once a turn has delivered another node's item
		for round := q.rounds.cur; round <= q.rounds.last; round++ {
			tail := *q.rounds.at(round)
			if tail == 0 {
				continue
			}
			turn := q.links.at(tail).after
			if round == q.rounds.cur {
				turn = q.rounds.head // its ring may not be closed, see ring
			}
			for ; ; turn = q.links.at(turn).after {
				node, row := turn, q.links.at(turn).key&keyMask
				if s := q.keys.at(row); s.turn != s.newest {
					next, ok := moved[row]
					if !ok {
						next = s.first
					}
					node, moved[row] = next, q.itemAfter(next)
				}
				if !yield(round, node) {
					return
				}
				if turn == tail {
					break
				}
			}
		}
	}
}

func (q *Queue[K, V]) keyLen(key K, hash uint32) int {
	if _, s := q.keys.find(key, hash); s != nil {
		return int(s.len)
	}
	return 0
}

// admit finds out the weight of an item that is about to be queued, and panics if it cannot be.
func (q *Queue[K, V]) admit(l *label[K]) {
	if q.len >= MaxLen {
		panic(fmt.Sprintf("fairq: the queue holds %d items; the limit is MaxLen, %d", q.len, MaxLen))
	}
	if q.Weight != nil {
		if err := l.weigh(q.Weight); err != nil {
			panic(err)
		}
	}
}

// push queues an item and returns its node.
func (q *Queue[K, V]) push(l *label[K], value V) (node uint32) {
	row, s := q.keys.find(l.key, l.hash)
	return q.pushTo(row, s, l, value)
}

// pushTo is push when find has been called.
func (q *Queue[K, V]) pushTo(row uint32, s *keyState[K], l *label[K], value V) (node uint32) {
	if s == nil || s.len == 0 {
		row, s = q.activate(row, l)
	}

	// The round. The first one that is open to the key is the next, or under ThisRound the current one.
	flags := row
	join := q.rounds.cur + 1
	if q.Newcomers == ThisRound && q.rounds.open && s.served != q.rounds.cur {
		join--
	}
	switch {
	case s.last < join:
		s.last, s.count, s.before, flags = join, 1, s.count, row|opens
	case s.count >= l.weight:
		s.last, s.count, s.before, flags = s.last+1, 1, s.count, row|opens
	default:
		s.count++
	}

	if node = q.nodes.take(); node == 0 {
		node = q.newNode()
	}
	*q.values.at(node) = value
	t := q.links.at(node)
	t.key, t.prev, t.next = flags, s.newest, 0
	turn := node
	if s.len == 0 {
		s.first = node
	} else {
		q.links.at(s.newest).next = node
		if s.turn != s.newest {
			turn, t = q.passTurn(s, node)
		}
	}
	s.newest, s.turn = node, turn
	s.len++
	q.len++

	// The turn goes to the end of the round.
	var tail *ring
	if s.last <= q.rounds.last && s.last > q.rounds.cur {
		tail = q.rounds.later(s.last)
	} else {
		tail = q.ring(s.last)
	}
	if *tail == 0 {
		t.after = turn
		if s.last == q.rounds.cur {
			q.rounds.head = turn
		}
	} else {
		end := q.links.at(*tail)
		t.before, t.after = *tail, end.after
		end.after = turn
	}
	*tail = turn
	if q.waits != nil {
		q.waits.enter(node)
	}
	return node
}

// activate prepares the state of a key that has nothing queued.
func (q *Queue[K, V]) activate(row uint32, l *label[K]) (uint32, *keyState[K]) {
	if row == 0 {
		row = q.keys.insert(l.key, l.hash)
	} else {
		q.rouse(q.keys.at(row))
	}
	q.active++
	return row, q.keys.at(row)
}

// ring returns the ring of a round, which is one more than the furthest at most. While a round is delivered its ring is
// not closed: pop leaves it to this function to bend the last turn's after to the first of those that are left.
func (q *Queue[K, V]) ring(round uint64) *ring {
	if round > q.rounds.last {
		return q.rounds.add()
	}
	if round == q.rounds.cur && q.rounds.now != 0 {
		q.links.at(q.rounds.now).after = q.rounds.head
	}
	return q.rounds.at(round)
}

// pop takes out the next item. The queue must not be empty.
func (q *Queue[K, V]) pop() (value V) {
	turn := q.rounds.head
	if turn == 0 {
		q.rounds.advance()
		turn = q.links.at(q.rounds.now).after
	}
	l := q.links.at(turn)
	if turn == q.rounds.now {
		q.rounds.head, q.rounds.now = 0, 0
	} else {
		q.rounds.head = l.after
	}
	s := q.keys.at(l.key & keyMask)
	s.served = q.rounds.cur
	node := turn
	if s.first != turn { // rarely; written so that what follows need not wait for s to be read
		node = s.first
	}
	if q.waits != nil {
		q.keys.addWait(l.key&keyMask, q.waits.deliver(node))
	}
	value = q.takeValue(node)
	if s.turn == s.newest {
		s.first = l.next
	} else {
		q.moveUp(s, node, turn)
	}
	q.freeNode(turn)
	q.len--
	s.len--
	if s.len == 0 || q.resting.first != 0 {
		q.deactivate(s, l.key&keyMask)
	}
	return value
}

// next returns the turn that pop takes next. The queue must not be empty.
func (q *Queue[K, V]) next() (turn uint32) {
	if q.rounds.head != 0 {
		return q.rounds.head
	}
	return q.links.at(*q.rounds.at(q.rounds.cur + 1)).after
}

// takeValue empties a node. Its ticket is voided when it is freed or released.
func (q *Queue[K, V]) takeValue(node uint32) (value V) {
	var zero V
	at := q.values.at(node)
	value, *at = *at, zero
	return value
}

// deactivate forgets a key that has nothing queued any more, and keys that rest.
func (q *Queue[K, V]) deactivate(s *keyState[K], row uint32) {
	if s.len == 0 {
		q.active--
		if q.waits != nil {
			q.keys.forgetWait(row)
		}
		if q.active == 0 && q.nodes.live > 1 {
			q.nodes.clear(q.dropChunk)
		}
		if q.Newcomers == ThisRound && q.rounds.open && s.served == q.rounds.cur {
			q.rest(s, row)
		} else {
			q.keys.remove(row)
		}
	}
	if q.active == 0 && q.keys.count > mostResting {
		// A round that ever new keys join is never over, nor would a drained queue give its memory back. So the round ends here.
		q.rounds.open = false
		q.keys = keyTable[K]{}
		q.resting.first, q.resting.last = 0, 0
	}
	if q.resting.first != 0 {
		q.sweep()
	}
}

func (q *Queue[K, V]) newNode() (node uint32) {
	node = q.nodes.fetch()
	q.links.reach(node)
	q.values.reach(node)
	if q.waits != nil {
		q.waits.stamps.reach(node)
	}
	return node
}

func (q *Queue[K, V]) freeNode(node uint32) {
	if q.issued > 0 {
		q.voidTicket(node)
	}
	if !q.nodes.give(node) {
		q.giveNode(node)
	}
}

func (q *Queue[K, V]) giveNode(node uint32) {
	q.nodes.putBack(q.nodes.most/2, q.dropChunk)
	q.nodes.give(node)
}

// dropChunk gives back the memory of a chunk of nodes.
func (q *Queue[K, V]) dropChunk(chunk int) {
	q.links.drop(chunk)
	q.values.drop(chunk)
	q.tickets.drop(chunk)
	if q.waits != nil {
		q.waits.stamps.drop(chunk)
	}
}

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

func (q *Queue[K, V]) valid(t Ticket) bool {
	return t.queue == &q.identity && q.tickets.has(t.node) && *q.tickets.at(t.node) == t.id
}

// rest remembers a key without items until the round in which it was served is over.
func (q *Queue[K, V]) rest(s *keyState[K], row uint32) {
	s.first, s.newest = q.resting.last, 0
	if q.resting.last == 0 {
		q.resting.first = row
	} else {
		q.keys.at(q.resting.last).newest = row
	}
	q.resting.last = row
}

// rouse takes a key out of the resting ones.
func (q *Queue[K, V]) rouse(s *keyState[K]) {
	if s.first == 0 {
		q.resting.first = s.newest
	} else {
		q.keys.at(s.first).newest = s.newest
	}
	if s.newest == 0 {
		q.resting.last = s.first
	} else {
		q.keys.at(s.newest).first = s.first
	}
	s.first, s.newest = 0, 0
}

// sweep forgets two resting keys whose round is over, so that they leave faster than others come.
func (q *Queue[K, V]) sweep() {
	for range 2 {
		row := q.resting.first
		if row == 0 || q.rounds.open && q.keys.at(row).served == q.rounds.cur {
			return
		}
		q.rouse(q.keys.at(row))
		q.keys.remove(row)
	}
}
