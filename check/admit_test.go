package check

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/admit"
)

const (
	permits   = 3
	maxPerKey = 2
)

// admission is a call of an admit.Limiter: acquire, try, release or held.
type admission struct {
	op    string
	key   int
	ok    bool
	waits bool // other calls may wait, so try may fail because of them
	n     int
}

// admissions is how many permits each key holds. A call that waits may fail at any time.
var admissions = porcupine.Model{
	Init: func() any { return [keys]int{} },
	Step: func(s, _, c any) (bool, any) {
		held, a := s.([keys]int), c.(admission)
		all := 0
		for _, n := range held {
			all += n
		}
		free := all < permits && held[a.key] < maxPerKey
		switch {
		case a.op == "held":
			return a.n == all, held
		case a.op == "release":
			held[a.key]--
			return held[a.key] >= 0, held
		case !a.ok:
			return !free || a.op == "acquire" || a.waits, held
		}
		held[a.key]++
		return free, held
	},
	DescribeOperation: func(_, c any) string { return fmt.Sprintf("%+v", c) },
}

// TestPermitsLinearizable is TestLinearizable for permits; half of the histories have calls that
// wait.
func TestPermitsLinearizable(t *testing.T) {
	for seed := range uint64(300) {
		history := recordPermits(t, seed, seed%2 == 1)
		require.Equal(t, porcupine.Ok,
			porcupine.CheckOperationsTimeout(admissions, history, 20*time.Second), "seed %d: %v", seed,
			history)
	}
}

func recordPermits(t *testing.T, seed uint64, waits bool) (history []porcupine.Operation) {
	l := admit.New(permits, &admit.Options[int]{MaxPerKey: maxPerKey})
	start := time.Now()
	var mu sync.Mutex
	var all sync.WaitGroup
	for client := range 4 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(client)))
			var held []admit.Permit[int]
			var of []int
			for range 10 {
				a := admission{key: random.IntN(keys), waits: waits}
				began := time.Since(start)
				var p admit.Permit[int]
				var err error
				switch n := random.IntN(8); {
				case n == 0:
					a.op, a.n = "held", l.Stats().Held
				case n < 4 && len(held) > 0:
					a.op, a.key = "release", of[0]
					held[0].Release()
					held, of = held[1:], of[1:]
				case n < 6 || !waits:
					a.op = "try"
					p, err = l.TryAcquire(a.key)
					a.ok = err == nil
				default:
					a.op = "acquire"
					ctx, cancel := context.WithTimeout(t.Context(),
						time.Duration(random.IntN(200))*time.Microsecond)
					p, err = l.Acquire(ctx, a.key)
					a.ok = err == nil
					cancel()
				}
				ended := time.Since(start)
				if a.ok {
					held, of = append(held, p), append(of, a.key)
				}
				mu.Lock()
				history = append(history,
					porcupine.Operation{
						ClientId: client, Output: a, Call: began.Nanoseconds(),
						Return: ended.Nanoseconds(),
					})
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return history
}
