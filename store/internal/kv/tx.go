package kv

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fairq/fairq/store/internal/rows"
)

// tx implements rows.Tx.
type tx struct {
	Txn
	ctx    context.Context
	db     *DB
	views  []*view
	joined bool
	wrote  bool
	done   bool
	failed error // the first error, which all later calls return
}

// fail records the first error of the transaction, and returns that error. It adds the name of the
// database, the operation, and the key unless the key is nil.
func (x *tx) fail(operation string, key []byte, err error) error {
	switch {
	case err == nil || x.failed != nil:
	case key == nil:
		x.failed = fmt.Errorf("%s: %s: %w", x.db.name, operation, err)
	default:
		x.failed = fmt.Errorf("%s: %s: key %.200q: %w", x.db.name, operation, key, err)
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

// getNumber returns the number that a key has as its value, 0 without one.
func (x *tx) getNumber(key []byte) (n uint64, err error) {
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
	x.Guard(nameKey(name), nil)
	id, err := x.getNumber(nameKey(name))
	if err != nil || id == 0 && settings == nil {
		return nil, err
	}
	if id != 0 {
		h, err := x.readHead(&view{tx: x, id: id})
		if h == nil && err == nil {
			err = x.fail("read", nameKey(name), errDamaged)
		}
		if err != nil {
			return nil, err
		}
		return &rows.Queue{ID: id, Settings: h.Settings}, nil
	}
	if id, err = x.getNumber(lastIDKey); err != nil {
		return nil, err
	}
	id++
	x.Guard(lastIDKey, nil)
	h := head{Head: rows.Head{Settings: settings}, name: name}
	v := view{tx: x, id: id}
	err = errors.Join(
		x.putNumber(lastIDKey, id), x.putNumber(nameKey(name), id),
		x.put(v.section(sectionQueue), encode(h.code)), x.put(v.markKey(), encode(h.mark.code)))
	return &rows.Queue{ID: id, Settings: settings}, err
}

// Queues implements rows.Tx. It reads the name from the head, where it is not encoded.
func (x *tx) Queues(from string, n int) (names []string, err error) {
	all := appendTuple(nil, rows.Tuple{int64(0), int64(2)})
	for e, err := range x.scan(Span{From: nameKey(from), To: prefixEnd(all), Limit: n}) {
		if err != nil {
			return nil, err
		}
		var id uint64
		if err := decode(e.Value, func(c *coder) { number(c, &id) }); err != nil {
			return nil, x.fail("read", e.Key, err)
		}
		h, err := x.readHead(&view{tx: x, id: id})
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

// Enter implements rows.Tx. The transaction begins again, and reads the head again, in three
// cases: it has waited for the lock of another process, it has locked the queue, or prepare has
// written.
func (x *tx) Enter(queue uint64, plan *rows.Plan) (rows.View, error) {
	l := x.db.local(queue)
	v := &view{tx: x, id: queue, local: l, exclusive: plan.Exclusive}
	v.tallyIndex = l.acquireTally()
	for {
		v.now, v.head = time.Now().UnixNano(), l.predictHead()
		err := v.fetch([]Span{v.headSpan()}, plan.Ranges)
		var h *head
		if err == nil {
			h, err = x.readHead(v)
		}
		if h == nil || err != nil {
			v.releaseTally()
			return nil, err
		}
		v.head = h
		l.noteHead(h)
		free := h.lockedBy == x.db.process || h.lockedUntil <= v.now
		locks := h.lockedBy != x.db.process && l.shouldLock(v.exclusive)
		ready := false
		if free && !locks {
			ready, err = x.prepare(v, plan)
		} else {
			err = x.awaitLock(v, h, free)
		}
		if ready {
			break
		}
		if err == nil {
			err = x.restart()
		}
		if err != nil {
			v.releaseTally()
			return nil, err
		}
	}
	l.noteNumber(v.head.number)
	x.views = append(x.views, v)
	return v, nil
}

// prepare reports whether a transaction can go on. A transaction that takes tasks gets a lane for
// its process first, if the process has none and others were faster. To get a lane, prepare writes
// the tally, commits and returns false. Then the transaction begins again.
func (x *tx) prepare(v *view, plan *rows.Plan) (ready bool, err error) {
	takes := slices.ContainsFunc(plan.Ranges, func(r rows.Range) bool { return v.takes(&r) })
	if !takes || v.head.Paused || x.wrote || v.head.lanes.own >= 0 || !v.hasFailed() {
		return true, nil
	}
	v.took = true
	if err = v.saveTally(); err != nil {
		return false, err
	}
	x.Guard(v.section(sectionQueue), nil)
	switch err = x.Txn.Commit(); {
	case errors.Is(err, ErrConflict):
		x.db.conflicts.Add(1)
		return false, x.fail("wait for a lane", nil, pause(x.ctx))
	case err != nil && !errors.Is(err, ErrUnknown): // the next read shows an unknown outcome
		return false, x.fail("get a lane", nil, err)
	}
	return false, nil
}

// lockTime is the time after which a lock ends by itself, because its process may have died.
const lockTime = 2 * time.Second

// awaitLock locks a queue that nobody has locked. Otherwise it waits some milliseconds, and the
// caller calls it again. Without a lock, an exclusive or a large transaction might never commit,
// because small transactions in the queue are always faster.
//
// Locks are voluntary: guards alone keep transactions from harm. So it does no harm if the clocks
// of two processes differ, though each compares the end of a lock with its own.
func (x *tx) awaitLock(v *view, h *head, free bool) error {
	if x.joined || x.wrote || len(x.views) > 0 {
		return x.fail("enter", nil, ErrConflict)
	}
	if free {
		h.lockedBy, h.lockedUntil = x.db.process, v.now+int64(lockTime)
		lock := v.section(sectionLock)
		x.Guard(lock, nil)
		x.Guard(v.section(sectionQueue), nil)
		if err := x.put(lock, encode(h.codeLock)); err != nil {
			return err
		}
		err := x.Txn.Commit()
		if err != nil && !errors.Is(err, ErrConflict) && !errors.Is(err, ErrUnknown) {
			return x.fail("lock the queue", nil, err)
		}
	} else if err := pause(x.ctx); err != nil {
		return x.fail("wait for the lock of the queue", nil, err)
	}
	return nil
}

// restart begins the transaction again.
func (x *tx) restart() error {
	x.Txn.Rollback()
	t, err := x.db.engine.Begin(x.ctx)
	if err != nil {
		return x.fail("begin", nil, err)
	}
	x.Txn, x.wrote = t, false
	return nil
}

// pause waits one to five milliseconds.
func pause(ctx context.Context) error {
	return rows.Pause(ctx, time.Millisecond+rand.N(4*time.Millisecond))
}

// Notify implements rows.Tx. Commit writes a key that others watch.
func (x *tx) Notify(queue uint64) {
	for _, v := range x.views {
		v.notifies = v.notifies || v.id == queue
	}
}

// Commit implements rows.Tx.
func (x *tx) Commit() error {
	for _, v := range x.views {
		x.wrote = v.changed() || x.wrote
	}
	if x.wrote {
		for _, v := range x.views {
			if err := v.flush(); err != nil {
				return err
			}
		}
	}
	if x.failed != nil {
		return x.failed
	}
	err := x.Txn.Commit()
	if errors.Is(err, ErrUnknown) || errors.Is(err, ErrFull) {
		err = x.resolve(err)
	}
	if err := x.fail("commit", nil, err); err != nil {
		return err
	}
	for _, v := range x.views {
		if v.dropped {
			x.db.forget(v.id)
		}
	}
	x.end()
	return nil
}

// resolve finds out whether a commit that has returned ErrUnknown or ErrFull has happened. If it
// has not, it must not happen later. After ErrFull it cannot; after ErrUnknown resolve makes sure
// of that.
func (x *tx) resolve(unknown error) error {
	full := errors.Is(unknown, ErrFull)
	switch {
	case len(x.views) > 0:
	case full:
		return unknown
	default:
		return ErrConflict // a transaction without a queue can be repeated
	}
	for {
		committed, err := x.fence(x.views[0], full)
		switch {
		case err == nil && committed:
			return nil
		case err == nil && full:
			return unknown
		case err == nil:
			return ErrConflict
		case !errors.Is(err, ErrConflict) && !errors.Is(err, ErrUnknown):
			return errors.Join(unknown, err)
		}
		if err := pause(x.ctx); err != nil {
			return errors.Join(unknown, err)
		}
	}
}

// fence reports whether the transaction was committed. If the commit may still happen, fence
// writes a key that the transaction guards, so that the commit fails.
func (x *tx) fence(v *view, full bool) (bool, error) {
	t, err := x.db.engine.Begin(x.ctx)
	if err != nil {
		return false, err
	}
	defer t.Rollback()
	row := v.section(sectionQueue)
	queue, err := t.Get(row)
	if err != nil || queue == nil {
		return v.dropped, err // if another transaction dropped it, the next try finds that out
	}
	guarded, value := row, queue
	if !v.dropped {
		guarded = v.tallyKey()
		if value, err = t.Get(guarded); err != nil {
			return false, err
		}
		var found tally
		if value != nil {
			if err := decode(value, found.code); err != nil {
				return false, fmt.Errorf("key %.200q: %w", guarded, err)
			}
		}
		if found.number == v.head.own.number {
			return true, nil
		}
		found.number, found.at = v.local.nextNumber(x.db, found.number), time.Now().UnixNano()
		value = encode(found.code)
		t.Guard(row, nil)
	}
	if full {
		return false, nil
	}
	t.Guard(guarded, nil)
	if err := t.Put(guarded, value); err != nil {
		return false, err
	}
	return false, t.Commit()
}

// Rollback implements rows.Tx.
func (x *tx) Rollback() {
	if x.done {
		return
	}
	x.end()
	if x.joined && !x.wrote && x.failed == nil {
		return
	}
	x.Txn.Rollback()
}

// end releases the tallies of the transaction, and notes its end. It is called once.
func (x *tx) end() {
	x.done = true
	conflict := errors.Is(x.failed, ErrConflict)
	if conflict {
		x.db.conflicts.Add(1)
	}
	for _, v := range x.views {
		v.releaseTally()
		v.noteEnd(v.exclusive, conflict)
	}
}
