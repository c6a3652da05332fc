package rowstest

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/fairq/fairq/store/internal/rows"
)

// txs is a transaction of a driver and one of the model.
type txs struct {
	*pair
	h         *handle
	got, want rows.Tx
	views     []*views // with dropped ones
	created   []uint64 // queues
}

func (p *pair) begin(h *handle) *txs {
	p.note("Begin with handle %d", h.name)
	got, err := h.got.Begin(context.Background())
	p.must("Begin", err)
	p.t.Cleanup(got.Rollback)
	want, err := h.want.Begin(context.Background())
	p.must("Begin of the model", err)
	p.t.Cleanup(want.Rollback)
	return &txs{pair: p, h: h, got: got, want: want}
}

// enter enters some queues, and makes missing ones.
func (tx *txs) enter() {
	var ids []uint64
	for _, name := range tx.names {
		settings := tx.values.bytes()
		switch tx.rnd.IntN(4) {
		case 0:
			continue
		case 1:
			settings = nil
		}
		if id, ok := tx.queue(name, settings); ok {
			ids = append(ids, id)
		}
	}
	if len(tx.ids) > 0 && tx.chance(10) { // perhaps a dropped one
		ids = append(ids, pick(tx.rnd, slices.Sorted(maps.Keys(tx.ids))...))
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		tx.view(id)
	}
}

// left returns the Views of queues that were not dropped.
func (tx *txs) left() (left []*views) {
	for _, v := range tx.views {
		if !v.dropped {
			left = append(left, v)
		}
	}
	return left
}

// rollback also allows the queues made in the transaction to be made again.
func (tx *txs) rollback() {
	tx.note("Rollback")
	tx.got.Rollback()
	tx.want.Rollback()
	for _, v := range tx.views {
		for _, n := range v.given {
			delete(tx.numbers[v.id], n)
		}
	}
	for _, id := range tx.created {
		delete(tx.ids, id)
		delete(tx.numbers, id)
		for _, h := range tx.handles {
			delete(h.numbers, id)
		}
	}
}

// queue returns the id of a queue, if there is one.
func (tx *txs) queue(name string, settings []byte) (uint64, bool) {
	tx.note("Queue(%q, %#v)", name, settings)
	got, err := tx.got.Queue(name, settings)
	tx.must("Queue", err)
	if got != nil {
		if tx.want.(*memTx).get(named(name)) == nil && tx.ids[got.ID] {
			tx.fail("a queue was made with an ID that another one has, or had: %d", got.ID)
		}
		tx.h.want.given = got.ID
	}
	want, err := tx.want.Queue(name, settings)
	tx.h.want.given = 0
	tx.must("Queue of the model", err)
	if tx.equal("Queue", got, want); got == nil {
		return 0, false
	}
	if !tx.ids[got.ID] {
		tx.ids[got.ID] = true
		tx.numbers[got.ID] = map[uint64]bool{}
		tx.created = append(tx.created, got.ID)
	}
	return got.ID, true
}

// planned is a call that a Plan has said. It returns the tasks that it has read.
type planned func(c rows.Calls) []*rows.Row

// plan returns a Plan for a queue, and the calls that it says, which will be made or not.
func (tx *txs) plan(id uint64) (plan *rows.Plan, calls []planned) {
	v, ids, lines := tx.values, []uint64{0, 1 << 62}, []rows.Line{tx.values.line()}
	for _, row := range tx.want.(*memTx).all(id, "Tasks") {
		r := row.(*rows.Row)
		ids, lines = append(ids, r.ID), append(lines, rows.Line{Key: r.Key, Priority: r.Priority})
	}
	slices.Sort(ids)
	slices.SortFunc(lines, rows.Line.Compare)
	plan = &rows.Plan{
		Exclusive: tx.chance(2), Counts: tx.chance(2), Numbers: pick(tx.rnd, 0, 1, 3, 50),
	}
	say := func(call planned, ranges ...rows.Range) {
		plan.Ranges, calls = append(plan.Ranges, ranges...), append(calls, call)
	}
	for range tx.rnd.IntN(4) {
		last := tx.lastRange(pick(tx.rnd, lines...))
		say(func(c rows.Calls) []*rows.Row {
			_, _ = c.Rows(last)
			return nil // rows without all their fields cannot be put
		}, last)
	}
	if n := tx.rnd.IntN(5); n > 0 {
		f := v.filter()
		say(func(c rows.Calls) []*rows.Row {
			found, _ := c.Ready(f, pick(tx.rnd, n, n, 1, 10))
			return found
		}, rows.ReadyRange(f, n))
	}
	if tx.chance(2) {
		payload := tx.chance(2)
		ids = ids[:min(len(ids), 1+tx.rnd.IntN(20))]
		say(func(c rows.Calls) []*rows.Row {
			r, _ := c.Get(pick(tx.rnd, ids...), payload && tx.chance(2))
			return slices.DeleteFunc([]*rows.Row{r}, func(r *rows.Row) bool { return r == nil })
		}, rows.RowRange(payload, rows.ForUpdate, ids...))
	}
	if tx.chance(2) {
		keys, first := rows.KeyRange(tx.someKeys()), tx.firstRange()
		say(func(c rows.Calls) []*rows.Row {
			_, _ = c.Keys().Scan(keys)
			found, _ := c.Rows(first)
			return found
		}, keys, first)
	}
	if tx.chance(2) {
		n := tx.rnd.Uint64N(20)
		plan.Ranges = append(plan.Ranges, rows.AliveRange([]uint64{n, n + 1, 1 << 62}))
	}
	return plan, calls
}

