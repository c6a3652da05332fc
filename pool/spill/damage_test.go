package spill_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/pool/spill"
)

const (
	first   = "000000000001.letters"
	damaged = "000000000001.damaged"
)

// written returns the bytes of a file with items, its lines, and the items; the first line has
// none.
func written(t testing.TB, r *rand.Rand, n int) (data []byte, lines [][]byte, items []item) {
	path := t.TempDir()
	d, err := spill.Open[item](path, nil)
	require.NoError(t, err)
	for i := range n {
		items = append(items, newItem(r, i))
		require.NoError(t, d.Write(t.Context(), letter(items[i])))
	}
	require.NoError(t, d.Close())
	data, err = os.ReadFile(filepath.Join(path, first))
	require.NoError(t, err)
	lines = bytes.SplitAfter(data, []byte("\n"))
	return data, lines[:n+1], items
}

// restore restores a file with these bytes, and returns its letters and the damage set aside. Now
// and then it stops, or opens the directory again.
func restore(t testing.TB, r *rand.Rand, data []byte) (got []item, aside []byte, err error) {
	path, name := t.TempDir(), ""
	require.NoError(t, os.WriteFile(filepath.Join(path, first), data, 0o600))
	d, err := spill.Open[item](path, nil)
	require.NoError(t, err)
	sink := func(ctx context.Context, l *pool.DeadLetter[item]) error {
		if r.IntN(4) == 0 {
			return errStop
		}
		return into(&got)(ctx, l)
	}
	var all error
	for {
		_, err := d.Restore(t.Context(), sink)
		all = errors.Join(all, err)
		if !errors.Is(err, errStop) {
			break
		}
		if r.IntN(2) == 0 {
			require.NoError(t, d.Close())
			d, err = spill.Open[item](path, nil)
			require.NoError(t, err)
		}
	}
	require.NoError(t, d.Close())
	if names := files(t, path); len(names) > 0 {
		require.Equal(t, []string{damaged}, names)
		name = names[0]
		aside, err = os.ReadFile(filepath.Join(path, name))
		require.NoError(t, err)
	}
	return got, aside, all
}

// Wherever a file is cut off, the letters before the cut are restored, and the rest of the last
// one is set aside.
func TestTruncated(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	data, lines, items := written(t, r, 6)
	for size := range len(data) + 1 {
		whole, begin := 0, 0 // lines, bytes
		for whole < len(lines) && begin+len(lines[whole]) <= size {
			begin += len(lines[whole])
			whole++
		}
		want, rest := items[:max(0, whole-1)], data[begin:size]
		if whole > 0 && whole < len(lines) && len(rest) == len(lines[whole])-1 {
			want, rest = items[:whole], nil // nothing is missing but the newline
		}
		got, aside, err := restore(t, r, data[:size])
		require.Equal(t, append([]item(nil), want...), got, size)
		if len(rest) == 0 {
			require.Empty(t, aside)
			require.NotErrorIs(t, err, spill.ErrDamaged)
			continue
		}
		require.Equal(t, append(make([]byte, begin), rest...), aside, size)
		require.ErrorIs(t, err, spill.ErrDamaged)
	}
}

// A flipped bit damages only its own letter, which is set aside.
func TestFlippedBits(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			data, lines, items := written(t, r, r.IntN(10)+1)
			flipped := map[int]bool{}
			for range 1 + r.IntN(3) {
				at := r.IntN(len(data))
				if !flipped[at] {
					flipped[at] = true
					data[at] ^= 1 << r.IntN(8)
				}
			}
			got, aside, err := restore(t, r, data)
			lost, begin, merged := false, 0, false
			for i, line := range lines {
				hit := merged // with the line before, whose newline is gone
				for at := range line {
					hit = hit || flipped[begin+at]
				}
				merged = flipped[begin+len(line)-1]
				now := data[begin : begin+len(line)]
				switch {
				case i > 0 && len(got) > 0 && got[0] == items[i-1]:
					got = got[1:] // such as a digit of the checksum in upper case
				case i == 0 && !hit:
				default:
					require.True(t, hit, "line %d is lost", i)
					lost = true
					require.GreaterOrEqual(t, len(aside), begin+len(now)-1)
					// A flipped newline where the line begins or ends makes an empty line, which
					// is not set aside.
					require.Equal(t, strings.Trim(string(now), "\n"),
						strings.Trim(string(aside[begin:min(len(aside), begin+len(now))]), "\n\x00"))
				}
				begin += len(line)
			}
			require.Empty(t, got)
			require.Equal(t, lost, errors.Is(err, spill.ErrDamaged))
		})
	}
}

