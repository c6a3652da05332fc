//go:build cgo && foundationdb

package foundationdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apple/foundationdb/bindings/go/src/fdb"
	"github.com/apple/foundationdb/bindings/go/src/fdb/subspace"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/kv/mvcc"
	"github.com/fairq/fairq/task"
)

// fake implements the calls of a transaction over the model. faults returns the code with which
// the next one fails, 0 for none, and whether a failing commit is done.
type fake struct {
	kv.Txn
	db     *mvcc.DB
	faults func() (code int, done bool)
}

// ready is a future with a result.
type ready struct {
	fdb.FutureNil // for methods that are not called
	err           error
}

func (r ready) Get() error { return r.err }

type readyBytes struct {
	fdb.FutureByteSlice
	value []byte
	err   error
}

func (r readyBytes) Get() ([]byte, error) { return r.value, r.err }

// fault returns the error of the next call that reads.
func (f *fake) fault() error {
	if code, _ := f.faults(); code != 0 {
		return fdb.Error{Code: code}
	}
	return nil
}

// coded returns an error of the model with its code.
func coded(err error) error {
	for of, code := range map[error]int{kv.ErrConflict: 1020, kv.ErrUnknown: 1021} {
		if errors.Is(err, of) {
			return fdb.Error{Code: code}
		}
	}
	return err
}

func (f *fake) Get(key fdb.KeyConvertible) fdb.FutureByteSlice {
	value, err := f.Txn.Get(key.FDBKey())
	return readyBytes{value: value, err: cmp.Or(f.fault(), coded(err))}
}

func (f *fake) Range(r fdb.KeyRange, o fdb.RangeOptions) func() (fdb.KeyValue, bool, error) {
	var found []kv.Entry
	err := f.fault()
	for e, failed := range f.Scan(kv.Span{
		From: r.Begin.FDBKey(), To: r.End.FDBKey(), Desc: o.Reverse,
		Limit: o.Limit,
	}) {
		err = cmp.Or(err, coded(failed))
		found = append(found, e)
	}
	return func() (e fdb.KeyValue, ok bool, _ error) {
		if ok = len(found) > 0; ok {
			e, found = fdb.KeyValue{Key: found[0].Key, Value: found[0].Value}, found[1:]
		}
		return e, ok, err
	}
}

func (f *fake) AddReadConflictKey(key fdb.KeyConvertible) error {
	f.Guard(key.FDBKey(), nil)
	return nil
}

func (f *fake) AddReadConflictRange(r fdb.ExactRange) error {
	from, to := r.FDBRangeKeys()
	f.Guard(from.FDBKey(), to.FDBKey())
	return nil
}

func (f *fake) Set(key fdb.KeyConvertible, value []byte) { _ = f.Put(key.FDBKey(), value) }
func (f *fake) Clear(key fdb.KeyConvertible)             { _ = f.Delete(key.FDBKey()) }

func (f *fake) ClearRange(r fdb.ExactRange) {
	from, to := r.FDBRangeKeys()
	_ = f.Txn.Clear(from.FDBKey(), to.FDBKey())
}

func (f *fake) Cancel() { f.Rollback() }

func (f *fake) Commit() fdb.FutureNil {
	code, done := f.faults()
	if code == 0 || done {
		if err := coded(f.Txn.Commit()); err != nil {
			return ready{err: err}
		}
	}
	if code != 0 {
		return ready{err: fdb.Error{Code: code}}
	}
	return ready{}
}

// OnError accepts the codes that the client library retries.
func (f *fake) OnError(err fdb.Error) fdb.FutureNil {
	switch err.Code {
	case 1007, 1009, 1020, 1021, 1037, 1038, 1039, 1042, 1051, 1078, 1213:
		f.Rollback()
		return ready{}
	}
	return ready{err: err}
}

// watch is ready when the key has another value, or it is cancelled.
type watch struct {
	ready
	f        *fake
	key, was []byte
	over     atomic.Bool
}

func (f *fake) Watch(key fdb.KeyConvertible) fdb.FutureNil {
	was, _ := f.Txn.Get(key.FDBKey())
	return &watch{f: f, key: key.FDBKey(), was: was}
}

func (w *watch) Cancel() { w.over.Store(true) }

func (w *watch) Get() error {
	for ; !w.over.Load(); time.Sleep(time.Millisecond) {
		t, err := w.f.db.Client().Begin(context.Background())
		if err != nil {
			return err
		}
		if now, _ := t.Get(w.key); string(now) != string(w.was) {
			return w.f.fault()
		}
	}
	return fdb.Error{Code: 1101}
}

// creator returns the creator of a process's transactions.
func creator(db *mvcc.DB, faults func() (int, bool)) func() (calls, error) {
	client := db.Client()
	return func() (calls, error) {
		t, err := client.Begin(context.Background())
		return &fake{Txn: t, db: db, faults: faults}, err
	}
}

func noFaults() (int, bool) { return 0, false }

