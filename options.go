package fairq

import (
	"cmp"
	"errors"
	"fmt"
)

// Unbounded, as Options.Capacity, means no limit but [MaxLen].
const Unbounded = -1

// DefaultCapacity is the capacity of a queue whose options name none.
const DefaultCapacity = 128

// Options configure a [FairQueue]. The zero value of each field is its default.
type Options[K comparable, V any] struct {
	// Capacity is how many items the queue holds at most. 0 means [DefaultCapacity]; [Unbounded],
	// or any other negative number, means no limit.
	Capacity int

	// KeyCapacity is how many items of one key the queue holds at most. 0 means that Capacity is
	// the only limit. It must not be negative, nor greater than Capacity.
	KeyCapacity int

	// WhenFull says what becomes of a push when the queue is at its Capacity, or gets there. A
	// push of a key at its KeyCapacity is refused in any case.
	WhenFull WhenFull

	// Newcomers says which round a key joins that has nothing queued.
	Newcomers Newcomers

	// Weight tells how many items a key may put into a round: 1 to [MaxWeight]. nil means 1 for
	// every key. It is called at each push, once for a run of one key in a batch, without the lock
	// held, so calls may overlap. If it returns anything else, the push fails with [ErrWeight].
	Weight func(K) int

	// Cost tells how much work an item is, in units of your choice: tokens, bytes, rows, seconds.
	// Then the keys share the work, and not the number of items: in each round a key may have as
	// much work done as its weight times the Quantum, and an item that costs more uses its key's
	// share of the rounds that follow, too. nil means that all items count the same.
	//
	// A cost is 1 to 65,536 quanta, and [MaxCost] units at most. Cost is called once at each push,
	// without the lock held, so calls may overlap. If it returns anything else, the push fails
	// with [ErrCost]. A key is remembered, after its last item has left, until the rounds that it
	// has used are over, or the queue is empty.
	//
	// Capacity, KeyCapacity and WhenFull count places, not costs.
	Cost func(V) int64

	// Quantum is how much work a key of weight 1 may have done in a round, in the units of Cost: 1
	// to [MaxQuantum], and 0 without costs. A tenth of a typical cost serves those best who bring
	// little work; the typical cost takes the least memory. See "Work instead of items" in
	// docs/design.md.
	Quantum int64

	// SettleCosts is for costs that are declared at the push and known when the item is done: an
	// item is charged its Cost when it gets its turn, and [FairQueue.ReportCost] moves its key's
	// account by the difference to what the item has cost. Nobody gains by a wrong Cost, but once. A
	// key that has paid too much is served before others until it has that back; one that has paid
	// too little waits until its rounds have passed. A key without items loses such a credit.
	//
	// With SettleCosts or PriorCost a key has one turn ahead, and not one for each item: its next
	// item gets one when the one before it leaves, with the weight of the key's last push. So the
	// heaviest key for EvictHeaviest and EvictOldest is that with the most items for its weight,
	// rounded up, and Position, Upcoming and Snapshot take some 0.2 microseconds for each item. To
	// pop an item is O(1) for each 65,536 rounds that keys owe.
	SettleCosts bool

	// PriorCost is for use instead of Cost, where nobody knows what an item costs before it is done:
	// the queue learns that from [FairQueue.ReportCost]. When an item gets its turn, it is taken to
	// cost what the items of the key have cost, in a moving mean of which each new cost is an
	// eighth. PriorCost, 1 to 65,536 quanta, is the cost for a key of which nothing is known. 0 means
	// that costs are not learned. The queue remembers what it has learned of a key without items,
	// for some 16,384 such keys (more if more than a quarter as many have items), and until Drain.
	PriorCost int64

	// ShareTime makes the keys share the time of those who work on the items, instead of rounds. The
	// next item is the oldest one of the key that has the fewest items in hand for its weight, in
	// whole numbers; of these, that has used the least time; of these, whose oldest item came first.
	// An item is in hand from when it is popped until [FairQueue.Done] is called with it, which
	// [FairQueue.All] and pool.NewWorkers do. What nobody tells the end of is in hand for ever, and
	// its key behind others. A key is charged for the time of an item when that ends, and only for
	// the time in which items were queued. docs/design.md has the rule and its bounds, with items
	// in hand for permits that are held; the limit is the number of consumers.
	//
	// So it takes no costs, and they are an error, as are a Quantum and ThisRound. There
	// are no rounds: Position, Upcoming and Drain have the order in which items leave if nothing that
	// is in hand ends, with 1 for a round, and are O(keys) more. How far a backlog reaches is its
	// items for the key's weight, rounded up.
	ShareTime bool

	// OnEvict is handed what is evicted, after the lock is released, in the goroutine of the push
	// that takes its place, or of the call that lets in a producer who has waited. It delays that
	// call, so it should be quick. It may be called before the Add that queued the item has
	// returned, so it must not rely on the ticket. EvictHeaviest and EvictOldest need it, Reject
	// and RejectOverShare do not allow it.
	OnEvict func(K, V)

	// TrackWait makes the queue measure how long items wait, for [Stats] and [KeyStat]. It costs
	// two clock readings for each item, 16 bytes for each place, and 312 bytes for each key with a
	// backlog.
	TrackWait bool

	// CountKeys is the number of keys, those with the most events, whose items delivered, refused
	// and evicted [KeyStat] counts. 0 means none. If there are more keys, a new one takes the place
	// of that with the fewest events, and its Missed is their number: at most the events of all
	// keys, divided by CountKeys. (The method is Space-Saving, by Metwally, Agrawal and El Abbadi,
	// 2005.) It costs a clock reading for each item, and some 150 bytes for each key.
	CountKeys int
}

