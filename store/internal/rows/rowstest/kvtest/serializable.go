package kvtest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/kv"
)

const universe = "\x00\x01ABCab\x7f\x80\xc3\xfe\xff" // each byte is a key

// naive is a database that keeps a copy of each version, and the keys that were written in each.
type naive struct {
	states []map[string]string
	writes []map[string]bool
}

// naiveTxn is the model of a transaction.
type naiveTxn struct {
	kv.Txn
	began  int
	sees   map[string]string
	wrote  map[string]bool
	guards map[string]bool // true if it had not written the key before
}

// keys returns the keys from <= key < to of the universe, and behind each its successor, which is
// the key and a zero byte. Ranges cover the successors. A guard or a write of one key must not
// cover its successor.
func keys(from, to string) (in []string) {
	for i := range len(universe) {
		if s := universe[i : i+1]; s >= from && s < to {
			in = append(in, s, s+"\x00")
		}
	}
	return in
}

// Serializable runs random transactions, several at a time. A transaction must read the state at
// its first read, with its own writes. A read may instead fail with a conflict, if another commit
// has written there since. A commit must succeed if and only if no other commit since has written
// a key that the transaction guards.
func Serializable(t *testing.T, e kv.Engine) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	n := &naive{states: []map[string]string{{}}, writes: []map[string]bool{nil}}
	var open []*naiveTxn
	begin := func() kv.Txn {
		tx, err := e.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Get([]byte("none"))
		require.NoError(t, err)
		return tx
	}
	first := begin()
	require.NoError(t, first.Delete([]byte("none")))
	require.NoError(t, first.Commit())
	conflicts := 0
	for range 20_000 {
		if len(open) < 4 && r.IntN(3) == 0 {
			tx := begin()
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
		ends := false
		switch r.IntN(7) {
		case 0:
			value, err := tx.Get([]byte(from))
			if ends = n.late(t, tx, err, from, from+"\x00"); !ends {
				want, ok := tx.sees[from]
				require.Equal(t, ok, value != nil)
				require.Equal(t, want, string(value))
			}
		case 1:
			s := kv.Span{From: []byte(from), To: []byte(to), Desc: r.IntN(2) == 0, Limit: r.IntN(4)}
			if r.IntN(2) == 0 {
				ends = n.late(t, tx, tx.Fetch([][]byte{[]byte(from)}, s), from, to)
			}
			ends = ends || n.scan(t, tx, s)
		case 2:
			tx.wrote[from] = true
			if n := r.IntN(4); n < 3 {
				tx.sees[from] = universe[:n]
				require.NoError(t, tx.Put([]byte(from), []byte(universe[:n])))
			} else {
				delete(tx.sees, from)
				require.NoError(t, tx.Delete([]byte(from)))
			}
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
			if ends = true; r.IntN(4) > 0 && !n.commit(t, tx) {
				conflicts++
			}
		}
		if ends {
			tx.Rollback()
			require.Error(t, tx.Commit())
			open = slices.Delete(open, i, i+1)
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

func (tx *naiveTxn) guard(key string) { tx.guards[key] = tx.guards[key] || !tx.wrote[key] }

// scan reports whether a scan was in conflict.
func (n *naive) scan(t *testing.T, tx *naiveTxn, s kv.Span) bool {
	from, to := string(s.From), string(s.To)
	var want, got []string
	for _, k := range keys(from, to) {
		if v, ok := tx.sees[k]; ok {
			want = append(want, fmt.Sprintf("%q %q", k, v))
		}
	}
	if s.Desc {
		slices.Reverse(want)
	}
	if s.Limit > 0 {
		want = want[:min(s.Limit, len(want))]
	}
	for e, err := range tx.Scan(s) {
		if n.late(t, tx, err, from, to) {
			return true
		}
		got = append(got, fmt.Sprintf("%q %q", e.Key, e.Value))
	}
	require.Equal(t, want, got)
	return false
}

// late reports whether a read was in conflict, which it may be only if its keys were written.
func (n *naive) late(t *testing.T, tx *naiveTxn, err error, from, to string) bool {
	wrote := false
	for _, keys := range n.writes[tx.began+1:] {
		for k := range keys {
			wrote = wrote || k >= from && k < to
		}
	}
	if wrote && errors.Is(err, kv.ErrConflict) {
		return true
	}
	require.NoError(t, err)
	return false
}

// commit commits a transaction, and reports whether it succeeded. A conflict is allowed, but not
// required, about a guarded key in two cases. The transaction had written the key itself before it
// guarded it, or another commit has deleted the key although it was not there.
func (n *naive) commit(t *testing.T, tx *naiveTxn) bool {
	must, may := false, false
	for _, wrote := range n.writes[tx.began+1:] {
		for k, changed := range wrote {
			sure, guarded := tx.guards[k]
			may = may || guarded
			must = must || sure && changed
		}
	}
	err := tx.Commit()
	if len(tx.wrote) > 0 && (must || may && err != nil) {
		require.ErrorIs(t, err, kv.ErrConflict)
		return false
	}
	require.NoError(t, err)
	if len(tx.wrote) == 0 {
		return true
	}
	next := maps.Clone(n.states[len(n.states)-1])
	for k := range tx.wrote {
		v, ok := tx.sees[k]
		_, was := next[k]
		if delete(next, k); ok {
			next[k] = v
		}
		tx.wrote[k] = ok || was
	}
	n.states, n.writes = append(n.states, next), append(n.writes, tx.wrote)
	return true
}
