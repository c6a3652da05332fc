package kv

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/rows"
)

// memory is the simplest Map, with one transaction at a time.
type memory struct {
	entries map[string]string     // never changed, but replaced
	fail    func(op string) error // if not nil, calls return its error
	cuts    bool                  // pages may end anywhere
	keys    int                   // that were read one by one
}

func newMemory() *memory { return new(memory) }

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
	entries, ok := at.(map[string]string)
	if !ok {
		entries = m.entries
	}
	found := Found{At: entries}
	m.keys += len(keys)
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

func (m *memory) Commit(_ context.Context, _ any, _ []Guard, clears []Span, writes []Entry) error {
	if err := m.failure("Commit"); err != nil {
		return err
	}
	entries := maps.Clone(m.entries)
	if entries == nil {
		entries = map[string]string{}
	}
	for _, s := range clears {
		maps.DeleteFunc(entries, func(key, _ string) bool { return s.holds([]byte(key)) })
	}
	for _, w := range writes {
		if delete(entries, string(w.Key)); w.Value != nil {
			entries[string(w.Key)] = string(w.Value)
		}
	}
	m.entries = entries
	return nil
}

// TestBuffered compares the reads of random transactions with a Map that each one changes at once.
func TestBuffered(t *testing.T) {
	key := func() []byte { return []byte{"abcdefgh"[rand.IntN(8)], "abc"[rand.IntN(3)]} }
	m, model, ctx := newMemory(), newMemory(), t.Context()
	for range 500 {
		m.cuts = rand.IntN(2) == 0
		x, err := Buffered{m}.Begin(ctx)
		require.NoError(t, err)
		var s Span
		for range rand.IntN(30) {
			k, to := key(), key()
			if s.Limit = rand.IntN(5); rand.IntN(2) == 0 { // else a scan may find the page of a Fetch
				s = Span{From: k, To: to, Desc: rand.IntN(2) == 0, Limit: s.Limit}
			}
			switch rand.IntN(6) {
			case 0:
				require.NoError(t, x.Put(k, to))
				require.NoError(t, model.Commit(ctx, nil, nil, nil, []Entry{{Key: k, Value: to}}))
			case 1:
				require.NoError(t, x.Delete(k))
				require.NoError(t, model.Commit(ctx, nil, nil, nil, []Entry{{Key: k}}))
			case 2:
				if rand.IntN(3) == 0 {
					require.NoError(t, x.Clear(s.From, s.To))
					require.NoError(t, model.Commit(ctx, nil, nil, []Span{s}, nil))
				}
			case 3:
				require.NoError(t, x.Fetch([][]byte{k}, s))
			case 4:
				value, err := x.Get(k)
				require.NoError(t, err)
				want, ok := model.entries[string(k)]
				require.Equal(t, ok, value != nil)
				require.Equal(t, want, string(value))
			case 5:
				var got []Entry
				for e, err := range x.Scan(s) {
					require.NoError(t, err)
					got = append(got, e)
				}
				require.Equal(t, fmt.Sprint(span(model.entries, &s)), fmt.Sprint(got))
			}
		}
		require.NoError(t, x.Commit())
		require.Equal(t, span(model.entries, &all), span(m.entries, &all))
		require.ErrorIs(t, x.Commit(), errOver)
	}
}

// A loose scan sees a later change. Other reads of the transaction do not, before or after it.
func TestLoose(t *testing.T) {
	m, key := newMemory(), []byte("a")
	write := func(value string) {
		entry := Entry{Key: key, Value: []byte(value)}
		require.NoError(t, m.Commit(t.Context(), nil, nil, nil, []Entry{entry}))
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
