package rowstest

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/fairq/fairq/store/internal/rows"
)

// consumers returns the consumers that match, those with the earliest deadlines first.
func (v *memView) consumers(match func(c *rows.Consumer) bool) (list []rows.Consumer) {
	for c := range v.q.consumers.values() {
		if match(c) {
			list = append(list, *c)
		}
	}
	slices.SortFunc(list, func(a, b rows.Consumer) int {
		return cmp.Or(cmp.Compare(a.Deadline, b.Deadline), cmp.Compare(a.Number, b.Number))
	})
	return list
}

func (v *memView) Consumer(name string) (*rows.Consumer, error) {
	return get(v, "Consumer", func() *rows.Consumer {
		for _, c := range v.consumers(func(c *rows.Consumer) bool { return c.Name == name }) {
			return &c
		}
		return nil
	})
}

func (v *memView) AddConsumer(name string, epoch uint64, deadline int64) (added *rows.Consumer, err error) {
	err = v.do("AddConsumer", func() {
		v.unique("consumer", name, func() bool {
			return v.consumers(func(c *rows.Consumer) bool { return c.Name == name }) == nil
		})
		added = &rows.Consumer{Number: v.number(), Name: name, Epoch: epoch, Deadline: deadline}
		v.q.consumers.set(added.Number, clone(added))
	})
	return added, err
}

func (v *memView) ConsumerNames(numbers []uint64) (map[uint64]string, error) {
	return get(v, "ConsumerNames", func() map[uint64]string {
		names := map[uint64]string{}
		for _, n := range numbers {
			if c := v.q.consumers.get(n); c != nil {
				names[n] = c.Name
			}
		}
		return names
	})
}

func (v *memView) Alive(numbers []uint64) ([]uint64, error) {
	return get(v, "Alive", func() (found []uint64) {
		for _, n := range numbers {
			v.lock("consumers", n)
			if v.q.consumers.get(n) != nil {
				found = append(found, n)
			}
		}
		return found
	})
}

func (v *memView) Beat(numbers []uint64, deadline int64) ([]uint64, error) {
	return get(v, "Beat", func() (found []uint64) {
		for _, n := range numbers {
			v.lock("consumers", n)
			if c := v.q.consumers.get(n); c != nil {
				renewed := *c
				renewed.Deadline = deadline
				v.q.consumers.set(n, &renewed)
				found = append(found, n)
			}
		}
		return found
	})
}

func (v *memView) DueConsumers(now int64, n int) ([]rows.Consumer, error) {
	return get(v, "DueConsumers", func() []rows.Consumer {
		due := v.consumers(func(c *rows.Consumer) bool {
			return c.Deadline != 0 && c.Deadline <= now && v.free("consumers", c.Number)
		})
		due = due[:min(n, len(due))]
		for _, c := range due {
			v.lock("consumers", c.Number)
		}
		return due
	})
}

func (v *memView) NextDeadline() (int64, error) {
	return get(v, "NextDeadline", func() int64 {
		return earliest(v.q.consumers.values(), func(c *rows.Consumer) int64 { return c.Deadline })
	})
}

func (v *memView) DeleteConsumer(number uint64) error {
	return v.do("DeleteConsumer", func() {
		v.lock("consumers", number)
		sweep(&v.q.consumers, 1, func(n uint64, _ *rows.Consumer) bool { return n == number })
	})
}

func (v *memView) Consumers(prefix string, after int64) ([]rows.Consumer, error) {
	return get(v, "Consumers", func() []rows.Consumer {
		return v.consumers(func(c *rows.Consumer) bool {
			return strings.HasPrefix(c.Name, prefix) && (c.Deadline == 0 || c.Deadline > after)
		})
	})
}

func (v *memView) Group(name string) (*rows.Group, error) {
	return get(v, "Group", func() *rows.Group {
		return clone(v.q.groups.get(name))
	})
}

func (v *memView) SetGroup(g *rows.Group) error {
	return v.do("SetGroup", func() {
		row := clone(g)
		if g.Tasks == 0 {
			row = nil
		}
		v.q.groups.set(g.Name, row)
	})
}

func (v *memView) Outcome(uniqueKey string) (*rows.Outcome, error) {
	return get(v, "Outcome", func() *rows.Outcome {
		if o := v.q.outcomes.get(uniqueKey); o != nil {
			return cloneOutcome(*o)
		}
		return nil
	})
}

func (v *memView) SetOutcome(o *rows.Outcome) error {
	return v.do("SetOutcome", func() {
		v.lock("outcomes", o.UniqueKey)
		row := cloneOutcome(*o)
		if o.Until == 0 {
			row = nil
		}
		v.q.outcomes.set(o.UniqueKey, row)
	})
}

// Ended returns all there are.
func (v *memView) Ended(mark string) (ended []*rows.Outcome, _ string, err error) {
	err = v.do("Ended", func() {
		for o := range v.q.outcomes.values() {
			if mark != "" {
				ended = append(ended, cloneOutcome(*o))
			}
		}
	})
	return ended, "all", err
}

// cloneOutcome copies what is kept of an outcome.
func cloneOutcome(o rows.Outcome) *rows.Outcome {
	o.Err = cloneError(o.Err)
	if o.How != rows.Failed {
		o.Err = nil
	}
	return &o
}

func (v *memView) SweepOutcomes(now int64, n int) error {
	return v.do("SweepOutcomes", func() {
		sweep(&v.q.outcomes, n, func(uniqueKey string, o *rows.Outcome) bool {
			return o.Until != 0 && o.Until <= now && v.free("outcomes", uniqueKey)
		})
	})
}

func (v *memView) NextOutcome() (int64, error) {
	return get(v, "NextOutcome", func() int64 {
		return earliest(v.q.outcomes.values(), func(o *rows.Outcome) int64 { return o.Until })
	})
}

func (v *memView) AddDone(d *rows.Done) error {
	return v.do("AddDone", func() {
		must(v.q.done.get(d.ID) == nil, "a task is done twice")
		v.q.done.set(d.ID, cloneDone(*d))
	})
}

func cloneDone(d rows.Done) *rows.Done {
	d.Payload, d.Err = bytes.Clone(d.Payload), cloneError(d.Err)
	return &d
}

func (v *memView) Done(after uint64, n int) ([]*rows.Done, error) {
	return get(v, "Done", func() []*rows.Done {
		var list []*rows.Done
		for _, id := range slices.Sorted(v.q.done.keys()) {
			if id > after && len(list) < n {
				list = append(list, cloneDone(*v.q.done.get(id)))
			}
		}
		return list
	})
}

func (v *memView) SweepDone(now int64, n int) error {
	return v.do("SweepDone", func() {
		sweep(&v.q.done, n, func(_ uint64, d *rows.Done) bool { return d.Until != 0 && d.Until <= now })
	})
}

func (v *memView) NextDone() (int64, error) {
	return get(v, "NextDone", func() int64 {
		return earliest(v.q.done.values(), func(d *rows.Done) int64 { return d.Until })
	})
}