// WhenFull is what a full queue does with a push.
type WhenFull int

const (
	// Reject refuses the push, whoever's it is. So a key that floods the queue keeps everybody
	// else out of it: use this where producers trust each other, or wait in PushWait.
	Reject WhenFull = iota

	// RejectOverShare keeps room for others: a key may hold about as many places as are free. A
	// push of a key with n items and weight w is accepted if there are more than n/w + 1 free
	// places before it, or if n is 0 and there is one. Otherwise it is refused as if the key were
	// at its KeyCapacity, and the [FullError] has the key's share at that moment for a limit.
	//
	// Nothing is evicted, and what others push later takes nothing back. The last place goes only
	// to a key that has nothing queued; m keys of weight 1 that flood the queue together hold
	// about 1/(m+1) of it each, and leave as much free; a single one of weight w holds w/(w+1).
	// Keys that come one after the other take half of what is free each, and get to equal shares
	// as items leave. As long as nothing leaves, the queue can be full only if the product of
	// weight + 1, over all keys that have items but the one of the least weight, is at least
	// Capacity: with weight 1 that takes 8 keys at 128. (The rule is known from switches with
	// shared memory: Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory
	// packet switches", IEEE/ACM Transactions on Networking 6, 1998.)
	//
	// A producer in PushWait whose key is over its share is set aside until an item of the key
	// leaves, or another push of the key comes. So it may wait although its share has grown
	// meanwhile, because others have left.
	RejectOverShare

	// EvictHeaviest makes room by evicting the newest item of a key whose backlog reaches
	// furthest, counted in rounds, not in items: weights count. If the pushing key is itself such
	// a key, the push is refused. So a key that floods the queue takes no more of it than any
	// other that wants as much. If there are more keys than places, a newcomer evicts the newest
	// of the others' only items. A push that makes room for itself does not queue up behind
	// producers who wait.
	EvictHeaviest

	// EvictOldest makes room by evicting the oldest item of such a key, and of the pushing key if
	// that is one of them. So a push is never refused for lack of Capacity, and PushWait does not
	// wait for it, where what is new is worth more than what is old.
	EvictOldest
)

