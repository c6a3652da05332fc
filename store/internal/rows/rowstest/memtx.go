package rowstest

import (
	"bytes"
	"cmp"
	"context"
	"iter"
	"maps"
	"reflect"
	"slices"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
)

// memTx is a transaction of a DB.
type memTx struct {
	ctx  context.Context
	db   *DB
	data *data
	own  map[entry]any // rows that it has written, nil for deleted ones
	// the transaction of the user's that it is a part of, nil if it is one of its own
	user   *memTx
	caller *driver.Tx // not nil if it is a user's
	last   uint64     // the queue entered last
	failed error      // the first error of a call
	over   bool
}

// get returns a row as the transaction sees it, nil if there is none.
func (tx *memTx) get(e entry) any {
	if r, ok := tx.own[e]; ok {
		return r
	}
	return tx.data.rows[e]
}

// all goes through the rows of a table, as the transaction sees them.
func (tx *memTx) all(queue uint64, table string) iter.Seq2[entry, any] {
	return func(yield func(entry, any) bool) {
		for e, r := range tx.own {
			if e.queue == queue && e.table == table && r != nil && !yield(e, r) {
				return
			}
		}
		for e, r := range tx.data.rows {
			if e.queue != queue || e.table != table {
				continue
			}
			if _, own := tx.own[e]; !own && !yield(e, r) {
				return
			}
		}
	}
}

// giveUp is a panic that ends a call within do, which returns the error.
type giveUp struct{ error }

// do makes a call: f is run unless something keeps it from that. After an error each call returns
// it again.
func (tx *memTx) do(op string, f func()) (err error) {
	tx.data.mu.Lock()
	fail, failed := tx.db.failing, error(nil)
	tx.data.mu.Unlock()
	if fail != nil {
		failed = fail(op)
	}
	tx.data.mu.Lock()
	defer tx.data.mu.Unlock()
	defer func() {
		if v := recover(); v != nil {
			end, ok := v.(giveUp)
			if !ok {
				panic(v)
			}
			tx.failed = end.error
		}
		err = tx.failed
	}()
	if tx.failed = cmp.Or(tx.failed, failed, tx.broken()); tx.failed == nil {
		must(!tx.over, op+" after the end of the transaction")
		f()
	}
	return nil
}

// broken returns what keeps the transaction from going on.
func (tx *memTx) broken() error {
	if tx.db.dead {
		return ErrKilled
	}
	return tx.ctx.Err()
}

// must panics if a caller breaks a rule of the contract.
func must(obeys bool, rule string) {
	if !obeys {
		panic("rowstest: " + rule)
	}
}

// holder returns the transaction whose locks it has.
func (tx *memTx) holder() *memTx { return cmp.Or(tx.user, tx) }

// free reports whether it can lock a row at once. If shared is true, others may share the lock.
func (tx *memTx) free(e entry, shared bool) bool {
	for other, alone := range tx.data.locks[e] {
		if other != tx.holder() && (alone || !shared) {
			return false
		}
	}
	return true
}

// hasLocked reports whether it has locked a row for itself.
func (tx *memTx) hasLocked(e entry) bool { return tx.data.locks[e][tx.holder()] }

// lock locks something, and first waits for other transactions that have locked it. Two that wait
// for each other would do so until their contexts end. They never should, because the rules lock
// everything in one order.
func (tx *memTx) lock(e entry, shared bool) {
	for !tx.free(e, shared) {
		ended := tx.data.ended
		tx.data.mu.Unlock()
		select {
		case <-ended:
		case <-tx.ctx.Done():
		}
		tx.data.mu.Lock()
		if tx.broken() != nil {
			panic(giveUp{tx.broken()})
		}
	}
	if tx.data.locks[e] == nil {
		tx.data.locks[e] = map[*memTx]bool{}
	}
	tx.data.locks[e][tx.holder()] = tx.hasLocked(e) || !shared
}

// end gives back all locks. A part of a user's transaction leaves them to that.
func (tx *memTx) end() {
	if tx.over = true; tx.user != nil {
		return
	}
	for e, holders := range tx.data.locks {
		if delete(holders, tx); len(holders) == 0 {
			delete(tx.data.locks, e)
		}
	}
	close(tx.data.ended)
	tx.data.ended = make(chan struct{})
}

// queueRow is a row of the table of queues.
type queueRow struct {
	id   uint64
	head rows.Head
}

// with returns the row with another Head. Of its rounds the greater ones stay.
func (q *queueRow) with(h *rows.Head) *queueRow {
	c := &queueRow{id: q.id, head: rows.Head{
		Settings: bytes.Clone(h.Settings), Paused: h.Paused, PausedKeys: h.PausedKeys,
		Rounds: map[int]uint64{},
	}}
	maps.Copy(c.head.Rounds, q.head.Rounds)
	for priority, round := range h.Rounds {
		c.head.Rounds[priority] = max(round, c.head.Rounds[priority])
	}
	return c
}

// named is where the row of a queue is.
func named(name string) entry { return entry{table: "Queues", key: [4]any{name}} }

