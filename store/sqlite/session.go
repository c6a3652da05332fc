package sqlite

import (
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
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

// wrong is the error for a column that the store has not written.
func (c *cells) wrong(v sqldriver.Value, want string) {
	if v != nil && c.err == nil {
		c.err = fmt.Errorf("column %d is a %T, not %s", c.next, v, want)
	}
}

func (c *cells) int() int64 {
	v := c.value()
	n, ok := v.(int64)
	if !ok {
		c.wrong(v, "a number")
	}
	return n
}

func (c *cells) uint() uint64 { return uint64(c.int()) }

func (c *cells) bool() bool { return c.int() != 0 }

func (c *cells) text() string {
	switch v := c.value().(type) {
	case string:
		return v
	case []byte: // some drivers return text so
		return string(v)
	default:
		c.wrong(v, "a string")
		return ""
	}
}

func (c *cells) blob() []byte {
	v := c.value()
	b, ok := v.([]byte)
	if !ok {
		c.wrong(v, "bytes")
	}
	return b
}
