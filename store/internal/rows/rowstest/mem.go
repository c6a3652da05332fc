// Package rowstest checks drivers for package rows, and has one in memory that they are compared
// with.
package rowstest

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fairq/fairq/store/internal/rows"
)

// ErrAgain is an error for which [DB.Again] returns true. Only DB.Fail makes it happen, and what
// happens between Shared handles.
var ErrAgain = errors.New("rowstest: try again")

// ErrKilled is returned by all calls of a DB after Kill.
var ErrKilled = errors.New("rowstest: killed")

// ErrTooMany is returned by the Commit of a transaction that has written more than MaxWrites rows.
var ErrTooMany = errors.New("rowstest: too many writes")

// DB is a handle on a database in memory that is as simple as possible: nearly each method goes
// through all rows. Where the contract of package rows leaves something open, the DB does what
// helps its callers least. If they break a rule it panics.
type DB struct {
	// Shared makes Traits.Exclusive false: transactions run at the same time, and each method sees
	// all commits before it. Set it before the handle is used, with the same value for all handles on
	// a database.
	Shared bool

	// KeepsParts makes Rollback of a part of a caller's transaction undo nothing.
	KeepsParts bool

	// MaxWrites is what Traits tell. A transaction that writes more fails.
	MaxWrites int

	// Pause is the result of Again.
	Pause time.Duration

	data *data

	// The rest is protected by data.mu.

	dead    bool
	failing func(op string) error // nil if nothing fails
	changed bool                  // another handle has written something since Changed was called
	heads   map[uint64]*rows.Head // by queue: as it is as long as no other handle writes
	given   uint64                // if not 0, the next number or ID of a queue
}

// data is what all handles on a database share.
type data struct {
	now func() time.Time

	mu      sync.Mutex // protects what follows, during each call, but not while f of Fail runs
	handles []*DB
	rows    map[entry]any // those committed; they are never changed, only replaced
	// locks has the holders of locks, with true for a lock that excludes all others.
	locks   map[entry]map[*memTx]bool
	ended   chan struct{}     // closed when a transaction ends
	numbers map[uint64]uint64 // by queue the last one, at 0 the last ID; no rollback undoes it
}

// entry is where a row is, and what a transaction can lock.
type entry struct {
	queue uint64
	table string
	key   [4]any
}

// running is locked by each transaction: for itself, unless the handles are Shared.
var running = entry{table: "running"}

// NewDB returns an empty database. now must not be nil, and may be called by any goroutine; it
// must not use the database.
func NewDB(now func() time.Time) *DB {
	return (&DB{data: &data{
		now: now, rows: map[entry]any{}, locks: map[entry]map[*memTx]bool{}, ended: make(chan struct{}),
		numbers: map[uint64]uint64{},
	}}).Reopen()
}

// Reopen returns another handle on the same database, as another process would have one.
func (db *DB) Reopen() *DB {
	db.data.mu.Lock()
	defer db.data.mu.Unlock()
	other := &DB{
		Shared: db.Shared, MaxWrites: db.MaxWrites, Pause: db.Pause, data: db.data,
		heads: map[uint64]*rows.Head{},
	}
	db.data.handles = append(db.data.handles, other)
	return other
}

// Kill is what happens to a handle whose process dies: its transactions are rolled back, and all
// calls return ErrKilled from now on.
func (db *DB) Kill() {
	db.data.mu.Lock()
	defer db.data.mu.Unlock()
	db.dead = true
	for tx := range db.data.locks[running] {
		if tx.db == db {
			tx.end()
		}
	}
}

// Fail makes f decide from now on which calls fail. f is called before each Begin, and before each
// method of a Tx or View that can fail, with the method's name; goroutines may call it at the same
// time. If f returns an error, the method returns that error and does nothing else. A nil f ends
// this.
func (db *DB) Fail(f func(op string) error) {
	db.data.mu.Lock()
	defer db.data.mu.Unlock()
	db.failing = f
}

// Begin waits until there is no other transaction, unless the handle is Shared.
func (db *DB) Begin(ctx context.Context) (rows.Tx, error) {
	tx := &memTx{ctx: ctx, db: db, data: db.data, own: map[entry]any{}}
	if err := tx.do("Begin", func() { tx.lock(running, db.Shared) }); err != nil {
		return nil, err
	}
	return tx, nil
}

// Again returns true for ErrAgain, which in a Shared DB is also a unique index that another one
// has written to.
func (db *DB) Again(err error) (time.Duration, bool) { return db.Pause, errors.Is(err, ErrAgain) }

// Changed reports whether another handle has written something since the last call.
func (db *DB) Changed(ctx context.Context) (changed bool, err error) {
	db.data.mu.Lock()
	defer db.data.mu.Unlock()
	if err := ctx.Err(); err != nil || db.dead {
		return false, cmp.Or(err, ErrKilled)
	}
	changed, db.changed = db.changed, false
	return changed, nil
}

// Traits reports Exclusive unless the handle is Shared. Then a part of a caller's transaction can
// be undone, as with a savepoint.
func (db *DB) Traits() rows.Traits {
	return rows.Traits{
		Exclusive: !db.Shared, Undo: db.Shared && !db.KeepsParts, MaxWrites: db.MaxWrites,
	}
}
