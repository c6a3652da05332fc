package spill_test

import (
	"context"
	"errors"
	"fmt"
	"io"
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
}

var errFault = errors.New("fault")

func (f *faults) happens() bool { return f.Float64() < f.rate }

type faulty struct {
	spill.Handle
	faults *faults
}

func (h faulty) ReadAt(p []byte, off int64) (int, error) {
	if h.faults.happens() {
		return 0, errFault
	}
	return h.Handle.ReadAt(p, off)
}

func (h faulty) WriteAt(p []byte, off int64) (int, error) {
	if !h.faults.happens() {
		return h.Handle.WriteAt(p, off)
	}
	if len(p) == 1 {
		h.faults.marks++
		return 0, errFault
	}
	n, err := h.Handle.WriteAt(p[:h.faults.IntN(len(p)+1)], off)
	return n, errors.Join(errFault, err)
}

func (h faulty) Truncate(size int64) error {
	if h.faults.happens() {
		h.faults.stuck++
		return errFault
	}
	return h.Handle.Truncate(size)
}

func (h faulty) Sync() error {
	if h.faults.happens() {
		return errFault
	}
	return h.Handle.Sync()
}

func (h faulty) Close() error {
	err := h.Handle.Close()
	if h.faults.happens() {
		return errFault
	}
	return err
}

// When the disk fails, or is full, a Write returns an error, and no taken letter is lost.
func TestFaults(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			f := &faults{Rand: r}
			path, ctx := t.TempDir(), t.Context()
			var d *spill.Dir[item]
			reopen := func() {
				if d != nil {
					_ = d.Close() // it may fail too
				}
				var err error
				d, err = spill.Open(path,
					&spill.Options[item]{MaxFileBytes: 1 + r.Int64N(1000), Sync: r.IntN(4) == 0})
				require.NoError(t, err)
				d.Intercept(func(_ string, _ int, open func() (spill.Handle, error)) (spill.Handle, error) {
					if f.happens() {
						return nil, errFault
					}
					h, err := open()
					return faulty{h, f}, err
				})
			}
			reopen()
			taken, failed, got := map[int]bool{}, 0, map[int]int{}
			sink := func(_ context.Context, l *pool.DeadLetter[item]) error {
				switch r.IntN(10) {
				case 0:
					return spill.ErrRefused
				case 1:
					return errStop
				}
				got[l.Payload.N]++
				return nil
			}
			for n := range 200 {
				f.rate = []float64{0, 0.05, 0.3}[r.IntN(3)]
				switch r.IntN(10) {
				case 0:
					reopen()
				case 1:
					_, _ = d.Restore(ctx, sink)
				default:
					if err := d.Write(ctx, letter(newItem(r, n))); err == nil {
						taken[n] = true
					} else {
						failed++
						require.ErrorIs(t, err, errFault)
					}
				}
			}
			require.Positive(t, failed)
			f.rate = 0
			reopen()
			for {
				_, err := d.Restore(ctx, sink)
				if err == nil {
					break
				}
				require.NotErrorIs(t, err, errFault)
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
		})
	}
}

// A partial write that cannot be removed ends its file. This process never reads it; the next one
// sets it aside.
func TestHalfALineStays(t *testing.T) {
	for _, reopened := range []bool{false, true} {
		path := t.TempDir()
		d := open[int](t, path, nil)
		var broken *hooked
		d.Intercept(func(_ string, flag int, open func() (spill.Handle, error)) (spill.Handle, error) {
			h, err := open()
			if !spill.IsNew(flag) {
				return h, err
			}
			broken = &hooked{Handle: h}
			return broken, err
		})
		require.NoError(t, d.Write(t.Context(), letter(1)))
		broken.truncate = fault
		broken.writeAt = func(p []byte, off int64) (int, error) {
			n, err := broken.Handle.WriteAt(p[:len(p)/2], off)
			return n, errors.Join(io.ErrShortWrite, err)
		}
		require.ErrorIs(t, d.Write(t.Context(), letter(2)), io.ErrShortWrite)
		require.NoError(t, d.Write(t.Context(), letter(3)))
		require.Len(t, files(t, path), 2)
		if reopened {
			require.NoError(t, d.Close())
			d = open[int](t, path, nil)
		}
		var got []int
		_, err := d.Restore(t.Context(), into(&got))
		require.Equal(t, []int{1, 3}, got)
		if reopened {
			require.ErrorIs(t, err, spill.ErrDamaged)
			require.Equal(t, []string{"000000000001.damaged"}, files(t, path))
		} else {
			require.NoError(t, err)
			require.Empty(t, files(t, path))
		}
	}
}

