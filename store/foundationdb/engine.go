//go:build cgo && foundationdb

package foundationdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/rows"
)

// calls are the used calls of an fdb.Transaction. Reads are snapshot reads.
type calls interface {
	Get(fdb.KeyConvertible) fdb.FutureByteSlice
	Range(fdb.KeyRange, fdb.RangeOptions) (next func() (e fdb.KeyValue, ok bool, err error))
	AddReadConflictKey(fdb.KeyConvertible) error
	AddReadConflictRange(fdb.ExactRange) error
	Set(fdb.KeyConvertible, []byte)
	Clear(fdb.KeyConvertible)
	ClearRange(fdb.ExactRange)
	Watch(fdb.KeyConvertible) fdb.FutureNil
	Commit() fdb.FutureNil
	OnError(fdb.Error) fdb.FutureNil
	Cancel()
}

// binding implements calls.
type binding struct{ fdb.Transaction }

func (b binding) Get(key fdb.KeyConvertible) fdb.FutureByteSlice { return b.Snapshot().Get(key) }

func (b binding) Range(r fdb.KeyRange, o fdb.RangeOptions) func() (fdb.KeyValue, bool, error) {
	all := b.Snapshot().GetRange(r, o).Iterator()
	return func() (e fdb.KeyValue, ok bool, err error) {
		if ok = all.Advance(); ok {
			e, err = all.Get()
		}
		return e, ok, err
	}
}

// engine implements kv.Engine.
type engine struct {
	create func() (calls, error)
	prefix []byte
	traits rows.Traits
}

// Traits implements kv.Engine.
func (e *engine) Traits() rows.Traits { return e.traits }

type txKey struct{}

// Joined implements kv.Engine.
func (e *engine) Joined(ctx context.Context) (kv.Txn, error) {
	if own, ok := ctx.Value(txKey{}).(calls); ok {
		return &txn{calls: own, engine: e, ctx: ctx, joined: true}, nil
	}
	return nil, nil //nolint:nilnil // the interface's way to say none
}

// Begin implements kv.Engine. The transaction gets its read version when it first reads.
func (e *engine) Begin(ctx context.Context) (kv.Txn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t, err := e.create()
	if err != nil {
		return nil, err
	}
	return &txn{calls: t, engine: e, ctx: ctx, stop: context.AfterFunc(ctx, t.Cancel)}, nil
}

// Watch implements kv.Engine for a span that has one key. Watch sees only the last of several
// writes between two watches.
func (e *engine) Watch(ctx context.Context, from, _ []byte, f func(*kv.Entry)) {
	for ctx.Err() == nil {
		if err := e.watch(ctx, from, func() { f(nil) }); err != nil &&
			rows.Pause(ctx, time.Second) != nil {
			return
		}
	}
}

// watch calls f when it watches a key, and returns when the key has another value.
func (e *engine) watch(ctx context.Context, key []byte, f func()) error {
	t, err := e.Begin(ctx)
	if err != nil {
		return err
	}
	defer t.Rollback()
	changed := t.(*txn).calls.Watch(e.key(key))
	defer context.AfterFunc(ctx, changed.Cancel)()
	if err := t.Commit(); err != nil {
		return err
	}
	f()
	return changed.Get()
}

func (e *engine) key(key []byte) fdb.Key { return slices.Concat(e.prefix, key) }

func (e *engine) span(from, to []byte) fdb.KeyRange {
	return fdb.KeyRange{Begin: e.key(from), End: e.key(to)}
}

// txn implements kv.Txn. Only guarded keys conflict.
type txn struct {
	calls
	*engine
	ctx    context.Context
	joined bool        // it is the caller's
	stop   func() bool // ends the watch over ctx, once
	failed error       // the first error of a call
}

