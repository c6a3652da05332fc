package etcd

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fairq/fairq/store/internal/kv"
)

// bounds are keys that scans have found in spans with many keys. The server counts all keys of a
// range even if it returns a few. If the last keys come first, the server also sorts all of them.
// For 100,000 keys that takes 5 ms, and over 100 ms from the end. So a scan first reads the part
// of its span up to a bound. It reads the rest only if that part has too few keys. A bound may be
// deleted, or have other keys before it: the result is right in both cases.
type bounds struct {
	mu   sync.Mutex // protects keys
	keys map[string][]byte
}

const (
	manyKeys  = 2000 // spans with fewer are read at once
	lookAhead = 1000 // a bound is this many keys away from the first one, and four times the limit
	maxBounds = 10_000
)

// boundOf returns the identity of a span: its end, because its beginning moves on. Reads of many
// keys go through a whole span, so they have bounds of their own.
func boundOf(s *kv.Span) string {
	switch {
	case s.Desc:
		return "<" + string(s.To)
	case s.Limit >= lookAhead:
		return "+" + string(s.To)
	}
	return ">" + string(s.To)
}

// beyond returns a key that is four times as far behind last as from is before it, nil if that is
// too far. It takes the keys as numbers.
func beyond(from, last []byte) []byte {
	n := 0
	for n < min(len(from), len(last)) && from[n] == last[n] {
		n++
	}
	n = max(0, n-2) // room for a carry
	number := func(key []byte) uint64 {
		return binary.BigEndian.Uint64(append(bytes.Clone(key[n:]), make([]byte, 8)...))
	}
	end, far := number(last), number(last)-number(from)
	if far > (math.MaxUint64-end)/4 {
		return nil
	}
	return binary.BigEndian.AppendUint64(bytes.Clone(last[:n]), end+4*far)
}

func (b *bounds) set(span string, key []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case key == nil:
		delete(b.keys, span)
		return
	case b.keys == nil || len(b.keys) >= maxBounds:
		b.keys = map[string][]byte{}
	}
	b.keys[span] = key
}

// split returns the part of a span that is read first. next is where the rest begins, or with Desc
// where it ends; nil if there is no rest.
func (b *bounds) split(s *kv.Span) (from, to, next []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := b.keys[boundOf(s)]
	switch {
	case bytes.Compare(key, s.From) <= 0 || bytes.Compare(key, s.To) >= 0:
		return s.From, s.To, nil
	case s.Desc:
		return key, s.To, key
	}
	return s.From, key, key
}

// learn remembers a bound of a span that has many keys, from the last part of it that was read.
func (e *engine) learn(
	ctx context.Context, s *kv.Span, r *clientv3.GetResponse, revision int64,
) error {
	var key []byte
	switch n := len(r.Kvs); {
	case s.Limit >= lookAhead:
		if n == s.Limit && r.More && !s.Desc {
			key = beyond([]byte(e.key(s.From)), r.Kvs[n-1].Key)
		}
	case len(r.Kvs) == 0 || r.Count < manyKeys:
	case s.Desc:
		key = r.Kvs[0].Key
	default:
		ahead := *s
		ahead.Limit = max(lookAhead, 4*s.Limit)
		err := e.exchange(ctx, func(ctx context.Context) (err error) {
			r, err = e.client.Get(ctx, e.key(s.From),
				append(e.span(&ahead), clientv3.WithKeysOnly(), clientv3.WithRev(revision))...)
			return err
		})
		if err != nil {
			return err
		}
		key = r.Kvs[len(r.Kvs)-1].Key
	}
	if key != nil {
		key = key[len(e.prefix):]
	}
	e.bounds.set(boundOf(s), key)
	return nil
}
