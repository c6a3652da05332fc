package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task"
)

// txKey is the key of a context's transaction.
type txKey struct{}

// WithTx returns a context that carries a transaction of the caller's own, on the same database file. What is done with it is
// part of that transaction, and happens if and when that is committed. It must be one that can write, and should have been begun
// as IMMEDIATE: a deferred one that has read something cannot write any more once somebody else has written. What a power cut may
// cost is up to its connection, whose synchronous is FULL unless set.
//
// As long as it is open nothing else can write, so all calls of queues with other contexts wait for it, also those that only read.
// One that is made before the commit by the same goroutine fails after Options.BusyTimeout. [Store.InTx] does all that is said
// here by itself.
func WithTx(ctx context.Context, tx *sql.Tx) context.Context {
	return context.WithValue(ctx, txKey{}, tx)
}

// InTx calls f with a transaction of db, which must have the same file open, and with a context that carries it as WithTx does. It
// commits, or if f returns an error or panics rolls back.
//
// It waits for its turn like the transactions of the Store. One that is begun in another way contends with these for SQLite's
// lock, which does not go to who has waited longest: next to a busy queue it may wait for seconds.
func (s *Store) InTx(ctx context.Context, db *sql.DB, f func(ctx context.Context, tx *sql.Tx) error) error {
	err := s.db.inTx(ctx, db, f)
	if err == nil {
		s.rules.Changed(0)
	}
	return err
}

func (d *db) inTx(ctx context.Context, db *sql.DB, f func(ctx context.Context, tx *sql.Tx) error) error {
	until := time.Now().Add(d.options.busyTimeout)
	if err := d.enter(ctx, until); err != nil {
		return err
	}
	defer func() { <-d.turn }()
	own, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("sqlite: begin: %w", err)
	}
	defer func() { _ = own.Rollback() }()
	lock := lockForWriting.text(d.options.prefix)
	err = patiently(ctx, until, func() error {
		_, err := own.ExecContext(ctx, lock)
		return err
	})
	if err != nil {
		return joinError(fmt.Errorf("sqlite: begin: %w", err))
	}
	if err := f(WithTx(ctx, own), own); err != nil {
		return err
	}
	if err := own.Commit(); err != nil {
		return fmt.Errorf("sqlite: commit: %w", err)
	}
	return nil
}

// joinError says what is probably wrong if the tables are not there.
func joinError(err error) error {
	if strings.Contains(err.Error(), "no such table") {
		return fmt.Errorf("%w; is the transaction of the same file, and Options.Prefix right?", err)
	}
	return err
}

// Joined implements rows.DB. The transaction gets the lock for writing now, since otherwise what is read first could be
// overtaken.
func (d *db) Joined(ctx context.Context) (rows.Tx, error) {
	own, ok := ctx.Value(txKey{}).(*sql.Tx)
	switch {
	case !ok:
		return nil, nil
	case own == nil:
		return nil, &task.FieldError{Field: "the transaction given to WithTx", Value: own, Limit: "one that is open"}
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("sqlite: join: %w", err)
	}
	if d.over.Load() {
		return nil, fmt.Errorf("sqlite: join: %w", errClosed)
	}
	j := &joined{tx: own, prefix: d.options.prefix}
	t := &tx{db: d, session: newSession(j), joined: j}
	if _, err := t.session.exec(lockForWriting); err != nil {
		j.close()
		return nil, joinError(err)
	}
	return t, nil
}

// joined is a transaction of the caller's own, of whatever driver.
type joined struct {
	tx     *sql.Tx
	prefix string
	stmts  map[statement]*sql.Stmt // database/sql closes them with the transaction
}

func (j *joined) prepared(s statement) (*sql.Stmt, error) {
	if p := j.stmts[s]; p != nil {
		return p, nil
	}
	p, err := j.tx.Prepare(s.text(j.prefix))
	if err != nil {
		return nil, err
	}
	if j.stmts == nil {
		j.stmts = make(map[statement]*sql.Stmt)
	}
	j.stmts[s] = p
	return p, nil
}

func plain(args []driver.NamedValue) []any {
	values := make([]any, len(args))
	for i, a := range args {
		values[i] = a.Value
	}
	return values
}

func (j *joined) run(s statement, args []driver.NamedValue) (int64, error) {
	p, err := j.prepared(s)
	if err != nil {
		return 0, err
	}
	result, err := p.Exec(plain(args)...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (j *joined) rows(s statement, args []driver.NamedValue) (driver.Rows, error) {
	p, err := j.prepared(s)
	if err != nil {
		return nil, err
	}
	r, err := p.Query(plain(args)...)
	if err != nil {
		return nil, err
	}
	columns, err := r.Columns()
	if err != nil {
		r.Close()
		return nil, err
	}
	return &joinedRows{r, columns}, nil
}

// close closes the statements; the transaction may go on.
func (j *joined) close() {
	for _, p := range j.stmts {
		p.Close()
	}
	j.stmts = nil
}

// joinedRows are rows as a driver has them.
type joinedRows struct {
	*sql.Rows
	columns []string
}

func (r *joinedRows) Columns() []string { return r.columns }

func (r *joinedRows) Next(dest []driver.Value) error {
	if !r.Rows.Next() {
		if err := r.Err(); err != nil {
			return err
		}
		return io.EOF
	}
	targets := make([]any, len(dest))
	for i := range dest {
		targets[i] = (*any)(&dest[i]) // Scan knows no *driver.Value
	}
	return r.Scan(targets...)
}
