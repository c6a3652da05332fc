package rowstest

import (
	"fmt"
	"slices"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task"
)

// consumers makes a call that is about consumers.
func (v *views) consumers() {
	val := v.values
	name := val.of(val.consumers)
	numbers := append(v.held(), 1<<62)
	v.rnd.Shuffle(len(numbers), func(i, j int) { numbers[i], numbers[j] = numbers[j], numbers[i] })
	some := numbers[:v.rnd.IntN(len(numbers)+1)]
	switch v.rnd.IntN(10) {
	case 9:
		read(v, func(w rows.Calls) ([]uint64, error) {
			found, err := w.Alive(some)
			return append([]uint64{}, slices.Sorted(slices.Values(found))...), err
		}, "Alive(%d)", some)
	case 0, 1:
		v.consumer(name)
	case 2:
		read(v, func(w rows.Calls) (map[uint64]string, error) {
			names, err := w.ConsumerNames(some)
			if names == nil {
				names = map[uint64]string{}
			}
			return names, err
		}, "ConsumerNames(%d)", some)
	case 3:
		deadline := val.time()
		read(v, func(w rows.Calls) ([]uint64, error) {
			found, err := w.Beat(some, deadline)
			return append([]uint64{}, slices.Sorted(slices.Values(found))...), err
		}, "Beat(%d, %d)", some, deadline)
	case 4, 5:
		v.dueConsumers(val.now(), val.count())
	case 6:
		read(v, rows.Calls.Times, "Times")
	case 7:
		v.deleteConsumer()
	case 8:
		prefix := pick(v.rnd, "", name, name[:len(name)/2], "%", "_", "A", "a", "\xff")
		after := pick(v.rnd, 0, val.now(), val.time())
		read(v, func(w rows.Calls) ([]*rows.Consumer, error) { return w.ConsumersNamed(prefix, after) }, "Consumers(%q, %d)", prefix, after)
	}
}

// consumer reads a consumer, and adds it if it is not there.
func (v *views) consumer(name string) {
	got, _ := read(v, func(w rows.Calls) (*rows.Consumer, error) { return w.Consumer(name) }, "Consumer(%q)", name)
	if got != nil {
		return
	}
	epoch, deadline := uint64(v.rnd.IntN(3)), v.values.time()
	v.note("AddConsumer(%q, %d, %d)", name, epoch, deadline)
	got, err := v.got.AddConsumer(name, epoch, deadline)
	v.must("AddConsumer", err)
	if got == nil || got.Number == 0 || slices.Contains(v.held(), got.Number) {
		v.fail("AddConsumer returned %+v; the other consumers have the numbers %d", got, v.held())
	}
	v.give(got.Number, func() {
		want, err := v.want.AddConsumer(name, epoch, deadline)
		v.must("AddConsumer of the model", err)
		v.equal("AddConsumer", got, want)
	})
}

// dueConsumers takes them as they come: they have no order.
func (v *views) dueConsumers(now int64, n int) {
	what := v.note("DueConsumers(%d, %d)", now, n)
	got, err := v.got.DueConsumers(now, n)
	v.must(what, err)
	all, err := v.want.DueConsumers(now, 1<<30)
	v.must(what+" of the model", err)
	if len(got) != min(n, len(all)) {
		v.fail("%s returned %d consumers; there are %d:\n\t%s\n\t%s", what, len(got), len(all), show(got), show(all))
	}
	for i, c := range got {
		same := func(other *rows.Consumer) bool { return *other == *c }
		if !slices.ContainsFunc(all, same) || slices.ContainsFunc(got[:i], same) {
			v.fail("%s returned\n\t%s\nthe model:\n\t%s", what, show(got), show(all))
		}
	}
}

// deleteConsumer deletes a consumer that holds nothing.
func (v *views) deleteConsumer() {
	for _, c := range v.held() {
		holds := false
		for r := range v.model.q.tasks.values() {
			holds = holds || r.State == task.Taken && r.Consumer == c
		}
		if !holds {
			v.write(func(w rows.Calls) error { return w.DeleteConsumer(c) }, "DeleteConsumer(%d)", c)
			return
		}
	}
}

// compareAll compares all that can be read.
func (v *views) compareAll() {
	v.compareHead()
	val := v.values
	read(v, rows.Calls.Counts, "Counts")
	read(v, rows.Calls.CountKeys, "CountKeys")
	v.rows(list{func(w rows.Calls, _ int) ([]*rows.Row, error) {
		return w.List(task.ListOptions{Limit: 1 << 30})
	}, byID, true}, 1<<30, "List of all")
	all := rows.Filter{MaxPriority: task.MaxPriority}
	v.rows(list{func(w rows.Calls, n int) ([]*rows.Row, error) { return w.Ready(all, n) }, byTurn, true}, 1<<30, "Ready of all")
	v.keyStats(1 << 30)
	for _, key := range val.keys {
		v.keyRows([]string{key}, 0)
		for _, priority := range []int{0, 1, task.MaxPriority} {
			l := rows.Line{Key: key, Priority: priority}
			read(v, func(w rows.Calls) (uint64, error) { return w.ServedIn(l) }, "Served(%#v)", l)
		}
	}
	for _, g := range val.groups {
		read(v, func(w rows.Calls) (*rows.Group, error) { return w.Group(g) }, "Group(%q)", g)
	}
	for _, a := range val.uniqueKeys {
		read(v, func(w rows.Calls) (*rows.Outcome, error) { return w.Outcome(a) }, "Outcome(%q)", a)
	}
	read(v, func(w rows.Calls) ([]*rows.Consumer, error) { return w.ConsumersNamed("", 0) }, "Consumers of all")
	read(v, func(w rows.Calls) ([]*rows.Done, error) { return w.Done(0, 1<<30) }, "Done of all")
}

// showList shows options, with what they point at.
func showList(o task.ListOptions) string {
	at := func(s *string) string { return orNil(s, func() string { return fmt.Sprintf("%q", *s) }) }
	return fmt.Sprintf("state %v, key %s, kind %s, group %q, after %d, limit %d", o.State, at(o.Key), at(o.Kind), o.Group, o.After, o.Limit)
}
