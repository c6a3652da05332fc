package spill_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/pool/spill"
	"github.com/fairq/fairq/task"
)

var _ pool.Sink[int] = (*spill.Dir[int])(nil).Write

var errStop = errors.New("stop")

func open[V any](t testing.TB, path string, o *spill.Options[V]) *spill.Dir[V] {
	d, err := spill.Open(path, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func letter[V any](payload V) *pool.DeadLetter[V] {
	return &pool.DeadLetter[V]{Task: task.Info{Key: "k"}, Payload: payload, Reason: pool.ReasonFailed}
}

// into returns a sink that takes everything.
func into[V any](got *[]V) pool.Sink[V] {
	return func(_ context.Context, l *pool.DeadLetter[V]) error {
		*got = append(*got, l.Payload)
		return nil
	}
}

// files returns the names of the files that are not the lock.
func files(t testing.TB, path string) (names []string) {
	entries, err := os.ReadDir(path)
	require.NoError(t, err)
	for _, e := range entries {
		if e.Name() != "lock" {
			names = append(names, e.Name())
		}
	}
	return names
}

// raw is a codec for strings that are not JSON.
type raw struct{}

func (raw) Encode(s string) ([]byte, error) {
	if s == "unencodable" {
		return nil, errStop
	}
	return []byte(s), nil
}

func (raw) Decode(data []byte) (string, error) {
	switch string(data) {
	case "undecodable":
		return "", errStop
	case "panics":
		panic("no")
	}
	return string(data), nil
}

const odd = "\x00\xff \xed\xa0\x80 \n\r\u2028 <&> \"\\ é \uFFFD"

// fill sets every field to a nonzero value, strings to bytes that JSON cannot have.
func fill(v reflect.Value, n *int, zone *time.Location) {
	*n++
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Unix(int64(*n)*1e9, 123456789).In(zone)))
	case v.Type() == reflect.TypeFor[error]():
		v.Set(reflect.ValueOf(&task.Error{Code: *n, Message: odd}))
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n, zone)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n, zone)
		}
	case v.Kind() == reflect.String:
		v.SetString(fmt.Sprint(odd, *n))
	case v.Kind() == reflect.Map: // of text
		v.Set(reflect.ValueOf(map[string]string{strings.ToValidUTF8(odd,
			"\uFFFD"): fmt.Sprint("\x00\u2028<\"é", *n), "": ""}))
	case v.CanInt():
		v.SetInt(-int64(*n))
	case v.CanUint():
		v.SetUint(uint64(*n))
	default:
		panic("a field of a kind that this test does not know: " + v.Type().String())
	}
}

