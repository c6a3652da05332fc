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

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
)

// txKey is the key of a context's transaction, a *txValue.
type txKey struct{}

type txValue struct {
	*sql.Tx // nil if there is none at all, which is noticed too
	own     *driver.Tx
}

// WithTx returns a context that carries a transaction of the caller's own, on the same database
// file; a transaction of another file is refused. Calls with the context are part of that
// transaction, and happen when it is committed. It must be able to write, and should have been
// begun as IMMEDIATE: a deferred transaction that has read cannot write after another connection
// has written. The durability is that of its connection, whose synchronous is FULL unless set.
//
// The store never learns how the transaction ends. So Stats and KeyStats of this process do not
// count such a call, events and OnExpire do not report it, and Task.Info stays as it was. Waiting
// calls notice the changes like those of other processes.
//
// While the transaction is open nothing else can write, so all calls with other contexts wait for
// it, even reads. Such a call by the same goroutine before the commit fails after
// Options.BusyTimeout. [Store.InTx] handles all of this by itself, and sees the end.
func WithTx(ctx context.Context, tx *sql.Tx) context.Context {
	return context.WithValue(ctx, txKey{}, &txValue{tx, new(driver.Tx)})
}

// InTx calls f with a transaction of db, which must have the same file open, and with a context
// that carries it as WithTx does. It commits, or if f returns an error or panics rolls back. After
// the commit, calls with that context are counted, reported and written into the Task as without a
// transaction. f must not undo such calls with a savepoint of its own; use WithTx for that.
//
// It waits for its turn like the transactions of the Store. A transaction begun in another way
// contends with these for SQLite's lock, which does not go to the longest waiter: beside a busy
// queue it may wait for seconds.
func (s *Store) InTx(ctx context.Context, db *sql.DB,
	f func(ctx context.Context, tx *sql.Tx) error,
) error {
	return s.db.inTx(ctx, db, f)
}

// inTx holds the slot until the queues know of the commit, so that no transaction of theirs sees
// it first.
func (d *db) inTx(ctx context.Context, db *sql.DB,
	f func(ctx context.Context, tx *sql.Tx) error,
) error {
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

// sqlFile returns the file in which SQLite finds the tables: an attached one, or that of the
// database itself.
const sqlFile = `SELECT file FROM pragma_database_list AS d
	LEFT JOIN pragma_table_list AS t ON t.schema = d.name AND t.name = ?
ORDER BY t.name IS NULL, d.seq LIMIT 1`

// joins returns an error if a transaction of the caller's is not of the queue's file. err is the
// error of the statement that has locked the file in that transaction.
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
		return &driver.FieldError{
			Field: "the file of the transaction given to WithTx", Value: theirs,
			Limit: "that of the queue: " + d.path,
		}
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

// Joined implements rows.DB. The transaction gets the lock for writing now, because otherwise its
// first reads could be overtaken.
func (d *db) Joined(ctx context.Context) (rows.Tx, error) {
	own := ctx.Value(txKey{}).(*txValue).Tx
	if own == nil {
		return nil, &driver.FieldError{
			Field: "the transaction given to WithTx", Value: own,
			Limit: "one that is open",
		}
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

// joined is a transaction of the caller's own, of any driver.
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

// joinedRows are rows of a driver.
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
