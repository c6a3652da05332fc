package etcd

import (
	"bytes"
	"context"
	"iter"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fairq/fairq/store/internal/kv"
)

// The first page of a span without a limit has few keys if the last come first, because such
// readers want few of them.
const (
	firstPage = 32
	nextPage  = 1000
)

// firstSize returns how many keys of a span are read at first.
func firstSize(s *kv.Span) int {
	switch {
	case s.Limit > 0:
		return s.Limit
	case s.Desc:
		return firstPage
	}
	return nextPage
}

// Scan implements kv.Txn. It merges the server's entries with the buffered writes.
func (t *txn) Scan(s kv.Span) iter.Seq2[kv.Entry, error] {
	return func(yield func(kv.Entry, error) bool) {
		own := t.ownWrites(&s)
		size, left := firstSize(&s), s.Limit
		if s.Limit > 0 {
			size += len(own)
		}
		emit := func(key, value []byte) bool {
			if value == nil {
				return true // it is deleted
			}
			left--
			return yield(kv.Entry{Key: key, Value: value}, nil) && left != 0
		}
		for e, err := range t.stored(s, size) {
			if err != nil {
				yield(e, err)
				return
			}
			for len(own) > 0 && before(own[0].key, e.Key, s.Desc) {
				if !emit(own[0].key, own[0].value) {
					return
				}
				own = own[1:]
			}
			if len(own) > 0 && bytes.Equal(own[0].key, e.Key) {
				continue // a write hides the server's entry
			}
			if !t.isCleared(e.Key) && !emit(e.Key, e.Value) {
				return
			}
		}
		for _, w := range own {
			if !emit(w.key, w.value) {
				return
			}
		}
	}
}

func before(a, b []byte, desc bool) bool {
	if desc {
		a, b = b, a
	}
	return bytes.Compare(a, b) < 0
}

// ownWrites returns the writes in a span, in its order.
func (t *txn) ownWrites(s *kv.Span) []write {
	from, _ := t.at(s.From)
	to, _ := t.at(s.To)
	own := slices.Clone(t.writes[from:max(from, to)])
	if s.Desc {
		slices.Reverse(own)
	}
	return own
}

// stored yields the server's entries of a span, in pages; the first page has n entries.
func (t *txn) stored(s kv.Span, size int) iter.Seq2[kv.Entry, error] {
	return func(yield func(kv.Entry, error) bool) {
		parts := t.bounds.split(s)
		for i, part := range parts {
			for more, first := true, true; more; size, first = nextPage, false {
				r, err := t.get(&part, size)
				if err == nil && first && i == len(parts)-1 {
					err = t.learn(&s, r)
				}
				if err != nil {
					yield(kv.Entry{}, err)
					return
				}
				more = r.More
				for _, e := range r.Kvs {
					key := e.Key[len(t.prefix):]
					if e.Value == nil {
						e.Value = []byte{}
					}
					t.known[string(key)] = known{e.Value, e.ModRevision}
					if !yield(kv.Entry{Key: key, Value: e.Value}, nil) {
						return
					}
					if s.Desc {
						part.To = key
					} else {
						part.From = append(bytes.Clone(key), 0)
					}
				}
			}
		}
	}
}

// span returns the options that make a read return some entries of a span.
func (t *txn) span(s *kv.Span, size int) []clientv3.OpOption {
	order := clientv3.SortAscend
	if s.Desc {
		order = clientv3.SortDescend
	}
	return []clientv3.OpOption{
		clientv3.WithRange(t.engine.key(s.To)), clientv3.WithLimit(int64(size)),
		clientv3.WithSort(clientv3.SortByKey, order),
	}
}

// page returns some entries of a span if they were read ahead, else nil.
func (t *txn) page(s *kv.Span, size int) *clientv3.GetResponse {
	for _, f := range t.fetched {
		same := f.Desc == s.Desc && bytes.Equal(f.From, s.From) && bytes.Equal(f.To, s.To)
		if same && (len(f.Kvs) >= size || !f.More) {
			return f.GetResponse
		}
	}
	return nil
}

// get reads some entries of a span.
func (t *txn) get(s *kv.Span, size int, o ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if t.over {
		return nil, errOver
	}
	if bytes.Compare(s.From, s.To) >= 0 {
		return new(clientv3.GetResponse), nil
	}
	if r := t.page(s, size); r != nil {
		return r, nil
	}
	var r *clientv3.GetResponse
	err := t.exchange(func(ctx context.Context) (err error) {
		o := append(t.span(s, size), o...)
		r, err = t.client.Get(ctx, t.engine.key(s.From), append(o, clientv3.WithRev(t.revision))...)
		return err
	})
	if err != nil {
		return nil, err
	}
	t.read(r.Header.Revision)
	return r, nil
}
