package rowstest

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/fairq/fairq/internal/driver"
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

// anyRange returns a range as a Plan may have it.
func (v *views) anyRange() (r rows.Range) {
	val, n := v.values, v.values.count()
	v.oneOf([]choice{
		{2, func() {
			ids := make([]uint64, 1+v.rnd.IntN(20))
			for i := range ids {
				ids[i] = v.rowID()
			}
			slices.Sort(ids)
			r = rows.RowRange(v.chance(2), rows.ForUpdate, slices.Compact(ids)...)
		}},
		{4, func() {
			if r = rows.ReadyRange(val.filter(), n); v.hasLines() {
				r = rows.TurnRange(val.filter(), n)
			}
			if v.chance(3) {
				r.Payload, r.Lock = false, rows.NoLock
			}
		}},
		{2, func() { r = v.turnRange() }},
		{2, func() { r = v.lastRange(val.line()) }},
		{4, func() { r = v.firstRange() }},
		{1, func() { r = rows.NextRange(val.line(), val.round(), val.place()) }},
		{1, func() { r = rows.KeyRange(v.someKeys()) }},
		{1, func() {
			n := v.rnd.Uint64N(20)
			r = rows.AliveRange([]uint64{n, n + 1, 1 << 62})
		}},
	})
	return r
}

// scan reads such a range. It returns the tasks that may be put.
func (v *views) scan(r rows.Range) (found []*rows.Row) {
	c := rows.Calls{View: v}
	switch r.Index {
	case rows.TurnLine, rows.TurnReady, rows.TurnKind:
		_, _ = c.Turns().Scan(r)
	case rows.KeyName:
		_, _ = c.Keys().Scan(r)
	case rows.ConsumerNumber:
		_, _ = c.Consumers().Scan(r)
	default:
		found, _ = c.Rows(r)
	}
	if r.Turns { // a task cannot be put without all its fields
		return nil
	}
	return found
}

// someKeys returns some keys, in order and each once.
func (tx *txs) someKeys() (keys []string) {
	for range pick(tx.rnd, 1, 1, 5) {
		keys = append(keys, tx.values.of(tx.values.keys))
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// firstRange returns a range of the first tasks in the lines of some keys, kinds or priorities.
func (tx *txs) firstRange() rows.Range {
	v := tx.values
	r := rangeOf(v, rows.Tasks, rows.TaskPlace, func() *rows.Row {
		return &rows.Row{
			Key: v.of(v.keys), Kind: v.of(v.kinds), Priority: v.priority(), Place: v.place(),
			State: driver.Ready, InLine: true,
		}
	})
	r.Payload = tx.chance(2)
	return r
}

// turnRange returns a range of turns.
func (tx *txs) turnRange() rows.Range {
	v := tx.values
	i := pick(tx.rnd, rows.TurnLine, rows.TurnReady, rows.TurnKind)
	r := rangeOf(v, rows.Turns, i, v.turn)
	r.Each = r.Each && (i != rows.TurnKind || tx.chance(2))
	return r
}

// rangeOf returns a range of an index, with prefixes and bounds from the places of some rows.
func rangeOf[R any](v values, s rows.Schema[R], i rows.Index, row func() *R) rows.Range {
	place := func() rows.Tuple {
		for {
			if at := s.Place(i, row()); at != nil {
				return at
			}
		}
	}
	r := rows.Range{Index: i, Desc: v.chance(2), Limit: pick(v.rnd, 0, v.count())}
	all := len(place())
	fields := min(v.rnd.IntN(all+1), v.rnd.IntN(all+1)) // few, so that more rows are found
	if fields == all {                                  // a limit would be of no use
		r.Limit = 0
	}
	bound := func() rows.Tuple {
		if fields == all || v.chance(2) {
			return nil
		}
		return place()[fields:][:1+v.rnd.IntN(all-fields)]
	}
	r.From, r.To = bound(), bound()
	for fields > 0 && (r.Prefixes == nil || v.chance(2)) {
		r.Prefixes = append(r.Prefixes, place()[:fields])
	}
	slices.SortFunc(r.Prefixes, rows.Tuple.Compare)
	r.Prefixes = slices.CompactFunc(r.Prefixes,
		func(a, b rows.Tuple) bool { return a.Compare(b) == 0 })
	r.Each = len(r.Prefixes) > 1
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
	plan := &rows.Plan{
		Exclusive: tx.chance(2), Counts: tx.chance(2), Numbers: pick(tx.rnd, 0, 1, 3, 50),
	}
	want, err := tx.want.Enter(id, plan)
	tx.must("Enter of the model", err)
	v := &views{txs: tx, id: id, want: want}
	if want != nil {
		v.model = want.(*memView)
		for range tx.rnd.IntN(8) {
			plan.Ranges = append(plan.Ranges, v.anyRange())
		}
	}
	v.planned = slices.Clone(plan.Ranges)
	tx.note("Enter(%d, %#v)", id, *plan)
	v.got, err = tx.got.Enter(id, plan)
	tx.must("Enter", err)
	if (v.got == nil) != (want == nil) {
		tx.fail("Enter returned %v; the model: %v", v.got, want)
	}
	if want == nil {
		return nil
	}
	tx.views = append(tx.views, v)
	v.checkHead()
	if now := v.got.Now(); now < 1e18 || now > 4e18 {
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
