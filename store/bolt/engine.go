package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"runtime/debug"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task/driver"
)

var (
	errClosed = errors.New("the database is closed")
	errMoved  = errors.New("the file was removed, renamed or replaced")
	errOver   = errors.New("the transaction is over, or a call in it has failed")
)

// bucket is where all of ours is in the file. The caller's own buckets may be beside it.
var bucket = []byte("fairq")

// engine implements kv.Engine.
type engine struct {
	path   string
	file   os.FileInfo
	db     *bbolt.DB
	slot   chan struct{} // has room for one: who has begun a transaction
	closed error         // why no more can begin; used by who has the slot
}

// Traits implements kv.Engine.
func (e *engine) Traits() rows.Traits { return rows.Traits{Exclusive: true} }

// Changed implements kv.Engine. Nobody else writes.
func (e *engine) Changed(context.Context) (bool, error) { return false, nil }

// Begin implements kv.Engine.
func (e *engine) Begin(ctx context.Context) (kv.Txn, error) {
	t, err := e.begin(ctx)
	if err != nil {
		return nil, err // and not a nil *txn
	}
	return t, nil
}

func (e *engine) begin(ctx context.Context) (*txn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case e.slot <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("another transaction has not ended: %w", ctx.Err())
	}
	t := &txn{engine: e, failed: e.closed}
	if t.failed == nil {
		t.failed = e.checkFile()
	}
	if t.failed == nil {
		t.failed = safely(func() (err error) {
			if t.tx, err = e.db.Begin(true); err != nil {
				return err
			}
			if t.bucket = t.tx.Bucket(bucket); t.bucket == nil {
				t.bucket, err = t.tx.CreateBucket(bucket)
			}
			return err
		})
	}
	if t.failed != nil {
		t.end()
		return nil, t.failed
	}
	return t, nil
}

// checkFile returns an error unless the file is still where it was. bbolt would go on with one that
// nobody else will ever find.
func (e *engine) checkFile() error {
	now, err := os.Stat(e.path)
	if err == nil && os.SameFile(now, e.file) {
		return nil
	}
	return errors.Join(errMoved, err)
}

// close waits for the transaction that runs.
func (e *engine) close() error {
	e.slot <- struct{}{}
	defer func() { <-e.slot }()
	if e.closed != nil {
		return e.closed
	}
	e.closed = errClosed
	return e.db.Close()
}

// txn implements kv.Txn.
type txn struct {
	*engine
	tx     *bbolt.Tx
	bucket *bbolt.Bucket
	wrote  bool
	done   bool
	failed error // the first error
}

// do calls f, unless the transaction has failed or is over.
func (t *txn) do(f func() error) error {
	if t.failed == nil {
		if t.done || t.tx.DB() == nil {
			return errOver
		}
		t.failed = safely(f)
	}
	return t.failed
}

// safely calls f. If the file is damaged, bbolt panics or reads where nothing is.
func safely(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the file is damaged: %v", p)
		}
	}()
	return f()
}

// Get implements kv.Txn.
func (t *txn) Get(key []byte) (value []byte, err error) {
	err = t.do(func() error {
		value = t.bucket.Get(key)
		return nil
	})
	return value, err
}

// Fetch implements kv.Txn. Each read costs the same, now or later.
func (t *txn) Fetch([][]byte, ...kv.Span) error { return nil }

// Guard implements kv.Txn. Nobody else writes.
func (t *txn) Guard(_, _ []byte) {}

// Scan implements kv.Txn.
func (t *txn) Scan(s kv.Span) iter.Seq2[kv.Entry, error] {
	return func(yield func(kv.Entry, error) bool) {
		var c *bbolt.Cursor
		var e kv.Entry
		step := func() error {
			switch {
			case c == nil:
				c = t.bucket.Cursor()
				e.Key, e.Value = t.first(c, &s)
			case s.Desc:
				e.Key, e.Value = t.before(e.Key, c, &s)
			default:
				e.Key, e.Value = c.Next()
			}
			return nil
		}
		for n := 0; s.Limit == 0 || n < s.Limit; n++ {
			err := t.do(step)
			if err != nil {
				yield(kv.Entry{}, err)
				return
			}
			in := e.Key != nil && bytes.Compare(e.Key, s.From) >= 0 && bytes.Compare(e.Key, s.To) < 0
			if !in || !yield(e, nil) {
				return
			}
		}
	}
}

