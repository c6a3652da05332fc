package account

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Means knows the keys learned last, at least a generation and at most two.
func TestMeans(t *testing.T) {
	var m Means
	name := func(i int) string { return fmt.Sprint("key", i) }
	known := func(i int) bool { return m.mean(name(i)) != 0 }
	require.EqualValues(t, 7, m.Estimate("new", 7), "nothing was learned")
	m.Learn("often", 1<<20)
	for i := range 5 * Generation {
		if m.Learn(name(i), 1000); i%1000 > 0 {
			continue
		}
		m.Learn("often", 1<<20)
		require.EqualValues(t, 1<<20, m.Estimate("often", 1))
		require.LessOrEqual(t, len(m.recent)+len(m.before), 2*Generation)
		require.True(t, known(max(0, i-Generation+10)))
		require.False(t, i >= 2*Generation && known(i-2*Generation))
	}
	require.InDelta(t, 1000, m.Estimate("new", 7), 10, "the mean of all")
	for range 200 {
		m.Learn("new", 0)
	}
	require.EqualValues(t, 1, m.Estimate("new", 7))
}

// A payment moves the account by the cost, counted in units from round 0. The account has then
// used a part of its round, and no more than its share. The item goes to a round that may take it,
// and in which some of the share was left.
func TestAccount(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var a Account
	for range 10_000 {
		join, share, cost := a.Round+random.Uint64N(4)-1, 1+random.Uint64N(20), 1+random.Uint64N(50)
		if a.Round == 0 {
			join = 1
		}
		next := a.Next(join, share)
		require.GreaterOrEqual(t, next.Round, max(join, a.Round))
		require.Less(t, next.Used, share)
		require.LessOrEqual(t, next.Round, max(join, a.Round+1))
		a = next.Pay(cost, share)
		require.Equal(t, next.Round*share+next.Used+cost, a.Round*share+a.Used)
		require.True(t, 1 <= a.Used && a.Used <= share)
	}
	require.EqualValues(t, MaxQuanta*10, CostLimit(10))
	require.Equal(t, int64(MaxCost), CostLimit(1<<22))
}
