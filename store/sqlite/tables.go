package sqlite

import (
	"cmp"
	"slices"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
)

// table implements rows.Table.
type table[R any] struct {
	*view
	*tableOps[R]
}

// tableOps read and write the rows of a table.
type tableOps[R any] struct {
	read   func(c *cells, r *R)
	put    func(v *view, r *R) error
	remove func(v *view, r *R) error
	sweep  *statement // nil if it is not swept
}

// tables are the tables of a view.
type tables struct {
	tasks     table[rows.Row]
	keys      table[rows.Key]
	served    table[rows.Served]
	consumers table[rows.Consumer]
	groups    table[rows.Group]
	outcomes  table[rows.Outcome]
	history   table[rows.Ended]
}

func tablesOf(v *view) tables {
	return tables{
		table[rows.Row]{v, &tasksTable},
		table[rows.Key]{v, &keysTable},
		table[rows.Served]{v, &servedTable},
		table[rows.Consumer]{v, &consumersTable},
		table[rows.Group]{v, &groupsTable},
		table[rows.Outcome]{v, &outcomesTable},
		table[rows.Ended]{v, &historyTable},
	}
}

func (v *view) Tasks() rows.Table[rows.Row]          { return &v.tables.tasks }
func (v *view) Keys() rows.Table[rows.Key]           { return &v.tables.keys }
func (v *view) Served() rows.Table[rows.Served]      { return &v.tables.served }
func (v *view) Consumers() rows.Table[rows.Consumer] { return &v.tables.consumers }
func (v *view) Groups() rows.Table[rows.Group]       { return &v.tables.groups }
func (v *view) Outcomes() rows.Table[rows.Outcome]   { return &v.tables.outcomes }
func (v *view) History() rows.Table[rows.Ended]      { return &v.tables.history }

// Scan implements rows.Table. It locks nothing, because no other connection can write.
func (t *table[R]) Scan(r rows.Range) (all []*R, err error) {
	err = t.view.scan(&r, func(c *cells) {
		row := new(R)
		t.read(c, row)
		all = append(all, row)
	})
	if found, ok := any(all).([]*rows.Row); ok && r.Index == rows.TaskKind {
		slices.SortFunc(found, byTurn)
		all = all[:min(cmp.Or(r.Limit, len(all)), len(all))]
	}
	return all, err
}

func (t *table[R]) Put(r *R) error    { return t.put(t.view, r) }
func (t *table[R]) Delete(r *R) error { return t.remove(t.view, r) }

// Sweep implements rows.Table. The ranges that are swept differ only in their ends.
func (t *table[R]) Sweep(r rows.Range) error {
	if r.Prefixes != nil {
		_, err := t.session.exec(t.sweep, t.queue, r.Prefixes[0][0], r.To[0], int64(r.Limit))
		return err
	}
	_, err := t.session.exec(t.sweep, t.queue, r.To[0], int64(r.Limit))
	return err
}

var (
	tasksTable = tableOps[rows.Row]{readTask, putTask, removeTask, nil}

	keysTable = tableOps[rows.Key]{
		read: func(c *cells, k *rows.Key) {
			k.Key = c.text()
			readStates(c, k)
			k.Paused, k.Waits, k.Until, k.Hold = c.bool(), c.bool(), c.int(), c.int()
			k.By, k.Full = driver.ID(c.uint()), c.int()
			k.Limits = c.limits()
		},
		put: func(v *view, k *rows.Key) error {
			n := &k.Tasks
			return v.do(setKey, v.queue, k.Key, int64(n[driver.Ready]),
				int64(n[driver.Delayed]), int64(n[driver.Taken]), int64(n[driver.Buried]),
				int64(n[driver.Held]),
				bit(k.Paused), bit(k.Waits), k.Until, k.Hold, int64(k.By), k.Full,
				rows.LimitsText(k.Limits))
		},
		remove: func(v *view, k *rows.Key) error { return v.do(deleteKey, v.queue, k.Key) },
	}

	servedTable = tableOps[rows.Served]{
		read: func(c *cells, s *rows.Served) {
			s.Key, s.Priority, s.Round, s.Used = c.text(), int(c.int()), c.uint(), c.uint()
		},
		put: func(v *view, s *rows.Served) error {
			return v.do(setServed, v.queue, int64(s.Priority), s.Key, int64(s.Round), int64(s.Used))
		},
		sweep: sweepServed,
	}

	consumersTable = tableOps[rows.Consumer]{
		read: func(c *cells, r *rows.Consumer) {
			r.Number, r.Name, r.Epoch, r.Deadline = c.uint(), c.text(), c.uint(), c.int()
		},
		put: func(v *view, c *rows.Consumer) error {
			return v.do(setConsumer, v.queue, int64(c.Number), c.Name, int64(c.Epoch), c.Deadline)
		},
		remove: func(v *view, c *rows.Consumer) error {
			return v.do(deleteConsumer, v.queue, int64(c.Number))
		},
	}

	groupsTable = tableOps[rows.Group]{
		read: func(c *cells, g *rows.Group) {
			g.Name, g.Started, g.Cancelled = c.text(), c.bool(), c.bool()
			g.Tasks, g.Members = int(c.int()), int(c.int())
		},
		put: func(v *view, g *rows.Group) error {
			return v.do(setGroup, v.queue, g.Name, bit(g.Started), bit(g.Cancelled), int64(g.Tasks),
				int64(g.Members))
		},
		remove: func(v *view, g *rows.Group) error { return v.do(deleteGroup, v.queue, g.Name) },
	}

	outcomesTable = tableOps[rows.Outcome]{
		read: func(c *cells, o *rows.Outcome) {
			o.UniqueKey, o.ID, o.Result = c.text(), c.uint(), rows.Result(c.int())
			o.Err, o.Until = c.error(), c.int()
		},
		put: func(v *view, o *rows.Outcome) error {
			number, err := v.Number()
			if err != nil {
				return err
			}
			code, message := errorCells(o.Err)
			return v.do(setOutcome, v.queue, o.UniqueKey, int64(o.ID), int64(o.Result), code, message,
				o.Until, int64(number))
		},
		remove: func(v *view, o *rows.Outcome) error {
			return v.do(deleteOutcome, v.queue, o.UniqueKey)
		},
		sweep: sweepOutcomes,
	}

	historyTable = tableOps[rows.Ended]{
		read: func(c *cells, d *rows.Ended) {
			*d = rows.Ended{
				ID: c.uint() & maxID, Key: c.text(), Kind: c.text(), UniqueKey: c.text(),
				Attempts: int(c.int()), Created: c.int(), Finished: c.int(), Result: rows.Result(c.int()),
				Err: c.error(), Until: c.int(), Payload: c.blob(),
			}
		},
		put: func(v *view, d *rows.Ended) error {
			code, message := errorCells(d.Err)
			return v.do(insertHistory, v.rowid(d.ID), v.queue, d.Key, d.Kind, d.UniqueKey,
				int64(d.Attempts), d.Created, d.Finished, int64(d.Result), code, message, d.Until, d.Payload)
		},
		sweep: sweepHistory,
	}
)
