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

// The model of a directory is a slice: Write appends to it, if there is room, and Restore takes
// the old letters from its front, and appends the refused ones.
func TestModel(t *testing.T) {
	const limit = 1500
	full := 0
	for seed := range uint64(few(80)) {
		r := rand.New(rand.NewPCG(seed, 0))
		path := t.TempDir()
		var d *spill.Dir[item]
		reopen := func() {
			if d != nil {
				require.NoError(t, d.Close())
			}
			d = open(t, path, &spill.Options[item]{
				MaxFileBytes: 1 + r.Int64N(1000), MaxBytes: limit,
			})
		}
		reopen()
		var model []int
		n := 0
		write := func() {
			n++
			err := d.Write(t.Context(), letter(newItem(r, n)))
			_, size := files(t, path)
			if err == nil {
				model = append(model, n)
				require.LessOrEqual(t, size, int64(limit))
				return
			}
			full++
			require.ErrorIs(t, err, spill.ErrFull)
			require.Greater(t, size, int64(limit-700))
		}
		restore := func(stop int) {
			there, seen, refused := len(model), 0, 0
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			taken, err := d.Restore(ctx, func(_ context.Context, l *pool.DeadLetter[item]) error {
				require.Equal(t, model[0], l.Payload.N)
				if seen == stop && r.IntN(2) == 0 {
					return errStop
				}
				if seen++; seen > stop {
					cancel()
				}
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
			stopped := errors.Is(err, errStop) || errors.Is(err, context.Canceled)
			require.Equal(t, seen-refused, taken)
			require.True(t, stopped || seen == there)
			require.Equal(t, refused > 0, errors.Is(err, spill.ErrRefused))
			require.Equal(t, stopped || refused > 0, err != nil)
			require.NotErrorIs(t, err, spill.ErrClosed)
		}
		for range 200 {
			switch r.IntN(10) {
			case 0:
				reopen()
			case 1, 2:
				restore(r.IntN(len(model) + 2))
			default:
				write()
			}
		}
		for len(model) > 0 {
			restore(n)
		}
		require.NoError(t, d.Close())
		names, _ := files(t, path)
		require.Empty(t, names)
	}
	require.Positive(t, full)
}

// Many goroutines write and restore at the same time; each letter is restored once.
func TestConcurrent(t *testing.T) {
	const writers, each = 4, 300
	d := open(t, t.TempDir(), &spill.Options[int]{MaxFileBytes: 1000})
	var got, tries [writers * each]int // protected by the Dir, which makes one Restore at a time
	restore := func() error {
		_, err := d.Restore(t.Context(), func(_ context.Context, l *pool.DeadLetter[int]) error {
			n := l.Payload
			if tries[n]++; tries[n] < n%3 {
				return []error{spill.ErrRefused, errStop}[n%2]
			}
			got[n]++
			return nil
		})
		return err
	}
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				require.NoError(t, d.Write(t.Context(), letter(w*each+i)))
			}
		})
		all.Go(func() {
			for range 100 {
				_ = restore()
			}
		})
	}
	all.Wait()
	for restore() != nil {
	}
	for _, n := range got {
		require.Equal(t, 1, n)
	}
}