// someFaults fails some calls, with the codes after which it helps to try again.
func someFaults() func() (int, bool) {
	codes := []int{1007, 1009, 1020, 1021, 1037, 1038, 1039, 1042, 1051, 1078, 1213}
	return func() (int, bool) {
		if rand.IntN(30) > 0 {
			return 0, false
		}
		code := codes[rand.IntN(len(codes))]
		return code, slices.Contains(unknown, code) && rand.IntN(2) == 0
	}
}

// newDatabase returns the creator of another process's transactions: in the cluster, if there is
// one, or else in the model, where some calls fail.
func newDatabase(t *testing.T) func() func() (calls, error) {
	file := os.Getenv("FDB_CLUSTER_FILE")
	if file == "" {
		model := new(mvcc.DB)
		return func() func() (calls, error) { return creator(model, someFaults()) }
	}
	require.NoError(t, fdb.APIVersion(730))
	db, err := fdb.OpenDatabase(file)
	require.NoError(t, err)
	return func() func() (calls, error) { return created(db) }
}

// TestTasks puts, takes and acks tasks in two processes at the same time, whose calls fail in all
// ways. Each task must be done once, and the watch wakes waiting calls.
func TestTasks(t *testing.T) {
	const tasks = 100
	process := newDatabase(t)
	space := subspace.Sub("fairq test", time.Now().UnixNano())
	done := make(chan int, 2*tasks)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 {
		store, err := open(ctx, &Options{Poll: time.Hour, Subspace: space}, process())
		require.NoError(t, err)
		q, err := task.Open(ctx, store, "q", &task.Options[int]{})
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, q.Close(context.Background()))
			require.NoError(t, store.Close())
		})
		go func() {
			for i := range tasks {
				if _, err := q.Put(ctx, fmt.Sprint(i%7), i, task.PutOptions{}); err != nil {
					t.Error(err)
				}
			}
		}()
		go func() {
			for {
				one, err := q.Take(ctx)
				if err != nil {
					return
				}
				if err := one.Ack(ctx); err != nil {
					t.Error(err)
				}
				done <- one.Payload
			}
		}()
	}
	seen := map[int]int{}
	for range 2 * tasks {
		select {
		case i := <-done:
			seen[i]++
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		}
	}
	for i := range tasks {
		require.Equal(t, 2, seen[i])
	}
}

// TestErrors lets each call of a Put fail with each code. If the Put returns no error, there is
// one task. If it returns another error than ErrUnknown, there is none, and none appears later.
func TestErrors(t *testing.T) {
	var code, left atomic.Int64
	store, err := open(t.Context(), nil, creator(new(mvcc.DB), func() (int, bool) {
		if left.Add(-1) == 0 {
			return int(code.Load()), left.Load()%2 == 0 && slices.Contains(unknown, int(code.Load()))
		}
		return 0, false
	}))
	require.NoError(t, err)
	q, err := task.Open(t.Context(), store, "q", &task.Options[int]{})
	require.NoError(t, err)
	for c := int64(1000); c < 1300; c++ {
		for call, over := int64(1), false; !over; call++ {
			code.Store(c)
			left.Store(call)
			_, err := q.Put(t.Context(), "a", 1, task.PutOptions{})
			over = left.Swap(0) > 0
			stats, err2 := q.Stats(t.Context())
			require.NoError(t, err2)
			switch {
			case err == nil:
				require.Equal(t, 1, stats.Ready, "%d of call %d", c, call)
			case !errors.Is(err, driver.ErrUnknown):
				require.ErrorContains(t, err, fmt.Sprint(c))
				require.Zero(t, stats.Ready, "%d of call %d: %v", c, call, err)
			}
			for range stats.Ready {
				one, err := q.Take(t.Context())
				require.NoError(t, err)
				require.NoError(t, one.Ack(t.Context()))
			}
		}
	}
	require.NoError(t, q.Close(context.Background()))
	require.NoError(t, store.Close())
}

// TestWithTx puts a task in a transaction of the caller's own, which is committed or not.
func TestWithTx(t *testing.T) {
	create := creator(new(mvcc.DB), noFaults)
	store, err := open(t.Context(), nil, create)
	require.NoError(t, err)
	q, err := task.Open(t.Context(), store, "q", &task.Options[int]{})
	require.NoError(t, err)
	for commit := range 2 {
		own, err := create()
		require.NoError(t, err)
		ctx := context.WithValue(t.Context(), txKey{}, own)
		for i := range 3 {
			_, err = q.Put(ctx, "a", i, task.PutOptions{})
			require.NoError(t, err)
		}
		if commit == 1 {
			require.NoError(t, own.Commit().Get())
		}
		for i := range 3 * commit {
			one, err := q.Take(t.Context())
			require.NoError(t, err)
			require.Equal(t, i, one.Payload)
			require.NoError(t, one.Ack(t.Context()))
		}
		stats, err := q.Stats(t.Context())
		require.NoError(t, err)
		require.Zero(t, stats.Ready)
	}
	require.NoError(t, q.Close(context.Background()))
	require.NoError(t, store.Close())
}