// A done letter whose newline has flipped must not swallow the letter behind it.
func TestDoneLineSwallowsNoOther(t *testing.T) {
	path := t.TempDir()
	d := open[int](t, path, nil)
	for i := range 3 {
		require.NoError(t, d.Write(t.Context(), letter(i)))
	}
	_, err := d.Restore(t.Context(), func(_ context.Context, l *pool.DeadLetter[int]) error {
		if l.Payload == 1 {
			return errStop
		}
		return nil
	})
	require.ErrorIs(t, err, errStop)
	require.NoError(t, d.Close())
	data, err := os.ReadFile(filepath.Join(path, first))
	require.NoError(t, err)
	at := bytes.Index(data, []byte("\n-"))
	require.Contains(t, string(data[:at]), "\nX ")
	data[at] ^= 1
	require.NoError(t, os.WriteFile(filepath.Join(path, first), data, 0o600))

	var got []int
	_, err = open[int](t, path, nil).Restore(t.Context(), into(&got))
	require.ErrorIs(t, err, spill.ErrDamaged)
	require.Equal(t, []int{2}, got)
	aside, err := os.ReadFile(filepath.Join(path, damaged))
	require.NoError(t, err)
	require.Contains(t, string(aside), `"payload":"1"`)
}

// A line that is longer than any letter is set aside without being read into memory.
func TestEndlessLine(t *testing.T) {
	path := t.TempDir()
	f, err := os.Create(filepath.Join(path, first))
	require.NoError(t, err)
	const size = 1 << 28
	require.NoError(t, f.Truncate(size))
	_, err = f.WriteAt([]byte("\n"), size-1)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	d := open[int](t, path, nil)
	aside := 0
	d.Intercept(func(name string, _ int, open func() (spill.Handle, error)) (spill.Handle, error) {
		h, err := open()
		if name == damaged {
			h = &hooked{
				Handle:  h,
				writeAt: func(p []byte, _ int64) (int, error) { aside += len(p); return len(p), nil },
			}
		}
		return h, err
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n, err := d.Restore(t.Context(), into(new([]int)))
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(size/2))
	require.Zero(t, n)
	require.Equal(t, size, aside)
	require.ErrorIs(t, err, spill.ErrDamaged)
	require.ErrorContains(t, err,
		"1 lines of 000000000001.letters, from byte 0 on, with 268435456 bytes")
}

// Nor is its beginning taken for a letter.
func TestLongLineIsNoLetter(t *testing.T) {
	line := bytes.Repeat([]byte("x"), spill.MaxLetterBytes+10)
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(crc32.Checksum([]byte("fairq-spill 1"), table), table,
		line[11:spill.MaxLetterBytes])
	copy(line, fmt.Sprintf("- %08x ", sum))
	for _, c := range []struct {
		size int
		want error
		// the first is one, but not in JSON
	}{{spill.MaxLetterBytes, spill.ErrRefused}, {len(line), spill.ErrDamaged}} {
		path := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(path, first), line[:c.size], 0o600))
		_, err := open[int](t, path, nil).Restore(t.Context(), into(new([]int)))
		require.ErrorIs(t, err, c.want)
	}
}

