package rowstest

import (
	"cmp"
	"slices"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task"
)

// random makes one of the calls, or some that belong together.
func (v *views) random() {
	all := []struct {
		weight int
		call   func()
	}{
		{10, v.insert},
		{8, v.update},
		{6, v.take},
		{4, v.delete},
		{12, func() { v.find() }},
		{12, v.readOne},
		{4, v.hide},
		{4, v.save},
		{5, v.keys},
		{5, v.served},
		{8, v.consumers},
		{5, v.groups},
		{6, v.outcomes},
		{6, v.history},
		{2, func() { v.number() }},
		{1, v.drop},
	}
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

// number calls Number, and sees to it that the model returns the same. What a handle had in a transaction that was rolled
// back, another one may have.
func (v *views) number() uint64 {
	v.note("Number")
	n, err := v.got.Number()
	v.must("Number", err)
	if last := v.h.numbers[v.id]; n <= last {
		v.fail("Number returned %d; before that, %d", n, last)
	}
	if v.numbers[v.id][n] {
		v.fail("Number returned %d again", n)
	}
	v.h.numbers[v.id], v.numbers[v.id][n] = n, true
	v.given = append(v.given, n)
	v.give(n, func() {
		_, err = v.want.Number()
		v.must("Number of the model", err)
	})
	return n
}

// give makes the model take n for the next number.
func (v *views) give(n uint64, f func()) {
	v.h.want.given = n
	f()
	v.h.want.given = 0
}

// held returns the numbers of all consumers.
func (v *views) held() (numbers []uint64) {
	for c := range v.model.q.consumers.values() {
		numbers = append(numbers, c.Number)
	}
	slices.Sort(numbers)
	return numbers
}

// uniqueKey returns one that no row has.
func (v *views) uniqueKey() string {
	uniqueKey := v.values.of(v.values.uniqueKeys)
	for r := range v.model.q.tasks.values() {
		if r.UniqueKey == uniqueKey {
			return ""
		}
	}
	return uniqueKey
}

func (v *views) insert() {
	for range pick(v.rnd, 1, 1, 1, 5) {
		r := v.values.row(v.number(), v.uniqueKey(), v.held())
		both := twins{r, new(*r)}
		v.write(func(w rows.Calls) error { return w.Put(v.of(both, w)) }, "Insert(%s)", show(r))
		if v.chance(3) {
			v.updateOne(both)
		}
		v.spoil(both)
	}
}

// of returns the row that belongs to a View.
func (v *views) of(t twins, w rows.Calls) *rows.Row {
	if w == v.got {
		return t.got
	}
	return t.want
}

// spoil changes rows that are not used any more. A driver has no business with them by then.
func (v *views) spoil(t twins) {
	*t.got, *t.want = rows.Row{}, rows.Row{}
}

func (v *views) update() {
	for _, both := range v.found() {
		v.updateOne(both)
		if v.chance(4) {
			v.updateOne(both)
		}
		v.spoil(both)
	}
}

func (v *views) updateOne(both twins) {
	c := *both.want
	v.values.change(&c, v.held())
	copyChanging(both.got, &c)
	copyChanging(both.want, &c)
	v.write(func(w rows.Calls) error { return w.Put(v.of(both, w)) }, "Update(%s)", show(both.want))
}

func (v *views) take() {
	consumers := v.held()
	if len(consumers) == 0 {
		return
	}
	for _, both := range v.ready() {
		c := *both.want
		v.values.take(&c, pick(v.rnd, consumers...))
		copyTaken(both.got, &c)
		copyTaken(both.want, &c)
		v.write(func(w rows.Calls) error { return w.Put(v.of(both, w)) }, "Take(%s)", show(both.want))
		if v.chance(4) {
			v.updateOne(both)
		}
		v.spoil(both)
	}
}

// delete deletes rows, some of which were changed before, with or without Update.
func (v *views) delete() {
	for _, both := range v.found() {
		switch v.rnd.IntN(4) {
		case 0:
			v.updateOne(both)
		case 1:
			s := pick(v.rnd, task.Ready, task.Taken, task.Buried)
			both.got.State, both.want.State = s, s
		}
		v.write(func(w rows.Calls) error { return w.Delete(v.of(both, w)) }, "Delete(%d)", both.want.ID)
		v.spoil(both)
	}
}

// found returns some rows that may be changed, read in any way: if the View is not exclusive, some of these ways lock nothing.
func (v *views) found() []twins {
	found := v.find()
	found = found[:min(len(found), pick(v.rnd, 2, 10))]
	return slices.DeleteFunc(found, func(t twins) bool { return !v.model.read[t.want.ID] })
}

func (v *views) hide() {
	key := v.values.of(v.values.keys)
	v.write(func(w rows.Calls) error { return w.Hide(key) }, "Hide(%q)", key)
}

// save changes the Head as the callers do.
func (v *views) save() {
	got, want := v.got.Head(), v.want.Head()
	for range v.rnd.IntN(3) {
		priority := v.values.priority()
		round := max(want.Rounds[priority], pick(v.rnd, v.values.round(), want.Rounds[priority]+1))
		if round != 0 {
			got.Rounds[priority], want.Rounds[priority] = round, round
		}
	}
	switch v.rnd.IntN(4) {
	case 0:
		got.Paused = !got.Paused
		want.Paused = got.Paused
	case 1:
		got.PausedKeys = v.rnd.IntN(5)
		want.PausedKeys = got.PausedKeys
	case 2:
		settings := v.values.bytes()
		got.Settings, want.Settings = slices.Clone(settings), slices.Clone(settings)
	}
	v.write(func(w rows.Calls) error { return w.Save() }, "Save %s", show(want))
	if v.chance(3) {
		v.compareHead()
	}
}

// drop drops the queue, and perhaps makes one of its name again.
func (v *views) drop() {
	if v.chance(3) {
		return
	}
	var name string
	for n, id := range v.model.tx.names.all() {
		if *id == v.id {
			name = n
		}
	}
	v.write(func(w rows.Calls) error {
		done, err := w.Drop()
		if !done && err == nil {
			v.fail("Drop of a few rows is not done in one step")
		}
		return err
	}, "Drop")
	v.dropped = true
	if v.chance(2) {
		return
	}
	id, _ := v.queue(name, v.values.bytes())
	last := slices.MaxFunc(v.views, func(a, b *views) int { return cmp.Compare(a.id, b.id) })
	if id > last.id && id != 0 {
		v.view(id, v.plan())
	}
}
