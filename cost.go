package fairq

import (
	"errors"
	"fmt"

	"github.com/fairq/fairq/internal/account"
)

// MaxQuantum is the greatest quantum of a queue: about four million units.
const MaxQuantum = 1 << 22

// MaxCost is the greatest cost of an item, whatever the quantum.
const MaxCost = account.MaxCost

// costs is the state of a queue with costs, beside keyTable.costs and Queue.turnCosts. Its
// settings are the values of the queue's fields when it was last empty.
type costs struct {
	quantum uint64 // 0 without costs
	oneTurn bool   // costs are settled, so a key has one turn ahead
	queued  uint64 // the sum over all queued items
	served  uint64 // the sum over all popped items
}

// areOn reports whether there are costs.
func (c *costs) areOn() bool { return c.quantum > 0 }

// turnCost has the cost of a node's item. It also has the account that the key had before the
// node's turn: the key returns to it if the turn is given up.
type turnCost struct {
	cost uint32
	used uint32 // of the account before

	// The lowest two bits are the rounds between the account before and the turn. Two stands for
	// more, because such an account is void. The other bits are the rounds between the turn and
	// the account after paying for it.
	//
	// With SettleCosts a key pays for its turn when that is served. There rounds is the round of the
	// turn modulo 2^32, and used is 0.
	rounds uint32
}

func (t *turnCost) ahead() uint64 { return uint64(t.rounds >> 2) }

// pay makes a key pay for its turn, which can be in round join or later, and returns its round.
func (t *turnCost) pay(u *usage, join, cost, share uint64) (round uint64) {
	before := u.account()
	next := before.Next(join, share)
	after := next.Pay(cost, share)
	t.used = u.used
	t.rounds = uint32(after.Round-next.Round)<<2 | uint32(min(next.Round-before.Round, 2))
	u.set(after)
	return next.Round
}

func (u *usage) account() account.Account {
	return account.Account{Round: u.round, Used: uint64(u.used)}
}

func (u *usage) set(a account.Account) { u.round, u.used = a.Round, uint32(a.Used) }

// before returns the account that the key had before its turn in a round.
func (t *turnCost) before(round uint64) (uint64, uint32) {
	return round - uint64(t.rounds&3), t.used
}

// keyCost is the part of a key's state that only queues with costs have.
type keyCost struct {
	queued uint64 // the sum over its items
	share  uint64 // of a round, as of the last push
}

// checkPush fills in the weight and the cost of an item that is about to be queued. It panics if
// these are out of range, or if the queue holds MaxLen items.
func (q *Queue[K, V]) checkPush(k *itemKey[K], value V) {
	if q.len >= MaxLen {
		panic(fmt.Sprintf("fairq: the queue holds %d items; the limit is MaxLen, %d", q.len, MaxLen))
	}
	q.rate(k, value)
}

// rate fills in the weight and the cost of an item. It panics if these are out of range.
func (q *Queue[K, V]) rate(k *itemKey[K], value V) {
	if q.len == 0 {
		q.beginCosts()
	}
	cost := q.Cost
	if !q.costs.areOn() {
		cost = nil
	}
	if err := rate(k, value, q.Weight, cost, int64(q.costs.quantum)); err != nil {
		panic(err)
	}
}

// rate asks for the weight of a key and the cost of its item. Either function may be nil.
func rate[K comparable, V any](
	k *itemKey[K], item V, weight func(K) int, cost func(V) int64, quantum int64,
) error {
	if weight != nil {
		if err := k.weigh(weight); err != nil {
			return err
		}
	}
	if cost != nil {
		return k.price(cost(item), quantum)
	}
	return nil
}

// price sets the cost of an item.
func (k *itemKey[K]) price(cost, quantum int64) error {
	if k.cost = uint32(cost); account.IsCost(cost, quantum) {
		return nil
	}
	return fmt.Errorf("%w: it is %d for an item of key %#v; the limits are 1 and %d",
		ErrCost, cost, k.key, account.CostLimit(quantum))
}

// validateCosts returns an error if the fields about costs contradict each other.
func validateCosts(of string, known, settle bool, quantum int64) error {
	switch {
	case settle && !known:
		return fmt.Errorf("fairq: %s.SettleCosts is true; without Cost it must be false, "+
			"because nothing is declared", of)
	case !known && quantum != 0:
		return fmt.Errorf("fairq: %s.Quantum is %d; without Cost it must be 0", of, quantum)
	case known && (quantum < 1 || quantum > MaxQuantum):
		return fmt.Errorf("fairq: %s.Quantum is %d; with costs, the limits are 1 and MaxQuantum, %d", of,
			quantum, MaxQuantum)
	}
	return nil
}

// firstSettled is the first round of a queue that settles costs. A refund may move an account to
// an earlier round.
const firstSettled = 1 << 40

