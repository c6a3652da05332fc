package kv

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/rows"
)

// memory is the simplest Engine: a sorted slice, with one transaction at a time.
type memory struct {
	turn    chan struct{} // full while a transaction runs
	entries []Entry
	fail    func(op string) error // if not nil, calls return its error
}

func newMemory() *memory { return &memory{turn: make(chan struct{}, 1)} }

func open(t *testing.T, m *memory) *DB {
	db, err := Open(t.Context(), "memory", m, Options{})
	require.NoError(t, err)
	return db
}

func (m *memory) Traits() rows.Traits { return rows.Traits{} }

func (m *memory) Changed(context.Context) (bool, error) { return false, nil }

func (m *memory) Begin(ctx context.Context) (Txn, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	select {
	case m.turn <- struct{}{}:
		return &memTxn{m: m, entries: m.entries}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (m *memory) Joined(context.Context) (Txn, error) {
	return nil, nil //nolint:nilnil // the interface's way to say none
}

type memTxn struct {
	m       *memory
	entries []Entry
	own     bool // entries is a copy
	over    bool
}

func (t *memTxn) failure(op string) error {
	switch {
	case t.over:
		return errors.New("the transaction is over")
	case t.m.fail != nil:
		return t.m.fail(op)
	}
	return nil
}

// find returns the index of a key, or the index at which it would be inserted.
func (t *memTxn) find(key []byte) (int, bool) {
	return slices.BinarySearchFunc(t.entries, key, func(e Entry, key []byte) int {
		return bytes.Compare(e.Key, key)
	})
}

func (t *memTxn) Get(key []byte) ([]byte, error) {
	if err := t.failure("Get"); err != nil {
		return nil, err
	}
	if i, ok := t.find(key); ok {
		return t.entries[i].Value, nil
	}
	return nil, nil
}

func (t *memTxn) Fetch([][]byte, ...Span) error { return nil }
func (t *memTxn) Guard(_, _ []byte)             {}

func (t *memTxn) Scan(s Span) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if err := t.failure("Scan"); err != nil {
			yield(Entry{}, err)
			return
		}
		from, _ := t.find(s.From)
		to, _ := t.find(s.To)
		some := slices.Clone(t.entries[from:max(from, to)])
		if s.Desc {
			slices.Reverse(some)
		}
		for i, e := range some {
			if s.Limit > 0 && i == s.Limit || !yield(e, nil) {
				return
			}
		}
	}
}

// copyOnce makes the transaction write to a copy of the entries.
func (t *memTxn) copyOnce() {
	if !t.own {
		t.entries, t.own = slices.Clone(t.entries), true
	}
}

func (t *memTxn) Put(key, value []byte) error {
	if err := t.failure("Put"); err != nil {
		return err
	}
	t.copyOnce()
	e := Entry{bytes.Clone(key), value}
	if i, ok := t.find(key); ok {
		t.entries[i] = e
	} else {
		t.entries = slices.Insert(t.entries, i, e)
	}
	return nil
}

func (t *memTxn) Delete(key []byte) error { return t.Clear(key, append(bytes.Clone(key), 0)) }

func (t *memTxn) Clear(from, to []byte) error {
	if err := t.failure("Delete"); err != nil {
		return err
	}
	t.copyOnce()
	i, _ := t.find(from)
	j, _ := t.find(to)
	t.entries = slices.Delete(t.entries, i, max(i, j))
	return nil
}

func (t *memTxn) Commit() error {
	if err := t.failure("Commit"); err != nil {
		return err
	}
	t.m.entries = t.entries
	t.end()
	return nil
}

func (t *memTxn) Rollback() {
	if !t.over {
		t.end()
	}
}

func (t *memTxn) end() {
	t.over = true
	<-t.m.turn
}
