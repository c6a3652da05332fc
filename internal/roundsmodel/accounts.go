package roundsmodel

import "slices"

// Accounts is Turns for items with costs. A key has an account: it has used its share of all rounds
// before round, and used of its share of that.
type Accounts[K comparable] struct {
	ThisRound bool // as in Turns
	Quantum   int
	Ahead     int         // how many turns a key has at most; 0 for no limit
	Estimate  func(K) int // if not nil, what the next item of a key costs

	keys  map[K]*account
	now   int  // the round being served
	begun bool // it has begun
	clock int
}

type account struct {
	round, used int
	served      int // the round in which the key was served last
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
	join := a.now + 1
	if a.ThisRound && a.begun && k.served != a.now {
		join = a.now
	}
	if _, turns := k.count(); a.Ahead == 0 {
		a.give(key, join, cost)
	} else if turns < a.Ahead {
		a.give(key, join, 0)
	}
}

// give gives a key a turn, for which it pays the cost, or if that is 0, that of the item whose
// place it is.
func (a *Accounts[K]) give(key K, join, cost int) {
	k := a.keys[key]
	p := &k.places[slices.IndexFunc(k.places, func(p place) bool { return !p.turn })]
	if cost == 0 {
		cost = p.cost
	}
	if a.Estimate != nil {
		cost = a.Estimate(key)
	}
	a.clock++
	p.turn, p.given, p.before = true, a.clock, [2]int{k.round, k.used}
	share := k.weight * a.Quantum
	if k.round < join {
		k.round, k.used = join, 0
	} else if k.used >= share {
		k.round, k.used = k.round+1, 0
	}
	p.round = k.round
	for k.used += cost; k.used > share; k.used -= share {
		k.round++
	}
}

// Pop takes the next turn, and tells whose it was. There must be one.
func (a *Accounts[K]) Pop() (next K) {
	var first *place
	for key, k := range a.keys {
		for i := range k.places {
			p := &k.places[i]
			if p.turn && (first == nil || p.round < first.round || p.round == first.round && p.given < first.given) {
				next, first = key, p
			}
		}
	}
	a.now, a.begun = first.round, true
	k := a.keys[next]
	k.served, first.turn = a.now, false
	a.drop(next, 0)
	if items, turns := k.count(); items > turns {
		a.give(next, a.now, 0)
	}
	return next
}

// Remove takes out an item of a key. If another one has no turn, that gets one in its place, else
// the key gives up its last turn.
func (a *Accounts[K]) Remove(key K, i int) {
	k := a.keys[key]
	if items, turns := k.count(); items == turns {
		for i := range slices.Backward(k.places) {
			if p := &k.places[i]; p.turn {
				p.turn, k.round, k.used = false, p.before[0], p.before[1]
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

// Peek tells whose the next turn is, and leaves it.
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
	ahead := false
	for _, k := range a.keys {
		if len(k.places) > 0 {
			return
		}
		ahead = ahead || k.round > a.now
	}
	if ahead {
		a.keys, a.begun = map[K]*account{}, false
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

// Future returns whose items leave, in order, round by round.
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

// Rounds returns how many rounds behind the current one the last turn is that a key has.
func (a *Accounts[K]) Rounds(key K) (rounds int) {
	for _, p := range a.keys[key].places {
		if p.turn {
			rounds = p.round - a.now
		}
	}
	return rounds
}
