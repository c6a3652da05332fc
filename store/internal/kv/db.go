package kv

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"sync/atomic"
	"time"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task/driver"
)

// What stands in keys, after the number of the queue. Below are the indexes of package rows.
const (
	aboutQueue = 100 + iota
	aboutTasks
	aboutRound
	payloads
)

// Keys that are of no queue.
var (
	layoutKey = appendTuple(nil, rows.Tuple{int64(0), int64(0)})
	lastIDKey = appendTuple(nil, rows.Tuple{int64(0), int64(1)})
)

func nameKey(queue string) []byte {
	return appendTuple(nil, rows.Tuple{int64(0), int64(2), queue})
}

// layout is the version of keys and values. Another one needs another program.
const layout = "fairq 1"

var errForeign = errors.New("this was not written by fairq")

// DB implements rows.DB over an Engine.
type DB struct {
	name   string
	engine Engine
	joined atomic.Bool // a transaction of a caller's own may have changed something

	// What follows is used by the one transaction that there is.

	heads   map[uint64]*head
	numbers map[uint64]uint64 // by queue, the last that was given, whatever became of the transaction
}

// Open returns a database, which it makes if the engine is empty. Errors begin with the name.
func Open(ctx context.Context, name string, e Engine) (*DB, error) {
	db := &DB{name: name, engine: e, heads: map[uint64]*head{}, numbers: map[uint64]uint64{}}
	x, err := db.begin(ctx, "open")
	if err != nil {
		return nil, err
	}
	defer x.Rollback()
	found, err := x.get(layoutKey)
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		for e, err := range x.scan(Span{From: nil, To: []byte{behindAll}, Limit: 1}) {
			return nil, errors.Join(err, x.fail("open", e.Key, errForeign))
		}
		if err := x.put(layoutKey, []byte(layout)); err != nil {
			return nil, err
		}
	case string(found) != layout:
		return nil, fmt.Errorf("%s: open: the layout is %.20q, this program knows %q",
			name, found, layout)
	}
	return db, x.Commit()
}

// Begin implements rows.DB.
func (db *DB) Begin(ctx context.Context) (rows.Tx, error) {
	x, err := db.begin(ctx, "begin")
	if err != nil {
		return nil, err // and not a nil *tx
	}
	return x, nil
}

func (db *DB) begin(ctx context.Context, what string) (*tx, error) {
	t, err := db.engine.Begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", db.name, what, err)
	}
	return &tx{Txn: t, db: db, heads: db.heads}, nil
}

// Joined implements rows.DB. Whether the transaction will be committed is not known, so nothing
// that is read in it is used later.
func (db *DB) Joined(ctx context.Context) (rows.Tx, error) {
	t, err := db.engine.Joined(ctx)
	if t == nil || err != nil {
		return nil, err
	}
	clear(db.heads)
	db.joined.Store(true)
	return &tx{Txn: t, db: db, heads: map[uint64]*head{}, joined: true}, nil
}

// Traits implements rows.DB.
func (db *DB) Traits() rows.Traits { return rows.Traits{Exclusive: true} }

// Again implements rows.DB. There are no conflicts.
func (db *DB) Again(error) (time.Duration, bool) { return 0, false }

// Changed implements rows.DB. Only transactions of the caller's own are others. Who looks because
// of one waits until it has ended.
func (db *DB) Changed(context.Context) (bool, error) { return db.joined.Swap(false), nil }

// tx implements rows.Tx.
type tx struct {
	Txn
	db     *DB
	heads  map[uint64]*head
	views  []*view
	joined bool
	wrote  bool
	done   bool
	failed error // the first one, which all that comes after it returns
}

// fail returns the first error of the transaction, of which this may be the one.
func (x *tx) fail(what string, key []byte, err error) error {
	switch {
	case err == nil || x.failed != nil:
	case key == nil:
		x.failed = fmt.Errorf("%s: %s: %w", x.db.name, what, err)
	default:
		x.failed = fmt.Errorf("%s: %s: key %.200q: %w", x.db.name, what, key, err)
	}
	return x.failed
}

func (x *tx) get(key []byte) ([]byte, error) {
	value, err := x.Get(key)
	return value, x.fail("read", key, err)
}

func (x *tx) put(key, value []byte) error {
	x.wrote = true
	return x.fail("write", key, x.Put(key, value))
}

func (x *tx) remove(key []byte) error {
	x.wrote = true
	return x.fail("write", key, x.Delete(key))
}

func (x *tx) scan(s Span) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for e, err := range x.Scan(s) {
			if !yield(e, x.fail("read", s.From, err)) {
				return
			}
		}
	}
}

// number returns what is behind a key, 0 if there is nothing.
func (x *tx) number(key []byte) (n uint64, err error) {
	value, err := x.get(key)
	if value != nil && err == nil {
		err = x.fail("read", key, decode(value, func(c *coder) { number(c, &n) }))
	}
	return n, err
}

