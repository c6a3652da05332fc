package sqlite

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"modernc.org/sqlite"
)

// conn is a connection of our own. It calls the driver directly, because database/sql costs some
// 100 ns for each value. It keeps every statement that it has run.
type conn struct {
	sqldriver.Conn
	prefix string
	stmts  map[*statement]sqldriver.Stmt
}

// dataSource returns the URI by which SQLite opens a path, whatever characters it has.
func dataSource(path string) (string, error) {
	switch {
	case path == "" || path == ":memory:":
		return "", fmt.Errorf("path is %q, must be that of a file; a database in "+
			"memory is not supported", path)
	case strings.HasPrefix(path, "file:"):
		return "", fmt.Errorf("path is %q, must be a path, not a URI", path)
	case strings.ContainsRune(path, 0):
		return "", fmt.Errorf("path is %q, must not contain a zero byte", path)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") { // C:/
		path = "/" + path
	}
	// The parameter is the driver's: without it the error for a file that cannot be opened is "out
	// of memory".
	escaped := strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path)
	return "file://" + escaped + "?_error_rc=1", nil
}

// connect opens a connection and sets it up.
func connect(ctx context.Context, path string, o *options) (_ *conn, err error) {
	dsn, err := dataSource(path)
	if err != nil {
		return nil, err
	}
	connector, err := sqlite.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	dc, err := connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: dc, prefix: o.prefix, stmts: map[*statement]sqldriver.Stmt{}}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	// SQLite itself waits for locks during the setup. Later the function patiently does.
	busy := strconv.FormatInt(o.busyTimeout.Milliseconds(), 10)
	if _, err := c.pragma("busy_timeout = " + busy); err != nil {
		return nil, err
	}
	if r, ok := dc.(interface{ IsReadOnly(string) (bool, error) }); ok {
		if readOnly, err := r.IsReadOnly("main"); err != nil || readOnly {
			return nil, errors.Join(err, errors.New("the database is read-only"))
		}
	}
	encoding, err := c.pragma("encoding")
	if err == nil && encoding != "UTF-8" {
		err = fmt.Errorf("the encoding is %v, must be UTF-8: no other keeps all strings", encoding)
	}
	if err != nil {
		return nil, err
	}
	for _, p := range [...]struct{ name, value string }{
		{"synchronous", o.synchronous},
		{"wal_autocheckpoint", strconv.Itoa(o.checkpointPages)},
		{"journal_size_limit", strconv.Itoa(walBytes)},
		{"cache_size", strconv.Itoa(-o.cacheKiB)},
		{"temp_store", "memory"},
	} {
		if _, err := c.pragma(p.name + " = " + p.value); err != nil {
			return nil, err
		}
	}
	if o.noMigrate { // before anything is written into a file that may belong to another program
		err := retryBusy(ctx, time.Now().Add(o.busyTimeout),
			func() error { return checkVersion(c, len(migrations)) })
		if err != nil {
			return nil, err
		}
	}
	// SQLite does not wait here if another process makes the same change.
	var mode sqldriver.Value
	err = retryBusy(ctx, time.Now().Add(o.busyTimeout), func() (err error) {
		mode, err = c.pragma("journal_mode = wal")
		return err
	})
	if err == nil && mode != "wal" {
		err = fmt.Errorf("the journal mode is %v, and cannot be made wal", mode)
	}
	if err == nil {
		_, err = c.pragma("busy_timeout = 0")
	}
	return c, err
}

// pragma runs a pragma and returns its first value, or nil.
func (c *conn) pragma(p string) (sqldriver.Value, error) {
	rows, err := c.Conn.(sqldriver.QueryerContext).QueryContext(context.Background(), "pragma "+p,
		nil)
	if err != nil {
		return nil, fmt.Errorf("pragma %s: %w", p, err)
	}
	defer rows.Close()
	if len(rows.Columns()) == 0 {
		return nil, nil
	}
	values := make([]sqldriver.Value, len(rows.Columns()))
	_ = rows.Next(values) // if there is no row, the value is nil
	return values[0], nil
}

// script runs *statements that are not kept.
func (c *conn) script(sql string) error {
	sql = strings.ReplaceAll(sql, "~", c.prefix)
	_, err := c.Conn.(sqldriver.ExecerContext).ExecContext(context.Background(), sql, nil)
	return err
}

func (c *conn) prepared(s *statement) (sqldriver.Stmt, error) {
	p := c.stmts[s]
	if p == nil {
		var err error
		if p, err = c.Prepare(s.text(c.prefix)); err != nil {
			return nil, err
		}
		c.stmts[s] = p
	}
	return p, nil
}

// run implements backend. It does not pass the caller's context on, because for a context that can
// be cancelled the driver starts a goroutine.
func (c *conn) run(s *statement, args []sqldriver.NamedValue) (int64, error) {
	p, err := c.prepared(s)
	if err != nil {
		return 0, err
	}
	result, err := p.(sqldriver.StmtExecContext).ExecContext(context.Background(), args)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (c *conn) rows(s *statement, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	p, err := c.prepared(s)
	if err != nil {
		return nil, err
	}
	return p.(sqldriver.StmtQueryContext).QueryContext(context.Background(), args)
}

func (c *conn) close() error {
	var errs []error
	for _, p := range c.stmts {
		errs = append(errs, p.Close())
	}
	return errors.Join(append(errs, c.Close())...)
}

// code returns the result code of SQLite in an error, 0 if there is none.
func code(err error) int {
	var e interface{ Code() int }
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

// SQLite's result codes.
const (
	resultError    = 1
	resultBusy     = 5 // with extended codes in the bytes above
	resultSchema   = 17
	resultSnapshot = resultBusy | 2<<8
)

// busyPauses between attempts to get the lock that another process has; the last is repeated.
var busyPauses = [...]time.Duration{1, 1, 2, 3, 5, 8, 10}
