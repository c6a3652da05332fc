package roundsmodel

import (
	"math"
	"slices"
)

// Accounts is Turns for items with costs. A key has an account: it has used its shares of all
// rounds before round, and used units of its share of that round.
type Accounts[K comparable] struct {
	Quantum int
	OneTurn bool // keys have one turn ahead, and pay when it is served

	keys  map[K]*account
	now   int  // the round being served
	begun bool // the round now has begun
	reach int  // the furthest account that a key without items has had
	clock int
}

type account struct {
	round, used int
	weight      int // as of the last push
	places      []place
}

// place has an item, a turn, or both. The first turn of a key is for its first item, and so on.
type place struct {
	item, turn   bool
	cost         int
	round, given int // of the turn
	before       [2]int
}

func (k *account) count() (items, turns int) {
	for _, p := range k.places {
		if p.item {
			items++
		}
		if p.turn {
			turns++
		}
	}
	return items, turns
}

// Push adds an item of a key.
func (a *Accounts[K]) Push(key K, weight, cost int) {
	if a.keys == nil {
		a.keys = map[K]*account{}
	}
	k := a.keys[key]
	if k == nil {
		k = &account{}
		a.keys[key] = k
	}
	k.weight = weight
	k.places = append(k.places, place{item: true, cost: cost})
	items, _ := k.count()
	switch {
	case !a.OneTurn:
		a.give(k, a.now+1)
		k.pay(cost, a.Quantum)
	case items == 1:
		a.give(k, a.now+1)
	}
}

// give gives a key a turn in the round of its account.
func (a *Accounts[K]) give(k *account, join int) {
	p := &k.places[slices.IndexFunc(k.places, func(p place) bool { return !p.turn })]
	a.clock++
	p.turn, p.given, p.before = true, a.clock, [2]int{k.round, k.used}
	if k.round < join {
		k.round, k.used = join, 0
	} else if k.used >= k.weight*a.Quantum {
		k.round, k.used = k.round+1, 0
	}
	if p.round = k.round; a.OneTurn {
		p.round = a.turnOf(k)
	}
}

// turnOf returns the round of the one turn that a key has.
func (a *Accounts[K]) turnOf(k *account) int {
	first := a.earliest()
	return min(max(k.round, first), first+1<<16)
}

// earliest returns the first round that can have a turn now.
func (a *Accounts[K]) earliest() int {
	if a.begun {
		return a.now
	}
	return a.now + 1
}

func (k *account) pay(cost, quantum int) {
	share := k.weight * quantum
	for k.used += cost; k.used > share; k.used -= share {
		k.round++
	}
}

// Settle adds the rest of an item's cost to the account of its key, after the item has left.
func (a *Accounts[K]) Settle(key K, weight, more int) {
	k := a.keys[key]
	isIdle := k == nil || len(k.places) == 0
	isVoid := k == nil || isIdle && k.round < a.earliest()
	if more == 0 || isVoid && more < 0 {
		return
	}
	if k == nil {
		k = &account{weight: weight}
		if a.keys == nil {
			a.keys = map[K]*account{}
		}
		a.keys[key] = k
	}
	if isVoid {
		k.round, k.used = a.now, 0
	}
	share := k.weight * a.Quantum
	for k.used += more; k.used < 0; k.used += share {
		k.round--
	}
	k.round, k.used = k.round+k.used/share, k.used%share
	if isIdle {
		a.reach = max(a.reach, k.round)
	} else {
		a.moveTurn(k)
	}
}

// moveTurn puts the one turn of a key where its account is.
func (a *Accounts[K]) moveTurn(k *account) {
	if k.used >= k.weight*a.Quantum {
		k.round, k.used = k.round+1, 0
	}
	p := &k.places[slices.IndexFunc(k.places, func(p place) bool { return p.turn })]
	if round := a.turnOf(k); round != p.round {
		a.clock++
		p.round, p.given = round, a.clock
	}
}

