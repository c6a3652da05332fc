package kv

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task/driver"
)

// What stands in keys, after the number of the queue. Below are the indexes of package rows.
const (
	aboutQueue   = 100
	aboutTally   = 101
	aboutLock    = 102
	payloads     = 103
	requests     = 104
	handedOut    = 105
	lastNotifier = 106
)

// Keys that are of no queue.
var (
	layoutKey  = appendTuple(nil, rows.Tuple{int64(0), int64(0)})
	lastIDKey  = appendTuple(nil, rows.Tuple{int64(0), int64(1)})
	processKey = appendTuple(nil, rows.Tuple{int64(0), int64(3)})
)

func nameKey(queue string) []byte {
	return appendTuple(nil, rows.Tuple{int64(0), int64(2), queue})
}

// layout is the version of keys and values. Another one needs another program.
const layout = "fairq 4"

var errForeign = errors.New("this was not written by fairq")

// Options say how a DB is used.
type Options struct {
	Taking     Taking
	MarkStep   uint64 // after how many ready tasks that are gone the mark is moved on, 0 means 4,000
	KeepSchema bool   // Open returns an error, instead of writing down the layout, if there is none
}

// DB implements rows.DB over an Engine.
type DB struct {
	options Options
	name    string
	engine  Engine
	process uint64      // the number of this one
	joined  atomic.Bool // a transaction of a caller's own may have changed something

	mu     sync.Mutex // protects queues
	queues map[uint64]*local

	onChange func(queue uint64)
	watching context.Context // until Close
	stop     context.CancelFunc
	watches  sync.WaitGroup

	conflicts atomic.Int64
}

// Open returns a database, which it makes if the engine is empty. Errors begin with the name.
func Open(ctx context.Context, name string, e Engine, o Options) (*DB, error) {
	db := &DB{options: o, name: name, engine: e, queues: map[uint64]*local{}}
	db.watching, db.stop = context.WithCancel(context.Background())
	for {
		err := db.open(ctx)
		switch {
		case err == nil:
			return db, nil
		case !errors.Is(err, ErrConflict):
			return nil, err
		}
		if err := pause(ctx); err != nil {
			return nil, err
		}
	}
}

// open checks the layout, or writes it, and gives the process a number.
func (db *DB) open(ctx context.Context) error {
	x, err := db.begin(ctx, "open")
	if err != nil {
		return err
	}
	defer x.Rollback()
	found, err := x.get(layoutKey)
	switch {
	case err != nil:
		return err
	case found == nil:
		for e, err := range x.scan(Span{From: nil, To: []byte{behindAll}, Limit: 1}) {
			return errors.Join(err, x.fail("open", e.Key, errForeign))
		}
		if db.options.KeepSchema {
			return fmt.Errorf("%s: open: there is no store", db.name)
		}
		x.Guard(layoutKey, nil)
		if err := x.put(layoutKey, []byte(layout)); err != nil {
			return err
		}
	case string(found) != layout:
		return fmt.Errorf("%s: open: the layout is %.20q, this program knows %q",
			db.name, found, layout)
	}
	if db.process, err = x.number(processKey); err != nil {
		return err
	}
	db.process++
	x.Guard(processKey, nil)
	if err := x.putNumber(processKey, db.process); err != nil {
		return err
	}
	return x.Commit()
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
	return &tx{Txn: t, ctx: ctx, db: db}, nil
}

// Own implements rows.DB.
func (db *DB) Own(ctx context.Context) *driver.Tx {
	if t, err := db.engine.Joined(ctx); t != nil || err != nil {
		return new(driver.Tx)
	}
	return nil
}

// Joined implements rows.DB. Whether the transaction will be committed is not known, so nothing
// that is read in it is used later.
func (db *DB) Joined(ctx context.Context) (rows.Tx, error) {
	t, err := db.engine.Joined(ctx)
	if err != nil {
		return nil, err
	}
	db.joined.Store(true)
	return &tx{Txn: t, ctx: ctx, db: db, joined: true}, nil
}

// Traits implements rows.DB.
func (db *DB) Traits() rows.Traits {
	traits := db.engine.Traits()
	traits.Optimistic = true
	return traits
}

// Again implements rows.DB.
func (db *DB) Again(err error) (time.Duration, bool) {
	return time.Millisecond, errors.Is(err, ErrConflict)
}

// Conflicts returns how many transactions had to be tried again.
func (db *DB) Conflicts() int64 { return db.conflicts.Load() }

// Changed implements rows.DB. If transactions of the caller's own are the only others, who looks
// because of one waits until it has ended.
func (db *DB) Changed(ctx context.Context) (bool, error) {
	joined := db.joined.Swap(false)
	changed, err := db.engine.Changed(ctx)
	return changed || joined, err
}

// OnChange has f called with the number of a queue when others have changed it, if the engine is a
// Watcher. It must be called before the DB is used otherwise.
func (db *DB) OnChange(f func(queue uint64)) { db.onChange = f }

// Close ends what watches.
func (db *DB) Close() {
	db.mu.Lock()
	db.stop()
	db.mu.Unlock()
	db.watches.Wait()
}

// local returns what this process knows of a queue.
func (db *DB) local(queue uint64) *local {
	db.mu.Lock()
	defer db.mu.Unlock()
	l := db.queues[queue]
	if l == nil {
		l = &local{}
		db.queues[queue] = l
		if w, ok := db.engine.(Watcher); ok && db.onChange != nil && db.watching.Err() == nil {
			ctx, stop := context.WithCancel(db.watching)
			l.stop = stop
			db.watches.Go(func() { db.watch(ctx, w, queue) })
		}
	}
	return l
}

// forget forgets a queue that was dropped.
func (db *DB) forget(queue uint64) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if l := db.queues[queue]; l != nil && l.stop != nil {
		l.stop()
	}
	delete(db.queues, queue)
}

// watch watches which process has told last that it has changed a queue.
func (db *DB) watch(ctx context.Context, w Watcher, queue uint64) {
	v := view{tx: &tx{db: db}, id: queue}
	at := v.about(lastNotifier)
	w.Watch(ctx, at, behind(at), func(e *Entry) {
		var by, n uint64
		if e == nil || decode(e.Value, func(c *coder) { number(c, &by); number(c, &n) }) == nil && by != db.process {
			db.onChange(queue)
		}
	})
}
