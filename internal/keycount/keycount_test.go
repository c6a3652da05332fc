package keycount_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fairq/fairq/internal/keycount"
	"github.com/stretchr/testify/require"
)

func all(c keycount.Counts) uint64 { return c.Served + c.Refused + c.Evicted }

// A Counter against exact counts, with few heavy keys and many light ones, NaN among them.
func TestCounter(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		places := 1 + r.IntN(20)
		c := keycount.New[float64](places)
		keys := rand.NewZipf(r, 1.1+r.Float64(), 1, 200)
		now := time.Unix(0, 0)
		exact, recent, nan, total := map[float64]uint64{}, map[float64]uint64{}, uint64(0), uint64(0)
		for range 3000 {
			key := float64(keys.Uint64())
			n := r.Uint64N(3)
			d := []keycount.Counts{{Served: n}, {Refused: n}, {Evicted: n}}[r.IntN(3)]
			if r.IntN(10) == 0 {
				c.Add(math.NaN(), d, now)
				nan += n
			} else {
				c.Add(key, d, now)
				exact[key] += n
				recent[key] += n
			}
			total += n
			if r.IntN(50) == 0 {
				now = now.Add(time.Minute)
				for key := range recent {
					recent[key] /= 2
				}
			}
		}
		top := c.Top(math.MaxInt, all, now)
		require.LessOrEqual(t, len(top), places)
		last := uint64(math.MaxUint64)
		for _, k := range top {
			sum := k.Total.Served + k.Total.Refused + k.Total.Evicted
			want := exact[k.Key]
			if k.Key != k.Key {
				want = nan
				nan = 0 // it must be there once
			} else {
				lately := k.Recent.Served + k.Recent.Refused + k.Recent.Evicted
				require.LessOrEqual(t, lately, recent[k.Key])
			}
			require.LessOrEqual(t, sum, want)
			require.LessOrEqual(t, want, sum+k.Missed)
			require.LessOrEqual(t, k.Missed, total/uint64(places))
			require.LessOrEqual(t, all(k.Recent), last, "those counted most lately first")
			last = all(k.Recent)
			delete(exact, k.Key)
		}
		for key, n := range exact {
			require.LessOrEqual(t, n, total/uint64(places), "%v is one of the heavy ones", key)
		}
		require.LessOrEqual(t, nan, total/uint64(places))
		require.Len(t, c.Top(1, all, now), 1)
		require.Empty(t, c.Top(-1, all, now))
	}
}

func TestRecent(t *testing.T) {
	c, now := keycount.New[string](2), time.Unix(1_000_000_020, 0)
	for range 10 {
		c.Add("a", keycount.Counts{Served: 60}, now)
		now = now.Add(time.Minute)
	}
	require.EqualValues(t, 59, c.Top(1, all, now)[0].Recent.Served)
	require.EqualValues(t, 600, c.Top(1, all, now)[0].Total.Served)
	require.Zero(t, c.Top(1, all, now.Add(time.Hour))[0].Recent)
	require.EqualValues(t, 600, c.Top(1, all, now)[0].Total.Served)
}
