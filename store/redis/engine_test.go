package redis

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/kv"
)

// TestModel makes random reads and commits at old moments. A later read returns the state of its
// moment, and is in conflict just if its keys were written since; a commit, just if a guarded key
// was. Keys are compared by their bytes. The server forgets its scripts now and then.
func TestModel(t *testing.T) {
	client, prefix := newClient(t, newDatabase(t))
	e, ctx := newEngine(client, &Options{Prefix: prefix}), t.Context()
	text := func() string {
		b := make([]byte, 1+rand.IntN(2))
		for i := range b {
			b[i] = "\x00aB\xff"[rand.IntN(4)]
		}
		return string(b)
	}
	type state struct {
		at      any
		entries map[string]string
		written []string // by the commit before it
	}
	var all []state
	add := func(entries map[string]string, written []string) {
		found, err := e.Read(ctx, nil, nil, nil)
		require.NoError(t, err)
		all = append(all, state{found.At, entries, written})
	}
	add(nil, nil)
	require.NoError(t, e.Commit(ctx, all[0].at, nil, nil, nil)) // older ones are in conflict
	all = nil
	add(map[string]string{}, nil)
	conflicts := 0
	check := func(i int, err error, spans ...[2]string) bool {
		for _, s := range all[i+1:] {
			for _, key := range s.written {
				for _, in := range spans {
					if in[0] <= key && key < in[1] {
						require.ErrorIs(t, err, kv.ErrConflict)
						conflicts++
						return false
					}
				}
			}
		}
		require.NoError(t, err)
		return true
	}
	for n := range 3000 {
		if n%500 == 0 {
			require.NoError(t, client.ScriptFlush(ctx).Err())
		}
		i := max(0, len(all)-1-rand.IntN(4))
		then, key, a, b := all[i], text(), text(), text()
		from, to := min(a, b), max(a, b)
		keyAsSpan, span := [2]string{key, key + "\x00"}, [2]string{from, to}
		s := kv.Span{
			From: []byte(from), To: []byte(to), Desc: n%2 == 0, Limit: 1 + rand.IntN(5), Loose: n%5 == 0,
		}
		guards := []kv.Guard{{From: []byte(key)}, {From: s.From, To: s.To}}

		found, err := e.Read(ctx, then.at, [][]byte{[]byte(key)}, []kv.Span{s})
		var want []kv.Entry
		entries := then.entries
		if s.Loose {
			entries = all[len(all)-1].entries
		}
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			if from <= key && key < to {
				want = append(want, kv.Entry{Key: []byte(key), Value: []byte(entries[key])})
			}
		}
		if s.Desc {
			slices.Reverse(want)
		}
		read := span
		if len(want) >= s.Limit {
			want = want[:s.Limit]
			if last := string(want[s.Limit-1].Key); s.Desc {
				read[0] = last
			} else {
				read[1] = last + "\x00"
			}
		}
		if s.Loose {
			read = keyAsSpan
		}
		if check(i, err, keyAsSpan, read) {
			require.Equal(t, want, found.Pages[0].Entries)
			value, ok := then.entries[key]
			require.Equal(t, ok, found.Keys[0].Value != nil)
			require.Equal(t, value, string(found.Keys[0].Value))
		}

		next, w := maps.Clone(all[len(all)-1].entries), text()
		written := []string{w}
		var clears []kv.Span
		if n%4 == 0 {
			clears = append(clears, s)
			for key := range next {
				if from <= key && key < to {
					written = append(written, key)
					delete(next, key)
				}
			}
		}
		value := [][]byte{nil, {}, []byte("x")}[rand.IntN(3)]
		if delete(next, w); value != nil {
			next[w] = string(value)
		}
		err = e.Commit(ctx, then.at, guards, clears, []kv.Entry{{Key: []byte(w), Value: value}})
		if check(i, err, keyAsSpan, span) {
			add(next, written)
		}
	}
	require.Positive(t, conflicts)
}
