package etcd

import (
	"bytes"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fairq/fairq/store/internal/kv"
)

// bounds are keys seen in spans with many keys. The server counts all keys of a range even to
// return a few, and sorts them all if the last come first: a range of 100,000 takes 5 ms, and from
// the end over 100 ms. So a scan reads the part up to such a key first, and the rest only if that
// is too little. The key may be deleted, or have others before it; the result is right either way.
type bounds struct {
	mu   sync.Mutex // protects keys
	keys map[string][]byte
}

const (
	manyKeys  = 2000 // spans with fewer are read at once
	lookAhead = 1000 // a bound is this many keys away from the first one, and four times the limit
	maxBounds = 10_000
)

// boundOf returns the identity of a span: its end, because its beginning moves on.
func boundOf(s *kv.Span) string {
	if s.Desc {
		return "<" + string(s.To)
	}
	return ">" + string(s.To)
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

// split returns the parts of a span in the order of reading.
func (b *bounds) split(s kv.Span) []kv.Span {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := b.keys[boundOf(&s)]
	if bytes.Compare(key, s.From) <= 0 || bytes.Compare(key, s.To) >= 0 {
		return []kv.Span{s}
	}
	first, second := s, s
	first.To, second.From = key, key
	if s.Desc {
		first, second = second, first
	}
	return []kv.Span{first, second}
}

// learn remembers a bound of a span, if that has many keys.
func (t *txn) learn(s *kv.Span, r *clientv3.GetResponse) error {
	var key []byte
	switch {
	case len(r.Kvs) == 0 || r.Count < manyKeys:
	case s.Desc:
		key = r.Kvs[0].Key
	case s.Limit > 0:
		ahead, err := t.get(s, max(lookAhead, 4*s.Limit), clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
		key = ahead.Kvs[len(ahead.Kvs)-1].Key
	}
	if key != nil {
		key = key[len(t.prefix):]
	}
	t.bounds.set(boundOf(s), key)
	return nil
}