// first returns with what a span begins, if there is something in it.
func (t *txn) first(c *bbolt.Cursor, s *kv.Span) (key, value []byte) {
	if !s.Desc {
		return c.Seek(s.From)
	}
	switch key, _ = c.Seek(s.To); {
	case key != nil:
		return t.before(s.To, c, s)
	case t.has(s, s.To):
		return c.Last()
	}
	return nil, nil
}

// before returns what the cursor finds before a key of a span. Cursor.Prev returns nothing at a page
// of which the transaction has deleted all, and Cursor.Last does not end if all pages are such.
func (t *txn) before(key []byte, c *bbolt.Cursor, s *kv.Span) (k, value []byte) {
	for k, value = c.Prev(); k == nil && t.has(s, key); k, value = c.Prev() {
	}
	return k, value
}

// has tells whether there is a key from the beginning of a span on, and before another one.
func (t *txn) has(s *kv.Span, before []byte) bool {
	key, _ := t.bucket.Cursor().Seek(s.From)
	return key != nil && bytes.Compare(key, before) < 0
}

// Put implements kv.Txn.
func (t *txn) Put(key, value []byte) error {
	t.wrote = true
	return t.do(func() error {
		err := t.bucket.Put(key, value)
		switch {
		case errors.Is(err, berrors.ErrKeyTooLarge):
			err = fmt.Errorf("%w: %d bytes, must be at most %d", err, len(key), bbolt.MaxKeySize)
		case errors.Is(err, berrors.ErrValueTooLarge):
			err = fmt.Errorf("%w: %d bytes, must be at most %d", err, len(value), bbolt.MaxValueSize)
		}
		return err
	})
}

// Delete implements kv.Txn.
func (t *txn) Delete(key []byte) error {
	t.wrote = true
	return t.do(func() error { return t.bucket.Delete(key) })
}

// Clear implements kv.Txn. A cursor cannot go on once something was deleted.
func (t *txn) Clear(from, to []byte) error {
	for {
		var found [][]byte
		for e, err := range t.Scan(kv.Span{From: from, To: to, Limit: 1000}) {
			if err != nil {
				return err
			}
			found = append(found, bytes.Clone(e.Key))
		}
		if found == nil {
			return nil
		}
		for _, key := range found {
			if err := t.Delete(key); err != nil {
				return err
			}
		}
	}
}

// Commit implements kv.Txn. What has written nothing need not wait for the disk.
func (t *txn) Commit() error {
	err := t.do(func() error {
		if !t.wrote {
			return nil
		}
		return t.tx.Commit()
	})
	t.Rollback()
	return err
}

// Rollback implements kv.Txn.
func (t *txn) Rollback() {
	if !t.done {
		t.end()
	}
}

// end ends the transaction, and lets the next one begin unless this one cannot be rolled back.
func (t *txn) end() {
	t.done = true
	if t.tx != nil && t.tx.DB() != nil {
		if err := safely(t.tx.Rollback); err != nil {
			t.closed = err
		}
	}
	<-t.slot
}

// txKey is the key of a context's transaction.
type txKey struct{}

// Joined implements kv.Engine.
func (e *engine) Joined(ctx context.Context) (kv.Txn, error) {
	t, ok := ctx.Value(txKey{}).(*txn)
	switch {
	case !ok:
		return nil, nil
	case t.engine != e:
		return nil, &driver.FieldError{
			Field: "the file of the transaction of InTx", Value: t.path,
			Limit: "that of the queue: " + e.path,
		}
	case t.done:
		return nil, errOver
	}
	return part{t}, nil
}

// part is what one call does in a transaction of the caller's own.
type part struct{ *txn }

// Commit implements kv.Txn.
func (p part) Commit() error { return p.failed }

// Rollback implements kv.Txn. What the call has done cannot be undone by itself.
func (p part) Rollback() {
	if p.failed == nil {
		p.failed = errOver
	}
}
