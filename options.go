package fairq

import (
	"cmp"
	"errors"
	"fmt"
)

// Unbounded, as Options.Capacity, means no limit but [MaxLen].
const Unbounded = -1

// Options configure a [FairQueue]. The zero value of each field is its default.
type Options[K comparable, V any] struct {
	// Capacity is the greatest number of items. 0 means 128; [Unbounded], or any other
	// negative number, means no limit.
	Capacity int

	// KeyCapacity is the greatest number of items of one key: 1 to Capacity. 0 means that Capacity
	// is the only limit.
	KeyCapacity int

	// WhenFull decides about a push when the queue is at its Capacity, or gets there. A push of a
	// key at its KeyCapacity is always refused.
	WhenFull WhenFull

	// Weight returns the number of items of a key in a round: 1 to [MaxWeight]. With any other
	// number the push fails with [ErrWeight]. nil means 1 for every key.
	//
	// Each push calls Weight; a batch calls it once for successive items of the same key. The lock is
	// not held, so calls may overlap.
	Weight func(K) int

	// Cost returns the work of an item, in units of your choice: tokens, bytes, rows, seconds. Then
	// the keys share the work, and not the number of items. A round gives each key work of its weight
	// times the Quantum; an item that costs more uses the key's shares of later rounds too. nil means
	// that all items count the same.
	//
	// A cost is 1 unit to 65,536 quanta, and at most [MaxCost] units. With any other cost the push
	// fails with [ErrCost]. Each push calls Cost once, without the lock held, so calls may overlap.
	// The queue remembers a key after its last item has left until the rounds that it has used are
	// over, or the queue is empty.
	//
	// Capacity, KeyCapacity and WhenFull count places, not costs.
	Cost func(V) int64

	// Quantum is the work of a key of weight 1 in a round, in the units of Cost: 1 to [MaxQuantum],
	// and 0 without costs. A tenth of a typical cost is best for keys with little work; a typical
	// cost takes less memory. See "Work instead of items" in docs/design.md.
	Quantum int64

	// SettleCosts is for costs that are declared at the push and known when the item is done. The
	// queue charges the Cost of an item when it leaves. [FairQueue.ReportCost] then settles the
	// difference to the true cost:
	//
	//   - A key that has paid too much is served before others until it has that back. A key without
	//     items loses such a credit.
	//   - A key that has paid too little waits until its rounds have passed. So too low a Cost helps
	//     only the items that leave before the first report.
	//
	// With SettleCosts only the next item of a key has a turn: an item gets its turn when the item
	// before it leaves, with the weight of the key's last push. So the heaviest key, for
	// EvictHeaviest and EvictOldest, is one with the most items for its weight, rounded up. Position,
	// Upcoming and Snapshot take some 0.2 microseconds for each item. A pop is O(1), and a step more
	// for each 65,536 rounds that a key owes.
	SettleCosts bool

	// ShareTime makes the keys share the working time of the consumers, instead of rounds. An item is
	// in hand from its pop until a call of [FairQueue.Done]. [FairQueue.All] and pool.NewWorkers make
	// that call; without it the key stays behind others. The next item is the oldest one of the key
	//
	//   1. with the fewest items in hand, divided by its weight and rounded down;
	//   2. on a tie, that has used the least time for its weight;
	//   3. on a tie again, whose oldest item came first.
	//
	// A key pays for the time of an item when the item ends, and only for the time in which items
	// were queued. docs/design.md has the bounds of this rule, for permits: an item in hand is a held
	// permit, and the number of consumers is the limit.
	//
	// Costs and a Quantum are errors with ShareTime. Position, Upcoming and Drain take O(keys) more.
	// They give the order in which items leave if no item in hand ends; the Round of each item is 1.
	// The Evict options evict from a key with the most items for its weight, rounded up.
	ShareTime bool

	// MaxInFlightPerKey is the greatest number of items that a key has in hand with ShareTime, which
	// it needs; 0 means no limit. Without it a key whose jobs hang takes all consumers.
	//
	// A key at its limit is passed over and loses nothing. While all queued items are of such keys,
	// Pop finds no item and consumers wait. Position, Drain and Snapshot ignore the limit. An item
	// counts until its Done; [Stats].Taken and [KeyStat].Taken show items whose Done is missing.
	MaxInFlightPerKey int

	// OnEvict gets each evicted item, without the lock held. It is called in the goroutine of the
	// push that takes the item's place, or of the call that admits a waiting producer. It delays that
	// call, so it should be quick. It may run before the Add of the item has returned, so it must not
	// rely on the ticket. EvictHeaviest and EvictOldest need OnEvict, Reject and RejectOverShare do
	// not allow it.
	OnEvict func(K, V)

	// TrackWait makes the queue measure how long items wait, for [Stats] and [KeyStat]. It costs
	// two clock readings for each item, 16 bytes for each place, and 312 bytes for each key with a
	// backlog.
	TrackWait bool

	// CountKeys is the number of keys for which [KeyStat] counts the delivered, refused and evicted
	// items: the keys with the most such events. 0 means none. It costs a clock reading for each
	// item, and some 150 bytes for each counted key.
	//
	// If there are more keys, a new one takes the place of the key with the fewest events. The new
	// key may have had as many events before: its KeyStat.Missed is their number, at most the events
	// of all keys divided by CountKeys. (The method is Space-Saving, by Metwally, Agrawal and El
	// Abbadi, 2005.)
	CountKeys int
}

