package bolt_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/fairq/fairq/store/bolt"
	"github.com/fairq/fairq/store/internal/faulttest"
	"github.com/fairq/fairq/task"
)

func open(t *testing.T, path string) (*bolt.Store, *task.Queue[string]) {
	t.Helper()
	s, err := bolt.Open(t.Context(), path, nil)
	require.NoError(t, err)
	q, err := task.Open[string](t.Context(), s, "queue", nil)
	require.NoError(t, err)
	return s, q
}

func closeBoth(t *testing.T, s *bolt.Store, q *task.Queue[string]) {
	t.Helper()
	require.NoError(t, q.Close(context.Background()))
	require.NoError(t, s.Close())
}

func put(q *task.Queue[string]) error {
	_, err := q.Put(context.Background(), "key", "payload", task.PutOptions{})
	return err
}

func ready(t *testing.T, q *task.Queue[string]) int {
	t.Helper()
	stats, err := q.Stats(context.Background())
	require.NoError(t, err)
	return stats.Ready
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		return path
	}
	with := func(name string, buckets ...string) string {
		path := filepath.Join(dir, name)
		db, err := bbolt.Open(path, 0o600, nil)
		require.NoError(t, err)
		require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucket([]byte("fairq"))
			require.NoError(t, err)
			for i := 0; i < len(buckets); i += 2 {
				require.NoError(t, b.Put([]byte(buckets[i]), []byte(buckets[i+1])))
			}
			return nil
		}))
		require.NoError(t, db.Close())
		return path
	}
	for path, want := range map[string]string{
		dir:                              "this is not a file, its mode is d",
		filepath.Join(dir, "no", "file"): "no such file",
		file("text", []byte(strings.Repeat("this is no database\n", 1000))): "invalid database",
		file("short", []byte("short")):                                      "invalid database",
		with("other", "some key", "value"):                                  `key "some key": this was not written by fairq`,
		with("new", "\x14\x14", "fairq 5"):                                  `the layout is "fairq 5", this program knows "fairq 4"`,
	} {
		for range 2 { // the file is not kept open
			_, err := bolt.Open(t.Context(), path, nil)
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, "bolt: "+path+": open: ")
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := bolt.Open(ctx, newFile(t), nil)
	require.ErrorIs(t, err, context.Canceled)
	for _, o := range []bolt.Options{
		{MaxPayload: -1}, {MaxPayload: 1<<30 + 1}, {History: -1}, {History: task.MaxDuration + 1},
	} {
		_, err := bolt.Open(t.Context(), newFile(t), &o)
		require.ErrorIs(t, err, task.ErrInvalid)
	}
}

func init() {
	roles["open"] = func(self *faulttest.Self) error {
		self.Say("open")
		<-self.Stop.Done()
		return nil
	}
}

// With KeepSchema a file that has no store in it stays as it is, and none is made.
func TestKeepSchema(t *testing.T) {
	dir := t.TempDir()
	others, empty, missing := filepath.Join(dir, "others"), filepath.Join(dir, "empty"), filepath.Join(dir, "missing")
	db, err := bbolt.Open(others, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("orders"))
		return err
	}))
	require.NoError(t, db.Close())
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	content, err := os.ReadFile(others)
	require.NoError(t, err)
	keep := &bolt.Options{KeepSchema: true}
	for path, want := range map[string]string{
		others: "there is no store", empty: "the file is empty", missing: "no such file",
	} {
		_, err := bolt.Open(t.Context(), path, keep)
		require.ErrorContains(t, err, "bolt: "+path+": open: ")
		require.ErrorContains(t, err, want)
	}
	require.NoFileExists(t, missing)
	for path, want := range map[string][]byte{others: content, empty: {}} {
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, want, after)
	}
	s, q := open(t, others)
	require.NoError(t, put(q))
	closeBoth(t, s, q)
	s, err = bolt.Open(t.Context(), others, keep)
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

