package kv

import (
	"bytes"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/rows"
)

// memory is the simplest Map.
type memory struct {
	entries map[string]string // never changed, but replaced
	wrote   map[string]int    // by key, the number of the last commit that wrote it
	commits int
	fail    func(op string) error // if not nil, calls return its error
	cuts    bool                  // pages may end anywhere
	keys    int                   // that were read one by one
}

func newMemory() *memory { return new(memory) }

// NewMemory returns an empty memory.
func NewMemory(cuts bool) Map { return &memory{cuts: cuts} }

func open(t *testing.T, m *memory) *DB {
	db, err := Open(t.Context(), "memory", Buffered{m}, Options{})
	require.NoError(t, err)
	return db
}

// span returns the entries of a span, in its order.
func span(entries map[string]string, s *Span) (all []Entry) {
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		if s.holds([]byte(key)) {
			all = append(all, Entry{Key: []byte(key), Value: []byte(entries[key])})
		}
	}
	if s.Desc {
		slices.Reverse(all)
	}
	if s.Limit > 0 {
		all = all[:min(s.Limit, len(all))]
	}
	return all
}

// all is the span of all entries.
var all = Span{To: []byte{endByte}}

func (m *memory) Traits() rows.Traits { return rows.Traits{} }

func (m *memory) Watch(context.Context, []byte, []byte, func(*Entry)) {}

func (m *memory) failure(op string) error {
	if m.fail == nil {
		return nil
	}
	return m.fail(op)
}

func (m *memory) Read(_ context.Context, at any, keys [][]byte, spans []Span) (Found, error) {
	then, ok := at.(memory)
	if !ok {
		then = *m
	}
	m.keys += len(keys)
	entries, found := then.entries, Found{At: then}
	for _, key := range keys {
		e := Entry{Key: key}
		if value, ok := entries[string(key)]; ok {
			e.Value = []byte(value)
		}
		found.Keys = append(found.Keys, e)
	}
	for _, s := range spans {
		p := Page{Entries: span(entries, &s)}
		if s.Loose {
			p.Entries = span(m.entries, &s)
		}
		if n := len(p.Entries); m.cuts && n > 0 {
			p.Entries = p.Entries[:1+rand.IntN(n)]
			if p.Next = p.Entries[len(p.Entries)-1].Key; !s.Desc {
				p.Next = append(bytes.Clone(p.Next), 0)
			}
		}
		found.Pages = append(found.Pages, p)
	}
	return found, m.failure("Read")
}

func (m *memory) Commit(
	_ context.Context, at any, guards []Guard, clears []Span, writes []*Entry,
) error {
	if err := m.failure("Commit"); err != nil {
		return err
	}
	then, _ := at.(memory)
	for key, n := range m.wrote {
		for _, g := range guards {
			s := Span{From: g.From, To: g.To}
			if n > then.commits && (s.holds([]byte(key)) || g.To == nil && key == string(g.From)) {
				return ErrConflict
			}
		}
	}
	entries := maps.Clone(m.entries)
	if entries == nil {
		entries, m.wrote = map[string]string{}, map[string]int{}
	}
	m.commits++
	for _, s := range clears {
		maps.DeleteFunc(entries, func(key, _ string) bool {
			if s.holds([]byte(key)) {
				m.wrote[key] = m.commits
			}
			return s.holds([]byte(key))
		})
	}
	for _, w := range writes {
		m.wrote[string(w.Key)] = m.commits
		if delete(entries, string(w.Key)); w.Value != nil {
			entries[string(w.Key)] = string(w.Value)
		}
	}
	m.entries = entries
	return nil
}

// TestAbsent reads a key that a span would have, which was read to its end: there is nothing to
// ask.
func TestAbsent(t *testing.T) {
	m, reads := newMemory(), 0
	m.fail = func(string) error { reads++; return nil }
	x, err := Buffered{m}.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, x.Fetch(nil, all))
	value, err := x.Get([]byte("a"))
	require.NoError(t, err)
	require.Nil(t, value)
	require.Equal(t, 1, reads)
}

// A loose scan sees a later change. Other reads of the transaction do not, before or after it.
func TestLoose(t *testing.T) {
	m, key := newMemory(), []byte("a")
	write := func(value string) {
		entry := Entry{Key: key, Value: []byte(value)}
		require.NoError(t, m.Commit(t.Context(), nil, nil, nil, []*Entry{&entry}))
	}
	write("old")
	x, err := Buffered{m}.Begin(t.Context())
	require.NoError(t, err)
	_, err = x.Get([]byte("b"))
	require.NoError(t, err)
	write("new")
	for _, loose := range []bool{true, false, true} {
		s := all
		s.Loose = loose
		want := map[bool]string{true: "new", false: "old"}[loose]
		for e, err := range x.Scan(s) {
			require.NoError(t, err)
			require.Equal(t, want, string(e.Value))
		}
		value, err := x.Get(key)
		require.NoError(t, err)
		require.Equal(t, "old", string(value))
	}
}
