package postgres

import (
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task/driver"
)

// rowTable implements rows.Table.
type rowTable[R any] struct {
	*view
	*tableOps[R]
}

// tableOps read and write the rows of a table.
type tableOps[R any] struct {
	name, columns string
	read          func(found pgx.Rows, r *R) error
	put           func(v *view, r *R)
	remove        func(v *view, r *R)
	sweep         string // "" if it is not swept
}

func (v *view) Tasks() rows.Table[rows.Row]     { return taskTable{v} }
func (v *view) Keys() rows.Table[rows.Key]      { return rowTable[rows.Key]{v, &keyTable} }
func (v *view) Served() rows.Table[rows.Served] { return rowTable[rows.Served]{v, &servedTable} }
func (v *view) Consumers() rows.Table[rows.Consumer] {
	return rowTable[rows.Consumer]{v, &consumerTable}
}
func (v *view) Groups() rows.Table[rows.Group]     { return rowTable[rows.Group]{v, &groupTable} }
func (v *view) Outcomes() rows.Table[rows.Outcome] { return rowTable[rows.Outcome]{v, &outcomeTable} }

func (v *view) History() rows.Table[rows.Ended] { return rowTable[rows.Ended]{v, &historyTable} }

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
	t.forgetFetched(t.name)
	t.put(t.view, r)
	return nil
}

// Delete implements rows.Table.
func (t rowTable[R]) Delete(r *R) error {
	t.forgetFetched(t.name)
	t.remove(t.view, r)
	return nil
}

// Sweep implements rows.Table. The ranges that are swept differ only in their ends.
func (t rowTable[R]) Sweep(r rows.Range) error {
	t.forgetFetched(t.name)
	if r.Prefixes != nil {
		t.do(t.sweep, r.Prefixes[0][0], r.To[0], r.Limit)
	} else {
		t.do(t.sweep, r.To[0], r.Limit)
	}
	return nil
}

// upsert returns a statement that writes rows with that key, besides the queue, of which the first
// columns are bigint. A column is one whose 0 is NULL (?), a truth (!), one that is not written
// again (.), or one that has always the same value (=).
func upsert(table, key string, ints int, spec string) string {
	var columns, given, values, updates []string
	for _, c := range strings.Fields(spec) {
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
		columns, values = append(columns, name), append(values, value)
		if !isConstant {
			given = append(given, name)
		}
		if !strings.HasSuffix(c, ".") {
			updates = append(updates, name+" = excluded."+name)
		}
	}
	return "INSERT INTO fairq." + table + " (queue, " + strings.Join(columns, ", ") + ") " +
		"SELECT $1, " + strings.Join(values, ", ") + " FROM " + unnest(ints, strings.Join(given, ", ")) +
		" ON CONFLICT (queue, " + key + ") DO UPDATE SET " + strings.Join(updates, ", ")
}

var (
	sqlSetKeys = upsert("keys", "key", 9, "weight tasks ready delayed taken buried held load paused! key.")

	keyTable = tableOps[rows.Key]{
		name:    "keys",
		columns: "key, weight, tasks, ready, delayed, taken, buried, held, load, paused",
		read:    func(found pgx.Rows, k *rows.Key) error { return readKey(found, k) },
		put: func(v *view, k *rows.Key) {
			n := &k.Tasks
			v.buffer(sqlSetKeys).set(k.Key, []int64{
				int64(k.Weight), int64(n[0]), int64(n[driver.Ready]), int64(n[driver.Delayed]),
				int64(n[driver.Taken]), int64(n[driver.Buried]), int64(n[driver.Held]), int64(k.Load), bit(k.Paused),
			}, []byte(k.Key))
		},
		remove: func(v *view, k *rows.Key) {
			v.do("DELETE FROM fairq.keys WHERE queue = $1 AND key = $2", []byte(k.Key))
		},
	}
)

func readKey(found pgx.Rows, k *rows.Key, more ...any) error {
	n := &k.Tasks
	return found.Scan(append([]any{
		(*text)(&k.Key), &k.Weight, &n[0], &n[driver.Ready], &n[driver.Delayed], &n[driver.Taken],
		&n[driver.Buried], &n[driver.Held], &k.Load, &k.Paused,
	}, more...)...)
}

var (
	sqlSetServed = upsert("served", "key, priority", 4, "priority. round used taken key.")

	servedTable = tableOps[rows.Served]{
		name: "served", columns: "key, priority, round, used, taken",
		read: func(found pgx.Rows, s *rows.Served) error {
			return found.Scan((*text)(&s.Key), &s.Priority, &s.Round, &s.Used, &s.Taken)
		},
		put: func(v *view, s *rows.Served) {
			ints := []int64{int64(s.Priority), int64(s.Round), int64(s.Used), int64(s.Taken)}
			v.buffer(sqlSetServed).set(strconv.Itoa(s.Priority)+" "+s.Key, ints, []byte(s.Key))
		},
		sweep: "DELETE FROM fairq.served WHERE ctid = ANY(ARRAY(" +
			"SELECT ctid FROM fairq.served WHERE queue = $1 AND priority = $2 AND round < $3 " +
			"LIMIT $4))",
	}
)

