package postgres

import (
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
)

// rowTable implements rows.Table.
type rowTable[R any] struct {
	*view
	*tableOps[R]
}

// tableOps read and write the rows of a table.
type tableOps[R any] struct {
	name    string
	primary func(r *R) rows.Tuple
	fields  func(r *R) []any // pointers to the columns, numbers first

	columns     string
	set, remove rowsSQL
}

// tableOf returns the operations of rows with these columns. fields returns their values, numbers
// first. A suffix marks a column: 0 is NULL (?), a bool (!), never rewritten (.), or always the
// same value (=) and without a field.
func tableOf[R any](schema rows.Schema[R], columns string, fields func(r *R) []any) *tableOps[R] {
	in := &sources[schema[0].Index]
	t := &tableOps[R]{name: in.table, primary: schema[0].Place, fields: fields}
	var all, given, values, updates, same []string
	for _, c := range strings.Fields(columns) {
		c, constant, isConstant := strings.Cut(c, "=")
		name := strings.TrimRight(c, "?!.")
		value := name
		switch {
		case isConstant:
			value = constant
		case strings.HasSuffix(c, "?"):
			value = "nullif(" + name + ", 0)"
		case strings.HasSuffix(c, "!"):
			value = name + " <> 0"
		}
		all, values = append(all, name), append(values, value)
		if !isConstant {
			given = append(given, name)
		}
		if !strings.HasSuffix(c, ".") {
			updates = append(updates, name+" = excluded."+name)
		}
	}
	for _, f := range in.fields {
		same = append(same, f+" = u."+f)
	}
	ints, _ := t.values(new(R))
	key := strings.Join(in.fields, ", ")
	t.columns = strings.Join(given, ", ")
	t.set = withRows(len(ints), t.columns,
		"INSERT INTO fairq."+t.name+" (queue, "+strings.Join(all, ", ")+") "+
			"SELECT $1, "+strings.Join(values, ", ")+" FROM %s "+
			"ON CONFLICT (queue, "+key+") DO UPDATE SET "+strings.Join(updates, ", "))
	ints, _ = valuesOf(t.primary(new(R)))
	t.remove = withRows(len(ints), key, "DELETE FROM fairq."+t.name+" WHERE ctid = ANY(ARRAY("+
		"SELECT t.ctid FROM %s CROSS JOIN LATERAL (SELECT ctid FROM fairq."+t.name+
		" WHERE queue = $1 AND "+strings.Join(same, " AND ")+" OFFSET 0) t))")
	t.remove.deletes = true
	return t
}

// errorCode and errorMessage are two columns of an error, in this order. Without one, the message
// is NULL.
type (
	errorCode    struct{ of **driver.Error }
	errorMessage struct{ of **driver.Error }
)

// limitsText is a column of limits. Without limits it is NULL.
type limitsText struct{ of **driver.KeyLimits }

// ScanBytes implements pgtype.BytesScanner.
func (l limitsText) ScanBytes(text []byte) (err error) {
	*l.of, err = rows.ParseLimits(string(text))
	return err
}

// values returns the columns of a row.
func (t *tableOps[R]) values(r *R) (ints []int64, bytes [][]byte) {
	for _, f := range t.fields(r) {
		switch f := f.(type) {
		case *int:
			ints = append(ints, int64(*f))
		case *int64:
			ints = append(ints, *f)
		case *uint64:
			ints = append(ints, int64(*f))
		case *rows.Result:
			ints = append(ints, int64(*f))
		case *bool:
			ints = append(ints, bit(*f))
		case errorCode:
			ints = append(ints, codeOf(*f.of))
		case *string:
			bytes = append(bytes, []byte(*f))
		case *[]byte:
			bytes = append(bytes, *f)
		case errorMessage:
			bytes = append(bytes, messageOf(*f.of))
		case limitsText:
			bytes = append(bytes, optional(rows.LimitsText(*f.of)))
		}
	}
	return ints, bytes
}

// read reads the columns of a row, and more.
func (t *tableOps[R]) read(found pgx.Rows, r *R, more ...any) error {
	into, failed := t.fields(r), new(*driver.Error)
	var code number
	var message pgtype.DriverBytes
	for i, f := range into {
		switch f := f.(type) {
		case *int64:
			into[i] = (*number)(f)
		case *string:
			into[i] = (*text)(f)
		case errorCode:
			into[i], failed = &code, f.of
		case errorMessage:
			into[i] = &message
		}
	}
	err := found.Scan(append(into, more...)...)
	*failed = errorOf(message, code)
	return err
}

