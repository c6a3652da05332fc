package roundsmodel

// Accounts is Turns for items with costs. A key has an account: it has used its share of all rounds
// before round, and used of its share of that.
type Accounts[K comparable] struct {
	ThisRound bool // as in Turns
	Quantum   int

	keys  map[K]*account
	now   int  // the round being served
	begun bool // it has begun
	clock int
}

type account struct {
	round, used int
	served      int // the round in which the key was served last
	turns       []paidTurn
}

type paidTurn struct {
	round, given int
	before       account // only round and used
}

// Push gives a key a turn for an item.
func (a *Accounts[K]) Push(key K, weight, cost int) {
	if a.keys == nil {
		a.keys = map[K]*account{}
	}
	k := a.keys[key]
	if k == nil {
		k = &account{}
		a.keys[key] = k
	}
	join, share, before := a.now+1, weight*a.Quantum, account{round: k.round, used: k.used}
	if a.ThisRound && a.begun && k.served != a.now {
		join = a.now
	}
	if k.round < join {
		k.round, k.used = join, 0
	} else if k.used >= share {
		k.round, k.used = k.round+1, 0
	}
	a.clock++
	k.turns = append(k.turns, paidTurn{k.round, a.clock, before})
	for k.used += cost; k.used > share; k.used -= share {
		k.round++
	}
}

// Pop takes the next turn, and tells whose it was. There must be one.
func (a *Accounts[K]) Pop() (next K) {
	var first *paidTurn
	for key, k := range a.keys {
		if len(k.turns) == 0 {
			continue
		}
		if t := &k.turns[0]; first == nil || t.round < first.round || t.round == first.round && t.given < first.given {
			next, first = key, t
		}
	}
	a.now, a.begun = first.round, true
	k := a.keys[next]
	k.served, k.turns = a.now, k.turns[1:]
	a.forget(next)
	return next
}

// RemoveLast takes its last turn from a key.
func (a *Accounts[K]) RemoveLast(key K) {
	k := a.keys[key]
	last := k.turns[len(k.turns)-1]
	k.round, k.used, k.turns = last.before.round, last.before.used, k.turns[:len(k.turns)-1]
	a.forget(key)
}

// forget forgets a key that has no turns and need not be remembered, and all accounts if no key has
// a turn.
func (a *Accounts[K]) forget(key K) {
	if k := a.keys[key]; len(k.turns) == 0 && !a.ThisRound && k.round <= a.now {
		delete(a.keys, key)
	}
	ahead := false
	for _, k := range a.keys {
		if len(k.turns) > 0 {
			return
		}
		ahead = ahead || k.round > a.now
	}
	if ahead {
		a.keys, a.begun = map[K]*account{}, false
	}
}

// Left returns how many turns are left of the current round.
func (a *Accounts[K]) Left() (n int) {
	for _, k := range a.keys {
		for _, t := range k.turns {
			if a.begun && t.round == a.now {
				n++
			}
		}
	}
	return n
}

// Clone returns a copy.
func (a *Accounts[K]) Clone() *Accounts[K] {
	c := *a
	c.keys = map[K]*account{}
	for key, k := range a.keys {
		copied := *k
		copied.turns = append([]paidTurn(nil), k.turns...)
		c.keys[key] = &copied
	}
	return &c
}

// Future returns whose turns there are, in order, round by round.
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
	for _, k := range a.keys {
		n += len(k.turns)
	}
	return n
}

// Rounds returns how many rounds behind the current one the last turn of a key is.
func (a *Accounts[K]) Rounds(key K) int {
	turns := a.keys[key].turns
	return turns[len(turns)-1].round - a.now
}
