// Package columns has the columns and indexes of the tables of package rows, for databases with
// SQL, and reads and writes the fields of their rows.
package columns

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
)

// Column is a column of a table, with the differences between databases that it allows.
type Column struct {
	Name string

	Bool  bool  // else it has numbers if Int is set, or else bytes
	Int   bool  // Bool too
	Small bool  // the numbers have two bytes
	Null  bool  // NULL may stand for Zero
	Zero  int64 // 0, unless it is a number

	marks string // see table
}

// Choice has the numbers of some columns, in order.
type Choice []int

// Table has the columns of a table, without that of its queue.
type Table[R any] struct {
	Name     string
	Schema   rows.Schema[R]
	Columns  []Column
	All, Key Choice // all columns, and those of the primary key

	cells sync.Pool
}

// Cells are a row, with pointers to the values of all columns in it: see Value, SetInt and
// SetBytes.
type Cells[R any] struct {
	Row    R
	Fields []any
}

// table makes a Table from the names of columns with marks behind them:
//
//	s  the values are small numbers
//	?  NULL stands for 0, or for 1 if the column has the mark 1
//	.  a Put of an existing row does not change the column
//	~  a new row mostly has the zero value
//	^  Row.SetTaken changes the column, and sets it to what its task has
//	@  Range.Turns reads the column
func table[R any](
	name string, s rows.Schema[R], marked string, fields func(*R) []any,
) *Table[R] {
	t := &Table[R]{Name: name, Schema: s}
	t.cells.New = func() any {
		c := new(Cells[R])
		c.Fields = fields(&c.Row)
		return c
	}
	for i, field := range fields(new(R)) {
		name, marks, _ := strings.Cut(strings.Fields(marked)[i], ":")
		c := Column{
			Name: name, marks: marks, Small: strings.Contains(marks, "s"),
			Null: strings.Contains(marks, "?"), Zero: int64(strings.Count(marks, "1")),
		}
		_, c.Bool = field.(*bool)
		_, c.Int = Value(field).(int64)
		t.Columns = append(t.Columns, c)
	}
	for _, of := range s {
		is := indexes[of.Index]
		Indexes[of.Index] = Index{name, is[0], strings.Fields(is[1]), is[2]}
	}
	t.All = t.choose(func(*Column) bool { return true })
	key := Indexes[s[0].Index].Fields
	t.Key = t.choose(func(c *Column) bool { return slices.Contains(key, c.Name) })
	return t
}

func (t *Table[R]) choose(is func(c *Column) bool) (some Choice) {
	for i := range t.Columns {
		if is(&t.Columns[i]) {
			some = append(some, i)
		}
	}
	return some
}

// with chooses the columns with a mark.
func (t *Table[R]) with(mark string) Choice {
	return t.choose(func(c *Column) bool { return strings.Contains(c.marks, mark) })
}

// Without chooses the columns without a mark.
func (t *Table[R]) Without(mark string) Choice {
	return t.choose(func(c *Column) bool { return !strings.Contains(c.marks, mark) })
}

// Cells returns cells with a zero row.
func (t *Table[R]) Cells() *Cells[R] { return t.cells.Get().(*Cells[R]) }

// CellsOf returns cells with a copy of a row.
func (t *Table[R]) CellsOf(r *R) *Cells[R] {
	c := t.Cells()
	c.Row = *r
	return c
}

// Done takes back cells, which must not be used after that.
func (t *Table[R]) Done(c *Cells[R]) {
	c.Row = *new(R)
	t.cells.Put(c)
}

// List joins something of each chosen column.
func (t *Table[R]) List(some Choice, what func(c *Column) string) string {
	var all []string
	for _, i := range some {
		all = append(all, what(&t.Columns[i]))
	}
	return strings.Join(all, ", ")
}

// Names lists the names of the chosen columns.
func (t *Table[R]) Names(some Choice) string {
	return t.List(some, func(c *Column) string { return c.Name })
}

// Updates lists what a Put of a row that there is already sets, as SQL.
func (t *Table[R]) Updates() string {
	return t.List(t.Without("."),
		func(c *Column) string { return c.Name + " = excluded." + c.Name })
}

// code and message are the two columns of an error, in this order. Without one, the message is
// NULL.
type (
	code    struct{ of **driver.Error }
	message struct{ of **driver.Error }
)

// Value returns the value of a field as an int64, which a bool is too, a string or bytes. A field
// without a value is nil, which stands for NULL.
func Value(field any) any {
	switch f := field.(type) {
	case *int:
		return int64(*f)
	case *int64:
		return *f
	case *uint64:
		return int64(*f)
	case *uint8:
		return int64(*f)
	case *bool:
		if *f {
			return int64(1)
		}
		return int64(0)
	case code:
		return int64(cmp.Or(*f.of, &driver.Error{}).Code)
	case message:
		if *f.of != nil {
			return (*f.of).Message
		}
	case *string:
		return *f
	case **driver.KeyLimits:
		return rows.LimitsText(*f)
	case *[]byte:
		return *f
	}
	return nil
}

// SetInt sets a field to a number. ok is false if it is not for numbers.
func SetInt(field any, n int64) (ok bool) {
	switch f := field.(type) {
	case *int:
		*f = int(n)
	case *int64:
		*f = n
	case *uint64:
		*f = uint64(n)
	case *uint8:
		*f = uint8(n)
	case *bool:
		*f = n != 0
	case code:
		if *f.of = nil; n != 0 {
			*f.of = &driver.Error{Code: int(n)}
		}
	default:
		return false
	}
	return true
}

// SetBytes sets a field to a string, or to bytes, which it keeps. ok is false if it is not for
// these.
func SetBytes[S string | []byte](field any, b S, null bool) (ok bool, err error) {
	switch f := field.(type) {
	case *string:
		*f = string(b)
	case *[]byte:
		*f = []byte(b)
	case message:
		if e := cmp.Or(*f.of, new(driver.Error)); null {
			*f.of = nil
		} else {
			e.Message, *f.of = string(b), e
		}
	case **driver.KeyLimits:
		*f, err = rows.ParseLimits(string(b))
	default:
		return false, nil
	}
	return true, err
}

// Merged returns the rows that were found for the prefixes of a range, one prefix after the other,
// in the order and up to the Limit of the range.
func (t *Table[R]) Merged(r *rows.Range, found []*R) []*R {
	all := len(Indexes[r.Index].Fields)
	if r.Each || len(r.Prefixes) < 2 || len(r.Prefixes[0]) == all {
		return found
	}
	return t.Schema.Select(r, slices.Values(found))
}

// Pick returns the chosen columns.
func (t *Table[R]) Pick(some Choice) (all []Column) {
	for _, i := range some {
		all = append(all, t.Columns[i])
	}
	return all
}
