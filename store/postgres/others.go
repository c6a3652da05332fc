package postgres

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fairq/fairq/store/internal/rows"
)

const (
	sqlConsumer       = "SELECT number, name, epoch, deadline FROM fairq.consumers WHERE queue = $1 AND name = $2"
	sqlConsumers      = "SELECT number, name, epoch, deadline FROM fairq.consumers WHERE queue = $1 AND number = ANY($2)"
	sqlDueConsumers   = "SELECT number, name, epoch, deadline FROM fairq.consumers WHERE queue = $1 AND deadline <= $2 ORDER BY deadline, number LIMIT $3 FOR UPDATE SKIP LOCKED"
	sqlFindConsumers  = "SELECT number, name, epoch, deadline FROM fairq.consumers WHERE queue = $1 AND name >= $2 AND substr(name, 1, length($2)) = $2 AND (deadline IS NULL OR deadline > $3) ORDER BY coalesce(deadline, 0), number"
	sqlAddConsumer    = "INSERT INTO fairq.consumers (queue, number, name, epoch, deadline) VALUES ($1, $2, $3, $4, nullif($5::bigint, 0))"
	sqlAlive          = "SELECT number FROM fairq.consumers WHERE queue = $1 AND number = ANY($2) ORDER BY number FOR KEY SHARE"
	sqlBeat           = "UPDATE fairq.consumers SET deadline = nullif($3::bigint, 0) WHERE queue = $1 AND number = ANY(ARRAY(SELECT number FROM fairq.consumers WHERE queue = $1 AND number = ANY($2) ORDER BY number FOR NO KEY UPDATE)) RETURNING number"
	sqlDeleteConsumer = "DELETE FROM fairq.consumers WHERE queue = $1 AND number = $2"
)

// consumers reads rows of the table of consumers.
func (v *view) consumers(what, sql string, args ...any) (list []rows.Consumer, err error) {
	err = v.tx.query(what, sql, append([]any{v.queue}, args...), func(r pgx.Rows) error {
		for r.Next() {
			var c rows.Consumer
			var name []byte
			var deadline number
			if err := r.Scan(&c.Number, &name, &c.Epoch, &deadline); err != nil {
				return err
			}
			c.Name, c.Deadline = string(name), int64(deadline)
			list = append(list, c)
		}
		return r.Err()
	})
	return list, err
}

// Consumer implements rows.View.
func (v *view) Consumer(name string) (*rows.Consumer, error) {
	return first(v.consumers("consumer", sqlConsumer, []byte(name)))
}

// AddConsumer implements rows.View.
func (v *view) AddConsumer(name string, epoch uint64, deadline int64) (*rows.Consumer, error) {
	number, err := v.Number()
	if err != nil {
		return nil, err
	}
	v.alive = nil
	v.do(sqlAddConsumer, int64(number), []byte(name), int64(epoch), deadline)
	return &rows.Consumer{Number: number, Name: name, Epoch: epoch, Deadline: deadline}, nil
}

// ConsumerNames implements rows.View.
func (v *view) ConsumerNames(numbers []uint64) (map[uint64]string, error) {
	list, err := v.consumers("consumer names", sqlConsumers, signed(numbers))
	names := make(map[uint64]string, len(list))
	for i := range list {
		names[list[i].Number] = list[i].Name
	}
	return names, err
}

func signed(numbers []uint64) []int64 {
	list := make([]int64, len(numbers))
	for i, n := range numbers {
		list[i] = int64(n)
	}
	return list
}

// Alive implements rows.View.
func (v *view) Alive(numbers []uint64) (found []uint64, err error) {
	for _, n := range numbers {
		if _, ok := v.alive[n]; !ok {
			v.queueAlive(numbers)
			err = v.tx.send("alive")
			break
		}
	}
	for _, n := range numbers {
		if v.alive[n] {
			found = append(found, n)
		}
	}
	return found, err
}

func (v *view) queueAlive(numbers []uint64) {
	v.tx.flush()
	if v.alive == nil {
		v.alive = make(map[uint64]bool, len(numbers))
	}
	for _, n := range numbers {
		v.alive[n] = false
	}
	v.tx.queue(sqlAlive, v.queue, signed(numbers)).Query(func(r pgx.Rows) error {
		found, err := pgx.CollectRows(r, pgx.RowTo[uint64])
		for _, n := range found {
			v.alive[n] = true
		}
		return err
	})
}

