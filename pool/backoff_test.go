package pool

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/task"
)

func TestDelay(t *testing.T) {
	for _, c := range []struct {
		b    Backoff
		n    int
		want time.Duration
	}{
		{Backoff{}, 1, time.Second},
		{Backoff{}, 12, 2048 * time.Second},
		{Backoff{}, 13, time.Hour},
		{Backoff{}, math.MaxInt, time.Hour},
		{Backoff{Base: 2 * time.Hour}, 3, 2 * time.Hour},
		{Backoff{Max: time.Millisecond}, 1, time.Millisecond},
		{Backoff{Max: time.Minute}, 6, 32 * time.Second},
		{Backoff{Max: time.Minute}, 7, time.Minute},
		{Backoff{Base: 1, Max: math.MaxInt64}, 63, 1 << 62},
		{Backoff{Base: 1, Max: math.MaxInt64}, 64, math.MaxInt64},
	} {
		require.Equal(t, c.want, c.b.delay(c.n), "%+v.delay(%d)", c.b, c.n)
		for _, c.b.Jitter = range []float64{0.25, 1} {
			low := c.want - time.Duration(c.b.Jitter*float64(c.want))
			least, most := c.want, low
			for range 1000 {
				d := c.b.delay(c.n)
				least, most = min(least, d), max(most, d)
			}
			require.GreaterOrEqual(t, least, low)
			require.Less(t, float64(least-low), 0.05*float64(c.want))
			require.LessOrEqual(t, most, c.want)
			require.Less(t, float64(c.want-most), 0.05*float64(c.want))
		}
	}
}

func TestBackoffErrors(t *testing.T) {
	for want, b := range map[string]Backoff{
		"B.Max is 1s; it must be 0 or at least Base, which is 2s": {
			Base: 2 * time.Second, Max: time.Second,
		},
		"B.Jitter is 1.1; it must be 0 to 1":  {Jitter: 1.1},
		"B.Jitter is -0.1; it must be 0 to 1": {Jitter: -0.1},
		"B.Jitter is NaN; it must be 0 to 1":  {Jitter: math.NaN()},
	} {
		err := b.validate("B")
		require.ErrorIs(t, err, task.ErrInvalid)
		require.EqualError(t, err, "pool: invalid: "+want)
	}
	require.NoError(t, Backoff{Base: 2 * time.Hour, Jitter: 1}.validate("B"))
}

// seeded returns random numbers, and prints the seed.
func seeded(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 11))
}
