package check

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/roundsmodel"
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

// state is the simplest fair queue. It is immutable.
type state struct {
	items [keys][]int // by key, oldest first
	turns *roundsmodel.Turns[int]
}

func (s state) len() (n int) {
	for _, items := range s.items {
		n += len(items)
	}
	return n
}

// step reports whether the call may have had its result in this state, and returns the next state.
func (s state) step(c call) (bool, state) {
	next := state{s.items, s.turns.Clone()}
	key := c.item % keys
	switch at := slices.Index(s.items[key], c.item); c.op {
	case "push":
		if full := s.len() == capacity; full || !c.ok {
			return !c.ok && (full || c.wait), s
		}
		next.items[key] = append(slices.Clone(s.items[key]), c.item)
		next.turns.Push(key, 1)
		return true, next
	case "pop":
		if s.len() == 0 || !c.ok {
			return !c.ok && (s.len() == 0 || c.wait), s
		}
		if next.turns.Pop() != key || at != 0 {
			return false, s
		}
		next.items[key] = s.items[key][1:]
		return true, next
	case "remove":
		if !c.ok || at < 0 {
			return c.ok == (at >= 0), s
		}
		next.items[key] = slices.Delete(slices.Clone(s.items[key]), at, at+1)
		next.turns.RemoveLast(key)
		return true, next
	default:
		return c.n == s.len(), s
	}
}

// equal reports whether two states give the same answers from now on.
func (s state) equal(other state) bool {
	return s.turns.Left() == other.turns.Left() && reflect.DeepEqual(s.items, other.items) &&
		reflect.DeepEqual(s.turns.Future(), other.turns.Future())
}

var model = porcupine.Model{
	Init:              func() any { return state{turns: new(roundsmodel.Turns[int])} },
	Step:              func(s, _, c any) (bool, any) { return s.(state).step(c.(call)) },
	Equal:             func(a, b any) bool { return a.(state).equal(b.(state)) },
	DescribeOperation: func(_, c any) string { return fmt.Sprint(c) },
}

// TestLinearizable lets goroutines make random calls at the same time. It checks that the same
// calls in some order, one after the other, would have had the same results.
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
	q := fairq.New(func(item int) int { return item % keys },
		&fairq.Options[int, int]{Capacity: capacity})
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

func perform(t *testing.T, q *fairq.FairQueue[int, int], random *rand.Rand, number int,
	tickets map[int]fairq.Ticket,
) call {
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
