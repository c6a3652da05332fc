package fairq

import (
	"errors"
	"fmt"

	"github.com/fairq/fairq/internal/account"
)

// MaxQuantum is the greatest quantum that a queue can have: some four million units.
const MaxQuantum = 1 << 22

// MaxCost is the most that an item can cost, whatever the quantum.
const MaxCost = account.MaxCost

// costs is what a queue knows of costs, beside keyTable.costs.
type costs struct {
	quantum uint64
	prior   uint64           // what an item of an unknown key costs; 0 if costs are not learned
	ahead   uint32           // how many turns a key may have ahead
	levels  *levels          // with TurnsAhead, from the first eviction; else nil
	turns   column[turnCost] // by node
	queued  uint64           // what all items cost together
	served  uint64           // the same of those that were popped
}

// turnCost has the cost of a node's item, and of its turn what it takes to give it up: the account
// that the key had before it.
type turnCost struct {
	cost uint32
	used uint32 // of the account before

	// The lowest two bits say by how many rounds Round of the account before is behind that of the
	// turn: two stand for more, for then the account is void. The others say by how many rounds
	// the turn, once paid, has taken Round of the account beyond its own.
	rounds uint32
}

func (t *turnCost) ahead() uint64 { return uint64(t.rounds >> 2) }

// pay makes a key pay for its turn, which can be in round join or later, and returns its round.
func (t *turnCost) pay(u *usage, join, cost, share uint64) (round uint64) {
	before := account.Account{Round: u.round, Used: uint64(u.used)}
	next := before.Next(join, share)
	after := next.Pay(cost, share)
	t.used = u.used
	t.rounds = uint32(after.Round-next.Round)<<2 | uint32(min(next.Round-before.Round, 2))
	u.round, u.used = after.Round, uint32(after.Used)
	return next.Round
}

// before returns the account that the key had before its turn in the given round.
func (t *turnCost) before(round uint64) (uint64, uint32) { return round - uint64(t.rounds&3), t.used }

// keyCost is what the queue knows of a key.
type keyCost struct {
	queued uint64 // what its items cost together
	share  uint64 // of a round, as of the last push
	mean   account.Mean
}

// checkPush fills in the weight and the cost of an item that is about to be queued. It panics if
// these are out of range, or if the queue holds MaxLen items.
func (q *Queue[K, V]) checkPush(k *itemKey[K], value V) {
	if q.len >= MaxLen {
		panic(fmt.Sprintf("fairq: the queue holds %d items; the limit is MaxLen, %d", q.len, MaxLen))
	}
	if q.Weight != nil {
		if err := k.weigh(q.Weight); err != nil {
			panic(err)
		}
	}
	if q.len == 0 {
		q.beginCosts()
	}
	if q.costs != nil && q.Cost != nil {
		if err := k.price(q.Cost(value), int64(q.costs.quantum)); err != nil {
			panic(err)
		}
	}
}

// price sets the cost of an item.
func (k *itemKey[K]) price(cost, quantum int64) error {
	if k.cost = uint32(cost); account.IsCost(cost, quantum) {
		return nil
	}
	return fmt.Errorf("%w: it is %d for an item of key %#v; the limits are 1 and %d", ErrCost, cost, k.key, account.CostLimit(quantum))
}

func (q *Queue[K, V]) hasCosts() bool { return q.Cost != nil || q.PriorCost != 0 || q.TurnsAhead != 0 }

// validateCosts returns an error if the fields that concern costs do not make sense together.
func validateCosts(of string, known bool, quantum, prior int64, ahead int) error {
	switch {
	case known && prior != 0:
		return fmt.Errorf("fairq: %s.PriorCost is %d; with Cost it must be 0, for costs are known", of, prior)
	case !known && prior == 0 && quantum != 0:
		return fmt.Errorf("fairq: %s.Quantum is %d; without Cost and PriorCost it must be 0", of, quantum)
	case (known || prior != 0) && (quantum < 1 || quantum > MaxQuantum):
		return fmt.Errorf("fairq: %s.Quantum is %d; with costs, the limits are 1 and MaxQuantum, %d", of, quantum, MaxQuantum)
	case prior < 0 || prior > account.CostLimit(quantum):
		return fmt.Errorf("fairq: %s.PriorCost is %d; the limits are 0 and %d", of, prior, account.CostLimit(quantum))
	case ahead < 0 || ahead > MaxLen:
		return fmt.Errorf("fairq: %s.TurnsAhead is %d; the limits are 0 and MaxLen, %d", of, ahead, MaxLen)
	}
	return nil
}

