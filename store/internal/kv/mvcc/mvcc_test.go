package mvcc_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/kv/mvcc"
)

const universe = "abcdefghijkl" // each letter is a key

// naive is a database that keeps a copy of each version, and the keys that were written in each.
type naive struct {
	states []map[string]string
	writes []map[string]bool
}

// naiveTxn is the model of a transaction.
type naiveTxn struct {
	kv.Txn
	began         int
	sees          map[string]string
	wrote, guards map[string]bool
}

// keys returns the keys from <= key < to, and after each its successor. Only ranges have
// successors: a guard or a write of a single key must not reach them.
func keys(from, to string) (in []string) {
	for _, k := range universe {
		if s := string(k); s >= from && s < to {
			in = append(in, s, s+"\x00")
		}
	}
	return in
}

// TestSerializable runs random transactions, several at a time. Each must read the state at its
// begin with its own writes. Its commit must succeed if and only if no other commit since has
// written a key that it guards.
func TestSerializable(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	n := &naive{states: []map[string]string{{}}, writes: []map[string]bool{nil}}
	client := new(mvcc.DB).Client()
	var open []*naiveTxn
	conflicts := 0
	for range 20_000 {
		if len(open) < 4 && r.IntN(3) == 0 {
			tx, err := client.Begin(t.Context())
			require.NoError(t, err)
			last := len(n.states) - 1
			open = append(open, &naiveTxn{
				Txn: tx, began: last, sees: maps.Clone(n.states[last]),
				wrote: map[string]bool{}, guards: map[string]bool{},
			})
		}
		if len(open) == 0 {
			continue
		}
		i := r.IntN(len(open))
		tx := open[i]
		from, to := randomKeys(r)
		switch r.IntN(7) {
		case 0:
			value, err := tx.Get([]byte(from))
			require.NoError(t, err)
			require.Equal(t, tx.sees[from], string(value))
		case 1:
			tx.scan(t, kv.Span{From: []byte(from), To: []byte(to), Desc: r.IntN(2) == 0, Limit: r.IntN(4)})
		case 2:
			value := fmt.Sprint(r.Uint64())
			require.NoError(t, tx.Put([]byte(from), []byte(value)))
			tx.sees[from], tx.wrote[from] = value, true
		case 3:
			require.NoError(t, tx.Clear([]byte(from), []byte(to)))
			for _, k := range keys(from, to) {
				delete(tx.sees, k)
				tx.wrote[k] = true
			}
		case 4:
			tx.Guard([]byte(from), nil)
			tx.guard(from)
		case 5:
			tx.Guard([]byte(from), []byte(to))
			for _, k := range keys(from, to) {
				tx.guard(k)
			}
		default:
			open = slices.Delete(open, i, i+1)
			if r.IntN(4) == 0 {
				tx.Rollback()
			} else if !n.commit(t, tx) {
				conflicts++
			}
		}
	}
	require.Greater(t, conflicts, 100)
	require.Greater(t, len(n.states), 100)
}

// randomKeys returns two different keys in order.
func randomKeys(r *rand.Rand) (from, to string) {
	i, j := r.IntN(len(universe)), r.IntN(len(universe)-1)
	if j >= i {
		j++
	}
	return universe[min(i, j) : min(i, j)+1], universe[max(i, j) : max(i, j)+1]
}

// guard guards a key, unless the transaction has written it.
func (tx *naiveTxn) guard(key string) { tx.guards[key] = tx.guards[key] || !tx.wrote[key] }

func (tx *naiveTxn) scan(t *testing.T, s kv.Span) {
	var want, got []string
	for _, k := range keys(string(s.From), string(s.To)) {
		if v, ok := tx.sees[k]; ok {
			want = append(want, k+v)
		}
	}
	if s.Desc {
		slices.Reverse(want)
	}
	if s.Limit > 0 {
		want = want[:min(s.Limit, len(want))]
	}
	for e, err := range tx.Scan(s) {
		require.NoError(t, err)
		got = append(got, string(e.Key)+string(e.Value))
	}
	require.Equal(t, want, got)
}

// commit commits a transaction, and reports whether it succeeded.
func (n *naive) commit(t *testing.T, tx *naiveTxn) bool {
	conflict := false
	for _, wrote := range n.writes[tx.began+1:] {
		for k := range wrote {
			conflict = conflict || tx.guards[k]
		}
	}
	conflict = conflict && len(tx.wrote) > 0
	err := tx.Commit()
	require.Equal(t, conflict, errors.Is(err, kv.ErrConflict), "%v", err)
	if conflict || len(tx.wrote) == 0 {
		return !conflict
	}
	require.NoError(t, err)
	next := maps.Clone(n.states[len(n.states)-1])
	for k := range tx.wrote {
		delete(next, k)
		if v, ok := tx.sees[k]; ok {
			next[k] = v
		}
	}
	n.states, n.writes = append(n.states, next), append(n.writes, tx.wrote)
	return true
}

// TestLimits exceeds the limits of a transaction, and checks the time and the faults of commits.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &mvcc.DB{
			BeginTime: time.Millisecond, ReadTime: 2 * time.Millisecond,
			CommitTime: 4 * time.Millisecond,
		}
		client := db.Client()
		begin := func() kv.Txn {
			tx, err := client.Begin(t.Context())
			require.NoError(t, err)
			return tx
		}
		begun := time.Now()
		tx := begin()
		require.NoError(t, tx.Put([]byte("a"), []byte("1")))
		_, err := tx.Get([]byte("b"))
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		require.Equal(t, 7*time.Millisecond, time.Since(begun))

		tx = begin()
		err = tx.Put(make([]byte, mvcc.MaxKey+1), nil)
		require.ErrorContains(t, err, "10001 bytes, must have at most 10000")
		err = tx.Put([]byte("k"), make([]byte, mvcc.MaxValue+1))
		require.ErrorContains(t, err, "100001 bytes, must have at most 100000")
		for i := range 101 {
			require.NoError(t, tx.Put([]byte{byte(i)}, make([]byte, mvcc.MaxValue)))
		}
		require.ErrorContains(t, tx.Commit(), "must write at most 10000000")

		tx = begin()
		require.NoError(t, tx.Put([]byte("a"), []byte("2")))
		time.Sleep(mvcc.MaxTime + 1)
		_, err = tx.Get([]byte("b"))
		require.ErrorIs(t, err, kv.ErrConflict)
		require.ErrorIs(t, tx.Commit(), kv.ErrConflict)
		require.ErrorContains(t, tx.Commit(), "over")

		for fault, want := range map[mvcc.Fault]string{
			mvcc.Conflict: "1", mvcc.Lost: "1", mvcc.Unknown: "3", mvcc.Late: "3",
		} {
			db.Fault = nil
			tx = begin()
			require.NoError(t, tx.Put([]byte("a"), []byte("1")))
			require.NoError(t, tx.Commit())
			db.Fault = func() mvcc.Fault { return fault }
			tx = begin()
			require.NoError(t, tx.Put([]byte("a"), []byte("3")))
			if err := tx.Commit(); fault == mvcc.Conflict {
				require.ErrorIs(t, err, kv.ErrConflict)
			} else {
				require.ErrorIs(t, err, kv.ErrUnknown)
			}
			time.Sleep(time.Second)
			value, err := begin().Get([]byte("a"))
			require.NoError(t, err)
			require.Equal(t, want, string(value), "fault %d", fault)
		}
	})
}