// String returns the constant's name.
func (w WhenFull) String() string {
	if names := [...]string{"Reject", "RejectOverShare", "EvictHeaviest", "EvictOldest"}; w >= 0 && int(w) < len(names) {
		return names[w]
	}
	return fmt.Sprintf("WhenFull(%d)", int(w))
}

// Newcomers says which round a key joins that has nothing queued.
type Newcomers int

const (
	// NextRound makes newcomers wait for the next round.
	NextRound Newcomers = iota

	// ThisRound lets a key that was not served in the current round join its end. New keys are
	// served sooner, but a round has no bound then: as long as ever new keys arrive, the keys with
	// a backlog wait. Keys served in the current round are remembered, even without items, until
	// the next one begins; an empty queue remembers 64 at most.
	ThisRound
)

// Validate returns an error that names the field, its value and the limit, if the options do not
// make sense. Programs whose options come from their users call it, for New panics.
func (o Options[K, V]) Validate() error { return o.complete() }

// complete puts in the defaults, and returns what Validate does.
func (o *Options[K, V]) complete() error {
	if o.Capacity = cmp.Or(o.Capacity, DefaultCapacity); o.Capacity < 0 {
		o.Capacity = MaxLen
	}
	o.KeyCapacity = cmp.Or(o.KeyCapacity, o.Capacity)
	switch {
	case o.Capacity > MaxLen:
		return fmt.Errorf("fairq: Options.Capacity is %d; the limit is MaxLen, %d", o.Capacity, MaxLen)
	case o.KeyCapacity < 0 || o.KeyCapacity > o.Capacity:
		return fmt.Errorf("fairq: Options.KeyCapacity is %d; the limits are 0 and Options.Capacity, %d", o.KeyCapacity, o.Capacity)
	case o.WhenFull < Reject || o.WhenFull > EvictOldest:
		return fmt.Errorf("fairq: Options.WhenFull is %d; the limits are Reject, %d, and EvictOldest, %d", int(o.WhenFull), int(Reject), int(EvictOldest))
	case o.CountKeys < 0 || o.CountKeys > MaxLen:
		return fmt.Errorf("fairq: Options.CountKeys is %d; the limits are 0 and MaxLen, %d", o.CountKeys, MaxLen)
	case o.Newcomers < NextRound || o.Newcomers > ThisRound:
		return fmt.Errorf("fairq: Options.Newcomers is %d; the limits are NextRound, %d, and ThisRound, %d", o.Newcomers, NextRound, ThisRound)
	case o.WhenFull != Reject && o.Capacity == MaxLen:
		return fmt.Errorf("fairq: Options.WhenFull is %v and Options.Capacity is unlimited, so the queue is never full", o.WhenFull)
	case o.WhenFull >= EvictHeaviest && o.OnEvict == nil:
		return fmt.Errorf("fairq: Options.OnEvict is nil; with WhenFull %v it must be a function, or items would be lost in silence", o.WhenFull)
	case o.WhenFull < EvictHeaviest && o.OnEvict != nil:
		return fmt.Errorf("fairq: Options.OnEvict is set; with WhenFull %v it must be nil, for nothing is ever evicted", o.WhenFull)
	}
	if o.ShareTime && (o.Cost != nil || o.SettleCosts || o.Quantum != 0 || o.PriorCost != 0 || o.Newcomers != NextRound) {
		return errors.New("fairq: Options.ShareTime is true, so there are no costs and no rounds: Cost must be nil, " +
			"SettleCosts false, Quantum and PriorCost 0, and Newcomers NextRound")
	}
	return validateCosts("Options", o.Cost != nil, o.SettleCosts, o.Quantum, o.PriorCost)
}

// weigh asks for the weight of the key.
func (k *itemKey[K]) weigh(weight func(K) int) error {
	w := weight(k.key)
	if w < 1 || w > MaxWeight {
		return fmt.Errorf("%w: it is %d for key %#v; the limits are 1 and %d", ErrWeight, w, k.key, MaxWeight)
	}
	k.weight = uint16(w)
	return nil
}
