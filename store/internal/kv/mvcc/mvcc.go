// Package mvcc is an ordered map in memory with transactions that are told of conflicts when they
// commit. It is a model of how FoundationDB does that, for tests and simulations.
//
// A transaction reads what was committed when it began: its read version. It is committed if
// nobody else has written since what it guards (its read conflict ranges; what is only read is
// read as with a snapshot read). Writes do not conflict with each other. A commit may return that
// it is not known whether it was done, and be done later.
package mvcc

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/rows"
)

// The limits of a transaction.
const (
	MaxTime  = 5 * time.Second
	MaxBytes = 10_000_000
	MaxKey   = 10_000
	MaxValue = 100_000
)

var errOver = errors.New("the transaction is over")

// DB is a database. It is used through Clients.
type DB struct {
	// What an exchange with the database takes: to get the read version, to read, and to commit.
	// They, and what follows, must be set before the DB is used.
	BeginTime, ReadTime, CommitTime time.Duration

	// MaxValue is how many bytes a value has at most, 0 means 100,000, and MaxBytes how many a
	// transaction writes at most, 0 means ten million.
	MaxValue, MaxBytes int

	// Patience is by how much a transaction may take longer than MaxTime: machines are slow.
	Patience time.Duration

	// Fault, if not nil, says what happens to the next commit.
	Fault func() Fault

	mu      sync.Mutex // protects all that follows
	root    *node
	version uint64
	commits []commit // of the last MaxTime, in order
}

// Fault is what can go wrong when a transaction is committed.
type Fault uint8

// What can go wrong.
const (
	None     Fault = iota
	Conflict       // it is told so, though there is none
	Unknown        // it is done, or there is a conflict, but not known
	Lost           // it is not done, nor known
	Late           // it is done, or there is a conflict, some time after it was said not to be known
	Full           // it is not done, and told that there is no room
	FullDone       // it is done, or there is a conflict, and told that there is no room
)

// commit is what was written.
type commit struct {
	version uint64
	at      time.Time
	writes  []write
}

// write writes an entry, and deletes all others from one key on and before another.
type write struct {
	from, to []byte
	entry    *kv.Entry
}

// Client is a kv.Engine, of which each process has its own.
type Client struct {
	*DB
	own, seen uint64 // commits, of its own and of others
	dead      bool
}

// Client returns a new one.
func (db *DB) Client() *Client { return &Client{DB: db} }

// Kill has all transactions of the client fail from now on, as if its process died.
func (c *Client) Kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = true
}

// Traits implements kv.Engine.
func (c *Client) Traits() rows.Traits { return rows.Traits{Linger: c.CommitTime / 100} }

// Joined implements kv.Engine. There are no transactions of callers.
func (c *Client) Joined(context.Context) (kv.Txn, error) {
	return nil, nil //nolint:nilnil // that is the interface's way to say none
}

// Changed implements kv.Engine.
func (c *Client) Changed(context.Context) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.seen
	c.seen = c.version - c.own
	return c.seen != was, nil
}

// Begin implements kv.Engine.
func (c *Client) Begin(ctx context.Context) (kv.Txn, error) {
	if err := rows.Pause(ctx, c.BeginTime); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return nil, errors.New("the process is dead")
	}
	return &txn{
		Client: c, ctx: ctx, root: c.root, version: c.version, began: time.Now(), known: map[string]bool{},
	}, nil
}

// txn implements kv.Txn.
type txn struct {
	*Client
	ctx     context.Context
	root    *node // with what was written
	version uint64
	began   time.Time
	known   map[string]bool // keys that were read, and names of spans
	guards  [][2][]byte
	writes  []write
	size    int
	over    bool
}

// read is called ahead of each exchange.
func (t *txn) read() error {
	switch {
	case t.over:
		return errOver
	case time.Since(t.began) > MaxTime+t.Patience:
		return fmt.Errorf("it has taken %v: %w", MaxTime, kv.ErrConflict)
	}
	return rows.Pause(t.ctx, t.ReadTime)
}

// Get implements kv.Txn.
func (t *txn) Get(key []byte) ([]byte, error) {
	err := t.Fetch([][]byte{key})
	return t.root.get(key), err
}

// Fetch implements kv.Txn. What was read or written is known.
func (t *txn) Fetch(keys [][]byte, spans ...kv.Span) error {
	n := len(t.known)
	for _, key := range keys {
		t.known[string(key)] = true
	}
	for i := range spans {
		t.known[nameOf(&spans[i])] = true
	}
	if len(t.known) == n && !t.over {
		return nil
	}
	return t.read()
}

// nameOf returns a name for a span, which is no key.
func nameOf(s *kv.Span) string { return fmt.Sprintf("%q %q %v %d", s.From, s.To, s.Desc, s.Limit) }

