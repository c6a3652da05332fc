package postgres

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task"
)

// Peek implements rows.View.
func (v *view) Peek(ids []uint64, payload bool) (found []*rows.Row, err error) {
	sql := sqlPeek
	if payload {
		sql = sqlPeekWhole
	}
	err = v.tx.query("peek", sql, []any{v.queue, signed(ids)}, v.scanner(payload, func(r *rows.Row) { found = append(found, r) }))
	return found, err
}

// ByUniqueKey implements rows.View.
func (v *view) ByUniqueKey(address string, payload bool) (*rows.Row, error) {
	return v.one("by address", payload, "WHERE queue = $1 AND address = $2", []byte(address))
}

// Due implements rows.View.
func (v *view) Due(now int64, n int, payload bool) ([]*rows.Row, error) {
	return v.list("due", payload, "WHERE queue = $1 AND wake <= $2 ORDER BY wake LIMIT $3 FOR UPDATE SKIP LOCKED", now, n)
}

// The earliest times are asked for together, so they are read together.
var sqlNext = [...]string{
	nextWake:     "SELECT min(wake) FROM fairq.tasks WHERE queue = $1 AND wake IS NOT NULL",
	nextDeadline: "SELECT min(deadline) FROM fairq.consumers WHERE queue = $1 AND deadline IS NOT NULL",
	nextOutcome:  "SELECT min(until) FROM fairq.outcomes WHERE queue = $1 AND until IS NOT NULL",
	nextDone:     "SELECT min(until) FROM fairq.done WHERE queue = $1 AND until IS NOT NULL",
}

const (
	nextWake = iota
	nextDeadline
	nextOutcome
	nextDone
)

func (v *view) next(which int) (int64, error) {
	if v.nexts == nil {
		nexts := &[len(sqlNext)]number{}
		v.tx.flush()
		for i, sql := range sqlNext {
			v.tx.queue(sql, v.queue).QueryRow(func(r pgx.Row) error { return r.Scan(&nexts[i]) })
		}
		if err := v.tx.send("next times"); err != nil {
			return 0, err
		}
		v.nexts = nexts
	}
	return int64(v.nexts[which]), nil
}

// NextWake implements rows.View.
func (v *view) NextWake() (int64, error) { return v.next(nextWake) }

// HeldBy implements rows.View.
func (v *view) HeldBy(consumer uint64, n int, payload bool) ([]*rows.Row, error) {
	return v.list("held by", payload, "WHERE queue = $1 AND consumer = $2 ORDER BY since LIMIT $3 FOR UPDATE SKIP LOCKED", int64(consumer), n)
}

// Leases implements rows.View.
func (v *view) Leases(consumer uint64) (map[uint64]uint64, error) {
	leases := map[uint64]uint64{}
	err := v.tx.query("leases", "SELECT id, since FROM fairq.tasks WHERE queue = $1 AND consumer = $2", []any{v.queue, int64(consumer)},
		func(r pgx.Rows) error {
			for r.Next() {
				var id, since uint64
				if err := r.Scan(&id, &since); err != nil {
					return err
				}
				leases[id] = since
			}
			return r.Err()
		})
	return leases, err
}

// Buried implements rows.View.
func (v *view) Buried(n int) ([]*rows.Row, error) {
	return v.list("buried", false, "WHERE queue = $1 AND state = 4 ORDER BY since LIMIT $2 FOR UPDATE SKIP LOCKED", n)
}

// InGroup implements rows.View.
func (v *view) InGroup(group string) ([]*rows.Row, error) {
	return v.list("in group", false, "WHERE queue = $1 AND grp = $2 ORDER BY id", []byte(group))
}

// clamp returns an id as the database takes it; there are none that are greater.
func clamp(id uint64) int64 { return int64(min(id, math.MaxInt64)) }

// List implements rows.View.
func (v *view) List(o task.ListOptions) ([]*rows.Row, error) {
	where := strings.Builder{}
	where.WriteString("WHERE queue = $1 AND id > $2")
	args := []any{clamp(uint64(o.After))}
	and := func(column string, value any) {
		args = append(args, value)
		fmt.Fprintf(&where, " AND %s = $%d", column, len(args)+1)
	}
	if o.State != 0 {
		and("state", int64(o.State))
	}
	if o.Key != nil {
		and("key", []byte(*o.Key))
	}
	if o.Kind != nil {
		and("kind", []byte(*o.Kind))
	}
	if o.Group != "" {
		and("grp", []byte(o.Group))
	}
	fmt.Fprintf(&where, " ORDER BY id LIMIT %d", cmp.Or(o.Limit, 100))
	return v.list("list", true, where.String(), args...)
}

// Next implements rows.View.
func (v *view) Next(l rows.Line, round, seq uint64) (*rows.Row, error) {
	return v.one("next", false, "WHERE queue = $1 AND key = $2 AND priority = $3 AND (round, seq) > ($4, $5) AND round > 0 AND state = 1 "+
		"ORDER BY round, seq LIMIT 1 FOR UPDATE SKIP LOCKED", []byte(l.Key), int64(l.Priority), int64(round), int64(seq))
}

// Hide implements rows.View.
func (v *view) Hide(key string) error {
	v.do("UPDATE fairq.tasks SET takeable = false WHERE queue = $1 AND key = $2 AND takeable", []byte(key))
	v.got, v.ready, v.readyOK = nil, nil, false
	return nil
}

// Newest implements rows.View.
func (v *view) Newest(key string) (*rows.Row, error) {
	return v.one("newest", false, "WHERE queue = $1 AND key = $2 AND counted ORDER BY since DESC LIMIT 1", []byte(key))
}

// Oldest implements rows.View.
func (v *view) Oldest(key string) (*rows.Row, error) {
	return v.one("oldest", false, "WHERE queue = $1 AND key = $2 AND counted ORDER BY since LIMIT 1", []byte(key))
}