// again asks the client library's OnError, which pauses, whether to retry the transaction. If so,
// again returns the error as a conflict. In a transaction of the caller's, the caller asks
// OnError, as fdb.Database.Transact does.
func (t *txn) again(err error) error {
	var e fdb.Error
	switch {
	case err == nil:
		return nil
	case t.ctx.Err() != nil:
		err = errors.Join(t.ctx.Err(), err)
	case !t.joined && errors.As(err, &e) && t.OnError(e).Get() == nil:
		err = errors.Join(kv.ErrConflict, err)
	}
	t.failed = cmp.Or(t.failed, err)
	return err
}

// Get implements kv.Txn.
func (t *txn) Get(key []byte) ([]byte, error) {
	value, err := t.calls.Get(t.key(key)).Get()
	return value, t.again(err)
}

// Fetch implements kv.Txn. The client library keeps the results until the end.
func (t *txn) Fetch(keys [][]byte, spans ...kv.Span) error {
	futures, ranges := make([]fdb.FutureByteSlice, len(keys)),
		make([]func() (fdb.KeyValue, bool, error), len(spans))
	for i, key := range keys {
		futures[i] = t.calls.Get(t.key(key))
	}
	for i := range spans {
		ranges[i] = t.read(&spans[i])
	}
	for _, f := range futures {
		if _, err := f.Get(); err != nil {
			return t.again(err)
		}
	}
	for _, next := range ranges {
		if _, _, err := next(); err != nil { // the first entries, of what may be many
			return t.again(err)
		}
	}
	return nil
}

// read begins to read a span.
func (t *txn) read(s *kv.Span) func() (fdb.KeyValue, bool, error) {
	o := fdb.RangeOptions{Limit: s.Limit, Reverse: s.Desc, Mode: fdb.StreamingModeIterator}
	return t.Range(t.span(s.From, s.To), o)
}

// Scan implements kv.Txn.
func (t *txn) Scan(s kv.Span) iter.Seq2[kv.Entry, error] {
	return func(yield func(kv.Entry, error) bool) {
		for next := t.read(&s); ; {
			e, ok, err := next()
			if err != nil {
				yield(kv.Entry{}, t.again(err))
				return
			}
			if !ok || !yield(kv.Entry{Key: e.Key[len(t.prefix):], Value: e.Value}, nil) {
				return
			}
		}
	}
}

// Guard implements kv.Txn.
func (t *txn) Guard(from, to []byte) {
	if to == nil {
		t.failed = errors.Join(t.failed, t.AddReadConflictKey(t.key(from)))
	} else {
		t.failed = errors.Join(t.failed, t.AddReadConflictRange(t.span(from, to)))
	}
}

// Put implements kv.Txn.
func (t *txn) Put(key, value []byte) error {
	full := t.key(key)
	switch {
	case len(full) > maxKey:
		return fmt.Errorf("the key has %d bytes, must have at most %d", len(full), maxKey)
	case len(value) > maxValue:
		return fmt.Errorf("the value has %d bytes, must have at most %d", len(value), maxValue)
	}
	t.Set(full, value)
	return nil
}

// Delete implements kv.Txn.
func (t *txn) Delete(key []byte) error {
	t.calls.Clear(t.key(key))
	return nil
}

// Clear implements kv.Txn.
func (t *txn) Clear(from, to []byte) error {
	t.ClearRange(t.span(from, to))
	return nil
}

// Commit implements kv.Txn.
func (t *txn) Commit() error {
	if t.failed != nil || t.joined {
		return t.failed
	}
	defer t.stop()
	err := t.calls.Commit().Get()
	var e fdb.Error
	if errors.As(err, &e) && slices.Contains(unknown, e.Code) {
		return errors.Join(kv.ErrUnknown, err)
	}
	return t.again(err)
}

// unknown are the errors of a commit with an unknown outcome: commit_unknown_result,
// cluster_version_changed, and a transaction that was cancelled or has timed out.
var unknown = []int{1021, 1039, 1025, 1031}

// Rollback implements kv.Txn. A transaction of the caller's must not be committed after Rollback.
// If a call has failed, the caller may ask OnError whether to retry the transaction.
func (t *txn) Rollback() {
	if t.joined && t.failed == nil || !t.joined && t.stop() {
		t.Cancel()
	}
}
