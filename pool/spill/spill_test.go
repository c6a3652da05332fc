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

var (
	errStop  = errors.New("stop")
	errFault = errors.New("fault")
)

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
func into[V any](got *[]V) pool.Handler[*pool.DeadLetter[V]] {
	return func(_ context.Context, l *pool.DeadLetter[V]) error {
		*got = append(*got, l.Payload)
		return nil
	}
}

// stop is a sink that takes nothing.
func stop(context.Context, *pool.DeadLetter[int]) error { return errStop }

// files returns the names of the files that are not the lock, and their sizes together.
func files(t testing.TB, path string) (names []string, size int64) {
	entries, err := os.ReadDir(path)
	require.NoError(t, err)
	for _, e := range entries {
		if about, err := e.Info(); e.Name() != "lock" {
			require.NoError(t, err)
			names = append(names, e.Name())
			size += about.Size()
		}
	}
	return names, size
}

// few returns n, or a part of it with -short.
func few(n int) int {
	if testing.Short() {
		return n / 4
	}
	return n
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

// All fields of a letter come back, times in UTC, and errors as a *task.Error.
func TestLetterComesBack(t *testing.T) {
	d := open(t, t.TempDir(), &spill.Options[string]{Codec: raw{}})
	at := time.Unix(1, 23).UTC()
	full := &pool.DeadLetter[string]{
		Task: task.Info{
			ID: 1, Key: odd, Kind: odd, UniqueKey: odd, Group: odd, Role: task.AtEnd, State: task.Held,
			Priority: 2, Cost: 3, Attempts: 4, MaxAttempts: 5, TTR: 6, Created: at, ReadyAt: at, Until: at,
			Deadline: at, Expires: at, Consumer: odd, Err: &task.Error{Code: -1, Message: odd},
			Metadata: map[string]string{"\uFFFD": "\x00\u2028<\"é", "": ""},
		},
		Payload: odd, Class: odd, Reason: 7, At: at,
		Err: &task.Error{Code: -1, Message: "outer: " + odd},
	}
	for of, field := range reflect.ValueOf(full.Task).Fields() {
		require.False(t, field.IsZero(), of.Name)
	}
	for err, want := range map[error]*pool.DeadLetter[string]{
		nil:                                    {Payload: odd},
		errStop:                                {Err: &task.Error{Message: "stop"}},
		fmt.Errorf("outer: %w", full.Task.Err): full,
		(*task.Error)(nil):                     {Err: &task.Error{Message: "a nil *task.Error"}},
	} {
		written := *want
		written.Err = err
		written.At = want.At.In(time.FixedZone("an offset that RFC 3339 does not have", 3601))
		require.NoError(t, d.Write(t.Context(), &written))
		_, err := d.Restore(t.Context(), func(_ context.Context, got *pool.DeadLetter[string]) error {
			require.Equal(t, want, got)
			return nil
		})
		require.NoError(t, err)
	}
}

// The bytes of the format, as in the documentation.
func TestFormat(t *testing.T) {
	type mail struct{ To string }
	path := t.TempDir()
	d := open[mail](t, path, nil)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, l := range []*pool.DeadLetter[mail]{
		{Task: task.Info{Key: "\xff", Err: &task.Error{Code: 5}}, At: at},
		{Task: task.Info{ID: 7, Key: "alice", Attempts: 3}, Reason: pool.ReasonFailed},
	} {
		require.NoError(t, d.Write(t.Context(), l))
	}
	data, err := os.ReadFile(filepath.Join(path, first))
	require.NoError(t, err)
	lines := strings.Split(string(data), "\n")
	require.Equal(t, `- 9a979167 1 {"At":"2026-01-02T03:04:05Z","Payload":"{\"To\":\"\"}",`+
		`"Task":{"Err":{"Code":5},"Key":{"base64":"/w=="}}}`, lines[1])
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	require.Contains(t, string(doc), "//\t"+lines[0]+"\n//\t"+lines[2]+"\n")
}

func TestOptions(t *testing.T) {
	for _, o := range []spill.Options[int]{{MaxFileBytes: -1}, {MaxFileAge: -1}, {MaxBytes: -1}} {
		_, err := spill.Open(t.TempDir(), &o)
		require.ErrorIs(t, err, task.ErrInvalid)
	}
	for _, below := range []float64{0, 1.01, math.NaN()} {
		require.Panics(t, func() { spill.Into[int](nil, below) })
	}
}

func TestClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b")
	d := open[int](t, path, nil)
	_, err := spill.Open[int](path, nil)
	require.ErrorIs(t, err, spill.ErrInUse)
	require.NoError(t, d.Close())
	require.ErrorIs(t, d.Write(t.Context(), letter(2)), spill.ErrClosed)
	_, err = d.Restore(t.Context(), stop)
	require.ErrorIs(t, err, spill.ErrClosed)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, d.Write(ctx, letter(3)), context.Canceled)
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
		sink := func(ctx context.Context, _ *pool.DeadLetter[int]) error {
			<-ctx.Done()
			sunk = true
			require.Equal(t, spill.ErrClosed, context.Cause(ctx))
			return ctx.Err()
		}
		for range 2 {
			ended.Go(func() {
				_, err := d.Restore(t.Context(), sink)
				require.ErrorIs(t, err, spill.ErrClosed)
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := d.Restore(ctx, stop)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, d.Close())
		require.True(t, sunk)
		ended.Wait()
	})
}

// A file ends by its size and by its age. Frequent Restores do not make a new file each.
func TestFilesEnd(t *testing.T) {
	path := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := open(t, path, &spill.Options[int]{MaxFileBytes: 200, MaxFileAge: time.Minute})
		for i, want := range []int{1, 2, 2, 2, 3, 3, 4} {
			if i >= 5 {
				time.Sleep([]time.Duration{time.Minute - 1, 1}[i-5])
			}
			require.NoError(t, d.Write(t.Context(), letter(1)))
			names, size := files(t, path)
			require.Len(t, names, want)
			require.LessOrEqual(t, size, int64(200*want))
			_, err := d.Restore(t.Context(), stop) // the first one ends the first file
			require.ErrorIs(t, err, errStop)
		}
	})
}

// A letter that cannot be encoded is not taken. A letter that cannot be decoded, or whose Codec
// panics, does not block the others. A sink that panics has not taken its letter.
func TestHooksThatFail(t *testing.T) {
	d := open(t, t.TempDir(), &spill.Options[string]{Codec: raw{}})
	require.ErrorIs(t, d.Write(t.Context(), letter("unencodable")), errStop)
	long := letter(strings.Repeat("x", spill.MaxLetterBytes))
	require.ErrorIs(t, d.Write(t.Context(), long), spill.ErrTooLarge)
	far := &pool.DeadLetter[string]{At: time.Unix(1<<40, 0)} // has no JSON
	require.ErrorContains(t, d.Write(t.Context(), far), "year")
	for _, p := range []string{"a", "undecodable", "panics", "b"} {
		require.NoError(t, d.Write(t.Context(), letter(p)))
	}
	_, err := d.Restore(t.Context(),
		func(context.Context, *pool.DeadLetter[string]) error { panic("sink") })
	require.ErrorAs(t, err, new(*task.PanicError))
	for _, want := range [][]string{{"a", "b"}, nil} {
		var got []string
		_, err = d.Restore(t.Context(), into(&got))
		require.ErrorIs(t, err, spill.ErrRefused)
		require.ErrorIs(t, err, errStop) // the first of the two
		require.Equal(t, want, got)
	}
}
