// Package account has the rule by which queues share work in rounds: the round of an item, and how
// its cost changes the account of its key. Package fairq and the stores of tasks use it.
package account

// An item can cost up to MaxCost units, and up to MaxQuanta quanta.
const (
	MaxCost   = 1<<32 - 1
	MaxQuanta = 1 << 16
)

// CostLimit returns the most that an item can cost, with a quantum.
func CostLimit(quantum int64) int64 { return min(MaxQuanta*quantum, MaxCost) }

// IsCost reports whether an item can have this cost, with a quantum.
func IsCost(cost, quantum int64) bool { return 1 <= cost && cost <= CostLimit(quantum) }

// Account says how far a key has used the rounds: its shares of all rounds before Round, and Used
// units of its share of Round. The zero value is the account of an unknown key.
//
// A share is the units of a round that a key may use: its weight times the quantum.
type Account struct {
	Round uint64
	Used  uint64
}

// Next returns the account that pays for the next item; the item goes to its Round. join is the
// first round that may take an item of the key now. Unused shares of rounds before join are void.
func (a Account) Next(join, share uint64) Account {
	if a.Used >= share {
		a.Round++
		a.Used = 0
	}
	if a.Round < join {
		a.Round = join
		a.Used = 0
	}
	return a
}

// Pay returns the account of Next after it has paid the cost of the item, at least 1. If the rest
// of its share is less than the cost, the key pays with its shares of later rounds.
func (a Account) Pay(cost, share uint64) Account {
	last := a.Used + cost - 1 // the last unit that is paid
	more := last / share
	return Account{a.Round + more, last - more*share + 1}
}

// Settle returns the account after an item turned out to cost more, or less, than it paid. more is
// the difference, below 2^33 units. If it gives back more than the key has ever paid, the result
// is the zero value.
func (a Account) Settle(more int64, share uint64) Account {
	used := int64(a.Used) + more
	rounds := used / int64(share)
	if used < rounds*int64(share) {
		rounds-- // rounded down
	}
	if rounds < 0 && uint64(-rounds) > a.Round {
		return Account{}
	}
	return Account{a.Round + uint64(rounds), uint64(used - rounds*int64(share))}
}
