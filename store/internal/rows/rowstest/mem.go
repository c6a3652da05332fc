// Package rowstest checks drivers for package rows, and has one in memory that they are compared
// with.
package rowstest

import (
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

// DB is a handle on a database in memory that is as simple as it can be: nearly each method goes
// through all rows. Where the contract of package rows leaves something open, it does what helps
// its callers least, and if they break a rule it panics.
type DB struct {
	// Shared makes Exclusive return false. Then transactions run at the same time, and each method
	// sees what was committed before it. It must be set before the handle is used, and be the same
	// for all handles on a database.
	Shared bool

	// KeepsParts makes Rollback of a part of a caller's transaction undo nothing.
	KeepsParts bool

	// MaxWrites is what Traits tell. A transaction that writes more fails.
	MaxWrites int

	// Pause is how long Again tells to wait.
	Pause time.Duration

	data *data

	// The rest is protected by data.mu.

	dead    bool
	failing func(op string) error // nil if nothing fails
	own     int                   // how many transactions of this handle have written something
	changed int                   // othersLocked() at the last call of Changed
	heads   map[uint64]*rows.Head // by queue
	headsAt int                   // othersLocked() when the last transaction began
	given   uint64                // if not 0, what is given as the next number or id of a queue
}

// data is what all handles on a database share.
type data struct {
	now  func() time.Time
	slot chan struct{} // has an element in it while there is a transaction, unless the handles are Shared

	mu      sync.Mutex            // protects what follows, during each call, but not while that of Fail is running
	rows    map[table]map[any]any // by key, those committed; they are never changed, only replaced
	open    map[*memTx]struct{}
	locks   map[entry]map[*memTx]bool // by what is locked: who has locked it, and whether nobody else may
	ended   chan struct{}             // closed when a transaction ends
	writes  int                       // transactions that have written something, by all handles
	ids     uint64                    // the last id of a queue; a rollback does not undo it
	numbers map[uint64]uint64         // by queue the last number; a rollback does not undo it
}

// table is one of a queue.
type table struct {
	queue uint64
	name  string
}

// entry is where a row is, and what a transaction can lock.
type entry struct {
	table
	key any
}

// NewDB returns an empty database. now must not be nil, and may be called by any goroutine; it must
// not use the database.
func NewDB(now func() time.Time) *DB {
	return &DB{heads: map[uint64]*rows.Head{}, data: &data{
		now: now, slot: make(chan struct{}, 1), rows: map[table]map[any]any{}, open: map[*memTx]struct{}{},
		locks: map[entry]map[*memTx]bool{}, ended: make(chan struct{}), numbers: map[uint64]uint64{},
	}}
}

// Reopen returns another handle on the same database, as another process would have one.
func (db *DB) Reopen() *DB {
	db.data.mu.Lock()
	defer db.data.mu.Unlock()
	return &DB{
		Shared: db.Shared, MaxWrites: db.MaxWrites, Pause: db.Pause, data: db.data, heads: map[uint64]*rows.Head{},
		changed: db.data.writes, headsAt: db.data.writes,
	}
}

// Kill is what happens to a handle whose process dies: its transaction, if there is one, is rolled
// back, and all calls return ErrKilled from now on.
func (db *DB) Kill() {
	db.data.mu.Lock()
	defer db.data.mu.Unlock()
	db.dead = true
	for tx := range db.data.open {
		if tx.db == db {
			tx.rollbackLocked()
		}
	}
}

// othersLocked returns how many transactions of other handles have written something.
func (db *DB) othersLocked() int { return db.data.writes - db.own }

// Fail makes calls fail from now on: f is called ahead of each Begin and each method of a Tx or
// View that can fail, with the method's name, also from several goroutines at once. If it returns
// an error, the method does nothing and returns that. With nil, nothing fails.
func (db *DB) Fail(f func(op string) error) {
	db.data.mu.Lock()
	defer db.data.mu.Unlock()
	db.failing = f
}

func (db *DB) fail(op string) error {
	db.data.mu.Lock()
	f := db.failing
	db.data.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(op)
}

// Begin waits until there is no other transaction, unless the handle is Shared.
func (db *DB) Begin(ctx context.Context) (rows.Tx, error) {
	if err := db.fail("Begin"); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !db.Shared {
		select {
		case db.data.slot <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	db.data.mu.Lock()
	defer db.data.mu.Unlock()
	if db.dead {
		if !db.Shared {
			<-db.data.slot
		}
		return nil, ErrKilled
	}
	if db.headsAt != db.othersLocked() {
		db.heads = map[uint64]*rows.Head{}
		db.headsAt = db.othersLocked()
	}
	tx := &memTx{ctx: ctx, db: db, data: db.data, own: map[entry]any{}, views: map[uint64]*memView{}}
	db.data.open[tx] = struct{}{}
	return tx, nil
}

// Again returns true for ErrAgain, which in a Shared DB is also a deadlock, or a unique index that
// another one has written to.
func (db *DB) Again(err error) (time.Duration, bool) { return db.Pause, errors.Is(err, ErrAgain) }

// Changed tells whether another handle has written something since the last call.
func (db *DB) Changed(ctx context.Context) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	db.data.mu.Lock()
	defer db.data.mu.Unlock()
	if db.dead {
		return false, ErrKilled
	}
	was := db.changed
	db.changed = db.othersLocked()
	return db.changed != was, nil
}

// Traits tells that no two transactions run at the same time, unless Shared is. Then a part of a
// caller's transaction can be undone, as with a savepoint.
func (db *DB) Traits() rows.Traits {
	return rows.Traits{Exclusive: !db.Shared, Undo: db.Shared && !db.KeepsParts, MaxWrites: db.MaxWrites}
}
