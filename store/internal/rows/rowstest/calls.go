package rowstest

import (
	"cmp"
	"slices"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
)

// random makes one of the calls, or some that belong together.
func (v *views) random() {
	c, val := rows.Calls{View: v}, v.values
	v.oneOf([]choice{
		{10, func() { v.insert(c) }},
		{8, func() { v.update(c) }},
		{10, func() { v.take(c) }},
		{4, func() { v.delete(c) }},
		{22, func() { v.find(c) }},
		{4, func() { v.save(c) }},
		{20, func() { table(v, c.Turns(), rows.Turns, val.turn, v.mayPutTurns()) }},
		{5, func() { table(v, c.Keys(), rows.Keys, val.key, true) }},
		{4, func() { table(v, c.Served(), rows.ServedLines, val.served, true) }},
		{4, func() { table(v, c.Groups(), rows.Groups, val.group, true) }},
		{5, func() {
			outcome := func() *rows.Outcome { return val.outcome(v.rowID()) }
			table(v, c.Outcomes(), rows.Outcomes[:2], outcome, true) // the third index is the driver's
		}},
		{8, func() { v.consumers(c) }},
		{6, func() { v.history(c) }},
		{14, func() { v.others(c) }},
		{1, func() { v.drop(c) }},
	})
}

// table reads a random range of a table, or writes some random rows.
func table[R any](
	v *views, t rows.Table[R], s rows.Schema[R], row func() *R, mayWrite bool,
) {
	if !mayWrite || v.chance(2) {
		_, _ = t.Scan(rangeOf(v.values, s, pick(v.rnd, s...).Index, row))
		return
	}
	for range pick(v.rnd, 1, 5) {
		if v.chance(4) {
			v.must("Delete", t.Delete(row()))
		} else {
			v.must("Put", t.Put(row()))
		}
	}
}

// hasLines reports whether the queue has lines: then it has turns, and no Takeable tasks.
func (v *views) hasLines() bool { return v.id%2 == 0 }

// mayPutTurns reports whether the transaction may put turns: it has locked no key.
func (v *views) mayPutTurns() bool {
	return v.hasLines() && (v.model.exclusive || v.h.got.Traits().Optimistic)
}

// choice is a call, and its weight in the random choice.
type choice struct {
	weight int
	call   func()
}

func (v *views) oneOf(all []choice) {
	sum := 0
	for _, c := range all {
		sum += c.weight
	}
	n := v.rnd.IntN(sum)
	for _, c := range all {
		if n -= c.weight; n < 0 {
			c.call()
			return
		}
	}
}

// held returns the numbers of all consumers.
func (v *views) held() (numbers []uint64) {
	for c := range v.model.consumers().all() {
		numbers = append(numbers, c.Number)
	}
	slices.Sort(numbers)
	return numbers
}

// rowID returns the id of a row, rarely of a missing one.
func (v *views) rowID() uint64 {
	var ids []uint64
	for r := range v.model.tasks().all() {
		ids = append(ids, r.ID)
	}
	if len(ids) == 0 || v.chance(8) {
		return pick(v.rnd, 0, 1<<62, v.rnd.Uint64N(50))
	}
	slices.Sort(ids)
	return pick(v.rnd, ids...)
}

// uniqueKey returns a unique key that no row has.
func (v *views) uniqueKey() string {
	uniqueKey := v.values.of(v.values.uniqueKeys)
	for r := range v.model.tasks().all() {
		if r.UniqueKey == uniqueKey {
			return ""
		}
	}
	return uniqueKey
}

func (v *views) insert(c rows.Calls) {
	var first *rows.Row
	for range pick(v.rnd, 1, 1, 5, 20) {
		id, _ := c.Number()
		r := v.values.row(id, v.uniqueKey(), v.held())
		if first = cmp.Or(first, r); v.chance(2) { // some lines are to be long
			r.Key, r.Kind, r.Priority = first.Key, first.Kind, first.Priority
		}
		v.put(c, r)
		if v.chance(3) {
			v.change(c, r)
		}
	}
}

func (v *views) change(c rows.Calls, r *rows.Row) {
	v.values.change(r, v.held())
	v.put(c, r)
}

func (v *views) put(c rows.Calls, r *rows.Row) {
	if v.hasLines() {
		r.Takeable = false
	} else {
		r.InLine = false
	}
	v.must("Put", c.Put(r))
	v.look(c, r)
}

// look reads, now and then, what a task has been written as that may not have been sent yet.
func (v *views) look(c rows.Calls, r *rows.Row) {
	v.oneOf([]choice{
		{6, func() {}},
		{1, func() { _, _ = c.Get(r.ID, v.chance(2)) }},
		{2, func() { _, _ = c.Rows(v.lastRange(rows.Line{Key: r.Key, Priority: r.Priority})) }},
	})
}

func (v *views) update(c rows.Calls) {
	for _, r := range v.found(c) {
		v.change(c, r)
		if v.chance(4) {
			v.change(c, r)
		}
	}
}

