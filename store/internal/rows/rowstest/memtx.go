package rowstest

import (
	"bytes"
	"context"
	"slices"

	"github.com/fairq/fairq/store/internal/rows"
)

// memTx is a transaction of a DB.
type memTx struct {
	ctx    context.Context
	db     *DB
	data   *data
	names  table[string, uint64]
	queues table[uint64, queue]
	views  map[uint64]*memView
	user   *memTx // the transaction of the user's that it is a part of, nil if it is one of its own
	joined bool   // it is a user's
	last   uint64 // the queue entered last
	waits  lock   // what it waits for
	failed error  // the first error of a call
	over   bool
}

// lock is something that a transaction can lock.
type lock struct {
	queue uint64
	table string
	key   any
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
func (tx *memTx) lockLocked(l lock, shared bool) {
	if tx.user != nil {
		tx.user.lockLocked(l, shared)
		return
	}
	for {
		holders := tx.data.locks[l]
		mine := holders == nil || len(holders) == 1 && tx.hasLocked(l)
		free := mine || shared
		for other := range holders {
			free = free && (mine || other.sharesLocked(l))
		}
		if free {
			tx.holdLocked(l)
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
		tx.waits = lock{}
		switch {
		case tx.db.dead:
			panic(giveUp{ErrKilled})
		case tx.ctx.Err() != nil:
			panic(giveUp{tx.ctx.Err()})
		}
	}
}

func (tx *memTx) hasLocked(l lock) bool {
	if tx.user != nil {
		return tx.user.hasLocked(l)
	}
	_, ok := tx.data.locks[l][tx]
	return ok
}

// sharesLocked tells whether a lock that the transaction has is on a queue that it has not entered
// exclusively.
func (tx *memTx) sharesLocked(l lock) bool {
	return l.table == "" && tx.views[l.queue] != nil && !tx.views[l.queue].exclusive
}

func (tx *memTx) holdLocked(l lock) {
	if tx.data.locks[l] == nil {
		tx.data.locks[l] = map[*memTx]struct{}{}
	}
	tx.data.locks[l][tx] = struct{}{}
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

func (tx *memTx) Queues(from string, n int) (names []string, err error) {
	err = tx.do("Queues", func() {
		for name := range tx.names.all() {
			if name >= from {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		names = names[:min(n, len(names))]
	})
	return names, err
}

func (tx *memTx) Queue(name string, settings []byte) (found *rows.Queue, err error) {
	err = tx.do("Queue", func() {
		if tx.db.Shared {
			tx.lockLocked(lock{0, "names", name}, false)
		}
		id := tx.names.get(name)
		switch {
		case id == nil && settings == nil:
			return
		case id == nil:
			id = new(tx.data.ids + 1)
			if tx.db.given != 0 {
				*id = tx.db.given
			}
			tx.data.ids = max(tx.data.ids, *id)
			tx.names.set(name, id)
			tx.queues.set(*id, newQueue(&head{settings: bytes.Clone(settings)}))
		}
		found = &rows.Queue{ID: *id, Settings: bytes.Clone(tx.queues.get(*id).head.get(struct{}{}).settings)}
	})
	return found, err
}

func (tx *memTx) Enter(id uint64, plan *rows.Plan) (rows.View, error) {
	var v rows.View // nil, not a nil *memView
	err := tx.do("Enter", func() {
		must(plan != nil, "Enter without a Plan")
		must(id > tx.last, "queues are entered in the order of their IDs, and once")
		if tx.db.Shared {
			tx.lockLocked(lock{queue: id}, !plan.Exclusive)
		}
		q := tx.queues.get(id)
		if q == nil {
			return
		}
		tx.last = id
		view := &memView{
			tx: tx, id: id, q: q.begin(), now: tx.data.now().UnixNano(), exclusive: plan.Exclusive || !tx.db.Shared, read: map[uint64]bool{},
		}
		if tx.user != nil {
			tx.user.enterLocked(view)
		}
		view.strict = !plan.Exclusive
		view.head = tx.headLocked(id, view.q)
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
func (tx *memTx) headLocked(id uint64, q *queue) *rows.Head {
	if h := tx.db.heads[id]; h != nil && !tx.db.Shared {
		return h
	}
	row, rounds := q.head.get(struct{}{}), map[int]uint64{}
	for priority, round := range q.rounds.all() {
		rounds[priority] = *round
	}
	h := &rows.Head{Settings: bytes.Clone(row.settings), Paused: row.paused, PausedKeys: row.pausedKeys, Rounds: rounds}
	if n := q.removed.get(struct{}{}); n != nil {
		h.Removed = *n
	}
	tx.db.heads[id] = h
	return h
}

// Notify does nothing: Changed tells.
func (tx *memTx) Notify(uint64) {}

func (tx *memTx) Commit() error {
	return tx.do("Commit", func() {
		if tx.user != nil {
			tx.user.commitLocked(tx)
			tx.endLocked()
			return
		}
		writes := len(tx.names.own) + len(tx.queues.own)
		for _, v := range tx.views {
			for _, t := range v.q.all() {
				writes += t.written()
			}
		}
		if most := tx.db.MaxWrites; most > 0 && writes > most {
			panic(giveUp{ErrTooMany})
		}
		changed := tx.names.changed() || tx.queues.changed()
		for _, v := range tx.views {
			changed = v.q.changed() || changed
			v.q.commit()
		}
		if changed {
			tx.data.writes++
		}
		if changed && !tx.joined {
			tx.db.own++
		}
		tx.names.commit()
		tx.queues.commit()
		tx.endLocked()
	})
}

func (tx *memTx) Rollback() {
	tx.data.mu.Lock()
	defer tx.data.mu.Unlock()
	if !tx.over {
		if tx.user != nil && tx.db.KeepsParts {
			tx.user.commitLocked(tx)
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