// TestInUse opens a file that another process has open, or this one.
func TestInUse(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "tasks.db")
	p := faulttest.Start(t, faulttest.Job{
		Role: "open", Name: "other", Where: path, Journal: filepath.Join(dir, "journal"),
	})
	require.Equal(t, "open", p.Await())
	refused := func() {
		begun := time.Now()
		_, err := bolt.Open(t.Context(), path, nil)
		require.EqualError(t, err, "bolt: "+path+
			": open: another process, or this one, has the file open, and only one can")
		require.Less(t, time.Since(begun), 5*time.Second)
	}
	refused()
	p.Stop()
	s, q := open(t, path)
	refused()
	closeBoth(t, s, q)
}

func TestClosed(t *testing.T) {
	path := newFile(t)
	s, q := open(t, path)
	require.NoError(t, put(q))
	require.NoError(t, s.Close())
	closed := "bolt: " + path + ": begin: the database is closed"
	require.EqualError(t, put(q), `task: Put, queue "queue": `+closed)
	require.EqualError(t, s.Close(), "bolt: "+path+": close: the database is closed")
	require.Error(t, s.InTx(t.Context(), nil))
	s, again := open(t, path)
	require.Equal(t, 1, ready(t, again))
	closeBoth(t, s, again)
	require.Error(t, q.Close(context.Background()))
}

// TestMoved takes the file away from under a store, and puts it back.
func TestMoved(t *testing.T) {
	path := newFile(t)
	s, q := open(t, path)
	require.NoError(t, put(q))
	require.NoError(t, os.Rename(path, path+".away"))
	for range 2 {
		require.ErrorContains(t, put(q), path+": begin: the file was removed, renamed or replaced")
	}
	require.NoFileExists(t, path)
	require.NoError(t, os.Rename(path+".away", path))
	require.NoError(t, put(q))
	require.Equal(t, 2, ready(t, q))
	closeBoth(t, s, q)
}

// TestInTx shows that what a call does and what the caller writes happen both, or not at all.
func TestInTx(t *testing.T) {
	s, q := open(t, newFile(t))
	other, others := open(t, newFile(t))
	orders := []byte("orders")
	failure := errors.New("failed")
	order := func(fail error) func(context.Context, *bbolt.Tx) error {
		return func(ctx context.Context, tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists(orders)
			require.NoError(t, err)
			n, err := b.NextSequence()
			require.NoError(t, err)
			require.NoError(t, b.Put([]byte{byte(n)}, []byte("order")))
			_, err = q.Put(ctx, "key", "payload", task.PutOptions{})
			require.NoError(t, err)
			_, err = others.Put(ctx, "key", "payload", task.PutOptions{})
			require.ErrorIs(t, err, task.ErrInvalid)
			return fail
		}
	}
	both := func(want int) {
		t.Helper()
		require.Equal(t, want, ready(t, q))
		require.NoError(t, s.InTx(t.Context(), func(_ context.Context, tx *bbolt.Tx) error {
			n := 0
			if b := tx.Bucket(orders); b != nil {
				n = b.Stats().KeyN
			}
			require.Equal(t, want, n)
			return nil
		}))
	}
	require.ErrorIs(t, s.InTx(t.Context(), order(failure)), failure)
	both(0)
	require.Panics(t, func() {
		_ = s.InTx(t.Context(), func(ctx context.Context, tx *bbolt.Tx) error {
			require.NoError(t, order(nil)(ctx, tx))
			panic("f")
		})
	})
	both(0)
	require.NoError(t, s.InTx(t.Context(), order(nil)))
	both(1)
	require.Zero(t, ready(t, others))

	var kept context.Context
	err := s.InTx(t.Context(), func(ctx context.Context, tx *bbolt.Tx) error {
		kept = ctx
		_, err := q.Take(ctx)
		require.ErrorIs(t, err, task.ErrInvalid) // which has done nothing
		return tx.Rollback()
	})
	require.ErrorContains(t, err, "commit: the transaction is over")
	_, err = q.Put(kept, "key", "", task.PutOptions{})
	require.ErrorContains(t, err, "the transaction is over")
	both(1)

	waited := make(chan error)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(t, s.InTx(ctx, func(ctx context.Context, _ *bbolt.Tx) error {
		_, err := q.Put(ctx, "key", "", task.PutOptions{UniqueKey: "a"})
		go func() { waited <- q.Wait(t.Context(), "a") }()
		return err
	}))
	for range 2 {
		taken, err := q.Take(ctx) // those who wait are told
		require.NoError(t, err)
		require.NoError(t, s.InTx(ctx, func(ctx context.Context, _ *bbolt.Tx) error {
			return taken.Ack(ctx)
		}))
	}
	require.NoError(t, <-waited)
	closeBoth(t, s, q)
	closeBoth(t, other, others)
}

