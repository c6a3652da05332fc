package kv

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/rows"
)

// memory is the simplest Map: a sorted slice, with one transaction at a time.
type memory struct {
	entries []Entry               // never changed, but replaced
	fail    func(op string) error // if not nil, calls return its error
	cut     func(n int) int       // if not nil, how many of n entries a page has
}

func newMemory() *memory { return new(memory) }

func open(t *testing.T, m *memory) *DB {
	db, err := Open(t.Context(), "memory", Buffered{m}, Options{})
	require.NoError(t, err)
	return db
}

func (m *memory) Traits() rows.Traits { return rows.Traits{} }

func (m *memory) Watch(context.Context, []byte, []byte, func(*Entry)) {}

// find returns the index of a key, or the index at which it would be inserted.
func find(entries []Entry, key []byte) (int, bool) {
	return slices.BinarySearchFunc(entries, key, func(e Entry, key []byte) int {
		return bytes.Compare(e.Key, key)
	})
}

func (m *memory) Read(
	_ context.Context, at any, keys [][]byte, spans []Span,
) (found Found, err error) {
	if m.fail != nil {
		err = m.fail("Read")
	}
	entries, ok := at.([]Entry)
	if !ok {
		entries = m.entries
	}
	found.At = entries
	for _, key := range keys {
		e := Entry{Key: key}
		if i, ok := find(entries, key); ok {
			e = entries[i]
		}
		found.Keys = append(found.Keys, e)
	}
	for _, s := range spans {
		from, _ := find(entries, s.From)
		to, _ := find(entries, s.To)
		p := Page{Entries: slices.Clone(entries[from:max(from, to)])}
		if s.Desc {
			slices.Reverse(p.Entries)
		}
		p.Entries = p.Entries[:min(s.Limit, len(p.Entries))]
		if n := len(p.Entries); m.cut != nil && n > 0 {
			p.Entries = p.Entries[:m.cut(n)]
			if p.Next = p.Entries[len(p.Entries)-1].Key; !s.Desc {
				p.Next = append(bytes.Clone(p.Next), 0)
			}
		}
		found.Pages = append(found.Pages, p)
	}
	return found, err
}

func (m *memory) Commit(
	_ context.Context, _ any, _ []Guard, clears []Span, writes []Entry,
) error {
	if m.fail != nil {
		if err := m.fail("Commit"); err != nil {
			return err
		}
	}
	entries := slices.Clone(m.entries)
	for _, s := range clears {
		entries = slices.DeleteFunc(entries, func(e Entry) bool { return s.holds(e.Key) })
	}
	for _, w := range writes {
		i, ok := find(entries, w.Key)
		if ok {
			entries = slices.Delete(entries, i, i+1)
		}
		if w.Value != nil {
			entries = slices.Insert(entries, i, w)
		}
	}
	m.entries = entries
	return nil
}

// TestBuffered compares the reads of random transactions with a map into which each one writes at
// once. Their pages may end anywhere.
func TestBuffered(t *testing.T) {
	key := func() []byte { return []byte{"abcdefgh"[rand.IntN(8)], "abc"[rand.IntN(3)]} }
	m, model := newMemory(), map[string]string{}
	for range 500 {
		if m.cut = nil; rand.IntN(2) == 0 {
			m.cut = func(n int) int { return 1 + rand.IntN(n) }
		}
		x, err := Buffered{m}.Begin(t.Context())
		require.NoError(t, err)
		var s Span
		for range rand.IntN(30) {
			k, to := key(), key()
			if s.Limit = rand.IntN(5); rand.IntN(2) == 0 { // else a scan may find the page of a Fetch
				s = Span{k, to, rand.IntN(2) == 0, s.Limit}
			}
			switch rand.IntN(6) {
			case 0:
				require.NoError(t, x.Put(k, to))
				model[string(k)] = string(to)
			case 1:
				require.NoError(t, x.Delete(k))
				delete(model, string(k))
			case 2:
				if rand.IntN(3) == 0 {
					require.NoError(t, x.Clear(s.From, s.To))
					for key := range model {
						if s.holds([]byte(key)) {
							delete(model, key)
						}
					}
				}
			case 3:
				require.NoError(t, x.Fetch([][]byte{k}, s))
			case 4:
				value, err := x.Get(k)
				require.NoError(t, err)
				want, ok := model[string(k)]
				require.Equal(t, ok, value != nil)
				require.Equal(t, want, string(value))
			case 5:
				var got []Entry
				for e, err := range x.Scan(s) {
					require.NoError(t, err)
					got = append(got, e)
				}
				want := entriesOf(model, &s)
				if s.Limit > 0 {
					want = want[:min(s.Limit, len(want))]
				}
				require.Equal(t, fmt.Sprint(want), fmt.Sprint(got))
			}
		}
		require.NoError(t, x.Commit())
		require.Equal(t, fmt.Sprint(entriesOf(model, &Span{To: []byte{endByte}})), fmt.Sprint(m.entries))
		require.ErrorIs(t, x.Commit(), errOver)
	}
}

// entriesOf returns the entries of a span, in its order.
func entriesOf(model map[string]string, s *Span) (all []Entry) {
	for key, value := range model {
		if s.holds([]byte(key)) {
			all = append(all, Entry{Key: []byte(key), Value: []byte(value)})
		}
	}
	slices.SortFunc(all, func(a, b Entry) int { return bytes.Compare(a.Key, b.Key) })
	if s.Desc {
		slices.Reverse(all)
	}
	return all
}
