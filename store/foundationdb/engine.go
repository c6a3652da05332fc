//go:build cgo && foundationdb

package foundationdb

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/rows"
)

// database implements kv.Engine.
type database struct {
	fdb.Database
	prefix string
	traits rows.Traits
}

func openEngine(clusterFile, prefix string, traits rows.Traits) (engine, error) {
	if !fdb.IsAPIVersionSelected() {
		if err := fdb.APIVersion(730); err != nil {
			return nil, err
		}
	}
	db, err := fdb.OpenDatabase(clusterFile)
	return &database{db, prefix, traits}, err
}

func (d *database) close() { d.Close() }

// Traits implements kv.Engine.
func (d *database) Traits() rows.Traits { return d.traits }

// Changed implements kv.Engine. To look is as cheap as to ask.
func (d *database) Changed(context.Context) (bool, error) { return true, nil }

// Joined implements kv.Engine. There are no transactions of callers.
func (d *database) Joined(context.Context) (kv.Txn, error) {
	return nil, nil //nolint:nilnil // that is the interface's way to say none
}

// Begin implements kv.Engine. The transaction gets its read version when it first reads.
func (d *database) Begin(ctx context.Context) (kv.Txn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t, err := d.CreateTransaction()
	if err != nil {
		return nil, err
	}
	if end, ok := ctx.Deadline(); ok {
		if err := t.Options().SetTimeout(max(1, time.Until(end).Milliseconds())); err != nil {
			return nil, err
		}
	}
	return &txn{Transaction: t, database: d, stop: context.AfterFunc(ctx, t.Cancel)}, nil
}

// txn implements kv.Txn. All reads are snapshot reads, so that only what is guarded conflicts.
type txn struct {
	fdb.Transaction
	*database
	stop   func() bool
	failed error // a guard could not be set
}

func (t *txn) key(key []byte) fdb.Key { return append(fdb.Key(t.prefix), key...) }

func (t *txn) span(from, to []byte) fdb.KeyRange {
	return fdb.KeyRange{Begin: t.key(from), End: t.key(to)}
}

// Get implements kv.Txn.
func (t *txn) Get(key []byte) ([]byte, error) {
	value, err := t.Snapshot().Get(t.key(key)).Get()
	return value, retried(err)
}

// Fetch implements kv.Txn. What is read is kept by the client library, until the end.
func (t *txn) Fetch(keys [][]byte, spans ...kv.Span) error {
	futures, ranges := make([]fdb.FutureByteSlice, len(keys)), make([]fdb.RangeResult, len(spans))
	for i, key := range keys {
		futures[i] = t.Snapshot().Get(t.key(key))
	}
	for i := range spans {
		ranges[i] = t.read(&spans[i])
	}
	for _, f := range futures {
		if _, err := f.Get(); err != nil {
			return retried(err)
		}
	}
	for _, r := range ranges {
		if all := r.Iterator(); all.Advance() { // the first entries, of what may be many
			if _, err := all.Get(); err != nil {
				return retried(err)
			}
		}
	}
	return nil
}

// read begins to read a span.
func (t *txn) read(s *kv.Span) fdb.RangeResult {
	o := fdb.RangeOptions{Limit: s.Limit, Reverse: s.Desc, Mode: fdb.StreamingModeIterator}
	return t.Snapshot().GetRange(t.span(s.From, s.To), o)
}

// Scan implements kv.Txn.
func (t *txn) Scan(s kv.Span) iter.Seq2[kv.Entry, error] {
	return func(yield func(kv.Entry, error) bool) {
		for all := t.read(&s).Iterator(); all.Advance(); {
			e, err := all.Get()
			if err != nil {
				yield(kv.Entry{}, retried(err))
				return
			}
			if !yield(kv.Entry{Key: e.Key[len(t.prefix):], Value: e.Value}, nil) {
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
	t.Transaction.Clear(t.key(key))
	return nil
}

// Clear implements kv.Txn.
func (t *txn) Clear(from, to []byte) error {
	t.ClearRange(t.span(from, to))
	return nil
}

// Commit implements kv.Txn.
func (t *txn) Commit() error {
	defer t.stop()
	if t.failed != nil {
		return t.failed
	}
	return committed(t.Transaction.Commit().Get())
}

// Rollback implements kv.Txn.
func (t *txn) Rollback() {
	t.stop()
	t.Cancel()
}

// The error codes, see apple.github.io/foundationdb/api-error-codes.html.
const (
	transactionTooOld     = 1007
	futureVersion         = 1009
	notCommitted          = 1020
	commitUnknownResult   = 1021
	transactionCancelled  = 1025
	transactionTimedOut   = 1031
	processBehind         = 1037
	clusterVersionChanged = 1039
	tagThrottled          = 1213
)

func codeOf(err error) int {
	var e fdb.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

// retried returns an error so that the transaction is tried again if that helps, and if nothing of
// it can have happened.
func retried(err error) error {
	switch codeOf(err) {
	case transactionTooOld, futureVersion, notCommitted, processBehind, tagThrottled:
		return errors.Join(kv.ErrConflict, err)
	}
	return err
}

// committed is retried for the error of a commit.
func committed(err error) error {
	switch codeOf(err) {
	case commitUnknownResult, clusterVersionChanged, transactionCancelled, transactionTimedOut:
		return errors.Join(kv.ErrUnknown, err)
	}
	return retried(err)
}
