package rowstest

import (
	"cmp"
	"slices"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/life"
	"github.com/fairq/fairq/store/internal/rows"
)

// random makes one of the calls, or some that belong together.
func (v *views) random() {
	c := rows.Calls{View: v}
	v.oneOf([]choice{
		{10, func() { v.insert(c) }},
		{8, func() { v.update(c) }},
		{6, func() { v.take(c) }},
		{4, func() { v.delete(c) }},
		{22, func() { v.find(c) }},
		{4, func() { v.save(c) }},
		{7, func() { v.keys(c) }},
		{5, func() { v.served(c) }},
		{8, func() { v.consumers(c) }},
		{5, func() { v.groups(c) }},
		{6, func() { v.outcomes(c) }},
		{6, func() { v.history(c) }},
		{8, func() { v.others(c) }},
		{1, func() { v.drop(c) }},
	})
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
	ready, _ := c.Ready(v.values.filter(), v.values.count())
	for _, r := range ready {
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
		{1, func() { all(c.Ready(val.filter(), n)) }},
		{1, func() { all(c.Due(val.now(), n, payload)) }},
		{1, func() { all(c.TakenBy(pick(v.rnd, append(v.held(), 1<<62)...), n, payload)) }},
		{1, func() {
			o := v.listOptions()
			o.Limit = n
			all(c.Buried(o))
		}},
		{1, func() { all(c.InGroup(val.of(val.groups), 0, n)) }},
		{1, func() { all(c.List(v.listOptions())) }},
		{1, func() { one(c.Next(val.line(), val.round(), val.place())) }},
		{4, func() { all(c.Rows(v.firstRange())) }},
		{1, func() {
			r := rows.ReadyRange(rows.Filter{MaxPriority: driver.MaxPriority}, n)
			r.From = rows.Tuple{int64(val.priority()), int64(val.round()), int64(val.place())}
			r.Payload, r.Lock = payload, rows.NoLock
			all(c.Rows(r))
		}},
		{10 * min(1, len(v.planned)), func() { found = pick(v.rnd, v.planned...)(c) }},
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
		{1, func() { _, _ = c.Rows(v.lastRange(v.values.line())) }},
		{1, func() {
			_, _, _ = c.Deletable(driver.ListOptions{
				Key: new(v.values.of(v.values.keys)), Kind: pick(v.rnd, nil, new(v.values.of(v.values.kinds))),
			}, v.values.count())
		}},
		{1, func() { _, _ = c.Times(v.chance(2)) }},
		{1, func() { _, _, _ = c.CountKeys("", 2) }},
		{1, func() { _, _ = c.Counts() }},
		{1, func() { _, _ = c.AnyReady(v.values.filter()) }},
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

func (v *views) keys(c rows.Calls) {
	k := &rows.Key{
		Key: v.values.of(v.values.keys), Paused: v.chance(2), Limits: v.values.limits(),
		Wait: life.Wait{
			Hold: v.values.time(), By: driver.ID(v.rnd.IntN(3)), Full: v.values.time(),
			Until: v.values.time(),
			Waits: v.chance(2),
		},
	}
	for range v.rnd.IntN(3) {
		n := pick(v.rnd, 1, 1<<29)
		k.Tasks[pick(v.rnd, driver.Ready, driver.Delayed, driver.Taken, driver.Buried, driver.Held)] += n
		k.Tasks[0] += n
	}
	v.oneOf([]choice{
		{2, func() { v.must("SetKey", c.SetKey(k)) }},
		{1, func() {
			_, _ = c.Keys().Scan(rows.Range{
				Index: rows.KeyName, From: rows.Tuple{k.Key}, Limit: v.values.count(),
			})
		}},
		{1, func() { _, _ = c.KeyStats(v.values.count()) }},
		{1, func() { _, _ = c.DueKeys(v.values.now(), v.values.count()) }},
		{1, func() { _, _ = c.FullKeys(v.values.now(), v.values.count()) }},
		{1, func() { _, _ = c.LimitedKeys(pick(v.rnd, "", k.Key), v.values.count()) }},
	})
}

func (v *views) served(c rows.Calls) {
	s := rows.Served{Line: v.values.line(), Round: max(1, v.values.round()), Used: v.values.round()}
	v.oneOf([]choice{
		{1, func() { v.must("Put", c.Served().Put(&s)) }},
		{1, func() { _, _ = c.ServedOf(s.Line) }},
		{1, func() { _, _ = c.Furthest(s.Priority) }},
		{1, func() { _ = c.SweepServed(s.Priority, s.Round, v.values.count()) }},
	})
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
		{1, func() { _, _ = c.ConsumerNames(some) }},
		{1, func() { _, _ = c.Renew(some, val.time()) }},
		{2, func() { _, _ = c.DueConsumers(val.now(), val.count()) }},
		{1, func() { v.deleteConsumer(c) }},
		{1, func() {
			prefix := pick(v.rnd, "", name, name[:len(name)/2], "%", "_", "A", "a", "\xff")
			_, _ = c.ConsumersNamed(prefix, pick(v.rnd, 0, val.now(), val.time()))
		}},
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

func (v *views) groups(c rows.Calls) {
	g := &rows.Group{Name: v.values.of(v.values.groups), Group: life.Group{
		Started: v.chance(2), Cancelled: v.chance(2), Tasks: v.rnd.IntN(3), Members: v.rnd.IntN(3),
	}}
	if v.chance(2) {
		_, _ = c.Group(g.Name)
	} else {
		v.must("SetGroup", c.SetGroup(g))
	}
}

func (v *views) outcomes(c rows.Calls) {
	o := &rows.Outcome{
		UniqueKey: v.values.of(v.values.uniqueKeys), ID: v.rowID(), Result: rows.Result(v.rnd.IntN(5)),
		Until: v.values.time(),
	}
	if o.Result == rows.Failed {
		o.Err = v.values.failure()
	}
	v.oneOf([]choice{
		{2, func() { v.must("SetOutcome", c.SetOutcome(o)) }},
		{1, func() { _, _ = c.Outcome(o.UniqueKey) }},
		{1, func() { _ = c.SweepOutcomes(v.values.now(), v.values.count()) }},
	})
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
	_, _ = c.Ready(rows.Filter{MaxPriority: driver.MaxPriority}, 1<<30)
	_, _ = c.KeyStats(0)
	_, _ = c.KeyStats(1 << 30)
	_, _ = c.ConsumersNamed("", 0)
	_, _ = c.HistoryAfter(0, 1<<30)
	for _, key := range val.keys {
		_, _ = c.Keys().Scan(rows.KeyRange([]string{key}))
		for _, i := range []rows.Index{rows.TaskPlace, rows.TaskKinds, rows.TaskShown} {
			_, _ = c.Rows(rows.FirstRange(i, []rows.Tuple{{key}}, 1, true))
		}
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