// TestLong puts what is as long as it may be, with bytes that take more room in keys.
func TestLong(t *testing.T) {
	s, err := bolt.Open(t.Context(), newFile(t), &bolt.Options{MaxPayload: 1 << 20})
	require.NoError(t, err)
	name := strings.Repeat("\x00", task.MaxName)
	q, err := task.Open(t.Context(), s, name, &task.Options[string]{MaxInFlightPerKey: 1})
	require.NoError(t, err)
	o := task.PutOptions{Kind: name, UniqueKey: name, Group: name}
	for range 2 { // one is parked
		_, err = q.Put(t.Context(), name, "", o)
		require.NoError(t, err)
		o.UniqueKey = ""
	}
	require.NoError(t, q.StartGroup(t.Context(), name))
	_, err = q.Put(t.Context(), "", strings.Repeat("x", 1<<20), task.PutOptions{})
	require.ErrorContains(t, err, "1048576")
	for range 2 {
		taken, err := q.Take(t.Context())
		require.NoError(t, err)
		require.Equal(t, name, taken.Key)
		require.NoError(t, taken.Ack(t.Context()))
	}
	closeBoth(t, s, q)
}

// TestDamaged changes some bytes of a file, or cuts it off. Whether that is noticed or not, the
// process goes on.
func TestDamaged(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	s, q := open(t, path)
	batch := make([]task.Batch[string], 2000)
	for i := range batch {
		batch[i] = task.Batch[string]{Key: fmt.Sprint(i % 100), Payload: strings.Repeat("x", 50)}
	}
	_, err := q.PutBatch(t.Context(), batch)
	require.NoError(t, err)
	closeBoth(t, s, q)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	use := func(data []byte) error {
		require.NoError(t, os.WriteFile(path, data, 0o600))
		s, err := bolt.Open(t.Context(), path, nil)
		if err != nil {
			return err
		}
		defer s.Close()
		q, err := task.Open[string](t.Context(), s, "queue", nil)
		if err != nil {
			return err
		}
		defer q.Close(context.Background())
		_, err = q.KeyStats(t.Context(), 1000)
		for range 2 {
			if err == nil {
				_, err = q.TakeBatch(t.Context(), 1000)
			}
		}
		return err
	}
	require.NoError(t, use(whole))
	tries, failures := 60, 0
	if testing.Short() {
		tries = 8
	}
	const pageSize = 4096
	var branches []int // where the pages above others are, as their flags say
	for at := 0; at < len(whole); at += pageSize {
		if binary.NativeEndian.Uint16(whole[at+8:]) == 1 {
			branches = append(branches, at)
		}
	}
	require.NotEmpty(t, branches)
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range tries {
		data := bytes.Clone(whole)
		if i%4 == 0 {
			data = data[:random.IntN(len(data))]
		} else {
			at := random.IntN(len(data) - 8)
			switch i % 4 {
			case 1:
				at = at / pageSize * pageSize // the beginning of a page
			case 2:
				at = branches[random.IntN(len(branches))] + random.IntN(16+4*16) // or of its elements
			}
			for j := range 1 + random.IntN(8) {
				data[at+j] ^= byte(1 + random.IntN(255))
			}
		}
		if err := use(data); err != nil {
			failures++
			if _, payload := errors.AsType[*json.SyntaxError](err); !payload {
				require.ErrorContains(t, err, path)
			}
		}
	}
	t.Logf("%d of %d had an error", failures, tries)
	require.NotZero(t, failures)
}
