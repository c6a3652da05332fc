package postgres

import (
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task"
)

// rowTable implements rows.Table.
type rowTable[R any] struct {
	*view
	*verbs[R]
}

// verbs are how the rows of a table are read and written.
type verbs[R any] struct {
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
func (v *view) History() rows.Table[rows.Done]     { return rowTable[rows.Done]{v, &historyTable} }

// Scan implements rows.Table.
func (t rowTable[R]) Scan(r rows.Range) ([]*R, error) {
	if found := t.take(&r); found != nil {
		return *found.(*[]*R), nil
	}
	t.tx.flush()
	found := queueRows(t.view, t.verbs, &r)
	err := t.tx.send("read " + t.name)
	return *found, err
}

// Put implements rows.Table.
func (t rowTable[R]) Put(r *R) error {
	t.written(t.name)
	t.put(t.view, r)
	return nil
}

// Delete implements rows.Table.
func (t rowTable[R]) Delete(r *R) error {
	t.written(t.name)
	t.remove(t.view, r)
	return nil
}

// Sweep implements rows.Table. The ranges that are swept differ only in their ends.
func (t rowTable[R]) Sweep(r rows.Range) error {
	t.written(t.name)
	if r.Prefixes != nil {
		t.do(t.sweep, r.Prefixes[0][0], r.To[0], r.Limit)
	} else {
		t.do(t.sweep, r.To[0], r.Limit)
	}
	return nil
}

var (
	sqlSetKeys = "INSERT INTO fairq.keys (queue, weight, tasks, ready, delayed, taken, buried, held, load, paused, key) " +
		"SELECT $1, weight, tasks, ready, delayed, taken, buried, held, load, paused <> 0, key FROM " +
		unnest(9, "weight, tasks, ready, delayed, taken, buried, held, load, paused, key") +
		" ON CONFLICT (queue, key) DO UPDATE SET weight = excluded.weight, tasks = excluded.tasks, ready = excluded.ready, delayed = excluded.delayed, " +
		"taken = excluded.taken, buried = excluded.buried, held = excluded.held, load = excluded.load, paused = excluded.paused"

	keyTable = verbs[rows.Key]{
		name: "keys", columns: "key, weight, tasks, ready, delayed, taken, buried, held, load, paused",
		read: readKey,
		put: func(v *view, k *rows.Key) {
			v.table(sqlSetKeys).set(k.Key, []int64{
				int64(k.Weight), int64(k.Tasks[0]), int64(k.Tasks[task.Ready]), int64(k.Tasks[task.Delayed]), int64(k.Tasks[task.Taken]),
				int64(k.Tasks[task.Buried]), int64(k.Tasks[task.Held]), int64(k.Load), bit(k.Paused),
			}, []byte(k.Key))
		},
		remove: func(v *view, k *rows.Key) {
			v.do("DELETE FROM fairq.keys WHERE queue = $1 AND key = $2", []byte(k.Key))
		},
	}
)

func readKey(found pgx.Rows, k *rows.Key) error {
	var name []byte
	n := &k.Tasks
	err := found.Scan(&name, &k.Weight, &n[0], &n[task.Ready], &n[task.Delayed], &n[task.Taken], &n[task.Buried], &n[task.Held],
		&k.Load, &k.Paused)
	k.Key = string(name)
	return err
}

var (
	sqlSetServed = "INSERT INTO fairq.served (queue, priority, round, key) SELECT $1, priority, round, key FROM " +
		unnest(2, "priority, round, key") + " ON CONFLICT (queue, key, priority) DO UPDATE SET round = excluded.round"

	servedTable = verbs[rows.Served]{
		name: "served", columns: "key, priority, round",
		read: func(found pgx.Rows, s *rows.Served) error {
			var key []byte
			err := found.Scan(&key, &s.Priority, &s.Round)
			s.Key = string(key)
			return err
		},
		put: func(v *view, s *rows.Served) {
			v.table(sqlSetServed).set(strconv.Itoa(s.Priority)+" "+s.Key, []int64{int64(s.Priority), int64(s.Round)}, []byte(s.Key))
		},
		sweep: "DELETE FROM fairq.served WHERE ctid = ANY(ARRAY(" +
			"SELECT ctid FROM fairq.served WHERE queue = $1 AND priority = $2 AND round < $3 LIMIT $4))",
	}
)

var (
	// Only the deadline of a consumer changes. A change of others would wait for those who have
	// it locked as one that is alive.
	sqlSetConsumers = "INSERT INTO fairq.consumers (queue, number, epoch, deadline, name) SELECT $1, number, epoch, nullif(deadline, 0), name FROM " +
		unnest(3, "number, epoch, deadline, name") + " ON CONFLICT (queue, number) DO UPDATE SET deadline = excluded.deadline"

	consumerTable = verbs[rows.Consumer]{
		name: "consumers", columns: "number, name, epoch, deadline",
		read: func(found pgx.Rows, c *rows.Consumer) error {
			var name []byte
			var deadline number
			err := found.Scan(&c.Number, &name, &c.Epoch, &deadline)
			c.Name, c.Deadline = string(name), int64(deadline)
			return err
		},
		put: func(v *view, c *rows.Consumer) {
			v.table(sqlSetConsumers).set(strconv.FormatUint(c.Number, 10), []int64{int64(c.Number), int64(c.Epoch), c.Deadline}, []byte(c.Name))
		},
		remove: func(v *view, c *rows.Consumer) {
			v.do("DELETE FROM fairq.consumers WHERE queue = $1 AND number = $2", int64(c.Number))
		},
	}
)

var (
	sqlSetGroups = "INSERT INTO fairq.groups (queue, tasks, members, started, cancelled, name) " +
		"SELECT $1, tasks, members, started <> 0, cancelled <> 0, name FROM " +
		unnest(4, "tasks, members, started, cancelled, name") +
		" ON CONFLICT (queue, name) DO UPDATE SET tasks = excluded.tasks, members = excluded.members, started = excluded.started, " +
		"cancelled = excluded.cancelled"

	groupTable = verbs[rows.Group]{
		name: "groups", columns: "name, tasks, members, started, cancelled",
		read: func(found pgx.Rows, g *rows.Group) error {
			var name []byte
			err := found.Scan(&name, &g.Tasks, &g.Members, &g.Started, &g.Cancelled)
			g.Name = string(name)
			return err
		},
		put: func(v *view, g *rows.Group) {
			v.table(sqlSetGroups).set(g.Name,
				[]int64{int64(g.Tasks), int64(g.Members), bit(g.Started), bit(g.Cancelled)}, []byte(g.Name))
		},
		remove: func(v *view, g *rows.Group) {
			v.do("DELETE FROM fairq.groups WHERE queue = $1 AND name = $2", []byte(g.Name))
		},
	}
)

var (
	sqlSetOutcomes = "INSERT INTO fairq.outcomes (queue, id, how, until, err_code, written, address, err_message) " +
		"SELECT $1, id, how, until, nullif(err_code, 0), pg_current_xact_id(), address, err_message FROM " +
		unnest(4, "id, how, until, err_code, address, err_message") +
		" ON CONFLICT (queue, address) DO UPDATE SET id = excluded.id, how = excluded.how, until = excluded.until, " +
		"err_code = excluded.err_code, written = excluded.written, err_message = excluded.err_message"

	outcomeTable = verbs[rows.Outcome]{
		name: "outcomes", columns: "address, id, how, until, err_code, err_message",
		read: func(found pgx.Rows, o *rows.Outcome) error {
			var until, code number
			var address, message []byte
			err := found.Scan(&address, &o.ID, &o.How, &until, &code, &message)
			o.UniqueKey, o.Until, o.Err = string(address), int64(until), errorOf(message, code)
			return err
		},
		put: func(v *view, o *rows.Outcome) {
			reason := o.Err
			if o.How != rows.Failed {
				reason = nil
			}
			v.table(sqlSetOutcomes).set(o.UniqueKey, []int64{int64(o.ID), int64(o.How), o.Until, codeOf(reason)}, []byte(o.UniqueKey), messageOf(reason))
		},
		remove: func(v *view, o *rows.Outcome) {
			v.do("DELETE FROM fairq.outcomes WHERE queue = $1 AND address = $2", []byte(o.UniqueKey))
		},
		sweep: "DELETE FROM fairq.outcomes WHERE ctid = ANY(ARRAY(SELECT ctid FROM fairq.outcomes WHERE queue = $1 AND until < $2 LIMIT $3 FOR UPDATE SKIP LOCKED))",
	}
)

var (
	sqlAddDone = "INSERT INTO fairq.done (queue, id, attempts, created, finished, how, until, err_code, key, kind, address, payload, err_message) " +
		"SELECT $1, id, attempts, created, finished, how, nullif(until, 0), nullif(err_code, 0), key, kind, address, payload, err_message FROM " +
		unnest(7, "id, attempts, created, finished, how, until, err_code, key, kind, address, payload, err_message")

	historyTable = verbs[rows.Done]{
		name: "done", columns: "id, key, kind, address, payload, attempts, created, finished, how, until, err_code, err_message",
		read: func(found pgx.Rows, d *rows.Done) error {
			var key, kind, address, message pgtype.DriverBytes
			var until, code number
			err := found.Scan(&d.ID, &key, &kind, &address, &d.Payload, &d.Attempts, &d.Created, &d.Finished, &d.How, &until, &code, &message)
			d.Key, d.Kind, d.UniqueKey, d.Until, d.Err = string(key), string(kind), string(address), int64(until), errorOf(message, code)
			return err
		},
		put: func(v *view, d *rows.Done) {
			v.table(sqlAddDone).add(
				[]int64{int64(d.ID), int64(d.Attempts), d.Created, d.Finished, int64(d.How), d.Until, codeOf(d.Err)},
				[]byte(d.Key), []byte(d.Kind), optional(d.UniqueKey), d.Payload, messageOf(d.Err))
		},
		sweep: "DELETE FROM fairq.done WHERE ctid = ANY(ARRAY(SELECT ctid FROM fairq.done WHERE queue = $1 AND until < $2 LIMIT $3 FOR UPDATE SKIP LOCKED))",
	}
)
