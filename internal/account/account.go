// Package account is the rule by which queues share work in rounds: which round an item goes to,
// and what its cost leaves of its key's share. It is written once, for package fairq and for the
// stores of tasks.
package account

// An item can cost up to MaxCost units, and up to MaxQuanta quanta.
const (
	MaxCost   = 1<<32 - 1
	MaxQuanta = 1 << 16
)

// CostLimit returns the most that an item can cost, with a quantum.
func CostLimit(quantum int64) int64 { return min(MaxQuanta*quantum, MaxCost) }

// IsCost tells whether an item can cost so much, with a quantum.
func IsCost(cost, quantum int64) bool { return 1 <= cost && cost <= CostLimit(quantum) }

// Account says how far a key has used the rounds. It has used its share of all rounds before Round,
// and Used units of its share of Round. The zero value is that of a key of which nothing is known.
//
// A share is how many units a key may use of a round: its weight times the quantum.
type Account struct {
	Round uint64
	Used  uint64
}

// Next returns the account from which the next item is paid: its Round is the one that the item
// goes to. join is the first round that may take an item of the key now. What the key has left of
// rounds before that is void.
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

// Pay returns what Next has returned after the cost of the item, at least 1, is paid. An item may
// cost more than is left of the share: then the key pays with its shares of the rounds that follow.
func (a Account) Pay(cost, share uint64) Account {
	last := a.Used + cost - 1 // the last unit that is paid
	more := last / share
	return Account{a.Round + more, last - more*share + 1}
}

// Settle returns the account after it has become known that an item costs so much more, or less,
// than was paid for it: less than 2^33 units. No account is before that of the zero value.
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
