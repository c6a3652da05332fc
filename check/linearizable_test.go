package check

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
)

const (
	capacity = 3
	keys     = 3
)

// call is one call of a FairQueue and what it returned. Items are numbers, and their key is the
// number modulo keys.
type call struct {
	op   string // push, pop, remove or len
	item int
	ok   bool // the call succeeded
	wait bool // it was PushWait or PopWait, which fail only because the context ended
	n    int
}

func (c call) String() string {
	return fmt.Sprintf("%s %d ok=%v wait=%v n=%d", c.op, c.item, c.ok, c.wait, c.n)
}

// state is a fair queue as simple as can be: all items in the order in which they were pushed,
// each with its round.
type state struct {
	items []item
	round int // the current one
}

type item struct{ number, round int }

func (i item) key() int { return i.number % keys }

// step tells whether the call may have had its result in this state, and what the next one is.
func (s state) step(c call) (bool, state) {
	switch c.op {
	case "push":
		if !c.ok {
			return c.wait || len(s.items) == capacity, s
		}
		return len(s.items) < capacity, s.push(c.item)
	case "pop":
		if !c.ok {
			return c.wait || len(s.items) == 0, s
		}
		if len(s.items) == 0 {
			return false, s
		}
		// the first one of these
		next := slices.MinFunc(s.items, func(a, b item) int { return a.round - b.round })
		return next.number == c.item, state{s.without(next.number), next.round}
	case "remove":
		at := slices.IndexFunc(s.items, func(i item) bool { return i.number == c.item })
		if !c.ok || at < 0 {
			return c.ok == (at >= 0), s
		}
		return true, s.remove(at)
	default:
		return c.n == len(s.items), s
	}
}

func (s state) push(number int) state {
	last := s.round
	for _, i := range s.items {
		if i.key() == number%keys {
			last = max(last, i.round)
		}
	}
	return state{append(slices.Clone(s.items), item{number, last + 1}), s.round}
}

func (s state) without(number int) []item {
	return slices.DeleteFunc(slices.Clone(s.items), func(i item) bool { return i.number == number })
}

// remove takes out an item of a key, and each one behind it takes the place of the one before it.
func (s state) remove(at int) state {
	items, key := slices.Clone(s.items), s.items[at].key()
	for i := at + 1; i < len(items); i++ {
		if items[i].key() == key {
			items[at].number = items[i].number
			at = i
		}
	}
	return state{slices.Delete(items, at, at+1), s.round}
}

var model = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(s, _, c any) (bool, any) { return s.(state).step(c.(call)) },
	Equal: func(a, b any) bool {
		return a.(state).round == b.(state).round && slices.Equal(a.(state).items, b.(state).items)
	},
	DescribeOperation: func(_, c any) string { return fmt.Sprint(c) },
}

// TestLinearizable lets goroutines make random calls at the same time, and checks that there is an
// order in which a queue that does one call after the other would have given the same answers.
func TestLinearizable(t *testing.T) {
	for seed := range uint64(300) {
		history := record(t, seed)
		result, info := porcupine.CheckOperationsVerbose(model, history, 20*time.Second)
		if result == porcupine.Illegal {
			path := t.TempDir() + "/history.html"
			require.NoError(t, porcupine.VisualizePath(model, info, path))
		}
		require.Equal(t, porcupine.Ok, result, "seed %d: %v", seed, history)
	}
}

func record(t *testing.T, seed uint64) []porcupine.Operation {
	const clients, calls = 4, 10
	q := fairq.New(func(item int) int { return item % keys }, &fairq.Options[int, int]{Capacity: capacity})
	start := time.Now()
	var mu sync.Mutex
	var history []porcupine.Operation
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(client)))
			tickets := map[int]fairq.Ticket{}
			for i := range calls {
				number := (client*calls+i)*keys + random.IntN(keys)
				began := time.Since(start)
				c := perform(t, q, random, number, tickets)
				ended := time.Since(start)
				mu.Lock()
				history = append(history, porcupine.Operation{
					ClientId: client, Output: c, Call: began.Nanoseconds(), Return: ended.Nanoseconds(),
				})
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return history
}

func perform(t *testing.T, q *fairq.FairQueue[int, int], random *rand.Rand, number int, tickets map[int]fairq.Ticket) call {
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(200))*time.Microsecond)
	defer cancel()
	switch random.IntN(8) {
	case 0:
		return call{op: "push", item: number, ok: q.Push(number) == nil}
	case 1, 2:
		ticket, err := q.Add(number)
		if err == nil {
			tickets[number] = ticket
		}
		return call{op: "push", item: number, ok: err == nil}
	case 3:
		return call{op: "push", item: number, ok: q.PushWait(ctx, number) == nil, wait: true}
	case 4:
		item, ok := q.Pop()
		return call{op: "pop", item: item, ok: ok}
	case 5:
		item, err := q.PopWait(ctx)
		return call{op: "pop", item: item, ok: err == nil, wait: true}
	case 6:
		for item, ticket := range tickets {
			delete(tickets, item)
			_, ok := q.Remove(ticket)
			return call{op: "remove", item: item, ok: ok}
		}
	}
	return call{op: "len", n: q.Len()}
}