func (v *view) Tasks() rows.Table[rows.Row]     { return taskTable{v} }
func (v *view) Keys() rows.Table[rows.Key]      { return rowTable[rows.Key]{v, keyTable} }
func (v *view) Served() rows.Table[rows.Served] { return rowTable[rows.Served]{v, servedTable} }
func (v *view) Consumers() rows.Table[rows.Consumer] {
	return rowTable[rows.Consumer]{v, consumerTable}
}
func (v *view) Groups() rows.Table[rows.Group] { return rowTable[rows.Group]{v, groupTable} }
func (v *view) Outcomes() rows.Table[rows.Outcome] {
	return rowTable[rows.Outcome]{v, outcomeTable}
}

func (v *view) History() rows.Table[rows.Ended] { return rowTable[rows.Ended]{v, historyTable} }

// Scan implements rows.Table.
func (t rowTable[R]) Scan(r rows.Range) ([]*R, error) {
	if found := t.take(&r); found != nil {
		return *found.(*[]*R), nil
	}
	t.tx.flush()
	found := addRows(t.view, t.tableOps, &r)
	err := t.tx.send("read " + t.name)
	return *found, err
}

// Put implements rows.Table.
func (t rowTable[R]) Put(r *R) error {
	ints, bytes := t.values(r)
	t.write(r, t.set, t.remove, ints, bytes)
	return nil
}

// Delete implements rows.Table.
func (t rowTable[R]) Delete(r *R) error {
	ints, bytes := valuesOf(t.primary(r))
	t.write(r, t.remove, t.set, ints, bytes)
	return nil
}

// write buffers a row for a statement, after the buffered change of the same row by another one.
func (t rowTable[R]) write(r *R, sql, other rowsSQL, ints []int64, bytes [][]byte) {
	t.forgetFetched(t.name)
	var key [2]any
	copy(key[:], t.primary(r))
	for _, b := range t.buffers {
		if _, ok := b.at[key]; ok && b.sql == other {
			t.tx.flush()
			break
		}
	}
	t.buffer(sql).set(key, ints, bytes)
}

// valuesOf returns the values of a tuple whose numbers come first.
func valuesOf(of rows.Tuple) (ints []int64, bytes [][]byte) {
	for _, x := range of {
		switch x := x.(type) {
		case int64:
			ints = append(ints, x)
		case string:
			bytes = append(bytes, []byte(x))
		}
	}
	return ints, bytes
}

// Sweep implements rows.Table.
func (t rowTable[R]) Sweep(r rows.Range) error {
	t.forgetFetched(t.name)
	r.Lock = rows.SkipLocked
	sql, args := t.statement(&r, "ctid")
	t.tx.flush()
	t.tx.add("DELETE FROM fairq."+t.name+" WHERE ctid = ANY(ARRAY("+sql+"))", args...)
	return nil
}

var (
	keyTable = tableOf(rows.Keys,
		"tasks ready delayed taken buried held until? hold? held_by filled? waits! paused! key. limits",
		func(k *rows.Key) []any {
			n := &k.Tasks
			return []any{
				&n[0], &n[driver.Ready], &n[driver.Delayed], &n[driver.Taken], &n[driver.Buried],
				&n[driver.Held],
				&k.Until, &k.Hold, (*uint64)(&k.By), &k.Full, &k.Waits, &k.Paused, &k.Key,
				limitsText{&k.Limits},
			}
		})

	servedTable = tableOf(rows.ServedLines, "priority. round used key.",
		func(s *rows.Served) []any {
			return []any{&s.Priority, &s.Round, &s.Used, &s.Key}
		})

	// Only the deadline of a consumer changes. A change of other columns would wait for
	// transactions that hold a shared lock on it.
	consumerTable = tableOf(rows.Consumers, "number. epoch. deadline? name.",
		func(c *rows.Consumer) []any {
			return []any{&c.Number, &c.Epoch, &c.Deadline, &c.Name}
		})

	groupTable = tableOf(rows.Groups, "tasks members started! cancelled! name.",
		func(g *rows.Group) []any {
			return []any{&g.Tasks, &g.Members, &g.Started, &g.Cancelled, &g.Name}
		})

	outcomeTable = tableOf(rows.Outcomes,
		"id result until err_code? unique_key. err_message written=pg_current_xact_id()",
		func(o *rows.Outcome) []any {
			return []any{&o.ID, &o.Result, &o.Until, errorCode{&o.Err}, &o.UniqueKey, errorMessage{&o.Err}}
		})

	historyTable = tableOf(rows.History,
		"id attempts created finished result until? err_code? key kind unique_key payload err_message",
		func(d *rows.Ended) []any {
			return []any{
				&d.ID, &d.Attempts, &d.Created, &d.Finished, &d.Result, &d.Until,
				errorCode{&d.Err},
				&d.Key, &d.Kind, &d.UniqueKey, &d.Payload,
				errorMessage{&d.Err},
			}
		})
)
