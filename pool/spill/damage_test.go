package spill_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/pool/spill"
)

const first = "000000001-1.letters"

// restoreAll restores a directory. Now and then it stops, or opens the directory again.
func restoreAll(t *testing.T, r *rand.Rand, path string) (got []int, err error) {
	for err = errStop; errors.Is(err, errStop); {
		d := open[item](t, path, nil)
		for again := true; again; again = errors.Is(err, errStop) && r.IntN(2) == 0 {
			_, err = d.Restore(t.Context(), func(_ context.Context, l *pool.DeadLetter[item]) error {
				if r.IntN(4) == 0 {
					return errStop
				}
				got = append(got, l.Payload.N)
				return nil
			})
		}
		require.NoError(t, d.Close())
	}
	return got, err
}

// Bytes of a file change, or parts of it are missing, in other places, or there twice. All letters
// that were not hit are restored. Others are not, and then the error names the file, which stays:
// also after all others have gone, and in the next process. If the file was emptied, or cut at the
// end of a line, the error says where. Only the end of the last file may be missing without
// notice.
func TestDamage(t *testing.T) {
	for seed := range uint64(few(2000)) {
		r := rand.New(rand.NewPCG(seed, 1))
		path, n := t.TempDir(), 1+r.IntN(12)
		d := open(t, path, &spill.Options[item]{MaxFileBytes: 300})
		for i := range n {
			require.NoError(t, d.Write(t.Context(), letter(newItem(r, i))))
		}
		require.NoError(t, d.Close())
		names, _ := files(t, path)
		name := names[r.IntN(len(names))]
		data, err := os.ReadFile(filepath.Join(path, name))
		require.NoError(t, err)
		lines := slices.Collect(bytes.Lines(data))
		i, j := r.IntN(len(lines)), r.IntN(len(lines))
		number, letters := 0, len(lines)-1
		_, err = fmt.Sscanf(name, "%d-%d", new(int), &number)
		require.NoError(t, err)
		most, isCut, where, what := letters, false, name+", line ", "" // most may be lost
		switch r.IntN(5) {
		case 0:
			for most = 2; r.IntN(3) > 0; most += 2 {
				data[r.IntN(len(data))] ^= 1 << r.IntN(8)
			}
		case 1:
			data, isCut = data[:r.IntN(len(data))], true
			most -= max(0, bytes.Count(data, []byte("\n"))-1)
		case 2:
			data, isCut = bytes.Join(lines[:i], nil), true
			most -= max(0, i-1)
			where = fmt.Sprint(where, i+1, ": ")
			what = fmt.Sprintf("letters %d to %d are missing", number+letters-most, number+letters-1)
		case 3:
			lines[i], lines[j] = lines[j], lines[i]
			data = bytes.Join(lines, nil)
		case 4:
			data, most = bytes.Join(slices.Insert(lines, i, lines[j]), nil), 1 // or it is the header
		}
		require.NoError(t, os.WriteFile(filepath.Join(path, name), data, 0o600))

		got, err := restoreAll(t, r, path)
		require.True(t, slices.IsSorted(got), "%v", got)
		require.Len(t, slices.Compact(got), len(got))
		lost := n - len(got)
		require.LessOrEqual(t, lost, most)
		if left, _ := files(t, path); err == nil {
			require.True(t, lost == 0 || isCut && name == names[len(names)-1])
			require.Empty(t, left)
		} else {
			require.ErrorIs(t, err, spill.ErrDamaged)
			require.ErrorContains(t, err, where)
			require.ErrorContains(t, err, what)
			require.Equal(t, []string{name}, left)
			got, err = restoreAll(t, r, path)
			require.ErrorIs(t, err, spill.ErrDamaged)
			require.Empty(t, got)
		}
	}
}

// Whatever is in a file, it is done without an error, or stays with one.
func FuzzFile(f *testing.F) {
	path := f.TempDir()
	require.NoError(f, open[item](f, path, nil).Write(f.Context(), letter(item{})))
	data, err := os.ReadFile(filepath.Join(path, first))
	require.NoError(f, err)
	f.Add(data)
	f.Add(bytes.Replace(data, []byte("\n-"), []byte("\nX"), 1))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(path, first), data, 0o600))
		_, err := restoreAll(t, rand.New(rand.NewPCG(1, 1)), path)
		names, _ := files(t, path)
		require.Equal(t, err != nil, len(names) > 0)
	})
}