// hooked is a file with some methods replaced.
type hooked struct {
	spill.Handle
	writeAt               func(p []byte, off int64) (int, error)
	truncate, sync, close func() error
}

func (h *hooked) WriteAt(p []byte, off int64) (int, error) {
	if h.writeAt != nil {
		return h.writeAt(p, off)
	}
	return h.Handle.WriteAt(p, off)
}

func (h *hooked) Truncate(size int64) error {
	if h.truncate != nil {
		return h.truncate()
	}
	return h.Handle.Truncate(size)
}

func (h *hooked) Sync() error {
	if h.sync != nil {
		return h.sync()
	}
	return h.Handle.Sync()
}

func (h *hooked) Close() error {
	err := h.Handle.Close()
	if h.close != nil {
		return h.close()
	}
	return err
}

func fault() error { return errFault }

// Damage that cannot be set aside stays where it is.
func TestSetAsideFails(t *testing.T) {
	for _, fail := range []string{"open", "write", "sync", "close"} {
		path := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(path, "1.letters"), []byte("torn"), 0o600))
		d := open(t, path, &spill.Options[int]{Sync: true})
		failing := true
		d.Intercept(func(name string, _ int, open func() (spill.Handle, error)) (spill.Handle, error) {
			if !failing || name != "1.damaged" {
				return open()
			}
			if fail == "open" {
				return nil, errFault
			}
			h, err := open()
			failing := &hooked{Handle: h}
			switch fail {
			case "write":
				failing.writeAt = func([]byte, int64) (int, error) { return 0, errFault }
			case "sync":
				failing.sync = fault
			case "close":
				failing.close = fault
			}
			return failing, err
		})
		_, err := d.Restore(t.Context(), into(new([]int)))
		require.ErrorIs(t, err, errFault)
		require.Contains(t, files(t, path), "1.letters")
		failing = false
		_, err = d.Restore(t.Context(), into(new([]int)))
		require.ErrorIs(t, err, spill.ErrDamaged)
		require.Equal(t, []string{"1.damaged"}, files(t, path))
		aside, err := os.ReadFile(filepath.Join(path, "1.damaged"))
		require.NoError(t, err)
		require.Equal(t, "torn", string(aside))
	}
}

func TestSync(t *testing.T) {
	for _, sync := range []bool{false, true} {
		d := open(t, t.TempDir(), &spill.Options[int]{Sync: sync})
		syncs := 0
		d.Intercept(func(_ string, _ int, open func() (spill.Handle, error)) (spill.Handle, error) {
			h, err := open()
			return &hooked{Handle: h, sync: func() error { syncs++; return nil }}, err
		})
		for i := range 3 {
			require.NoError(t, d.Write(t.Context(), letter(i)))
			require.Equal(t, map[bool]int{true: i + 1}[sync], syncs)
		}
	}
}

// An unreadable file is skipped, and stays.
func TestUnreadableFile(t *testing.T) {
	path := t.TempDir()
	d := open(t, path, &spill.Options[int]{MaxFileBytes: 1})
	for i := range 3 {
		require.NoError(t, d.Write(t.Context(), letter(i)))
	}
	failing := true
	d.Intercept(func(name string, _ int, open func() (spill.Handle, error)) (spill.Handle, error) {
		if failing && name == "000000000002.letters" {
			return nil, errFault
		}
		return open()
	})
	var got []int
	_, err := d.Restore(t.Context(), into(&got))
	require.ErrorIs(t, err, errFault)
	require.Equal(t, []int{0, 2}, got)
	failing = false
	_, err = d.Restore(t.Context(), into(&got))
	require.NoError(t, err)
	require.Equal(t, []int{0, 2, 1}, got)
}

// A Codec that panics at one letter does not block the others; a sink that panics has not taken
// its letter.
func TestHooksThatPanic(t *testing.T) {
	d := open(t, t.TempDir(), &spill.Options[string]{Codec: raw{}})
	for _, p := range []string{"a", "panics", "b"} {
		require.NoError(t, d.Write(t.Context(), letter(p)))
	}
	n, err := d.Restore(t.Context(),
		func(context.Context, *pool.DeadLetter[string]) error { panic("sink") })
	require.Zero(t, n)
	require.ErrorAs(t, err, new(*pool.PanicError))
	var got []string
	n, err = d.Restore(t.Context(), into(&got))
	require.Equal(t, 2, n)
	require.ErrorIs(t, err, spill.ErrRefused)
	require.ErrorAs(t, err, new(*pool.PanicError))
	require.Equal(t, []string{"a", "b"}, got)
}