// All fields of a letter come back. A new field of DeadLetter or Info that spill does not store
// fails here.
func TestLetterComesBack(t *testing.T) {
	d := open(t, t.TempDir(), &spill.Options[string]{Codec: raw{}})
	filled := func(zone *time.Location) *pool.DeadLetter[string] {
		n := 0
		var l pool.DeadLetter[string]
		fill(reflect.ValueOf(&l).Elem(), &n, zone)
		require.Greater(t, n, 20)
		return &l
	}
	want := []*pool.DeadLetter[string]{filled(time.UTC), {}, {Payload: odd}}
	require.NoError(t, d.Write(t.Context(),
		filled(time.FixedZone("an offset that RFC 3339 does not have", 3601))))
	for _, l := range want[1:] {
		require.NoError(t, d.Write(t.Context(), l))
	}
	var got []*pool.DeadLetter[string]
	taken, err := d.Restore(t.Context(), func(_ context.Context, l *pool.DeadLetter[string]) error {
		got = append(got, l)
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, len(want), taken)
	require.Equal(t, want, got)
}

func TestErrorsOfLetters(t *testing.T) {
	for _, c := range []struct {
		err  error
		want *task.Error
	}{
		{errors.New("plain"), &task.Error{Message: "plain"}},
		{
			fmt.Errorf("outer: %w", &task.Error{Code: 7, Message: "inner"}),
			&task.Error{Code: 7, Message: "outer: inner"},
		},
		{(*task.Error)(nil), &task.Error{Message: "a nil *task.Error"}},
	} {
		d := open[int](t, t.TempDir(), nil)
		l := letter(1)
		l.Err = c.err
		require.NoError(t, d.Write(t.Context(), l))
		_, err := d.Restore(t.Context(), func(_ context.Context, l *pool.DeadLetter[int]) error {
			require.Equal(t, error(c.want), l.Err)
			return nil
		})
		require.NoError(t, err)
	}
}

// The bytes of version 1. A change to them needs another version.
const version1 = `fairq-spill 1 158ef5cf
- a88b38e2 {"task":{"id":7,"key":"alice","state":4},"payload":"{\"To\":\"a@b.c\"}",` +
	`"reason":2,"attempts":3,"at":"2026-01-02T03:04:05Z"}
- f8c68383 {"task":{"key":{"base64":"/w=="},"err":{"code":5,"message":"no"}},` +
	`"payload":"{\"To\":\"\"}","class":"fast","reason":1,"err":{"message":"full"}}
- 0d854fb4 {"task":{"id":7,"key":"alice"},"payload":"{\"To\":\"\"}","reason":2,"attempts":3}
`

func TestFormat(t *testing.T) {
	type mail struct{ To string }
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	want := []*pool.DeadLetter[mail]{
		{
			Task: task.Info{ID: 7, Key: "alice", State: task.Buried}, Payload: mail{"a@b.c"},
			Reason: pool.ReasonFailed, Attempts: 3, At: at,
		},
		{
			Task:  task.Info{Key: "\xff", Err: &task.Error{Code: 5, Message: "no"}},
			Class: "fast", Reason: pool.ReasonOverflow, Err: &task.Error{Message: "full"},
		},
		{
			Task: task.Info{ID: 7, Key: "alice"}, Reason: pool.ReasonFailed, Attempts: 3,
		},
	}
	path := t.TempDir()
	d := open[mail](t, path, nil)
	for _, l := range want {
		require.NoError(t, d.Write(t.Context(), l))
	}
	require.Equal(t, []string{"000000000001.letters"}, files(t, path))
	data, err := os.ReadFile(filepath.Join(path, "000000000001.letters"))
	require.NoError(t, err)
	require.Equal(t, version1, string(data))

	other := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(other, "5.letters"), []byte(version1), 0o600))
	var got []*pool.DeadLetter[mail]
	_, err = open[mail](t, other, nil).Restore(t.Context(),
		func(_ context.Context, l *pool.DeadLetter[mail]) error {
			got = append(got, l)
			return nil
		})
	require.NoError(t, err)
	require.Equal(t, want, got)

	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	lines := strings.Split(version1, "\n")
	require.Contains(t, string(doc), "//\t"+lines[0]+"\n//\t"+lines[3]+"\n")
}

func TestNewerVersion(t *testing.T) {
	path := t.TempDir()
	for name, first := range map[string]string{
		"1": "fairq-spill 2 06de063b\n",
		"2": "fairq-spill 99999999999999999999999 ",
	} {
		if name == "2" {
			first += "ab3506d9\n"
		}
		require.NoError(t, os.WriteFile(filepath.Join(path, name+".letters"),
			[]byte(first+"of another kind"), 0o600))
	}
	d := open[int](t, path, nil)
	require.NoError(t, d.Write(t.Context(), letter(1)))
	for _, want := range []int{1, 0} {
		n, err := d.Restore(t.Context(), into(new([]int)))
		require.ErrorIs(t, err, spill.ErrVersion)
		require.ErrorContains(t, err, "1.letters is of version 2")
		require.ErrorContains(t, err, "2.letters is of version 99999999999999999999999")
		require.NotErrorIs(t, err, spill.ErrDamaged)
		require.Equal(t, want, n, "the other files are restored")
	}
	require.Equal(t, []string{"1.letters", "2.letters"}, files(t, path))
}

func TestOptions(t *testing.T) {
	for _, o := range []spill.Options[int]{{MaxFileBytes: -1}, {MaxFileAge: -1}, {MaxBytes: -1}} {
		_, err := spill.Open(t.TempDir(), &o)
		require.ErrorIs(t, err, pool.ErrInvalid)
	}
	_, err := spill.Open[int](filepath.Join(os.Args[0], "x"), nil)
	require.Error(t, err)
	for _, below := range []float64{0, -1, 1.01, math.NaN()} {
		require.Panics(t, func() { spill.Into[int](nil, below) })
	}
}

func TestInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b")
	d, err := spill.Open[int](path, nil)
	require.NoError(t, err)
	_, err = spill.Open[int](path, nil)
	require.ErrorIs(t, err, spill.ErrInUse)
	require.NoError(t, d.Close())
	d, err = spill.Open[int](path, nil)
	require.NoError(t, err)
	require.NoError(t, d.Close())
}