var (
	// Only the deadline of a consumer changes. A change of others would wait for those who have
	// it locked as one that is alive.
	sqlSetConsumers = upsert("consumers", "number", 3, "number. epoch. deadline? name.")

	consumerTable = tableOps[rows.Consumer]{
		name: "consumers", columns: "number, name, epoch, deadline",
		read: func(found pgx.Rows, c *rows.Consumer) error {
			return found.Scan(&c.Number, (*text)(&c.Name), &c.Epoch, (*number)(&c.Deadline))
		},
		put: func(v *view, c *rows.Consumer) {
			ints := []int64{int64(c.Number), int64(c.Epoch), c.Deadline}
			v.buffer(sqlSetConsumers).set(strconv.FormatUint(c.Number, 10), ints, []byte(c.Name))
		},
		remove: func(v *view, c *rows.Consumer) {
			v.do("DELETE FROM fairq.consumers WHERE queue = $1 AND number = $2", int64(c.Number))
		},
	}
)

var (
	sqlSetGroups = upsert("groups", "name", 4, "tasks members started! cancelled! name.")

	groupTable = tableOps[rows.Group]{
		name: "groups", columns: "name, tasks, members, started, cancelled",
		read: func(found pgx.Rows, g *rows.Group) error {
			return found.Scan((*text)(&g.Name), &g.Tasks, &g.Members, &g.Started, &g.Cancelled)
		},
		put: func(v *view, g *rows.Group) {
			ints := []int64{int64(g.Tasks), int64(g.Members), bit(g.Started), bit(g.Cancelled)}
			v.buffer(sqlSetGroups).set(g.Name, ints, []byte(g.Name))
		},
		remove: func(v *view, g *rows.Group) {
			v.do("DELETE FROM fairq.groups WHERE queue = $1 AND name = $2", []byte(g.Name))
		},
	}
)

var (
	sqlSetOutcomes = upsert("outcomes", "unique_key", 4,
		"id result until err_code? unique_key. err_message written=pg_current_xact_id()")

	outcomeTable = tableOps[rows.Outcome]{
		name: "outcomes", columns: "unique_key, id, result, until, err_code, err_message",
		read: func(found pgx.Rows, o *rows.Outcome) error {
			var code number
			var message []byte
			err := found.Scan((*text)(&o.UniqueKey), &o.ID, &o.Result, (*number)(&o.Until), &code, &message)
			o.Err = errorOf(message, code)
			return err
		},
		put: func(v *view, o *rows.Outcome) {
			reason := o.Err
			if o.Result != rows.Failed {
				reason = nil
			}
			ints := []int64{int64(o.ID), int64(o.Result), o.Until, codeOf(reason)}
			v.buffer(sqlSetOutcomes).set(o.UniqueKey, ints, []byte(o.UniqueKey), messageOf(reason))
		},
		remove: func(v *view, o *rows.Outcome) {
			v.do("DELETE FROM fairq.outcomes WHERE queue = $1 AND unique_key = $2",
				[]byte(o.UniqueKey))
		},
		sweep: "DELETE FROM fairq.outcomes WHERE ctid = ANY(ARRAY(SELECT ctid FROM fairq.outcomes " +
			"WHERE queue = $1 AND until < $2 LIMIT $3 FOR UPDATE SKIP LOCKED))",
	}
)

const historyColumns = "id, attempts, created, finished, result, until, err_code, " +
	"key, kind, unique_key, payload, err_message"

var (
	sqlAddHistory = "INSERT INTO fairq.history (queue, " + historyColumns + ") SELECT $1, id, attempts, " +
		"created, finished, result, nullif(until, 0), nullif(err_code, 0), key, kind, unique_key, payload, " +
		"err_message FROM " + unnest(7, historyColumns)

	historyTable = tableOps[rows.Ended]{
		name: "history", columns: historyColumns,
		read: func(found pgx.Rows, d *rows.Ended) error {
			var code number
			var message []byte
			err := found.Scan(&d.ID, &d.Attempts, &d.Created, &d.Finished, &d.Result, (*number)(&d.Until), &code,
				(*text)(&d.Key), (*text)(&d.Kind), (*text)(&d.UniqueKey), &d.Payload, &message)
			d.Err = errorOf(message, code)
			return err
		},
		put: func(v *view, d *rows.Ended) {
			v.buffer(sqlAddHistory).add(
				[]int64{
					int64(d.ID), int64(d.Attempts), d.Created, d.Finished, int64(d.Result), d.Until, codeOf(d.Err),
				},
				[]byte(d.Key), []byte(d.Kind), optional(d.UniqueKey), d.Payload, messageOf(d.Err))
		},
		sweep: "DELETE FROM fairq.history WHERE ctid = ANY(ARRAY(SELECT ctid FROM fairq.history " +
			"WHERE queue = $1 AND until < $2 LIMIT $3 FOR UPDATE SKIP LOCKED))",
	}
)
