package spill_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/pool/spill"
)

// item is a payload with an identity and a length.
type item struct {
	N    int
	Text string
}

func newItem(r *rand.Rand, n int) item {
	return item{n, strings.Repeat("x", int(r.ExpFloat64()*50))}
}

// The model of a directory is a slice: Write appends to it, Restore takes the old letters from its
// front, and appends the refused ones.
func TestModel(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			path, ctx := t.TempDir(), t.Context()
			var d *spill.Dir[item]
			reopen := func() {
				if d != nil {
					require.NoError(t, d.Close())
				}
				d = open(t, path, &spill.Options[item]{
					MaxFileBytes: 1 + r.Int64N(2000),
					Sync:         r.IntN(20) == 0,
				})
			}
			reopen()
			var model []item
			n := 0
			write := func() {
				n++
				it := newItem(r, n)
				require.NoError(t, d.Write(ctx, letter(it)))
				model = append(model, it)
			}
			for range 200 {
				switch r.IntN(10) {
				case 0:
					reopen()
				case 1, 2:
					there := len(model)
					stop := r.IntN(there + 2)
					refused := 0
					var err error
					var taken int
					seen := 0
					taken, err = d.Restore(ctx, func(_ context.Context, l *pool.DeadLetter[item]) error {
						require.Equal(t, model[0], l.Payload)
						if seen == stop {
							return errStop
						}
						seen++
						require.LessOrEqual(t, seen, there)
						if r.IntN(10) == 0 {
							write() // a sink may write; that is for the next one
						}
						first := model[0]
						model = model[1:]
						if r.IntN(10) == 0 {
							refused++
							model = append(model, first)
							return fmt.Errorf("no: %w", spill.ErrRefused)
						}
						return nil
					})
					require.Equal(t, seen-refused, taken)
					require.Equal(t, stop < there, errors.Is(err, errStop))
					require.Equal(t, refused > 0, errors.Is(err, spill.ErrRefused))
					require.True(t, err != nil || stop >= there && refused == 0)
					require.NotErrorIs(t, err, spill.ErrDamaged)
				default:
					write()
				}
			}
			var got []item
			_, err := d.Restore(ctx, into(&got))
			require.NoError(t, err)
			require.Equal(t, append([]item(nil), model...), got)
			require.Empty(t, files(t, path))
		})
	}
}

// Many goroutines write and restore at the same time; each letter is restored once.
func TestConcurrent(t *testing.T) {
	const writers, restorers, each = 4, 3, 300
	path := t.TempDir()
	d := open(t, path, &spill.Options[int]{MaxFileBytes: 1000})
	var mu sync.Mutex
	got := map[int]int{}
	sink := func(_ context.Context, l *pool.DeadLetter[int]) error {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case l.Payload%7 == 0 && got[-l.Payload] == 0:
			got[-l.Payload]++
			return spill.ErrRefused
		case l.Payload%11 == 0 && got[-l.Payload] < 2:
			got[-l.Payload]++
			return errStop
		}
		got[l.Payload]++
		return nil
	}
	var writing, restoring sync.WaitGroup
	written := make(chan struct{})
	for w := range writers {
		writing.Go(func() {
			for i := range each {
				require.NoError(t, d.Write(t.Context(), letter(1+w*each+i)))
			}
		})
	}
	for range restorers {
		restoring.Go(func() {
			for {
				select {
				case <-written:
					return
				default:
					_, _ = d.Restore(t.Context(), sink)
				}
			}
		})
	}
	writing.Wait()
	close(written)
	restoring.Wait()
	for {
		if _, err := d.Restore(t.Context(), sink); err == nil {
			break
		}
	}
	for i := range writers * each {
		require.Equal(t, 1, got[1+i])
	}
	require.Empty(t, files(t, path))
}