func TestClosed(t *testing.T) {
	path := t.TempDir()
	d := open[int](t, path, nil)
	require.NoError(t, d.Write(t.Context(), letter(1)))
	require.NoError(t, d.Close())
	require.NoError(t, d.Close())
	require.ErrorIs(t, d.Write(t.Context(), letter(2)), spill.ErrClosed)
	_, err := d.Restore(t.Context(), into(new([]int)))
	require.ErrorIs(t, err, spill.ErrClosed)
	require.Len(t, files(t, path), 1)
}

func TestContexts(t *testing.T) {
	d := open[int](t, t.TempDir(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, d.Write(ctx, letter(1)))
	require.NoError(t, d.Write(ctx, letter(2)))
	n, err := d.Restore(ctx, func(context.Context, *pool.DeadLetter[int]) error {
		cancel()
		return nil
	})
	require.Equal(t, 1, n)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, d.Write(ctx, letter(3)), context.Canceled)
	n, err = d.Restore(ctx, into(new([]int)))
	require.Zero(t, n)
	require.ErrorIs(t, err, context.Canceled)
	var got []int
	_, err = d.Restore(t.Context(), into(&got))
	require.NoError(t, err)
	require.Equal(t, []int{2}, got)
}

// A Close ends a Restore, and waits for it. Another Restore waits for its turn as long as its
// context lasts.
func TestCloseEndsRestore(t *testing.T) {
	path := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := open[int](t, path, nil)
		require.NoError(t, d.Write(t.Context(), letter(1)))
		var ended sync.WaitGroup
		sunk := false
		ended.Go(func() {
			_, err := d.Restore(t.Context(), func(ctx context.Context, _ *pool.DeadLetter[int]) error {
				<-ctx.Done()
				sunk = true
				require.Equal(t, spill.ErrClosed, context.Cause(ctx))
				return ctx.Err()
			})
			require.ErrorIs(t, err, spill.ErrClosed)
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := d.Restore(ctx, into(new([]int)))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		ended.Go(func() {
			_, err := d.Restore(t.Context(), into(new([]int)))
			require.ErrorIs(t, err, spill.ErrClosed)
		})
		synctest.Wait()
		require.NoError(t, d.Close())
		require.True(t, sunk)
		ended.Wait()
	})
}

func TestFilesEnd(t *testing.T) {
	path := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := open(t, path, &spill.Options[string]{
			MaxFileBytes: 400, MaxFileAge: time.Minute,
			Codec: raw{},
		})
		write := func(size, want int) {
			require.NoError(t, d.Write(t.Context(), letter(strings.Repeat("x", size))))
			require.Len(t, files(t, path), want)
		}
		write(100, 1)
		write(100, 1)
		write(100, 2)  // by size
		write(1000, 3) // is alone in its file
		write(1, 4)
		time.Sleep(time.Minute - 1)
		write(1, 4)
		time.Sleep(time.Nanosecond)
		require.Len(t, files(t, path), 4)
		write(1, 5) // by age
		for _, name := range files(t, path) {
			about, err := os.Stat(filepath.Join(path, name))
			require.NoError(t, err)
			require.True(t, about.Size() <= 400 || about.Size() > 1000, name)
		}
		n, err := d.Restore(t.Context(), into(new([]string)))
		require.NoError(t, err)
		require.Equal(t, 7, n)
		require.Empty(t, files(t, path))
	})
}

// Frequent Restores do not make a new file each.
func TestRestoreOftenMakesFewFiles(t *testing.T) {
	path := t.TempDir()
	d := open[int](t, path, nil)
	for i := range 100 {
		require.NoError(t, d.Write(t.Context(), letter(i)))
		_, err := d.Restore(t.Context(),
			func(context.Context, *pool.DeadLetter[int]) error { return errStop })
		require.ErrorIs(t, err, errStop)
	}
	require.Len(t, files(t, path), 2)
}

