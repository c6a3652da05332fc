package kv

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"slices"
)

// Map is an ordered map from bytes to bytes on a server that keeps no transactions. [Buffered]
// makes it an Engine.
type Map interface {
	Server

	// Read reads keys, and of each span the first Limit entries. Limit is not 0. The first Read of
	// a transaction has a nil at. Each later Read gets the At that the first one has returned, and
	// returns the state of the same moment. Read returns ErrConflict if the Map no longer knows
	// that state.
	Read(ctx context.Context, at any, keys [][]byte, spans []Span) (Found, error)

	// Commit deletes the keys of the spans clears. Then it writes each entry, or deletes it if its
	// Value is nil. If another commit has written a guarded key since the moment at, Commit
	// changes nothing and returns ErrConflict. It may overlook the deletion of a key that was not
	// read.
	Commit(ctx context.Context, at any, guards []Guard, clears []Span, writes []*Entry) error
}

// Found is the result of a Read.
type Found struct {
	At    any
	Keys  []Entry // in the order of the keys; Value is nil if there is none
	Pages []Page  // in the order of the spans
}

// Page has the first entries of a span. If it has fewer than Limit and Next is nil, the span has
// no more. Next is where the rest of the span begins, or with Desc where it ends.
type Page struct {
	Entries []Entry
	Next    []byte
}

// Guard is the key From if To is nil, otherwise the keys From <= key < To. Revision is the
// revision of From as it was read, -1 if it was not read.
type Guard struct {
	From, To []byte
	Revision int64
}

// Buffered is an Engine over a Map. A transaction keeps its writes until it commits, and merges
// them into what it reads. No transaction is a caller's own.
type Buffered struct{ Map }

// Joined implements Engine.
func (Buffered) Joined(context.Context) (Txn, error) {
	return nil, nil //nolint:nilnil // the interface's way to say none
}

// Begin implements Engine. The first read decides which state the transaction reads.
func (b Buffered) Begin(ctx context.Context) (Txn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &buffer{
		Map: b.Map, ctx: ctx, known: map[string]Entry{}, guards: map[[2]string][]byte{},
	}, nil
}

// buffer implements Txn.
type buffer struct {
	Map
	ctx     context.Context
	at      any              // of all reads, nil before the first one
	known   map[string]Entry // keys that were read
	pages   []page
	writes  []*Entry // in the order of keys; a nil value deletes
	cleared []Span
	guards  map[[2]string][]byte
	over    bool
}

// page has the first entries of a span, which were read.
type page struct {
	Span
	Page
}

func (s *Span) holds(key []byte) bool {
	return bytes.Compare(key, s.From) >= 0 && bytes.Compare(key, s.To) < 0
}

// find returns the index of a key in the writes, or where it would be.
func (t *buffer) find(key []byte) (int, bool) {
	return slices.BinarySearchFunc(t.writes, key, func(w *Entry, key []byte) int {
		return bytes.Compare(w.Key, key)
	})
}

func (t *buffer) isCleared(key []byte) bool {
	return slices.ContainsFunc(t.cleared, func(s Span) bool { return s.holds(key) })
}

// Get implements Txn.
func (t *buffer) Get(key []byte) ([]byte, error) {
	if i, ok := t.find(key); ok {
		return t.writes[i].Value, nil
	}
	if t.isCleared(key) {
		return nil, nil
	}
	err := t.Fetch([][]byte{key})
	return t.known[string(key)].Value, err
}

// The first page of a span without a limit has few entries if the last come first, because such
// readers want few of them.
const (
	firstPage = 32
	nextPage  = 1000
)

// Fetch implements Txn.
func (t *buffer) Fetch(keys [][]byte, spans ...Span) error {
	if t.over {
		return errOver
	}
	var unknown [][]byte
	for _, key := range keys {
		if _, ok := t.known[string(key)]; !ok {
			if t.known[string(key)] = (Entry{}); !t.isAbsent(key) {
				unknown = append(unknown, key)
			}
		}
	}
	var unread []Span
	for _, s := range spans {
		if bytes.Compare(s.From, s.To) >= 0 || t.page(&s) != nil {
			continue
		}
		switch {
		case s.Limit > 0:
		case s.Desc:
			s.Limit = firstPage
		default:
			s.Limit = nextPage
		}
		s.From, s.To = bytes.Clone(s.From), bytes.Clone(s.To)
		unread = append(unread, s)
	}
	if len(unknown)+len(unread) == 0 {
		return nil
	}
	found, err := t.Read(t.ctx, t.at, unknown, unread)
	if err != nil {
		return err
	}
	t.at = found.At
	for i, key := range unknown {
		t.known[string(key)] = found.Keys[i]
	}
	for i, s := range unread {
		t.pages = append(t.pages, page{s, found.Pages[i]})
		for _, e := range found.Pages[i].Entries {
			if !s.Loose {
				t.known[string(e.Key)] = e
			}
		}
	}
	return nil
}