func (v *views) take(c rows.Calls) {
	consumers := v.held()
	if len(consumers) == 0 {
		return
	}
	for _, r := range v.found(c) {
		if r.State != driver.Ready {
			continue
		}
		v.values.take(r, pick(v.rnd, consumers...))
		v.put(c, r)
		if v.chance(4) {
			v.change(c, r)
		}
	}
}

// delete deletes rows. Some were changed before, and put or not.
func (v *views) delete(c rows.Calls) {
	for _, r := range v.found(c) {
		switch v.rnd.IntN(4) {
		case 0:
			v.change(c, r)
		case 1:
			r.State = pick(v.rnd, driver.Ready, driver.Taken, driver.Buried)
		}
		v.must("Delete", c.Delete(r))
		v.look(c, r)
	}
}

// found returns some rows that may be changed, read in any way: if the View is not exclusive, some
// of these ways lock nothing.
func (v *views) found(c rows.Calls) []*rows.Row {
	found := v.find(c)
	found = found[:min(len(found), pick(v.rnd, 2, 10))]
	return slices.DeleteFunc(found, func(r *rows.Row) bool { return !v.model.mayWrite(r) })
}

// find reads rows in a random way.
func (v *views) find(c rows.Calls) (found []*rows.Row) {
	val, n, payload := v.values, v.values.count(), v.chance(2)
	one := func(r *rows.Row, _ error) {
		if r != nil {
			found = []*rows.Row{r}
		}
	}
	all := func(list []*rows.Row, _ error) { found = list }
	v.oneOf([]choice{
		{3, func() { one(c.Get(v.rowID(), payload)) }},
		{1, func() { all(c.Peek(slices.Compact([]uint64{v.rowID(), 1 << 61}), payload)) }},
		{1, func() { one(c.ByUniqueKey(val.of(val.uniqueKeys), payload)) }},
		{1, func() { all(c.Due(val.now(), n, payload)) }},
		{1, func() { all(c.TakenBy(pick(v.rnd, append(v.held(), 1<<62)...), n, payload)) }},
		{1, func() {
			o := v.listOptions()
			o.Limit = n
			all(c.Buried(o))
		}},
		{1, func() { all(c.InGroup(val.of(val.groups), 0, n)) }},
		{1, func() { all(c.List(v.listOptions())) }},
		{6, func() { found = v.scan(v.anyRange()) }},
		{10 * min(1, len(v.planned)), func() {
			r := pick(v.rnd, v.planned...)
			if r.Limit > 0 && v.chance(3) {
				r.Limit = n
			}
			found = v.scan(r)
		}},
	})
	return found
}

func (v *views) listOptions() driver.ListOptions {
	val := v.values
	o := driver.ListOptions{
		After: driver.ID(pick(v.rnd, 0, 0, v.rowID())), Limit: pick(v.rnd, 0, val.count()),
	}
	if v.chance(4) {
		o.State = pick(v.rnd, driver.Ready, driver.Delayed, driver.Taken, driver.Buried, driver.Held)
	}
	if v.chance(4) {
		o.Key = new(val.of(val.keys))
	}
	if v.chance(4) {
		o.Kind = new(val.of(val.kinds))
	}
	if v.chance(4) {
		o.Group = val.of(val.groups)
	}
	return o
}

// others makes a call that reads no rows of tasks, or is about nothing else here.
func (v *views) others(c rows.Calls) {
	v.oneOf([]choice{
		{1, func() {
			_, _, _ = c.Deletable(driver.ListOptions{
				Key: new(v.values.of(v.values.keys)), Kind: pick(v.rnd, nil, new(v.values.of(v.values.kinds))),
			}, v.values.count())
		}},
		{1, func() { _, _ = c.Times(v.chance(2)) }},
		{1, func() { _, _, _ = c.CountKeys("", 2) }},
		{1, func() { _, _ = c.Counts() }},
		{1, func() { _, _ = c.KeyStats(v.values.count()) }},
		{1, func() { _, _ = c.DueKeys(v.values.now(), v.values.count()) }},
		{1, func() { _, _ = c.FullKeys(v.values.now(), v.values.count()) }},
		{1, func() { _, _ = c.Group(v.values.of(v.values.groups)) }},
		{1, func() { _ = c.SweepServed(v.values.priority(), v.values.round(), v.values.count()) }},
		{1, func() { _ = c.SweepOutcomes(v.values.now(), v.values.count()) }},
		{1, func() { _, _ = c.Leases(pick(v.rnd, append(v.held(), 1<<62)...)) }},
		{1, func() {
			for range pick(v.rnd, 1, 1, 60) { // more than are fetched at once
				_, _ = c.Number()
			}
		}},
		{1, func() { v.compareHead(); v.Now() }},
	})
}