// Beat implements rows.View.
func (v *view) Beat(numbers []uint64, deadline int64) (found []uint64, err error) {
	v.nexts = nil
	err = v.tx.query("beat", sqlBeat, []any{v.queue, signed(numbers), deadline}, func(r pgx.Rows) error {
		found, err = pgx.CollectRows(r, pgx.RowTo[uint64])
		return err
	})
	return found, err
}

// DueConsumers implements rows.View.
func (v *view) DueConsumers(now int64, n int) ([]rows.Consumer, error) {
	return v.consumers("due consumers", sqlDueConsumers, now, n)
}

// NextDeadline implements rows.View.
func (v *view) NextDeadline() (int64, error) { return v.next(nextDeadline) }

// DeleteConsumer implements rows.View.
func (v *view) DeleteConsumer(number uint64) error {
	v.alive = nil
	v.do(sqlDeleteConsumer, int64(number))
	return nil
}

// Consumers implements rows.View.
func (v *view) Consumers(prefix string, after int64) ([]rows.Consumer, error) {
	return v.consumers("consumers", sqlFindConsumers, []byte(prefix), after)
}

const (
	sqlGroup         = "SELECT tasks, members, started, cancelled FROM fairq.groups WHERE queue = $1 AND name = $2"
	sqlDeleteGroup   = "DELETE FROM fairq.groups WHERE queue = $1 AND name = $2"
	sqlOutcome       = "SELECT id, how, until, err_code, err_message FROM fairq.outcomes WHERE queue = $1 AND address = $2"
	sqlDeleteOutcome = "DELETE FROM fairq.outcomes WHERE queue = $1 AND address = $2"
	sqlDone          = "SELECT id, key, kind, address, payload, attempts, created, finished, how, until, err_code, err_message FROM fairq.done WHERE queue = $1 AND id > $2 ORDER BY id LIMIT $3"

	// A mark is a snapshot. What was written since is of transactions that were running then, or that began later.
	sqlMark  = "SELECT pg_current_snapshot()::text"
	sqlEnded = `
SELECT o.* FROM (SELECT $2::text::pg_snapshot AS mark) m CROSS JOIN LATERAL (
	(SELECT id, how, err_code, err_message FROM fairq.outcomes WHERE queue = $1 AND written >= pg_snapshot_xmax(mark))
	UNION ALL
	SELECT o.* FROM pg_snapshot_xip(mark) x CROSS JOIN LATERAL (
		SELECT id, how, err_code, err_message FROM fairq.outcomes WHERE queue = $1 AND written = x OFFSET 0
	) o
) o`

	sqlSweepOutcomes = "DELETE FROM fairq.outcomes WHERE ctid = ANY(ARRAY(SELECT ctid FROM fairq.outcomes WHERE queue = $1 AND until <= $2 LIMIT $3 FOR UPDATE SKIP LOCKED))"
	sqlSweepDone     = "DELETE FROM fairq.done WHERE ctid = ANY(ARRAY(SELECT ctid FROM fairq.done WHERE queue = $1 AND until <= $2 LIMIT $3 FOR UPDATE SKIP LOCKED))"
)

var (
	sqlSetGroups = "INSERT INTO fairq.groups (queue, tasks, members, started, cancelled, name) " +
		"SELECT $1, tasks, members, started <> 0, cancelled <> 0, name FROM " +
		unnest(4, "tasks, members, started, cancelled, name") +
		" ON CONFLICT (queue, name) DO UPDATE SET tasks = excluded.tasks, members = excluded.members, started = excluded.started, " +
		"cancelled = excluded.cancelled"

	sqlSetOutcomes = "INSERT INTO fairq.outcomes (queue, id, how, until, err_code, written, address, err_message) " +
		"SELECT $1, id, how, until, nullif(err_code, 0), pg_current_xact_id(), address, err_message FROM " +
		unnest(4, "id, how, until, err_code, address, err_message") +
		" ON CONFLICT (queue, address) DO UPDATE SET id = excluded.id, how = excluded.how, until = excluded.until, " +
		"err_code = excluded.err_code, written = excluded.written, err_message = excluded.err_message"

	sqlAddDone = "INSERT INTO fairq.done (queue, id, attempts, created, finished, how, until, err_code, key, kind, address, payload, err_message) " +
		"SELECT $1, id, attempts, created, finished, how, nullif(until, 0), nullif(err_code, 0), key, kind, address, payload, err_message FROM " +
		unnest(7, "id, attempts, created, finished, how, until, err_code, key, kind, address, payload, err_message")
)