// someKeys returns some keys, in order and each once.
func (tx *txs) someKeys() (keys []string) {
	for range pick(tx.rnd, 1, 1, 5) {
		keys = append(keys, tx.values.of(tx.values.keys))
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// firstRange returns a range of the first ready tasks of some keys, lines or kinds.
func (tx *txs) firstRange() rows.Range {
	v := tx.values
	i := pick(tx.rnd, rows.TaskPlace, rows.TaskKinds, rows.TaskKinds, rows.TaskShown)
	var prefixes []rows.Tuple
	fields := 1 + tx.rnd.IntN(3)
	for range pick(tx.rnd, 1, 1, 5) {
		p := rows.Tuple{v.of(v.keys), int64(v.priority()), int64(tx.rnd.IntN(2))}
		switch i {
		case rows.TaskKinds:
			p = rows.Tuple{p[0], v.of(v.kinds), p[1]}
			fields = max(fields, 2)
		case rows.TaskShown:
			p[1], fields = int64(tx.rnd.IntN(3)), min(fields, 2)
		}
		prefixes = append(prefixes, p[:fields])
	}
	slices.SortFunc(prefixes, rows.Tuple.Compare)
	prefixes = slices.CompactFunc(prefixes, func(a, b rows.Tuple) bool { return a.Compare(b) == 0 })
	r := rows.FirstRange(i, prefixes, 1+tx.rnd.IntN(3), tx.chance(2))
	if i == rows.TaskPlace && tx.chance(2) {
		r.From = [...]rows.Tuple{1: {int64(v.priority())}, 2: {int64(1)}, 3: {int64(v.place())}}[fields]
	}
	return r
}

// lastRange returns the range of the last task of a line, and perhaps of others.
func (tx *txs) lastRange(l rows.Line) rows.Range {
	lines := []rows.Line{l}
	for tx.chance(2) {
		lines = append(lines, tx.values.line())
	}
	slices.SortFunc(lines, rows.Line.Compare)
	return rows.LastRange(pick(tx.rnd, 0, tx.values.round()), slices.Compact(lines)...)
}

// view enters a queue. It returns nil if there is none.
func (tx *txs) view(id uint64) *views {
	plan, calls := tx.plan(id)
	tx.note("Enter(%d, %#v)", id, *plan)
	got, err := tx.got.Enter(id, plan)
	tx.must("Enter", err)
	want, err := tx.want.Enter(id, plan)
	tx.must("Enter of the model", err)
	if (got == nil) != (want == nil) {
		tx.fail("Enter returned %v; the model: %v", got, want)
	}
	if got == nil {
		return nil
	}
	v := &views{txs: tx, id: id, got: got, want: want, model: want.(*memView), planned: calls}
	tx.views = append(tx.views, v)
	v.checkHead()
	if now := got.Now(); now < 1e18 || now > 4e18 {
		tx.fail("Now is %d; that is not nanoseconds since 1970", now)
	}
	return v
}

// checkHead compares a Head that was just returned, and looks whether it may be the same as last
// time.
func (v *views) checkHead() {
	got, want := v.got.Head(), v.want.Head()
	if last := v.h.heads[v.id]; got == last[0] && want != last[1] {
		v.fail("Head of queue %d, handle %d, is the one that it was before others "+
			"wrote, or before a rollback", v.id, v.h.name)
	}
	if got.Rounds == nil {
		v.fail("Head.Rounds is nil; it is to be written to")
	}
	v.h.heads[v.id] = [2]*rows.Head{got, want}
	v.compareHead()
}

func (v *views) compareHead() {
	v.equal("Head", v.got.Head(), v.want.Head())
	if v.got.Head() != v.h.heads[v.id][0] {
		v.fail("two calls of Head of a View return different ones")
	}
}

// note notes a call of the View.
func (v *views) note(format string, args ...any) string {
	return v.pair.note(fmt.Sprintf("queue %d: ", v.id)+format, args...)
}

func (p *pair) equal(what string, got, want any) {
	p.t.Helper()
	if g, w := show(got), show(want); g != w {
		p.fail("%s returned\n\t%s\nthe model:\n\t%s", what, g, w)
	}
}