// Scan implements kv.Txn.
func (t *txn) Scan(s kv.Span) iter.Seq2[kv.Entry, error] {
	return func(yield func(kv.Entry, error) bool) {
		if err := t.Fetch(nil, s); err != nil {
			yield(kv.Entry{}, err)
			return
		}
		n := 0
		t.root.scan(s.From, s.To, s.Desc, func(e kv.Entry) bool {
			t.known[string(e.Key)] = true
			n++
			return yield(e, nil) && n != s.Limit
		})
	}
}

// Guard implements kv.Txn. As in FoundationDB, what the transaction has written before is left out.
func (t *txn) Guard(from, to []byte) {
	from = bytes.Clone(from)
	if to == nil {
		to = next(from)
	}
	guards := [][2][]byte{{from, bytes.Clone(to)}}
	for _, w := range t.writes {
		for i, g := range guards {
			if bytes.Compare(w.from, g[1]) < 0 && bytes.Compare(g[0], w.to) < 0 {
				guards[i][1] = w.from
				guards = append(guards, [2][]byte{w.to, g[1]})
			}
		}
	}
	isEmpty := func(g [2][]byte) bool { return bytes.Compare(g[0], g[1]) >= 0 }
	t.guards = append(t.guards, slices.DeleteFunc(guards, isEmpty)...)
}

// next returns the first key after another one.
func next(key []byte) []byte { return append(bytes.Clone(key), 0) }

// only returns a key and the next one.
func only(key []byte) (from, to []byte) {
	to = next(key)
	return to[:len(key):len(key)], to
}

// Put implements kv.Txn.
func (t *txn) Put(key, value []byte) error {
	most := cmp.Or(t.MaxValue, MaxValue)
	switch {
	case len(key) > MaxKey:
		return fmt.Errorf("the key has %d bytes, must have at most %d", len(key), MaxKey)
	case len(value) > most:
		return fmt.Errorf("the value has %d bytes, must have at most %d", len(value), most)
	}
	t.known[string(key)] = true
	from, to := only(key)
	return t.write(write{from, to, &kv.Entry{Key: from, Value: value}})
}

// Delete implements kv.Txn.
func (t *txn) Delete(key []byte) error {
	from, to := only(key)
	return t.write(write{from, to, nil})
}

// Clear implements kv.Txn.
func (t *txn) Clear(from, to []byte) error {
	return t.write(write{bytes.Clone(from), bytes.Clone(to), nil})
}

func (t *txn) write(w write) error {
	if t.over {
		return errOver
	}
	t.size += len(w.from) + len(w.to)
	if w.entry != nil {
		t.size += len(w.entry.Value)
	}
	t.writes, t.root = append(t.writes, w), t.root.with(w.from, w.to, w.entry)
	return nil
}

// Commit implements kv.Txn.
func (t *txn) Commit() error {
	switch {
	case t.over:
		return errOver
	case t.ctx.Err() != nil:
		return t.ctx.Err()
	case t.size > cmp.Or(t.MaxBytes, MaxBytes):
		return fmt.Errorf("it writes %d bytes, must write at most %d", t.size, cmp.Or(t.MaxBytes, MaxBytes))
	}
	if t.over = true; t.writes == nil {
		return nil
	}
	fault := None
	if t.Fault != nil {
		fault = t.Fault()
	}
	switch fault {
	case Conflict:
		return kv.ErrConflict
	case Lost:
		return kv.ErrUnknown
	case Full:
		return kv.ErrFull
	case Late:
		time.AfterFunc(time.Millisecond+t.CommitTime/2, func() { _ = t.apply() })
		return kv.ErrUnknown
	}
	time.Sleep(t.CommitTime / 2)
	err := t.apply()
	time.Sleep(t.CommitTime - t.CommitTime/2)
	switch fault {
	case Unknown:
		return kv.ErrUnknown
	case FullDone:
		return kv.ErrFull
	}
	return err
}

// apply writes what the transaction has written, unless there is a conflict.
func (t *txn) apply() error {
	db := t.DB
	db.mu.Lock()
	defer db.mu.Unlock()
	now := time.Now()
	for len(db.commits) > 0 && now.Sub(db.commits[0].at) > 2*(MaxTime+db.Patience) {
		db.commits = db.commits[1:]
	}
	if t.dead || now.Sub(t.began) > MaxTime+db.Patience {
		return kv.ErrConflict
	}
	for i := len(db.commits) - 1; i >= 0 && db.commits[i].version > t.version; i-- {
		if t.conflicts(db.commits[i].writes) {
			return kv.ErrConflict
		}
	}
	if db.version == t.version { // nobody else has written anything
		db.root = t.root
	} else {
		for _, w := range t.writes {
			db.root = db.root.with(w.from, w.to, w.entry)
		}
	}
	db.version++
	t.own++
	db.commits = append(db.commits, commit{db.version, now, t.writes})
	return nil
}

func (t *txn) conflicts(writes []write) bool {
	for _, w := range writes {
		for _, g := range t.guards {
			if bytes.Compare(w.from, g[1]) < 0 && bytes.Compare(g[0], w.to) < 0 {
				return true
			}
		}
	}
	return false
}

// Rollback implements kv.Txn.
func (t *txn) Rollback() { t.over = true }