// beginCosts makes the queue, which must be empty, share work or items as its fields say now.
func (q *Queue[K, V]) beginCosts() {
	if q.Cost == nil {
		if q.costs.areOn() { // the accounts of idle keys are in other units
			q.costs, q.levels, q.keys, q.turnCosts = costs{}, nil, keyTable[K]{}, column[turnCost]{}
		}
		return
	}
	if err := validateCosts("Queue", true, q.SettleCosts, q.Quantum); err != nil {
		panic(err)
	}
	if q.SettleCosts && q.rounds.last == 0 {
		q.rounds.current, q.rounds.last = firstSettled, firstSettled
	}
	if !q.costs.areOn() {
		if n := q.nodes.firstLen; n > 0 {
			q.turnCosts.reach(n - 1) // an empty queue has no other nodes
		}
		q.keys = keyTable[K]{}
	}
	q.costs.quantum, q.costs.oneTurn = uint64(q.Quantum), q.SettleCosts
}

// ReportCost reports the true cost of a popped item: see [FairQueue.ReportCost]. It panics where
// that returns an error.
func (q *Queue[K, V]) ReportCost(key K, value V, cost int64) {
	k := hashed(key)
	q.rate(&k, value)
	if err := q.reportCost(&k, cost); err != nil {
		panic(err)
	}
}

// reportCost is ReportCost for an item that was pushed with the cost that is in k.
func (q *Queue[K, V]) reportCost(k *itemKey[K], cost int64) error {
	switch {
	case !q.SettleCosts:
		return errors.New("fairq: ReportCost: costs are not settled; set SettleCosts")
	case cost < 0:
		return fmt.Errorf("%w: it is %d for an item of key %#v that is done; it must not be negative",
			ErrCost, cost, k.key)
	}
	if q.costs.oneTurn { // otherwise the fields take effect when the queue is empty
		q.settle(k, min(cost, MaxCost)-int64(k.cost))
		if q.hasManyIdle() {
			q.forgetIdle()
		}
	}
	return nil
}

// settle moves the account of a key whose item costs more, or less, than the key has paid. A key
// that may be forgotten is treated as if it were forgotten already: its refund is void, and its
// debt begins with the current round. So it makes no difference when the key is really forgotten.
func (q *Queue[K, V]) settle(k *itemKey[K], more int64) {
	at := q.find(k)
	isIdle := at.len() == 0
	isVoid := at.state == nil || isIdle && !q.isNeeded(at.state)
	if more == 0 || isVoid && more < 0 {
		return
	}
	if at.state == nil {
		at = q.addKey(k)
		q.keys.costs.at(at.slot).share = q.costs.quantum * uint64(k.weight)
	}
	slot, s := at.slot, at.state
	if isVoid {
		s.round, s.used = q.rounds.current, 0
	}
	s.set(s.account().Settle(more, q.keys.costs.at(slot).share))
	if isIdle {
		q.reach = max(q.reach, s.round)
	} else {
		q.moveTurn(s, slot)
	}
}

// moveTurn moves the one turn that a key has ahead to the round of its account.
func (q *Queue[K, V]) moveTurn(s *keyState[K], slot uint32) {
	s.set(s.account().Next(0, q.keys.costs.at(slot).share))
	turn, is := s.lastTurn, q.lastRound(s)
	if round := turnOf(s.round, q.earliest()); round != is {
		q.dropTurn(s)
		q.giveTurn(s, turn, round)
	}
}

// earliest returns the first round that can have a turn now.
func (q *Queue[K, V]) earliest() uint64 {
	if q.rounds.open {
		return q.rounds.current
	}
	return q.rounds.current + 1
}

// turnOf returns the round of a turn that is given now. A key with credit gets the earliest round.
// If a key owes more rounds than a turn may lie ahead, reachTurn moves the turn on when it is
// reached.
func turnOf(round, now uint64) uint64 { return min(max(round, now), now+account.MaxQuanta) }

// giveTurn gives a key its one turn ahead, at the end of a round.
func (q *Queue[K, V]) giveTurn(s *keyState[K], turn uint32, round uint64) {
	s.lastTurn = turn
	q.turnCosts.at(turn).rounds = uint32(round)
	q.appendTurn(q.ring(round), turn, q.links.at(turn))
}

// enterCost charges a key for a turn, and returns the turn's round. node has the item that was
// queued, turn is the key's first node without a turn. If the key may have only one turn ahead and
// has it, enterCost returns 0.
func (q *Queue[K, V]) enterCost(
	s *keyState[K], slot, node, turn uint32, item *itemKey[K],
) (round uint64) {
	c, k, cost, join := &q.costs, q.keys.costs.at(slot), uint64(item.cost), q.rounds.current+1
	k.share = c.quantum * uint64(item.weight)
	q.setLevel(slot, s.len)
	t := q.turnCosts.at(node)
	t.cost = item.cost
	k.queued += cost
	c.queued += cost
	switch {
	case !c.oneTurn:
		return q.turnCosts.at(turn).pay(&s.usage, join, cost, k.share)
	case s.len > 1:
		return 0
	}
	s.set(s.account().Next(join, k.share))
	round = turnOf(s.round, q.earliest())
	t.rounds = uint32(round)
	return round
}

// leaveCost takes an item that is about to leave off the queued costs, and returns its cost.
func (q *Queue[K, V]) leaveCost(k *keyCost, node uint32) (cost uint64) {
	cost = uint64(q.turnCosts.at(node).cost)
	k.queued -= cost
	q.costs.queued -= cost
	return cost
}
