package kv

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
)

// The sections of a queue: the second elements of its keys. Smaller numbers are the indexes of
// package rows.
const (
	sectionQueue    = 100
	sectionTally    = 101
	sectionLock     = 102
	sectionPayload  = 103
	sectionNotifier = 104
)

// Keys outside of queues.
var (
	layoutKey  = appendTuple(nil, rows.Tuple{int64(0), int64(0)})
	lastIDKey  = appendTuple(nil, rows.Tuple{int64(0), int64(1)})
	processKey = appendTuple(nil, rows.Tuple{int64(0), int64(3)})
)

func nameKey(queue string) []byte {
	return appendTuple(nil, rows.Tuple{int64(0), int64(2), queue})
}

// layout is the version of keys and values. A program reads only its own layout.
const layout = "fairq 6"

var errForeign = errors.New("the key was not written by fairq")

// Options configure a DB.
type Options struct {
	MarkStep   uint64 // the number of ready tasks to leave before the mark moves; 0 means 4,000
	KeepSchema bool   // Open returns an error if the engine is empty, and writes nothing into it

	// Strict makes all processes take the very first tasks, without lanes. So all but one of them
	// must try again. Tests of the order between processes need Strict.
	Strict bool
}

// DB implements rows.DB over an Engine.
type DB struct {
	options Options
	name    string
	engine  Engine
	process uint64 // the number of this process

	mu     sync.Mutex // protects queues
	queues map[uint64]*local

	onChange func(queue uint64)
	watchCtx context.Context // until Close
	stop     context.CancelFunc
	watchers sync.WaitGroup

	conflicts atomic.Int64
}

// Open opens a database, and creates it if the engine is empty. Errors begin with the name.
func Open(ctx context.Context, name string, e Engine, o Options) (*DB, error) {
	db := &DB{options: o, name: name, engine: e, queues: map[uint64]*local{}}
	db.watchCtx, db.stop = context.WithCancel(context.Background())
	for {
		err := db.open(ctx)
		if err == nil {
			return db, nil
		}
		if errors.Is(err, ErrConflict) {
			err = pause(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
}

// open checks the layout, or writes it into an empty engine, and numbers the process.
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
		for e, err := range x.scan(Span{From: nil, To: []byte{endByte}, Limit: 1}) {
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
		return fmt.Errorf("%s: open: the layout is %.20q, this program reads only %q",
			db.name, found, layout)
	}
	if db.process, err = x.getNumber(processKey); err != nil {
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
		return nil, err // not x: a nil *tx is no nil rows.Tx
	}
	return x, nil
}

func (db *DB) begin(ctx context.Context, operation string) (*tx, error) {
	t, err := db.engine.Begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", db.name, operation, err)
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

// Joined implements rows.DB. The caller may roll back later, so nothing that the transaction reads
// is used after it.
func (db *DB) Joined(ctx context.Context) (rows.Tx, error) {
	t, err := db.engine.Joined(ctx)
	if err != nil {
		return nil, err
	}
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

// Conflicts returns the number of transactions that had to be tried again.
func (db *DB) Conflicts() int64 { return db.conflicts.Load() }

// Changed implements rows.DB. It always returns true, because the watches may have missed a
// change. They also leave out the changes of their own process, so they do not see joined
// transactions.
func (db *DB) Changed(context.Context) (bool, error) { return true, nil }

// OnChange makes the DB call f with the number of a queue that others have changed. It must be
// called before any other method.
func (db *DB) OnChange(f func(queue uint64)) { db.onChange = f }

// Close ends the watches.
func (db *DB) Close() {
	db.mu.Lock()
	db.stop()
	db.mu.Unlock()
	db.watchers.Wait()
}

// local returns the local state of a queue, and watches the queue from the first call on.
func (db *DB) local(queue uint64) *local {
	db.mu.Lock()
	defer db.mu.Unlock()
	l := db.queues[queue]
	if l == nil {
		l = &local{}
		db.queues[queue] = l
		if db.onChange != nil && db.watchCtx.Err() == nil {
			ctx, stop := context.WithCancel(db.watchCtx)
			l.stop = stop
			db.watchers.Go(func() { db.watch(ctx, queue) })
		}
	}
	return l
}

// forget removes the local state of a dropped queue.
func (db *DB) forget(queue uint64) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if l := db.queues[queue]; l != nil && l.stop != nil {
		l.stop()
	}
	delete(db.queues, queue)
}

// watch calls onChange when another process has notified of a change in a queue.
func (db *DB) watch(ctx context.Context, queue uint64) {
	v := view{tx: &tx{db: db}, id: queue}
	at := v.section(sectionNotifier)
	db.engine.Watch(ctx, at, prefixEnd(at), func(e *Entry) {
		if e != nil {
			var by, n uint64
			err := decode(e.Value, func(c *coder) { number(c, &by); number(c, &n) })
			if err != nil || by == db.process {
				return
			}
		}
		db.onChange(queue)
	})
}

// IsNotice reports whether Watch is called for a key.
func IsNotice(key []byte) bool { return uintAt(key[sizeOf(key, 1):]) == sectionNotifier }