func (tx *memTx) Queues(from string, n int) (found []string, err error) {
	err = tx.do("Queues", func() {
		for e := range tx.all(0, "Queues") {
			if name := e.key[0].(string); name >= from {
				found = append(found, name)
			}
		}
		slices.Sort(found)
		found = found[:min(n, len(found))]
	})
	return found, err
}

func (tx *memTx) Queue(name string, settings []byte) (found *rows.Queue, err error) {
	err = tx.do("Queue", func() {
		tx.lock(named(name), false)
		if tx.get(named(name)) == nil && settings != nil {
			tx.own[named(name)] = &queueRow{id: tx.number(0), head: rows.Head{Settings: settings}}
		}
		if q, ok := tx.get(named(name)).(*queueRow); ok {
			found = &rows.Queue{ID: q.id, Settings: bytes.Clone(q.head.Settings)}
		}
	})
	return found, err
}

// number returns a number that was never used in a queue, or, for 0, never as the ID of a queue.
func (tx *memTx) number(queue uint64) uint64 {
	last := tx.data.numbers
	n := cmp.Or(tx.db.given, last[queue]+1)
	last[queue] = max(last[queue], n)
	return n
}

func (tx *memTx) Enter(id uint64, plan *rows.Plan) (found rows.View, err error) {
	err = tx.do("Enter", func() {
		must(plan != nil, "Enter without a Plan")
		must(id > tx.last, "queues are entered in the order of their IDs, and once")
		tx.lock(entry{queue: id}, !plan.Exclusive)
		must(slices.IsSorted(plan.Locks) && (plan.LocksKeys || plan.Locks == nil),
			"Plan.Locks is not sorted, or for nothing")
		for _, key := range plan.Locks {
			tx.lock(keyLock(id, key), false)
		}
		for e, row := range tx.all(0, "Queues") {
			if q := row.(*queueRow); q.id == id {
				tx.last, found = id, tx.view(e, q, plan)
			}
		}
	})
	return found, err
}

// Notify does nothing, because Changed reports changes.
func (tx *memTx) Notify(uint64) {}

func (tx *memTx) Commit() error {
	return tx.do("Commit", func() {
		if tx.user != nil {
			tx.user.own = tx.own
		} else {
			tx.apply()
		}
		tx.end()
	})
}

// apply writes what the transaction has written for all to see.
func (tx *memTx) apply() {
	if most := tx.db.MaxWrites; most > 0 && len(tx.own) > most {
		panic(giveUp{ErrTooMany})
	}
	changed, all := false, tx.data.rows
	for e, r := range tx.own {
		old := all[e]
		was, _ := old.(*queueRow)
		if q, ok := r.(*queueRow); ok && was != nil && was.id == q.id {
			r = was.with(&q.head)
		}
		// A database need not notice a write that leaves all as it is.
		changed = changed || !reflect.DeepEqual(r, old)
		if all[e] = r; r == nil {
			delete(all, e)
		}
	}
	for _, db := range tx.data.handles {
		if changed && (db != tx.db || tx.caller != nil) {
			db.changed, db.heads = true, map[uint64]*rows.Head{}
		}
	}
}

// Rollback forgets the Heads, in which there may be what did not happen.
func (tx *memTx) Rollback() {
	tx.data.mu.Lock()
	defer tx.data.mu.Unlock()
	if tx.over {
		return
	}
	if tx.db.heads = map[uint64]*rows.Head{}; tx.user != nil && tx.db.KeepsParts {
		tx.user.own = tx.own
	}
	tx.end()
}

// txKey is the key of a context's transaction.
type txKey struct{}

// InTx calls f with a context that carries a transaction, as Join returns it. It commits the
// transaction unless f returns an error. Unlike after Join, the queues learn of the commit: the
// functions that they gave to OnCommit are called after it.
func (db *DB) InTx(ctx context.Context, f func(ctx context.Context) error) error {
	return driver.InTx(func(own *driver.Tx) error {
		ctx, tx, err := db.Join(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		tx.(*memTx).caller = own
		if err := f(ctx); err != nil {
			return err
		}
		return tx.Commit()
	})
}

// Join begins a transaction of the caller's own, and returns a context that carries it. Calls with
// that context are part of the transaction. If such a call fails its changes are undone, as with a
// savepoint. Rollback of the Tx undoes all changes.
func (db *DB) Join(ctx context.Context) (context.Context, rows.Tx, error) {
	tx, err := db.Begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	tx.(*memTx).caller = new(driver.Tx)
	return context.WithValue(ctx, txKey{}, tx), tx, nil
}

// Own implements rows.DB.
func (*DB) Own(ctx context.Context) *driver.Tx {
	if user, ok := ctx.Value(txKey{}).(*memTx); ok {
		return user.caller
	}
	return nil
}

// Joined returns a part of the transaction of Join, which must be of the same handle.
func (db *DB) Joined(ctx context.Context) (rows.Tx, error) {
	db.data.mu.Lock()
	defer db.data.mu.Unlock()
	user := ctx.Value(txKey{}).(*memTx)
	if db.dead {
		return nil, ErrKilled
	}
	must(user.db == db && !user.over, "Joined with a transaction that is over, or of another handle")
	return &memTx{ctx: ctx, db: db, data: db.data, user: user, own: maps.Clone(user.own)}, nil
}
