package sqlite

import (
	"cmp"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"

	"github.com/fairq/fairq/store/internal/columns"
)

// A session runs statements, one at a time: on our connection, or in a transaction of the caller's
// own.
type session struct {
	backend
	args  [maxArgs]sqldriver.NamedValue
	cells cells
	scans map[shape]*statement

	path string // of the file, as errors name it; "" if the caller adds it

	// failed is the first error of a transaction. All later calls return it too, because otherwise
	// a half-done change could be committed.
	failed error
}

// backend runs the statements of a session: a conn or a joined. It keeps no args.
type backend interface {
	run(s *statement, args []sqldriver.NamedValue) (changed int64, err error)
	rows(s *statement, args []sqldriver.NamedValue) (sqldriver.Rows, error)
}

func newSession(b backend, path string) *session {
	s := &session{backend: b, path: path}
	for i := range s.args {
		s.args[i].Ordinal = i + 1
	}
	return s
}

// bind copies the values, so that the slice that a call with many of them makes stays on the
// stack.
func (s *session) bind(values []sqldriver.Value) []sqldriver.NamedValue {
	for i, v := range values {
		s.args[i].Value = v
	}
	return s.args[:len(values)]
}

// exec runs a statement that returns no rows, and returns how many it has changed.
func (s *session) exec(st *statement, values ...sqldriver.Value) (int64, error) {
	if s.failed != nil {
		return 0, s.failed
	}
	n, err := s.run(st, s.bind(values))
	return n, s.fail(st, err)
}

// each calls read for each row. read may run no statement.
func (s *session) each(st *statement, read func(c *cells), values ...sqldriver.Value) (err error) {
	if s.failed != nil {
		return s.failed
	}
	rows, err := s.rows(st, s.bind(values))
	if err == nil {
		err = errors.Join(s.cells.readAll(rows, read), rows.Close())
	}
	return s.fail(st, err)
}

func (s *session) fail(st *statement, err error) error {
	switch what := st.name; {
	case err == nil:
	case s.path == "":
		s.failed = fmt.Errorf("%s: %w", what, err)
	default:
		s.failed = failed(s.path, what, err)
	}
	return s.failed
}

// failed returns an error with the file and the operation.
func failed(path, what string, err error) error {
	return fmt.Errorf("sqlite: %s: %s: %w", path, what, err)
}

// number returns the single number of a statement, 0 for NULL or no row.
func (s *session) number(st *statement, values ...sqldriver.Value) (n int64, err error) {
	err = s.each(st, func(c *cells) { n = c.int() }, values...)
	return n, err
}

// cells are the columns of a row, read one after the other. A NULL reads as the zero value.
type cells struct {
	values []sqldriver.Value
	n      int // columns
	next   int
	err    error
}

func (c *cells) readAll(rows sqldriver.Rows, read func(c *cells)) error {
	n := len(rows.Columns())
	if len(c.values) < n {
		c.values = make([]sqldriver.Value, n)
	}
	defer clear(c.values[:n])
	for {
		if err := rows.Next(c.values[:n]); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		c.n, c.next, c.err = n, 0, nil
		if read(c); c.err != nil {
			return c.err
		}
	}
}

func (c *cells) value() sqldriver.Value {
	c.next++
	return c.values[c.next-1]
}

// read reads a column into a field of a row.
func (c *cells) read(field any) {
	var ok bool
	var err error
	switch v := c.value().(type) {
	case int64:
		ok = columns.SetInt(field, v)
	case string:
		ok, err = columns.SetBytes(field, v, false)
	case []byte:
		ok, err = columns.SetBytes(field, v, false)
	case nil:
		if ok = columns.SetInt(field, 0); !ok {
			ok, err = columns.SetBytes(field, []byte(nil), true)
		}
	}
	if c.err == nil && !ok {
		err = fmt.Errorf("column %d has a value of type %T, not %T", c.next, c.values[c.next-1],
			columns.Value(field))
	}
	c.err = cmp.Or(c.err, err)
}

func (c *cells) int() (n int64) {
	c.read(&n)
	return n
}

func (c *cells) uint() uint64 { return uint64(c.int()) }

func (c *cells) bool() bool { return c.int() != 0 }

func (c *cells) text() (s string) {
	c.read(&s)
	return s
}

func (c *cells) blob() (b []byte) {
	c.read(&b)
	return b
}
