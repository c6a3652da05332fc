package fairq

import (
	"fmt"

	"github.com/fairq/fairq/internal/account"
)

// MaxQuantum is the greatest quantum that a queue can have: some four million units.
const MaxQuantum = 1 << 22

// An item can cost up to MaxCost units, and up to maxQuanta quanta.
const (
	MaxCost   = 1<<32 - 1
	maxQuanta = 1 << 16
)

// costs is what a queue knows of costs, beside keyTable.costs.
type costs struct {
	quantum uint64
	ahead   uint32
	turns   column[turnCost] // by node
	queued  uint64           // what all items cost together
	served  uint64           // the same of those that were popped
}

// turnCost has the cost of a node's item, and of its turn what it takes to give it up: the account
// that the key had before it.
type turnCost struct {
	cost uint32
	used uint32 // of the account before

	// The lowest bit is set if Round of the account before is the one before the turn's round, and
	// not the same. (If it is further back, the account is void, and as good as one that has used
	// nothing of the round before.) The others say by how many rounds the turn, once paid, has
	// taken Round of the account beyond its own.
	rounds uint32
}

func (t *turnCost) ahead() uint64 { return uint64(t.rounds >> 1) }

// pay makes a key pay for its turn, which can be in round join or later, and returns its round.
func (t *turnCost) pay(u *usage, join, cost, share uint64) (round uint64) {
	before := account.Account{Round: u.round, Used: uint64(u.used)}
	after := before.Next(join, share)
	round = after.Round
	after = after.Pay(cost, share)
	t.used, t.rounds = u.used, uint32(after.Round-round)<<1
	if before.Round < round {
		t.rounds |= 1
		if before.Round < round-1 {
			t.used = 0
		}
	}
	u.round, u.used = after.Round, uint32(after.Used)
	return round
}

// before returns the account that the key had before its turn in the given round.
func (t *turnCost) before(round uint64) (uint64, uint32) { return round - uint64(t.rounds&1), t.used }

// keyCost is what the queue knows of a key.
type keyCost struct {
	queued uint64 // what its items cost together
	share  uint64 // of a round, as of the last push
}

// price sets the cost of an item.
func (k *itemKey[K]) price(cost, quantum int64) error {
	if cost < 1 || cost > costLimit(quantum) {
		return fmt.Errorf("%w: it is %d for an item of key %v; the limits are 1 and %d", ErrCost, cost, k.key, costLimit(quantum))
	}
	k.cost = uint32(cost)
	return nil
}

func costLimit(quantum int64) int64 { return min(maxQuanta*quantum, MaxCost) }

// beginCosts begins to share work, or items, as Cost says. The queue must be empty.
func (q *Queue[K, V]) beginCosts() {
	switch {
	case q.Cost == nil:
		return
	case q.Quantum < 1 || q.Quantum > MaxQuantum:
		panic(fmt.Sprintf("fairq: Queue.Quantum is %d; the limits are 1 and MaxQuantum, %d", q.Quantum, MaxQuantum))
	case q.costs == nil:
		q.costs = new(costs)
		if n := q.nodes.firstLen; n > 0 {
			q.costs.turns.reach(n - 1) // an empty queue has no other nodes
		}
	}
	q.costs.quantum = uint64(q.Quantum)
	q.costs.ahead = 1<<32 - 1
}

// beginKeyCosts is called for a key that is about to get an item, and has none.
func (q *Queue[K, V]) beginKeyCosts(slot uint32) {
	if q.Cost == nil && q.active == 1 {
		q.costs = nil // it has been so since the queue was empty
		return
	}
	q.keys.costs.reach(slot)
	*q.keys.costs.at(slot) = keyCost{}
}

// enter is called with the node of an item that was queued as the n-th of its key, and the key's
// first node without a turn. The key pays for that turn, unless it has as many ahead as it may have.
// Then round is 0.
func (c *costs) enter(k *keyCost, u *usage, node, turn, n, cost uint32, weight uint16, join uint64) (round uint64) {
	k.share = c.quantum * uint64(weight)
	t := c.turns.at(node)
	t.cost = cost
	k.queued += uint64(cost)
	c.queued += uint64(cost)
	if n > c.ahead {
		return 0
	}
	if turn != node {
		t = c.turns.at(turn)
	}
	return t.pay(u, join, uint64(cost), k.share)
}

// leave is called with the node of an item that is about to leave, and returns its cost.
func (c *costs) leave(k *keyCost, node uint32) uint64 {
	cost := uint64(c.turns.at(node).cost)
	k.queued -= cost
	c.queued -= cost
	return cost
}