// isAbsent reports whether a span was read to its end that would have a key that is not known.
func (t *buffer) isAbsent(key []byte) bool {
	return slices.ContainsFunc(t.pages, func(p page) bool {
		return !p.Loose && p.Next == nil && len(p.Entries) < p.Limit && p.holds(key)
	})
}

// page returns the first entries of a span, nil if they were not read.
func (t *buffer) page(s *Span) *page {
	for i := range t.pages {
		p := &t.pages[i]
		same := p.Desc == s.Desc && p.Loose == s.Loose
		if same && bytes.Equal(p.From, s.From) && bytes.Equal(p.To, s.To) {
			return p
		}
	}
	return nil
}

// Scan implements Txn. It reads page by page.
func (t *buffer) Scan(s Span) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		left := s.Limit
		for more := true; more; s.Limit = nextPage {
			if err := t.Fetch(nil, s); err != nil {
				yield(Entry{}, err)
				return
			}
			p := t.page(&s)
			if p == nil {
				return // the span is empty
			}
			part, next := s, p.Next
			if n := len(p.Entries); n == p.Limit && next == nil {
				if next = p.Entries[n-1].Key; !s.Desc {
					next = append(bytes.Clone(next), 0)
				}
			}
			switch more = next != nil; {
			case more && s.Desc:
				part.From, s.To = next, next
			case more:
				part.To, s.From = next, next
			}
			for _, e := range t.merge(p.Entries, &part) {
				left--
				if !yield(e, nil) || left == 0 {
					return
				}
			}
		}
	}
}

// merge returns the entries of a span with the buffered writes.
func (t *buffer) merge(stored []Entry, s *Span) (all []Entry) {
	for _, e := range stored {
		if _, ok := t.find(e.Key); !ok && !t.isCleared(e.Key) {
			all = append(all, e)
		}
	}
	for _, w := range t.writes {
		if w.Value != nil && s.holds(w.Key) {
			all = append(all, *w)
		}
	}
	slices.SortFunc(all, func(a, b Entry) int { return bytes.Compare(a.Key, b.Key) })
	if s.Desc {
		slices.Reverse(all)
	}
	return all
}

// Guard implements Txn.
func (t *buffer) Guard(from, to []byte) {
	t.guards[[2]string{string(from), string(to)}] = bytes.Clone(to)
}

// Put implements Txn.
func (t *buffer) Put(key, value []byte) error {
	if value == nil {
		value = []byte{}
	}
	t.write(key, value)
	return nil
}

// Delete implements Txn.
func (t *buffer) Delete(key []byte) error {
	t.write(key, nil)
	return nil
}

func (t *buffer) write(key, value []byte) {
	i, ok := t.find(key)
	if !ok {
		t.writes = slices.Insert(t.writes, i, &Entry{Key: bytes.Clone(key)})
	}
	t.writes[i].Value = value
}

// Clear implements Txn.
func (t *buffer) Clear(from, to []byte) error {
	s := Span{From: bytes.Clone(from), To: bytes.Clone(to)}
	t.writes = slices.DeleteFunc(t.writes, func(w *Entry) bool { return s.holds(w.Key) })
	t.cleared = append(t.cleared, s)
	return nil
}

// Commit implements Txn.
func (t *buffer) Commit() error {
	switch {
	case t.over:
		return errOver
	case t.ctx.Err() != nil:
		return t.ctx.Err()
	}
	if t.over = true; len(t.writes)+len(t.cleared) == 0 {
		return nil
	}
	var guards []Guard
	for g, to := range t.guards {
		guard := Guard{[]byte(g[0]), to, -1}
		if e, ok := t.known[g[0]]; ok && to == nil {
			guard.Revision = e.Revision
		}
		guards = append(guards, guard)
	}
	return t.Map.Commit(t.ctx, t.at, guards, t.cleared, t.writes)
}

// Rollback implements Txn.
func (t *buffer) Rollback() { t.over = true }

var errOver = errors.New("the transaction is over")