// beginCosts begins to share work, or items, as the fields of the queue say. It must be empty.
func (q *Queue[K, V]) beginCosts() {
	if !q.hasCosts() {
		if q.costs != nil {
			q.costs, q.keys = nil, keyTable[K]{} // what it knows of idle keys is in other units
		}
		return
	}
	if err := validateCosts("Queue", q.Cost != nil, q.Quantum, q.PriorCost, q.TurnsAhead); err != nil {
		panic(err)
	}
	if q.costs == nil {
		q.costs = new(costs)
		if n := q.nodes.firstLen; n > 0 {
			q.costs.turns.reach(n - 1) // an empty queue has no other nodes
		}
		q.keys = keyTable[K]{}
	}
	q.costs.quantum, q.costs.prior, q.costs.ahead = max(1, uint64(q.Quantum)), uint64(q.PriorCost), allTurns
	if q.TurnsAhead > 0 {
		q.costs.ahead = uint32(q.TurnsAhead)
	}
}

// allTurns stands for no limit of turns ahead.
const allTurns = 1<<32 - 1

// Done tells what an item has cost that was popped, in units, for a queue that learns costs: see
// [Options].PriorCost. It panics if the cost is negative, or there is no PriorCost.
func (q *Queue[K, V]) Done(key K, cost int64) {
	if err := q.done(key, hashOf(key), cost); err != nil {
		panic(err)
	}
}

func (q *Queue[K, V]) done(key K, hash uint32, cost int64) error {
	switch {
	case q.PriorCost == 0:
		return errors.New("fairq: Done: costs are not learned, for PriorCost is 0")
	case cost < 0:
		return fmt.Errorf("%w: it is %d for an item of key %#v that is done; it must not be negative", ErrCost, cost, key)
	case q.len == 0:
		q.beginCosts()
	}
	if !q.learns() {
		return nil // PriorCost takes effect when the queue is empty
	}
	slot, _ := q.keys.find(key, hash)
	if slot == 0 {
		slot = q.keys.insert(key, hash)
		q.keys.beginCost(slot)
		defer q.forgetIdle()
	}
	c := q.keys.costs.at(slot)
	c.mean = c.mean.Learn(min(cost, account.CostLimit(int64(q.costs.quantum))), int64(q.costs.prior))
	return nil
}

// learns tells whether costs are learned.
func (q *Queue[K, V]) learns() bool { return q.costs != nil && q.costs.prior > 0 }

// enterCost is called with the node of an item that was queued, and the key's first node without a
// turn. The key pays for that turn, unless it has as many ahead as it may have. Then round is 0.
func (q *Queue[K, V]) enterCost(s *keyState[K], slot, node, turn uint32, join uint64, item *itemKey[K]) (round uint64) {
	c, k, cost := q.costs, q.keys.costs.at(slot), item.cost
	k.share = c.quantum * uint64(item.weight)
	c.setLevel(k, slot, s.len)
	if c.prior > 0 {
		s.passed = false
		cost = c.estimate(k)
	}
	t := c.turns.at(node)
	t.cost = cost
	k.queued += uint64(cost)
	c.queued += uint64(cost)
	switch {
	case s.len > c.ahead:
		return 0
	case turn == node:
	case c.ahead < allTurns:
		return c.payNext(k, &s.usage, turn, join)
	default:
		t = c.turns.at(turn)
	}
	return t.pay(&s.usage, join, uint64(cost), k.share)
}

// leave is called when the item of a node is about to leave, and returns its cost.
func (c *costs) leave(k *keyCost, node uint32) (cost uint64) {
	cost = uint64(c.turns.at(node).cost)
	k.queued -= cost
	c.queued -= cost
	return cost
}

// payNext makes a key pay for the turn of a node whose item was queued earlier.
func (c *costs) payNext(k *keyCost, u *usage, turn uint32, join uint64) (round uint64) {
	t := c.turns.at(turn)
	if c.prior > 0 { // more may have been learned since then
		cost := c.estimate(k)
		k.queued += uint64(cost) - uint64(t.cost)
		c.queued += uint64(cost) - uint64(t.cost)
		t.cost = cost
	}
	return t.pay(u, join, uint64(t.cost), k.share)
}

// estimate returns what the next item of a key will cost, as far as is known.
func (c *costs) estimate(k *keyCost) uint32 {
	return uint32(k.mean.Estimate(int64(c.prior)))
}

// servedCost returns what the items popped so far have cost, 0 without costs.
func (q *Queue[K, V]) servedCost() uint64 {
	if q.costs == nil {
		return 0
	}
	return q.costs.served
}