func TestMaxBytes(t *testing.T) {
	const limit = 1000
	path := t.TempDir()
	d := open(t, path, &spill.Options[int]{MaxFileBytes: 300, MaxBytes: limit})
	size := func() (sum int64) {
		for _, name := range files(t, path) {
			about, err := os.Stat(filepath.Join(path, name))
			require.NoError(t, err)
			sum += about.Size()
		}
		return sum
	}
	n := 0
	fill := func() {
		for ; ; n++ {
			if err := d.Write(t.Context(), letter(n)); err != nil {
				require.ErrorIs(t, err, spill.ErrFull)
				break
			}
			require.LessOrEqual(t, size(), int64(limit))
		}
		require.Greater(t, size(), int64(limit-100))
	}
	fill()
	var got []int
	_, err := d.Restore(t.Context(), func(ctx context.Context, l *pool.DeadLetter[int]) error {
		if len(got) == n/2 {
			return errStop
		}
		return into(&got)(ctx, l)
	})
	require.ErrorIs(t, err, errStop)
	fill()
	require.NoError(t, d.Close())
	d = open(t, path, &spill.Options[int]{MaxBytes: limit})
	require.ErrorIs(t, d.Write(t.Context(), letter(0)), spill.ErrFull)
	require.Greater(t, size(), int64(limit-100))

	// A refused letter is kept.
	_, err = d.Restore(t.Context(),
		func(context.Context, *pool.DeadLetter[int]) error { return spill.ErrRefused })
	require.ErrorIs(t, err, spill.ErrRefused)
	_, err = d.Restore(t.Context(), into(&got))
	require.NoError(t, err)
	require.Len(t, got, n)
	require.Zero(t, size())
}

// An empty file is removed.
func TestNothingWritten(t *testing.T) {
	path := t.TempDir()
	d := open(t, path, &spill.Options[int]{MaxBytes: 1})
	require.ErrorIs(t, d.Write(t.Context(), letter(1)), spill.ErrFull)
	require.ErrorIs(t, d.Write(t.Context(), letter(1)), spill.ErrFull)
	n, err := d.Restore(t.Context(), into(new([]int)))
	require.NoError(t, err)
	require.Zero(t, n)
	require.NoError(t, d.Close())
	require.Empty(t, files(t, path))
}

func TestTooLarge(t *testing.T) {
	path := t.TempDir()
	d := open(t, path, &spill.Options[string]{Codec: raw{}})
	largest := strings.Repeat("x",
		spill.MaxLetterBytes-len(`- 01234567 {"task":{"key":"k"},"payload":"","reason":2}`)-1)
	require.ErrorIs(t, d.Write(t.Context(), letter(largest+"x")), spill.ErrTooLarge)
	require.Empty(t, files(t, path))
	require.NoError(t, d.Write(t.Context(), letter(largest)))
	var got []string
	_, err := d.Restore(t.Context(), into(&got))
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Len(t, got[0], len(largest))
}

func TestCodecFails(t *testing.T) {
	path := t.TempDir()
	d := open(t, path, &spill.Options[string]{Codec: raw{}})
	err := d.Write(t.Context(), letter("unencodable"))
	require.ErrorIs(t, err, errStop)
	require.ErrorContains(t, err, `"k"`)
	l := letter("x")
	l.At = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) // has no JSON
	require.Error(t, d.Write(t.Context(), l))
	require.Empty(t, files(t, path))

	require.NoError(t, d.Write(t.Context(), letter("undecodable")))
	require.NoError(t, d.Write(t.Context(), letter("x")))
	for _, want := range []int{1, 0} {
		n, err := d.Restore(t.Context(), into(new([]string)))
		require.Equal(t, want, n)
		require.ErrorIs(t, err, spill.ErrRefused)
		require.ErrorIs(t, err, errStop)
	}
	require.Len(t, files(t, path), 1)
}

// Files are restored by number, and new letters come behind them; other files are left alone.
func TestNumbers(t *testing.T) {
	path := t.TempDir()
	line := strings.SplitAfter(version1, "\n")[1]
	for _, name := range []string{
		"10.letters", "9.letters", "x.letters", "-1.letters", "12.damaged",
		"11.damaged.letters", ".letters", "11",
	} {
		text := version1[:23] + strings.Replace(line, "alice", name, 1)
		require.NoError(t, os.WriteFile(filepath.Join(path, name), []byte(text), 0o600))
	}
	d := open(t, path, &spill.Options[string]{Codec: raw{}})
	require.NoError(t, d.Write(t.Context(), letter("new")))
	require.Contains(t, files(t, path), "000000000013.letters")
	_, err := d.Restore(t.Context(), into(new([]string)))
	require.ErrorIs(t, err, spill.ErrDamaged) // the checksum is of another name
	require.ErrorContains(t, err, "10.letters")
	text := err.Error()
	require.Less(t, strings.Index(text, " 9.letters"), strings.Index(text, " 10.letters"))
	require.Equal(t, []string{
		"-1.letters", ".letters", "10.damaged", "11", "11.damaged.letters",
		"12.damaged", "9.damaged", "x.letters",
	}, files(t, path))
}
