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

// costs is what a queue knows of costs, beside keyTable.costs and Queue.turnCosts. What the fields
// of the queue say is here from when it was empty last.
type costs struct {
	quantum uint64 // 0 without costs
	prior   uint64 // what an item of an unknown key costs; 0 if costs are not learned
	oneTurn bool   // costs are settled or learned, so keys have one turn ahead, and not as many as items
	queued  uint64 // what all items cost together
	served  uint64 // the same of those that were popped
}

// areOn reports whether there are costs.
func (c *costs) areOn() bool { return c.quantum > 0 }

// turnCost has the cost of a node's item, and of its turn what it takes to give it up: the account
// that the key had before it.
type turnCost struct {
	cost uint32
	used uint32 // of the account before

	// The lowest two bits say by how many rounds Round of the account before is behind that of the
	// turn: two stand for more, for then the account is void. The others say by how many rounds
	// the turn, once paid, has taken Round of the account beyond its own.
	//
	// With one turn ahead, it is paid when it is served. Then rounds is the round of the turn, as
	// far as 32 bits tell, and used is 0.
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
	q.rate(k, value)
}

// rate fills in the weight and the cost of an item. It panics if these are out of range.
func (q *Queue[K, V]) rate(k *itemKey[K], value V) {
	if q.Weight != nil {
		if err := k.weigh(q.Weight); err != nil {
			panic(err)
		}
	}
	if q.len == 0 {
		q.beginCosts()
	}
	if q.costs.areOn() && q.Cost != nil {
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

func (q *Queue[K, V]) hasCosts() bool { return q.Cost != nil || q.PriorCost != 0 }

// validateCosts returns an error if the fields that concern costs do not make sense together.
func validateCosts(of string, known, settle bool, quantum, prior int64) error {
	switch {
	case settle && !known:
		return fmt.Errorf("fairq: %s.SettleCosts is true; without Cost it must be false, for nothing is declared", of)
	case known && prior != 0:
		return fmt.Errorf("fairq: %s.PriorCost is %d; with Cost it must be 0, for costs are known", of, prior)
	case !known && prior == 0 && quantum != 0:
		return fmt.Errorf("fairq: %s.Quantum is %d; without Cost and PriorCost it must be 0", of, quantum)
	case (known || prior != 0) && (quantum < 1 || quantum > MaxQuantum):
		return fmt.Errorf("fairq: %s.Quantum is %d; with costs, the limits are 1 and MaxQuantum, %d", of, quantum, MaxQuantum)
	case prior < 0 || prior > account.CostLimit(quantum):
		return fmt.Errorf("fairq: %s.PriorCost is %d; the limits are 0 and %d", of, prior, account.CostLimit(quantum))
	}
	return nil
}

// firstSettled is the first round where costs are settled: an account may lie before it, by what its
// key has got back.
const firstSettled = 1 << 40

// beginCosts begins to share work, or items, as the fields of the queue say. It must be empty.
func (q *Queue[K, V]) beginCosts() {
	if !q.hasCosts() {
		if q.costs.areOn() { // what it knows of idle keys is in other units
			q.costs, q.levels, q.keys, q.turnCosts = costs{}, nil, keyTable[K]{}, column[turnCost]{}
		}
		return
	}
	if err := validateCosts("Queue", q.Cost != nil, q.SettleCosts, q.Quantum, q.PriorCost); err != nil {
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
	q.costs.quantum, q.costs.prior = uint64(q.Quantum), uint64(q.PriorCost)
	q.costs.oneTurn = q.SettleCosts || q.PriorCost > 0
}

// ReportCost tells what an item of a key has cost that was popped: see [FairQueue.ReportCost]. It
// panics where that returns an error.
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
	case !q.SettleCosts && q.PriorCost == 0:
		return errors.New("fairq: ReportCost: costs are neither settled nor learned; set SettleCosts or PriorCost")
	case cost < 0:
		return fmt.Errorf("%w: it is %d for an item of key %#v that is done; it must not be negative", ErrCost, cost, k.key)
	case q.len == 0:
		q.beginCosts()
	}
	switch {
	case q.costs.prior > 0:
		c := q.keys.costs.at(q.knownKey(k).slot)
		c.mean = c.mean.Learn(min(cost, account.CostLimit(int64(q.costs.quantum))), int64(q.costs.prior))
	case q.costs.oneTurn:
		q.settle(k, min(cost, MaxCost)-int64(k.cost))
	default:
		return nil // what the fields say takes effect when the queue is empty
	}
	if q.hasManyIdle(maxIdle) {
		q.forgetIdle()
	}
	return nil
}

// knownKey returns where a key is. It is put into the table if it is not there.
func (q *Queue[K, V]) knownKey(k *itemKey[K]) keyRef[K] {
	at := q.find(k)
	if at.state == nil {
		at = q.addKey(k)
		q.keys.costs.at(at.slot).share = q.costs.quantum * uint64(k.weight)
	}
	return at
}

// settle moves the account of a key whose item costs so much more, or less, than it has paid. It
// makes no difference whether a key is forgotten already that can be: a refund is void, and a debt
// begins with the current round.
func (q *Queue[K, V]) settle(k *itemKey[K], more int64) {
	at := q.find(k)
	isIdle := at.len() == 0
	isVoid := at.state == nil || isIdle && !q.isNeeded(at.state)
	if more == 0 || isVoid && more < 0 {
		return
	}
	at = q.knownKey(k)
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

// moveTurn puts the one turn that a key has ahead where its account is now.
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

// turnOf returns the round of a turn that is given now. A key with credit has it at once. That of a
// key that owes more rounds than a turn may lie ahead moves on when it is reached, see reachTurn.
func turnOf(round, now uint64) uint64 { return min(max(round, now), now+account.MaxQuanta) }

// giveTurn gives a key its one turn ahead, at the end of a round.
func (q *Queue[K, V]) giveTurn(s *keyState[K], turn uint32, round uint64) {
	s.lastTurn = turn
	q.turnCosts.at(turn).rounds = uint32(round)
	q.appendTurn(q.ring(round), turn, q.links.at(turn))
}

// enterCost is called with the node of an item that was queued, and the key's first node without a
// turn. The key pays for that turn, unless it has one ahead and may have no more. Then round is 0.
func (q *Queue[K, V]) enterCost(s *keyState[K], slot, node, turn uint32, join uint64, item *itemKey[K]) (round uint64) {
	c, k, cost := &q.costs, q.keys.costs.at(slot), item.cost
	k.share = c.quantum * uint64(item.weight)
	q.setLevel(slot, s.len)
	if c.prior > 0 {
		s.passed = false
		cost = c.estimate(k)
	}
	t := q.turnCosts.at(node)
	t.cost = cost
	k.queued += uint64(cost)
	c.queued += uint64(cost)
	switch {
	case !c.oneTurn:
		return q.turnCosts.at(turn).pay(&s.usage, join, uint64(cost), k.share)
	case s.len > 1:
		return 0
	}
	s.set(s.account().Next(join, k.share))
	round = turnOf(s.round, q.earliest())
	t.rounds = uint32(round)
	return round
}

// leaveCost returns the cost of an item that is about to leave, which counts as queued no more.
func (q *Queue[K, V]) leaveCost(k *keyCost, node uint32) (cost uint64) {
	cost = uint64(q.turnCosts.at(node).cost)
	k.queued -= cost
	q.costs.queued -= cost
	return cost
}

// estimateAgain reads the learned cost of an item that is the next one of its key from now on: more may
// have been learned since it was pushed.
func (q *Queue[K, V]) estimateAgain(k *keyCost, node uint32) {
	if q.costs.prior > 0 {
		t, cost := q.turnCosts.at(node), q.costs.estimate(k)
		k.queued += uint64(cost) - uint64(t.cost)
		q.costs.queued += uint64(cost) - uint64(t.cost)
		t.cost = cost
	}
}

// estimate returns what the next item of a key will cost, as far as is known.
func (c *costs) estimate(k *keyCost) uint32 {
	return uint32(k.mean.Estimate(int64(c.prior)))
}
