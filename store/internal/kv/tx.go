package kv

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
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
	x.Guard(nameKey(name), nil)
	id, err := x.number(nameKey(name))
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
	if id, err = x.number(lastIDKey); err != nil {
		return nil, err
	}
	id++
	x.Guard(lastIDKey, nil)
	h := head{Head: rows.Head{Settings: settings}, name: name}
	v := view{tx: x, id: id}
	err = errors.Join(
		x.putNumber(lastIDKey, id), x.putNumber(nameKey(name), id),
		x.put(v.about(aboutQueue), encode(h.code)), x.put(v.markKey(), encode(h.mark.code)))
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

// Enter implements rows.Tx.
func (x *tx) Enter(queue uint64, plan *rows.Plan) (rows.View, error) {
	l := x.db.local(queue)
	v := &view{tx: x, id: queue, local: l, byKey: plan.ByKey, alone: plan.Exclusive}
	v.n = l.use()
	for {
		v.now, v.head = time.Now().UnixNano(), l.guess()
		err := v.readAhead(plan)
		var h *head
		if err == nil {
			h, err = x.readHead(v)
		}
		if h == nil || err != nil {
			v.free()
			return nil, err
		}
		v.head = h
		l.saw(h)
		free := h.lockedBy == x.db.process || h.lockedUntil <= v.now
		locks := h.lockedBy != x.db.process && l.isContended(v.alone)
		ready := false
		if free && !locks {
			ready, err = x.prepare(v, plan)
		} else {
			err = x.await(v, h, free)
		}
		if ready {
			break
		}
		if err == nil {
			err = x.restart()
		}
		if err != nil {
			v.free()
			return nil, err
		}
	}
	l.seen(v.head.number)
	x.views = append(x.views, v)
	return v, nil
}

// readAhead reads at once the head, and what is planned to be read.
func (v *view) readAhead(plan *rows.Plan) error {
	spans := []Span{v.headSpan()}
	if n, _ := wants(plan); n > 0 && v.db.options.Taking == Staged {
		spans = append(spans, v.requests())
	}
	for _, l := range plan.LastRounds {
		spans = append(spans, v.rounds(l, v.knownRound(l)))
	}
	return v.fetch(spans, plan.Ranges)
}

// lockTime is how long a process has a queue locked that does nothing any more.
const lockTime = 2 * time.Second

// await waits while another process has locked the queue. If it is free it locks it: who is alone
// in a queue, or has much to do, would never be committed while others are busy in it, for each of
// these is faster. A lock keeps nobody from anything but by his own will, so that its time is that
// of another machine does no harm.
func (x *tx) await(v *view, h *head, free bool) error {
	if x.joined || x.wrote || len(x.views) > 0 {
		return x.fail("enter", nil, ErrConflict)
	}
	if free {
		h.lockedBy, h.lockedUntil = x.db.process, v.now+int64(lockTime)
		lock := v.about(aboutLock)
		x.Guard(lock, nil)
		x.Guard(v.about(aboutQueue), nil)
		if err := x.put(lock, encode(h.lock)); err != nil {
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

// restart begins the transaction anew.
func (x *tx) restart() error {
	x.Txn.Rollback()
	t, err := x.db.engine.Begin(x.ctx)
	if err != nil {
		return x.fail("begin", nil, err)
	}
	x.Txn, x.wrote = t, false
	return nil
}

// pause waits for some milliseconds.
func pause(ctx context.Context) error {
	return rows.Pause(ctx, time.Millisecond+rand.N(4*time.Millisecond))
}

// Notify implements rows.Tx. It writes a key that others may watch; or Changed tells.
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
		err = x.settle(err)
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

// settle finds out whether a commit was done of which that is not known, and if it was not, sees to
// it that it never will be, unless it is full and so that is certain.
func (x *tx) settle(unknown error) error {
	full := errors.Is(unknown, ErrFull)
	switch {
	case len(x.views) > 0:
	case full:
		return unknown
	default:
		return ErrConflict // to repeat what is done without a queue does no harm
	}
	for {
		done, err := x.wasDone(x.views[0], full)
		switch {
		case err == nil && done:
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

// wasDone tells whether a transaction was committed. If not, and that may still come, it writes what
// that one guards.
func (x *tx) wasDone(v *view, full bool) (bool, error) {
	t, err := x.db.engine.Begin(x.ctx)
	if err != nil {
		return false, err
	}
	defer t.Rollback()
	row := v.about(aboutQueue)
	queue, err := t.Get(row)
	if err != nil || queue == nil {
		return v.dropped, err // if it was dropped by others, who tries again finds that out
	}
	fence, value := row, queue
	if !v.dropped {
		fence = v.tally()
		if value, err = t.Get(fence); err != nil {
			return false, err
		}
		var found tally
		if value != nil {
			if err := decode(value, found.code); err != nil {
				return false, fmt.Errorf("key %.200q: %w", fence, err)
			}
		}
		if found.number == v.head.own.number {
			return true, nil
		}
		found.number, found.at = v.local.next(x.db, found.number), time.Now().UnixNano()
		value = encode(found.code)
		t.Guard(row, nil)
	}
	if full {
		return false, nil
	}
	t.Guard(fence, nil)
	if err := t.Put(fence, value); err != nil {
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

// end is called once.
func (x *tx) end() {
	x.done = true
	conflict := errors.Is(x.failed, ErrConflict)
	if conflict {
		x.db.conflicts.Add(1)
	}
	for _, v := range x.views {
		v.free()
		v.ended(v.alone, conflict)
	}
}
