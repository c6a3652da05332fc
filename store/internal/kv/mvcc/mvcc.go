// Package mvcc is an ordered map in memory with optimistic transactions, for tests and
// simulations. It is a model of FoundationDB.
//
// A transaction reads the state that was committed when it began, its read version. Its commit
// fails if another transaction has since written a key that it guards. (Guards are FoundationDB's
// read conflict ranges; all reads are snapshot reads.) Writes do not conflict with each other. A
// commit may return that its outcome is unknown, and happen later.
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

// DB is a database. Processes use it through Clients. The exported fields must be set before that.
type DB struct {
	// The times of an exchange with the database: to get the read version, to read, to commit.
	BeginTime, ReadTime, CommitTime time.Duration

	// MaxValue limits the bytes of a value, MaxBytes the bytes that a transaction writes. 0 means
	// the constant of that name.
	MaxValue, MaxBytes int

	// Patience is added to MaxTime, for tests in real time on slow machines.
	Patience time.Duration

	// Fault, if not nil, returns the fault of the next commit.
	Fault func() Fault

	mu      sync.Mutex // protects the fields below
	root    *node
	version uint64
	commits []commit // of the last MaxTime, in order
}

// Fault is a fault of a commit.
type Fault uint8

// The faults, with the error that Commit returns. If it is said that the commit happens, it may
// fail because of a real conflict instead.
const (
	None     Fault = iota
	Conflict       // ErrConflict, without a conflict
	Unknown        // ErrUnknown, and the commit happens
	Lost           // ErrUnknown, and the commit does not happen
	Late           // ErrUnknown, and the commit happens later
	Full           // ErrFull, and the commit does not happen
	FullDone       // ErrFull, and the commit happens
)

// commit has the writes of a committed transaction.
type commit struct {
	version uint64
	at      time.Time
	writes  []write
}

// write deletes the keys from <= key < to, and then puts the entry if it is not nil.
type write struct {
	from, to []byte
	entry    *kv.Entry
}

// Client is a kv.Engine. Each process has its own.
type Client struct {
	*DB
	dead bool
}

// Client returns a new client.
func (db *DB) Client() *Client { return &Client{DB: db} }

// Kill makes all transactions of the client fail from now on, as if its process had died.
func (c *Client) Kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = true
}

// Traits implements kv.Engine.
func (c *Client) Traits() rows.Traits { return rows.Traits{Linger: c.CommitTime / 100} }

// Joined implements kv.Engine. No context carries a transaction.
func (c *Client) Joined(context.Context) (kv.Txn, error) {
	return nil, nil //nolint:nilnil // the interface's way to say none
}

// Watch implements kv.Engine. It sees nothing: processes look at each interval.
func (c *Client) Watch(context.Context, []byte, []byte, func(*kv.Entry)) {}

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
		Client: c, ctx: ctx, root: c.root, version: c.version, began: time.Now(),
		known: map[string]bool{},
	}, nil
}

// txn implements kv.Txn.
type txn struct {
	*Client
	ctx     context.Context
	root    *node // with its own writes
	version uint64
	began   time.Time
	known   map[string]bool // keys and names of spans that it has read
	whole   []kv.Span       // those of them without a limit
	guards  [][2][]byte
	writes  []write
	size    int
	over    bool
}

// read takes the time of one exchange.
func (t *txn) read() error {
	switch {
	case t.over:
		return errOver
	case time.Since(t.began) > MaxTime+t.Patience:
		return fmt.Errorf("the transaction has taken %v: %w", MaxTime, kv.ErrConflict)
	}
	return rows.Pause(t.ctx, t.ReadTime)
}

// Get implements kv.Txn.
func (t *txn) Get(key []byte) ([]byte, error) {
	err := t.Fetch([][]byte{key})
	return t.root.get(key), err
}

// Fetch implements kv.Txn. It takes the time of an exchange unless all keys and spans are known.
func (t *txn) Fetch(keys [][]byte, spans ...kv.Span) error {
	n := len(t.known)
	for _, key := range keys {
		if !slices.ContainsFunc(t.whole, func(s kv.Span) bool {
			return bytes.Compare(key, s.From) >= 0 && bytes.Compare(key, s.To) < 0
		}) {
			t.known[string(key)] = true
		}
	}
	for _, s := range spans {
		name := nameOf(&s)
		if s.Limit == 0 && !t.known[name] {
			t.whole = append(t.whole, kv.Span{From: bytes.Clone(s.From), To: bytes.Clone(s.To)})
		}
		t.known[name] = true
	}
	if len(t.known) == n && !t.over {
		return nil
	}
	return t.read()
}

// nameOf returns a name for a span that differs from all keys.
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

// Guard implements kv.Txn. As in FoundationDB, it leaves out keys that the transaction has written
// before.
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

// next returns the key right after another one.
func next(key []byte) []byte { return append(bytes.Clone(key), 0) }

// keySpan returns the span of one key, as copies.
func keySpan(key []byte) (from, to []byte) {
	to = next(key)
	return to[:len(key):len(key)], to
}

// Put implements kv.Txn.
func (t *txn) Put(key, value []byte) error {
	limit := cmp.Or(t.MaxValue, MaxValue)
	switch {
	case len(key) > MaxKey:
		return fmt.Errorf("the key has %d bytes, must have at most %d", len(key), MaxKey)
	case len(value) > limit:
		return fmt.Errorf("the value has %d bytes, must have at most %d", len(value), limit)
	}
	t.known[string(key)] = true
	from, to := keySpan(key)
	return t.write(write{from, to, &kv.Entry{Key: from, Value: value}})
}

// Delete implements kv.Txn.
func (t *txn) Delete(key []byte) error {
	from, to := keySpan(key)
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
	limit := cmp.Or(t.MaxBytes, MaxBytes)
	switch {
	case t.over:
		return errOver
	case t.ctx.Err() != nil:
		return t.ctx.Err()
	case t.size > limit:
		return fmt.Errorf("the transaction writes %d bytes, must write at most %d", t.size, limit)
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

// apply applies the writes of the transaction to the database, unless there is a conflict.
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
	if db.version == t.version { // there were no other commits
		db.root = t.root
	} else {
		for _, w := range t.writes {
			db.root = db.root.with(w.from, w.to, w.entry)
		}
	}
	db.version++
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
