package spill_test

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/pool/spill"
)

// faults make file operations fail now and then.
type faults struct {
	*rand.Rand
	rate  float64
	marks int // how often a letter could not be marked as done
	stuck int // how often the written part of a line could not be removed
	syncs int
}

func (f *faults) happen() bool { return f.Float64() < f.rate }

// faulty is a file with faults.
type faulty struct {
	spill.Handle
	*faults
}

func (h faulty) ReadAt(p []byte, off int64) (int, error) {
	if h.happen() {
		return 0, errFault
	}
	return h.Handle.ReadAt(p, off)
}

func (h faulty) WriteAt(p []byte, off int64) (int, error) {
	switch {
	case !h.happen():
		return h.Handle.WriteAt(p, off)
	case len(p) == 1:
		h.marks++
		return 0, errFault
	}
	n, _ := h.Handle.WriteAt(p[:h.IntN(len(p)+1)], off)
	return n, errFault
}

func (h faulty) Truncate(size int64) error {
	if h.happen() {
		h.stuck++
		return errFault
	}
	return h.Handle.Truncate(size)
}

func (h faulty) Sync() error {
	if h.syncs++; h.happen() {
		return errFault
	}
	return nil
}

func (h faulty) Close() error {
	if err := h.Handle.Close(); !h.happen() {
		return err
	}
	return errFault
}

func (f *faults) open(_ string, open func() (spill.Handle, error)) (spill.Handle, error) {
	if f.happen() {
		return nil, errFault
	}
	h, err := open()
	return faulty{h, f}, err
}

// When the disk fails, or is full, a Write returns an error. No taken letter is lost, and nothing
// is damaged. With Sync each Write waits for the disk.
func TestFaults(t *testing.T) {
	for seed := range uint64(few(80)) {
		r := rand.New(rand.NewPCG(seed, 1))
		f := &faults{Rand: r}
		path, ctx := t.TempDir(), t.Context()
		d, sync := open[item](t, path, nil), false
		reopen := func() {
			_ = d.Close() // it may fail too
			sync = r.IntN(4) == 0
			d, _ = spill.Open(path, &spill.Options[item]{MaxFileBytes: 1 + r.Int64N(1000), Sync: sync})
			d.Intercept(f.open)
		}
		reopen()
		taken, failed, got := map[int]bool{}, 0, map[int]int{}
		restore := func() error {
			_, err := d.Restore(ctx, func(_ context.Context, l *pool.DeadLetter[item]) error {
				switch r.IntN(10) {
				case 0:
					return spill.ErrRefused
				case 1:
					return errStop
				}
				got[l.Payload.N]++
				return nil
			})
			require.NotErrorIs(t, err, spill.ErrDamaged)
			return err
		}
		for n := range 200 {
			f.rate = []float64{0, 0.05, 0.3}[r.IntN(3)]
			switch r.IntN(10) {
			case 0:
				reopen()
			case 1:
				_ = restore()
			default:
				before := f.syncs
				if err := d.Write(ctx, letter(newItem(r, n))); err == nil {
					taken[n] = true
					require.Equal(t, sync, f.syncs > before)
				} else {
					failed++
					require.ErrorIs(t, err, errFault)
				}
			}
		}
		require.Positive(t, failed)
		f.rate = 0
		reopen()
		for restore() != nil {
		}
		require.NoError(t, d.Close())
		again := 0
		for n, times := range got {
			if !taken[n] {
				require.Positive(t, f.stuck, "a letter that was not taken is restored")
				f.stuck--
			}
			again += times - 1
		}
		for n := range taken {
			require.Positive(t, got[n], n)
		}
		// or it was refused, and the part of it written behind the others is stuck
		require.LessOrEqual(t, again, f.marks+f.stuck)
	}
}

// An unreadable file is skipped, and stays. A file with another name is none.
func TestUnreadableFile(t *testing.T) {
	path := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(path, "1-1.letters"), []byte("x\n"), 0o600))
	d := open(t, path, &spill.Options[int]{MaxFileBytes: 1})
	for i := range 3 {
		require.NoError(t, d.Write(t.Context(), letter(i)))
	}
	bad := "000000002-2.letters"
	d.Intercept(func(name string, open func() (spill.Handle, error)) (spill.Handle, error) {
		if name == bad {
			return nil, errFault
		}
		return open()
	})
	var got []int
	_, err := d.Restore(t.Context(), into(&got))
	require.ErrorIs(t, err, errFault)
	bad = ""
	_, err = d.Restore(t.Context(), into(&got))
	require.NoError(t, err)
	require.Equal(t, []int{0, 2, 1}, got)
}
