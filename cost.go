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

// record writes down what a turn in the given round has made of the account of its key.
func (t *turnCost) record(before account.Account, round uint64, after account.Account) {
	t.used, t.rounds = uint32(before.Used), uint32(after.Round-round)<<1
	if before.Round < round {
		t.rounds |= 1
		if before.Round < round-1 {
			t.used = 0
		}
	}
}

// before returns the account that the key had before its turn in the given round.
func (t *turnCost) before(round uint64) (uint64, uint32) { return round - uint64(t.rounds&1), t.used }

// keyCost is what the items of a key cost together.
type keyCost struct{ queued uint64 }

// price sets the cost of an item.
func (k *itemKey[K]) price(cost int64, quantum uint64) error {
	if limit := costLimit(quantum); cost < 1 || cost > limit {
		return fmt.Errorf("%w: it is %d for an item of key %v; the limits are 1 and %d", ErrCost, cost, k.key, limit)
	}
	k.cost = uint32(cost)
	return nil
}

func costLimit(quantum uint64) int64 { return min(maxQuanta*int64(quantum), MaxCost) }

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

// enterCost counts the cost of an item that was queued.
func (q *Queue[K, V]) enterCost(node, slot, cost uint32) {
	q.costs.turns.at(node).cost = cost
	q.keys.costs.at(slot).queued += uint64(cost)
	q.costs.queued += uint64(cost)
}

// leaveCost is called with the node of an item that is about to leave, and returns its cost.
func (q *Queue[K, V]) leaveCost(node, slot uint32) uint64 {
	cost := uint64(q.costs.turns.at(node).cost)
	q.keys.costs.at(slot).queued -= cost
	q.costs.queued -= cost
	return cost
}