// Group implements rows.View.
func (v *view) Group(name string) (g *rows.Group, err error) {
	err = v.tx.query("group", sqlGroup, []any{v.queue, []byte(name)}, func(r pgx.Rows) error {
		for r.Next() {
			g = &rows.Group{Name: name}
			if err := r.Scan(&g.Tasks, &g.Members, &g.Started, &g.Cancelled); err != nil {
				return err
			}
		}
		return r.Err()
	})
	return g, err
}

// SetGroup implements rows.View.
func (v *view) SetGroup(g *rows.Group) error {
	if g.Tasks == 0 {
		v.do(sqlDeleteGroup, []byte(g.Name))
		return nil
	}
	v.table(sqlSetGroups).set(g.Name,
		[]int64{int64(g.Tasks), int64(g.Members), bit(g.Started), bit(g.Cancelled)}, []byte(g.Name))
	return nil
}

// Outcome implements rows.View.
func (v *view) Outcome(address string) (o *rows.Outcome, err error) {
	err = v.tx.query("outcome", sqlOutcome, []any{v.queue, []byte(address)}, func(r pgx.Rows) error {
		for r.Next() {
			var until, code number
			var message []byte
			o = &rows.Outcome{UniqueKey: address}
			if err := r.Scan(&o.ID, &o.How, &until, &code, &message); err != nil {
				return err
			}
			o.Until, o.Err = int64(until), errorOf(message, code)
		}
		return r.Err()
	})
	return o, err
}

// SetOutcome implements rows.View.
func (v *view) SetOutcome(o *rows.Outcome) error {
	if o.Until == 0 {
		v.do(sqlDeleteOutcome, []byte(o.UniqueKey))
		return nil
	}
	reason := o.Err
	if o.How != rows.Failed {
		reason = nil
	}
	v.table(sqlSetOutcomes).set(o.UniqueKey, []int64{int64(o.ID), int64(o.How), o.Until, codeOf(reason)}, []byte(o.UniqueKey), messageOf(reason))
	return nil
}

// Ended implements rows.View.
func (v *view) Ended(mark string) (ended []*rows.Outcome, next string, err error) {
	v.tx.flush()
	v.tx.queue(sqlMark).QueryRow(func(r pgx.Row) error { return r.Scan(&next) })
	if mark != "" {
		v.tx.queue(sqlEnded, v.queue, mark).Query(func(r pgx.Rows) error {
			for r.Next() {
				var o rows.Outcome
				var code number
				var message []byte
				if err := r.Scan(&o.ID, &o.How, &code, &message); err != nil {
					return err
				}
				o.Err = errorOf(message, code)
				ended = append(ended, &o)
			}
			return r.Err()
		})
	}
	err = v.tx.send("ended")
	return ended, next, err
}

// SweepOutcomes implements rows.View.
func (v *view) SweepOutcomes(now int64, n int) error {
	v.do(sqlSweepOutcomes, now, n)
	return nil
}

// NextOutcome implements rows.View.
func (v *view) NextOutcome() (int64, error) { return v.next(nextOutcome) }

// AddDone implements rows.View.
func (v *view) AddDone(d *rows.Done) error {
	v.table(sqlAddDone).add(
		[]int64{int64(d.ID), int64(d.Attempts), d.Created, d.Finished, int64(d.How), d.Until, codeOf(d.Err)},
		[]byte(d.Key), []byte(d.Kind), optional(d.UniqueKey), d.Payload, messageOf(d.Err))
	return nil
}

// Done implements rows.View.
func (v *view) Done(after uint64, n int) (list []*rows.Done, err error) {
	err = v.tx.query("done", sqlDone, []any{v.queue, clamp(after), n}, func(r pgx.Rows) error {
		for r.Next() {
			var d rows.Done
			var key, kind, address, message pgtype.DriverBytes
			var until, code number
			err := r.Scan(&d.ID, &key, &kind, &address, &d.Payload, &d.Attempts, &d.Created, &d.Finished, &d.How, &until, &code, &message)
			if err != nil {
				return err
			}
			d.Key, d.Kind, d.UniqueKey, d.Until, d.Err = string(key), string(kind), string(address), int64(until), errorOf(message, code)
			list = append(list, &d)
		}
		return r.Err()
	})
	return list, err
}

// SweepDone implements rows.View.
func (v *view) SweepDone(now int64, n int) error {
	v.do(sqlSweepDone, now, n)
	return nil
}

// NextDone implements rows.View.
func (v *view) NextDone() (int64, error) { return v.next(nextDone) }
