package rowstest

import (
	"bytes"
	"cmp"
	"context"
	"iter"
	"maps"
	"reflect"
	"slices"

	"github.com/fairq/fairq/store/internal/rows"
)

// memTx is a transaction of a DB.
type memTx struct {
	ctx    context.Context
	db     *DB
	data   *data
	own    map[entry]any // rows that it has written, nil those that it has deleted
	views  map[uint64]*memView
	user   *memTx // the transaction of the user's that it is a part of, nil if it is one of its own
	joined bool   // it is a user's
	last   uint64 // the queue entered last
	waits  entry  // what it waits for
	failed error  // the first error of a call
	over   bool
}

// get returns a row as the transaction sees it, nil if there is none.
func (tx *memTx) get(e entry) any {
	if r, ok := tx.own[e]; ok {
		return r
	}
	return tx.data.rows[e.table][e.key]
}

// all yields the rows of a table, as the transaction sees them.
func (tx *memTx) all(t table) iter.Seq2[any, any] {
	return func(yield func(key, row any) bool) {
		for k, r := range tx.data.rows[t] {
			if _, own := tx.own[entry{t, k}]; !own && !yield(k, r) {
				return
			}
		}
		for e, r := range maps.Clone(tx.own) { // which may be changed meanwhile
			if e.table == t && r != nil && !yield(e.key, r) {
				return
			}
		}
	}
}

// giveUp is a panic that ends a call within do, which returns the error.
type giveUp struct{ error }

// do makes a call: f is run unless something keeps it from that.
func (tx *memTx) do(op string, f func()) (err error) {
	if err := tx.db.fail(op); err != nil {
		tx.data.mu.Lock()
		defer tx.data.mu.Unlock()
		if tx.failed == nil {
			tx.failed = err
		}
		return err
	}
	tx.data.mu.Lock()
	defer tx.data.mu.Unlock()
	switch {
	case tx.db.dead:
		return ErrKilled
	case tx.over:
		panic("rowstest: " + op + " after the end of the transaction")
	case tx.failed == nil:
		tx.failed = tx.ctx.Err()
	}
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
	if tx.failed == nil {
		f()
	}
	return tx.failed
}

// lockLocked locks something, and waits if another transaction has. If shared is true, others may
// lock it so too.
func (tx *memTx) lockLocked(l entry, shared bool) {
	if tx.user != nil {
		tx.user.lockLocked(l, shared)
		return
	}
	for {
		free := true
		for other, exclusive := range tx.data.locks[l] {
			free = free && (other == tx || shared && !exclusive)
		}
		if free {
			if tx.data.locks[l] == nil {
				tx.data.locks[l] = map[*memTx]bool{}
			}
			tx.data.locks[l][tx] = tx.data.locks[l][tx] || !shared
			return
		}
		if tx.waits = l; tx.deadlockLocked(map[*memTx]bool{}, tx) {
			panic(giveUp{ErrAgain})
		}
		ended := tx.data.ended
		tx.data.mu.Unlock()
		select {
		case <-ended:
		case <-tx.ctx.Done():
		}
		tx.data.mu.Lock()
		tx.waits = entry{}
		switch {
		case tx.db.dead:
			panic(giveUp{ErrKilled})
		case tx.ctx.Err() != nil:
			panic(giveUp{tx.ctx.Err()})
		}
	}
}

func (tx *memTx) hasLocked(l entry) bool {
	if tx.user != nil {
		return tx.user.hasLocked(l)
	}
	_, ok := tx.data.locks[l][tx]
	return ok
}

// deadlockLocked tells whether one waits, through others, for itself.
func (tx *memTx) deadlockLocked(seen map[*memTx]bool, first *memTx) bool {
	for other := range tx.data.locks[tx.waits] {
		if other == first && tx != first {
			return true
		}
		if other != tx && !seen[other] {
			seen[other] = true
			if other.deadlockLocked(seen, first) {
				return true
			}
		}
	}
	return false
}

// must panics if a caller breaks a rule of the contract.
func must(obeys bool, rule string) {
	if !obeys {
		panic("rowstest: " + rule)
	}
}

// names is where the ID of a queue is.
func names(name string) entry { return entry{allNames, name} }

var allNames = table{0, "names"}

// heads is where the head of a queue is.
func heads(id uint64) entry { return entry{table{id, "head"}, nil} }

// head is the row of the table of queues.
type head struct {
	settings   []byte
	paused     bool
	pausedKeys int
}

func (tx *memTx) Queues(from string, n int) (found []string, err error) {
	err = tx.do("Queues", func() {
		for name := range tx.all(allNames) {
			if name.(string) >= from {
				found = append(found, name.(string))
			}
		}
		slices.Sort(found)
		found = found[:min(n, len(found))]
	})
	return found, err
}