// WhenFull decides what a full queue does with a push.
type WhenFull int

const (
	// Reject refuses the push of any key. So a key that floods the queue keeps all others out: use
	// Reject where producers trust each other, or wait in PushWait.
	Reject WhenFull = iota

	// RejectOverShare keeps room for others: a key may hold about as many places as are free. So
	// m keys of weight 1 that flood the queue together hold about 1/(m+1) of it each, and leave as
	// much free. The last place goes only to a key that has nothing queued.
	//
	// The exact rule: a push of a key with n items and weight w is accepted if more than n/w + 1
	// places are free before it, or if n is 0 and one is free. Otherwise it is refused as if the
	// key were at its KeyCapacity, and the limit in the [FullError] is the key's share at that
	// moment. Nothing is evicted.
	//
	// A key's share grows when items of other keys leave, but that wakes no producer. A producer in
	// PushWait whose key is over its share waits until an item of the key leaves, or another push of
	// the key comes. docs/design.md, "Fair when full", has the source of the rule, and says how many
	// keys it takes to fill the queue.
	RejectOverShare

	// EvictHeaviest makes room by evicting the newest item of a key whose backlog reaches
	// furthest, counted in rounds, not in items: weights count. If the pushing key is such a key,
	// the push is refused. So a key that floods the queue takes no more of it than any other that
	// wants as much. If there are more keys than places, a newcomer evicts the newest of the others'
	// only items. A push that makes room for itself does not queue behind waiting producers.
	EvictHeaviest

	// EvictOldest makes room by evicting the oldest item of a key whose backlog reaches furthest: of
	// the pushing key, if that is one of them. So the Capacity refuses no push, and PushWait does not
	// wait for it. Use EvictOldest where new items are worth more than old ones.
	EvictOldest
)

// String returns the constant's name.
func (w WhenFull) String() string {
	names := [...]string{"Reject", "RejectOverShare", "EvictHeaviest", "EvictOldest"}
	if w >= 0 && int(w) < len(names) {
		return names[w]
	}
	return fmt.Sprintf("WhenFull(%d)", int(w))
}

// Validate returns an error if a field is out of range or contradicts another one. The error names
// the field, its value and the limit. Programs whose options come from their users call Validate,
// because New panics.
func (o Options[K, V]) Validate() error { return o.complete() }

// complete sets the defaults, and returns the error of Validate.
func (o *Options[K, V]) complete() error {
	if o.Capacity = cmp.Or(o.Capacity, 128); o.Capacity < 0 {
		o.Capacity = MaxLen
	}
	o.KeyCapacity = cmp.Or(o.KeyCapacity, o.Capacity)
	switch {
	case o.Capacity > MaxLen:
		return fmt.Errorf("fairq: Options.Capacity is %d; the limit is MaxLen, %d", o.Capacity, MaxLen)
	case o.KeyCapacity < 0 || o.KeyCapacity > o.Capacity:
		return fmt.Errorf("fairq: Options.KeyCapacity is %d; the limits are 0 and Options.Capacity, %d",
			o.KeyCapacity, o.Capacity)
	case o.WhenFull < Reject || o.WhenFull > EvictOldest:
		return fmt.Errorf("fairq: Options.WhenFull is %d; the limits are Reject, "+
			"%d, and EvictOldest, %d",
			int(o.WhenFull), int(Reject), int(EvictOldest))
	case o.CountKeys < 0 || o.CountKeys > MaxLen:
		return fmt.Errorf("fairq: Options.CountKeys is %d; the limits are 0 and MaxLen, %d",
			o.CountKeys, MaxLen)
	case o.WhenFull != Reject && o.Capacity == MaxLen:
		return fmt.Errorf("fairq: Options.WhenFull is %v and Options.Capacity is unlimited, so "+
			"the queue is never full",
			o.WhenFull)
	case o.WhenFull >= EvictHeaviest && o.OnEvict == nil:
		return fmt.Errorf("fairq: Options.OnEvict is nil; with WhenFull %v it must be a function, or "+
			"items would be lost in silence",
			o.WhenFull)
	case o.WhenFull < EvictHeaviest && o.OnEvict != nil:
		return fmt.Errorf("fairq: Options.OnEvict is set; with WhenFull %v it must be nil, because "+
			"nothing is ever evicted",
			o.WhenFull)
	}
	if o.MaxInFlightPerKey < 0 || o.MaxInFlightPerKey > 0 && !o.ShareTime {
		return fmt.Errorf("fairq: Options.MaxInFlightPerKey is %d; it must not be below 0, and is 0 "+
			"without ShareTime, because then nothing ends an item", o.MaxInFlightPerKey)
	}
	if o.ShareTime && (o.Cost != nil || o.SettleCosts || o.Quantum != 0) {
		return errors.New("fairq: Options.ShareTime is true, so there are no costs: " +
			"Cost must be nil, SettleCosts false, and Quantum 0")
	}
	return validateCosts("Options", o.Cost != nil, o.SettleCosts, o.Quantum)
}

// weigh asks for the weight of the key.
func (k *itemKey[K]) weigh(weight func(K) int) error {
	w := weight(k.key)
	if w < 1 || w > MaxWeight {
		return fmt.Errorf("%w: it is %d for key %#v; the limits are 1 and %d", ErrWeight,
			w, k.key, MaxWeight)
	}
	k.weight = uint16(w)
	return nil
}
