package sqlite

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task/driver"
)

// txKey is the key of a context's transaction, a *txValue.
type txKey struct{}

type txValue struct {
	*sql.Tx // nil if there is none at all, which is noticed too
	own     *driver.Tx
}

// WithTx returns a context that carries a transaction of the caller's own, on the same database
// file; one of another file is refused. What is done with it is part of that transaction, and
// happens if and when that is committed. It must be one that can write, and should have been begun
// as IMMEDIATE: a deferred one that has read something cannot write any more once somebody else has
// written. What a power cut may cost is up to its connection, whose synchronous is FULL unless set.
//
// The store never learns how the transaction ends. So what such a call has done is not counted by
// Stats and KeyStats in this process, events and OnExpire do not tell it, Task.Info stays as it
// was, and those who wait learn of it as of what others do.
//
// As long as it is open nothing else can write, so all calls of queues with other contexts wait for
// it, also those that only read. One that is made before the commit by the same goroutine fails
// after Options.BusyTimeout. [Store.InTx] does all that is said here by itself, and knows of the end.
func WithTx(ctx context.Context, tx *sql.Tx) context.Context {
	return context.WithValue(ctx, txKey{}, &txValue{tx, new(driver.Tx)})
}

// InTx calls f with a transaction of db, which must have the same file open, and with a context
// that carries it as WithTx does. It commits, or if f returns an error or panics rolls back. After
// the commit, what calls with that context have done is counted, told and written into the Task as
// without a transaction. f must not undo a part of that with a savepoint of its own: for what it may
// undo it uses WithTx.
//
// It waits for its turn like the transactions of the Store. One that is begun in another way
// contends with these for SQLite's lock, which does not go to who has waited longest: next to a
// busy queue it may wait for seconds.
func (s *Store) InTx(ctx context.Context, db *sql.DB, f func(ctx context.Context, tx *sql.Tx) error) error {
	return s.db.inTx(ctx, db, f)
}

// inTx has the slot until the queues have been told of the commit, so that no transaction of theirs
// finds out first.
func (d *db) inTx(ctx context.Context, db *sql.DB, f func(ctx context.Context, tx *sql.Tx) error) error {
	until := time.Now().Add(d.options.busyTimeout)
	if err := d.acquire(ctx, until); err != nil {
		return err
	}
	defer func() { <-d.slot }()
	return driver.InTx(func(t *driver.Tx) error {
		own, err := db.BeginTx(ctx, nil)
		if err != nil {
			return failed(d.path, "begin", err)
		}
		defer func() { _ = own.Rollback() }()
		lock := lockForWriting.text(d.options.prefix)
		err = retryBusy(ctx, until, func() error {
			_, err := own.ExecContext(ctx, lock)
			return err
		})
		if err = d.joins(own, err); err != nil {
			return failed(d.path, "begin", err)
		}
		if err := f(context.WithValue(ctx, txKey{}, &txValue{own, t}), own); err != nil {
			return err
		}
		if err := own.Commit(); err != nil {
			return failed(d.path, "commit", err)
		}
		return nil
	})
}

// sqlFile returns the file in which SQLite finds the tables, that of the database itself if they
// are in none that is attached.
const sqlFile = `SELECT file FROM pragma_database_list AS d LEFT JOIN pragma_table_list AS t ON t.schema = d.name AND t.name = ?
ORDER BY t.name IS NULL, d.seq LIMIT 1`

// joins returns an error if a transaction of the caller's is none of the queue's file. err is what
// has come of locking it.
func (d *db) joins(own *sql.Tx, err error) error {
	missing := err != nil && strings.Contains(err.Error(), "no such table")
	if err != nil && !missing {
		return err
	}
	var theirs string
	if err := own.QueryRow(sqlFile, d.options.prefix+"meta").Scan(&theirs); err != nil {
		return failed(d.path, "join", err)
	}
	ours, err2 := os.Stat(d.path)
	if err2 != nil {
		return failed(d.path, "join", errors.Join(errMoved, err2))
	}
	if info, err := os.Stat(theirs); err != nil || !os.SameFile(info, ours) {
		return &driver.FieldError{Field: "the file of the transaction given to WithTx", Value: theirs, Limit: "that of the queue: " + d.path}
	}
	if missing {
		return fmt.Errorf("%w; is Options.Prefix right?", err)
	}
	return nil
}

// Own implements rows.DB.
func (*db) Own(ctx context.Context) *driver.Tx {
	if v, ok := ctx.Value(txKey{}).(*txValue); ok {
		return v.own
	}
	return nil
}

// Joined implements rows.DB. The transaction gets the lock for writing now, since otherwise what is
// read first could be overtaken.
func (d *db) Joined(ctx context.Context) (rows.Tx, error) {
	own := ctx.Value(txKey{}).(*txValue).Tx
	if own == nil {
		return nil, &driver.FieldError{Field: "the transaction given to WithTx", Value: own, Limit: "one that is open"}
	}
	if err := ctx.Err(); err != nil {
		return nil, failed(d.path, "join", err)
	}
	if d.isClosed.Load() {
		return nil, failed(d.path, "join", errClosed)
	}
	j := &joined{tx: own, prefix: d.options.prefix}
	t := &tx{db: d, session: newSession(j, d.path), joined: j}
	_, err := t.session.exec(lockForWriting)
	if err = d.joins(own, err); err != nil {
		j.close()
		return nil, err
	}
	return t, nil
}

// joined is a transaction of the caller's own, of whatever driver.
type joined struct {
	tx     *sql.Tx
	prefix string
	stmts  map[*statement]*sql.Stmt // database/sql closes them with the transaction
}

func (j *joined) prepared(s *statement) (*sql.Stmt, error) {
	if p := j.stmts[s]; p != nil {
		return p, nil
	}
	p, err := j.tx.Prepare(s.text(j.prefix))
	if err != nil {
		return nil, err
	}
	if j.stmts == nil {
		j.stmts = make(map[*statement]*sql.Stmt)
	}
	j.stmts[s] = p
	return p, nil
}

func plainValues(args []sqldriver.NamedValue) []any {
	values := make([]any, len(args))
	for i, a := range args {
		values[i] = a.Value
	}
	return values
}

func (j *joined) run(s *statement, args []sqldriver.NamedValue) (int64, error) {
	p, err := j.prepared(s)
	if err != nil {
		return 0, err
	}
	result, err := p.Exec(plainValues(args)...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (j *joined) rows(s *statement, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	p, err := j.prepared(s)
	if err != nil {
		return nil, err
	}
	r, err := p.Query(plainValues(args)...)
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

func (r *joinedRows) Next(dest []sqldriver.Value) error {
	if !r.Rows.Next() {
		if err := r.Err(); err != nil {
			return err
		}
		return io.EOF
	}
	targets := make([]any, len(dest))
	for i := range dest {
		targets[i] = (*any)(&dest[i]) // Scan knows no *sqldriver.Value
	}
	return r.Scan(targets...)
}