func (tx *memTx) Queue(name string, settings []byte) (found *rows.Queue, err error) {
	err = tx.do("Queue", func() {
		if tx.db.Shared {
			tx.lockLocked(names(name), false)
		}
		id, ok := tx.get(names(name)).(uint64)
		switch {
		case !ok && settings == nil:
			return
		case !ok:
			id = cmp.Or(tx.db.given, tx.data.ids+1)
			tx.data.ids = max(tx.data.ids, id)
			tx.own[names(name)], tx.own[heads(id)] = id, head{settings: bytes.Clone(settings)}
		}
		found = &rows.Queue{ID: id, Settings: bytes.Clone(tx.get(heads(id)).(head).settings)}
	})
	return found, err
}

func (tx *memTx) Enter(id uint64, plan *rows.Plan) (rows.View, error) {
	var v rows.View // nil, not a nil *memView
	err := tx.do("Enter", func() {
		must(plan != nil, "Enter without a Plan")
		must(id > tx.last, "queues are entered in the order of their IDs, and once")
		if tx.db.Shared {
			tx.lockLocked(entry{table: table{queue: id}}, !plan.Exclusive)
		}
		if tx.get(heads(id)) == nil {
			return
		}
		tx.last = id
		view := &memView{
			tx: tx, id: id, now: tx.data.now().UnixNano(), exclusive: plan.Exclusive || !tx.db.Shared,
			strict: !plan.Exclusive, head: tx.headLocked(id), read: map[uint64]bool{},
		}
		if tx.user != nil { // what it has entered exclusively once it has locked
			if was := tx.user.views[id]; was != nil {
				view.exclusive = view.exclusive || was.exclusive
			}
			tx.user.views[id] = view
		}
		view.removed = view.head.Removed
		tx.views[id], v = view, view
		if tx.db.Shared {
			for range plan.Numbers { // as one that fetches them at once
				view.numbers = append(view.numbers, view.newNumber())
			}
		}
	})
	return v, err
}

// headLocked returns the Head that the handle has of the queue, or a new one.
func (tx *memTx) headLocked(id uint64) *rows.Head {
	if h := tx.db.heads[id]; h != nil && !tx.db.Shared {
		return h
	}
	row, rounds := tx.get(heads(id)).(head), map[int]uint64{}
	for priority, round := range tx.all(table{id, "rounds"}) {
		rounds[priority.(int)] = round.(uint64)
	}
	removed, _ := tx.get(entry{table{id, "removed"}, nil}).(uint64)
	tx.db.heads[id] = &rows.Head{
		Settings: bytes.Clone(row.settings), Paused: row.paused, PausedKeys: row.pausedKeys, Rounds: rounds, Removed: removed,
	}
	return tx.db.heads[id]
}

// Notify does nothing: Changed tells.
func (tx *memTx) Notify(uint64) {}

func (tx *memTx) Commit() error {
	return tx.do("Commit", func() {
		if tx.user != nil {
			tx.user.own = tx.own
			tx.endLocked()
			return
		}
		if most := tx.db.MaxWrites; most > 0 && len(tx.own) > most {
			panic(giveUp{ErrTooMany})
		}
		changed := false
		for e, r := range tx.own {
			rows := tx.data.rows[e.table]
			if rows == nil {
				rows = map[any]any{}
				tx.data.rows[e.table] = rows
			}
			old := rows[e.key]
			if e.name == "rounds" && old != nil && old.(uint64) > r.(uint64) {
				continue // a greater one stays
			}
			// a database need not notice a write that leaves all as it is
			changed = changed || !reflect.DeepEqual(r, old)
			if rows[e.key] = r; r == nil {
				delete(rows, e.key)
			}
		}
		if changed {
			tx.data.writes++
		}
		if changed && !tx.joined {
			tx.db.own++
		}
		tx.endLocked()
	})
}

func (tx *memTx) Rollback() {
	tx.data.mu.Lock()
	defer tx.data.mu.Unlock()
	if !tx.over {
		if tx.user != nil && tx.db.KeepsParts {
			tx.user.own = tx.own
		}
		tx.rollbackLocked()
	}
}

// rollbackLocked forgets the Heads, in which there may be what did not happen.
func (tx *memTx) rollbackLocked() {
	tx.db.heads = map[uint64]*rows.Head{}
	tx.endLocked()
}

func (tx *memTx) endLocked() {
	tx.over = true
	if tx.user != nil {
		return
	}
	delete(tx.data.open, tx)
	for l, holders := range tx.data.locks {
		if delete(holders, tx); len(holders) == 0 {
			delete(tx.data.locks, l)
		}
	}
	close(tx.data.ended)
	tx.data.ended = make(chan struct{})
	if !tx.db.Shared {
		<-tx.data.slot
	}
}