// Whatever is in a file, each line is restored, set aside, or irrelevant: a header, or a done
// letter.
func FuzzFile(f *testing.F) {
	data, lines, _ := written(f, rand.New(rand.NewPCG(1, 1)), 3)
	f.Add(data)
	f.Add([]byte(strings.Replace(string(data), "\n-", "\nX", 1)))
	f.Add(data[:len(data)-10])
	f.Add(bytes.Join([][]byte{lines[1], lines[1][:20], []byte("\n\n"), lines[2]}, nil))
	f.Add([]byte(version1))
	f.Add([]byte("fairq-spill 2 bad\n"))
	f.Add(bytes.Repeat([]byte("-\n"), 100))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(path, first), data, 0o600))
		d := open(t, path, &spill.Options[string]{Codec: raw{}})
		restored, err := d.Restore(t.Context(), into(new([]string)))
		if errors.Is(err, spill.ErrVersion) {
			require.Equal(t, []string{first}, files(t, path))
			left, err := os.ReadFile(filepath.Join(path, first))
			require.NoError(t, err)
			require.Equal(t, data, left)
			return
		}
		aside, _ := os.ReadFile(filepath.Join(path, damaged))
		for _, name := range files(t, path) {
			require.True(t, name == damaged || errors.Is(err, spill.ErrRefused), name)
		}
		begin := 0
		for line := range bytes.SplitAfterSeq(data, []byte("\n")) {
			end := begin + len(line)
			switch {
			case len(line) == 0:
			case begin == 0 && strings.HasPrefix(version1, string(line)):
			case len(aside) >= end && bytes.Equal(aside[begin:end], line):
				// set aside, unless both are zeros
			case line[0] == 'X':
			default:
				require.Equal(t, byte('-'), line[0])
				restored--
			}
			begin = end
		}
		if !errors.Is(err, spill.ErrRefused) { // a letter that cannot be decoded
			require.Zero(t, restored)
		}
	})
}

// A damaged line that is read twice is set aside once.
func TestSetAsideAgain(t *testing.T) {
	path := t.TempDir()
	bad := "- 00000000 {}\n"
	lines := strings.SplitAfter(version1, "\n")
	require.NoError(t, os.WriteFile(filepath.Join(path, "1.letters"),
		[]byte(bad+lines[1]+bad+lines[2]), 0o600))
	for _, want := range []int{0, 1, 1} {
		d := open(t, path, &spill.Options[string]{Codec: raw{}, Sync: true})
		n := 0
		_, err := d.Restore(t.Context(), func(context.Context, *pool.DeadLetter[string]) error {
			if n == want {
				return errStop
			}
			n++
			return nil
		})
		require.ErrorIs(t, err, spill.ErrDamaged)
		require.ErrorContains(t, err,
			fmt.Sprint(1+min(want, 1), " lines of 1.letters, from byte 0 on, with "))
		_, err = d.Restore(t.Context(),
			func(context.Context, *pool.DeadLetter[string]) error { return errStop })
		require.NotErrorIs(t, err, spill.ErrDamaged, "it has been said")
		require.NoError(t, d.Close())
	}
	require.Equal(t, []string{"1.damaged"}, files(t, path))
	aside, err := os.ReadFile(filepath.Join(path, "1.damaged"))
	require.NoError(t, err)
	require.Equal(t, bad+strings.Repeat("\x00", len(lines[1]))+bad, string(aside))
}

// A last letter without its newline that is refused does not run into the next.
func TestRefusedWithoutNewline(t *testing.T) {
	path := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(path, "1.letters"),
		[]byte(version1[:len(version1)-1]), 0o600))
	d := open(t, path, &spill.Options[string]{Codec: raw{}})
	refusals := []error{errStop, errFault, errFault}
	_, err := d.Restore(t.Context(), func(context.Context, *pool.DeadLetter[string]) error {
		err := fmt.Errorf("%w: %w", spill.ErrRefused, refusals[0])
		refusals = refusals[1:]
		return err
	})
	require.ErrorIs(t, err, spill.ErrRefused)
	require.ErrorIs(t, err, errStop)
	require.ErrorContains(t, err, "3 letters")
	require.NoError(t, d.Write(t.Context(), letter("x")))
	n, err := d.Restore(t.Context(), into(new([]string)))
	require.NoError(t, err)
	require.Equal(t, 4, n)
}