func (x *tx) putNumber(key []byte, n uint64) error {
	return x.put(key, encode(func(c *coder) { number(c, &n) }))
}

// Queue implements rows.Tx.
func (x *tx) Queue(name string, settings []byte) (*rows.Queue, error) {
	id, err := x.number(nameKey(name))
	if err != nil || id == 0 && settings == nil {
		return nil, err
	}
	if id != 0 {
		h, err := x.readHead(id)
		if h == nil && err == nil {
			err = x.fail("read", nameKey(name), errDamaged)
		}
		if err != nil {
			return nil, err
		}
		return &rows.Queue{ID: id, Settings: h.Settings}, nil
	}
	if id, err = x.number(lastIDKey); err != nil {
		return nil, err
	}
	id++
	h := head{Head: rows.Head{Settings: settings}, name: name}
	v := view{tx: x, id: id, head: &h}
	err = errors.Join(
		x.putNumber(lastIDKey, id), x.putNumber(nameKey(name), id),
		x.put(v.about(aboutQueue), encode(h.code)), x.put(v.about(aboutTasks), encode(h.counts)))
	return &rows.Queue{ID: id, Settings: settings}, err
}

// Queues implements rows.Tx. The name is kept with the queue as it is.
func (x *tx) Queues(from string, n int) (names []string, err error) {
	all := appendTuple(nil, rows.Tuple{int64(0), int64(2)})
	for e, err := range x.scan(Span{From: nameKey(from), To: behind(all), Limit: n}) {
		if err != nil {
			return nil, err
		}
		var id uint64
		if err := decode(e.Value, func(c *coder) { number(c, &id) }); err != nil {
			return nil, x.fail("read", e.Key, err)
		}
		h, err := x.readHead(id)
		if h == nil && err == nil {
			err = x.fail("read", e.Key, errDamaged)
		}
		if err != nil {
			return nil, err
		}
		names = append(names, h.name)
	}
	return names, nil
}

// Enter implements rows.Tx.
func (x *tx) Enter(queue uint64, _ *rows.Plan) (rows.View, error) {
	h := x.heads[queue]
	if h == nil {
		var err error
		if h, err = x.readHead(queue); h == nil || err != nil {
			return nil, err
		}
		x.heads[queue] = h
	}
	v := &view{tx: x, id: queue, head: h, now: time.Now().UnixNano()}
	x.views = append(x.views, v)
	return v, nil
}

// readHead returns nil if there is no such queue.
func (x *tx) readHead(queue uint64) (*head, error) {
	h := &head{Head: rows.Head{Rounds: map[int]uint64{}}}
	v := view{tx: x, id: queue, head: h}
	for _, part := range []struct {
		key  []byte
		code func(*coder)
	}{{v.about(aboutQueue), h.code}, {v.about(aboutTasks), h.counts}} {
		value, err := x.get(part.key)
		if value == nil || err != nil {
			return nil, err
		}
		if err := decode(value, part.code); err != nil {
			return nil, x.fail("read", part.key, err)
		}
	}
	at := v.about(aboutRound)
	for e, err := range x.scan(Span{From: at, To: behind(at)}) {
		var round uint64
		if err == nil {
			err = x.fail("read", e.Key, decode(e.Value, func(c *coder) { number(c, &round) }))
		}
		if err != nil {
			return nil, err
		}
		h.Rounds[int(uintAt(e.Key[len(at):]))] = round
	}
	h.saved, h.savedCounts = encode(h.code), encode(h.counts)
	h.savedRounds = maps.Clone(h.Rounds)
	return h, nil
}

// Notify implements rows.Tx. There are no others.
func (x *tx) Notify(uint64) {}

// Commit implements rows.Tx.
func (x *tx) Commit() error {
	for _, v := range x.views {
		if err := v.flush(); err != nil {
			return err
		}
	}
	if err := x.fail("commit", nil, x.failed); err != nil {
		return err
	}
	if err := x.fail("commit", nil, x.Txn.Commit()); err != nil {
		clear(x.heads)
		return err
	}
	x.done = true
	return nil
}

// Rollback implements rows.Tx.
func (x *tx) Rollback() {
	if x.done {
		return
	}
	x.done = true
	if x.joined && !x.wrote && x.failed == nil {
		return
	}
	clear(x.heads)
	x.Txn.Rollback()
}

// head is what is known of a queue, and what of that is in the database.
type head struct {
	rows.Head
	name   string
	number uint64
	tasks  [driver.Held + 1]int

	saved, savedCounts []byte
	savedRounds        map[int]uint64
}

// code codes what rarely changes, and counts what often does.
func (h *head) code(c *coder) {
	text(c, &h.name)
	text(c, &h.Settings)
	c.flag(&h.Paused)
	number(c, &h.PausedKeys)
}

func (h *head) counts(c *coder) {
	number(c, &h.number)
	c.counts(&h.tasks)
}