// save changes the Head as the callers do.
func (v *views) save(c rows.Calls) {
	h := c.Head()
	for range v.rnd.IntN(3) {
		priority := v.values.priority()
		round := max(h.Rounds[priority], pick(v.rnd, v.values.round(), h.Rounds[priority]+1))
		if round != 0 {
			h.Rounds[priority] = round
		}
	}
	switch v.rnd.IntN(4) {
	case 0:
		h.Paused = !h.Paused
	case 1:
		h.PausedKeys = v.rnd.IntN(5)
	case 2:
		h.Settings = slices.Clone(v.values.bytes())
	}
	v.must("Save", c.Save())
	if v.chance(3) {
		v.compareHead()
	}
}

func (v *views) consumers(c rows.Calls) {
	val := v.values
	name := val.of(val.consumers)
	numbers := append(v.held(), 1<<62)
	v.rnd.Shuffle(len(numbers), func(i, j int) { numbers[i], numbers[j] = numbers[j], numbers[i] })
	some := numbers[:v.rnd.IntN(len(numbers)+1)]
	v.oneOf([]choice{
		{2, func() {
			if found, _ := c.Consumer(name); found == nil {
				_, _ = c.AddConsumer(name, uint64(v.rnd.IntN(3)), val.time())
			}
		}},
		{1, func() { _, _ = c.Alive(some) }},
		{1, func() {
			table(v, c.Consumers(), rows.Consumers, func() *rows.Consumer {
				return &rows.Consumer{
					Number: pick(v.rnd, numbers...), Name: val.of(val.consumers), Deadline: val.time(),
				}
			}, false)
		}},
		{1, func() { _, _ = c.Renew(some, val.time()) }},
		{2, func() { _, _ = c.DueConsumers(val.now(), val.count()) }},
		{1, func() { v.deleteConsumer(c) }},
	})
}

// deleteConsumer deletes a consumer that holds nothing.
func (v *views) deleteConsumer(c rows.Calls) {
	for _, n := range v.held() {
		if held, _ := c.Leases(n); len(held) == 0 {
			v.must("DeleteConsumer", c.DeleteConsumer(n))
			return
		}
	}
}

// history makes a call that is about tasks that are gone.
func (v *views) history(c rows.Calls) {
	val := v.values
	v.oneOf([]choice{
		{2, func() {
			id, _ := c.Number()
			d := &rows.Ended{
				ID: id, Key: val.of(val.keys), Kind: val.of(val.kinds), Payload: val.payload(),
				Attempts: v.rnd.IntN(3),
				Created:  val.time(), Finished: val.time(), Result: rows.Result(v.rnd.IntN(5)),
				Err: val.reason(), Until: val.time(),
			}
			if v.chance(2) {
				d.UniqueKey = val.of(val.uniqueKeys)
			}
			v.must("Put", c.History().Put(d))
		}},
		{1, func() { _, _ = c.HistoryAfter(pick(v.rnd, 0, v.rowID()), val.count()) }},
		{1, func() { _ = c.SweepHistory(val.now(), val.count()) }},
	})
}

// drop drops the queue, and perhaps makes one of its name again.
func (v *views) drop(c rows.Calls) {
	if v.chance(3) {
		return
	}
	name := v.model.at.key[0].(string)
	if done, _ := c.Drop(); !done {
		v.fail("Drop of a few rows is not done in one step")
	}
	if v.chance(2) {
		return
	}
	id, _ := v.queue(name, v.values.bytes())
	last := slices.MaxFunc(v.views, func(a, b *views) int { return cmp.Compare(a.id, b.id) })
	if id > last.id && id != 0 {
		v.view(id)
	}
}

// compareAll compares all that can be read.
func (v *views) compareAll() {
	v.compareHead()
	c, val := rows.Calls{View: v}, v.values
	_, _ = c.Counts()
	_, _, _ = c.CountKeys("", 2)
	_, _ = c.List(driver.ListOptions{Limit: 1 << 30})
	_, _ = c.Rows(rows.ReadyRange(everything, 1<<30))
	for _, i := range []rows.Index{rows.TurnLine, rows.TurnReady, rows.TurnKind} {
		_, _ = c.Turns().Scan(rows.Range{Index: i})
	}
	ofKinds := rows.Filter{MaxPriority: driver.MaxPriority, Kinds: val.kinds}
	for n := range 4 {
		_, _ = c.Turns().Scan(rows.TurnRange(ofKinds, n)) // merged
	}
	_, _ = c.KeyStats(0)
	_, _ = c.KeyStats(1 << 30)
	_, _ = c.ConsumersNamed("", 0)
	_, _ = c.HistoryAfter(0, 1<<30)
	for _, key := range val.keys {
		_, _ = c.Keys().Scan(rows.KeyRange([]string{key}))
		_, _ = c.Rows(rows.FirstRange(rows.TaskPlace, []rows.Tuple{{key}}, 1, true))
		for _, priority := range []int{0, 1, driver.MaxPriority} {
			_, _ = c.ServedOf(rows.Line{Key: key, Priority: priority})
		}
	}
	for _, g := range val.groups {
		_, _ = c.Group(g)
	}
	for _, k := range val.uniqueKeys {
		_, _ = c.Outcome(k)
	}
}