// Pop takes the next turn, and returns its key. There must be one.
func (a *Accounts[K]) Pop() (next K) {
	var first *place
	for key, k := range a.keys {
		for i := range k.places {
			p := &k.places[i]
			if p.turn && (first == nil || p.round < first.round || p.round == first.round &&
				p.given < first.given) {
				next, first = key, p
			}
		}
	}
	a.now, a.begun = first.round, true
	k := a.keys[next]
	if a.OneTurn && k.round > a.now { // the key owes further rounds
		a.moveTurn(k)
		return a.Pop()
	}
	if a.OneTurn {
		k.pay(k.places[slices.IndexFunc(k.places, func(p place) bool { return p.item })].cost, a.Quantum)
	}
	first.turn = false
	a.drop(next, 0)
	if items, turns := k.count(); items > turns {
		a.give(k, math.MinInt) // a key with credit keeps it
	}
	return next
}

// Remove takes out an item of a key. Its turn goes to an item of the key without one, or else the
// key gives up its last turn.
func (a *Accounts[K]) Remove(key K, i int) {
	k := a.keys[key]
	if items, turns := k.count(); items == turns {
		for i := range slices.Backward(k.places) {
			if p := &k.places[i]; p.turn {
				if p.turn = false; !a.OneTurn {
					k.round, k.used = p.before[0], p.before[1]
				}
				break
			}
		}
	}
	a.drop(key, i)
}

// RemoveLast takes out the last item of a key.
func (a *Accounts[K]) RemoveLast(key K) { a.Remove(key, a.Len(key)-1) }

// Len returns how many items a key has.
func (a *Accounts[K]) Len(key K) (items int) {
	if k := a.keys[key]; k != nil {
		items, _ = k.count()
	}
	return items
}

// Peek returns the key of the next turn.
func (a *Accounts[K]) Peek() K { return a.Clone().Pop() }

// drop takes out the i-th item of a key, and places without an item and a turn. If no key has an
// item, all accounts are forgotten.
func (a *Accounts[K]) drop(key K, i int) {
	k := a.keys[key]
	for at := range k.places {
		if p := &k.places[at]; p.item {
			if i == 0 {
				p.item = false
				break
			}
			i--
		}
	}
	k.places = slices.DeleteFunc(k.places, func(p place) bool { return !p.item && !p.turn })
	if len(k.places) == 0 {
		a.reach = max(a.reach, k.round)
	}
	for _, k := range a.keys {
		if len(k.places) > 0 {
			return
		}
	}
	if a.reach > a.now {
		a.keys, a.begun, a.reach = map[K]*account{}, false, a.now
	}
}

// Left returns how many items will leave in the current round.
func (a *Accounts[K]) Left() int {
	if c := a.Clone(); c.begun && c.len() > 0 {
		c.Pop()
		if c.now == a.now {
			return len(a.Future()[0])
		}
	}
	return 0
}

// Clone returns a copy.
func (a *Accounts[K]) Clone() *Accounts[K] {
	c := *a
	c.keys = map[K]*account{}
	for key, k := range a.keys {
		copied := *k
		copied.places = slices.Clone(k.places)
		c.keys[key] = &copied
	}
	return &c
}

// Future returns the keys of all items in the order in which they leave, round by round.
func (a *Accounts[K]) Future() (rounds [][]K) {
	c, round := a.Clone(), a.now
	for n := c.len(); n > 0; n-- {
		key := c.Pop()
		if len(rounds) == 0 || c.now != round {
			rounds = append(rounds, nil)
		}
		round = c.now
		rounds[len(rounds)-1] = append(rounds[len(rounds)-1], key)
	}
	return rounds
}

func (a *Accounts[K]) len() (n int) {
	for key := range a.keys {
		n += a.Len(key)
	}
	return n
}

// Rounds returns how many rounds after the current one a key has its last turn.
func (a *Accounts[K]) Rounds(key K) (rounds int) {
	for _, p := range a.keys[key].places {
		if p.turn {
			rounds = p.round - a.now
		}
	}
	return rounds
}
