package rows

import (
	"cmp"
	"iter"
	"math"
	"slices"

	"github.com/fairq/fairq/internal/driver"
)

// An Index is one of those of one of the tables of a queue.
type Index uint8

// The indexes, with their fields in brackets, and the rows in them, if these are not all.
const (
	TaskID        Index = iota // (id), the primary key
	TaskUniqueKey              // (unique key) that have one; no two rows have the same
	TaskReady                  // (priority, round, place) that are Takeable and do not share a turn
	TaskKind                   // (kind, priority, round, place) that are Takeable
	TaskLine                   // (key, priority, round, place)
	// TaskPlace is (key, priority, whether not AtFront, place) of the Ready tasks with a Front.
	TaskPlace
	TaskKinds // (key, kind, priority, front, place) as in TaskPlace
	TaskShown // (key, takeable, id) of these that are AtFront and Takeable, or Hidden
	TaskWake  // (wake) that have one
	TaskSince // (consumer, since) that are Taken, or Buried with consumer 0
	TaskState // (state, id) that are Delayed, Buried or Held
	TaskGroup // (group, id) that have one

	KeyName // (key), the primary key

	ServedLine  // (priority, key), the primary key
	ServedRound // (priority, round)

	ConsumerNumber   // (number), the primary key
	ConsumerName     // (name); no two rows have the same
	ConsumerDeadline // (deadline) that have one

	GroupName // (name), the primary key

	OutcomeKey     // (unique key), the primary key
	OutcomeUntil   // (until)
	OutcomeWritten // (written): for View.Ended, if the driver goes by it

	HistoryID    // (id), the primary key
	HistoryUntil // (until) that have one

	KeyUntil  // (whether it waits, until) that have an until
	KeyLimits // (key) that have limits of their own

	NumIndexes
)

// Schema says of a table in which indexes a row is, and where: Place returns nil if it is not in
// it. The first one is the primary key. A driver for ordered keys stores what it says; one for
// SQL has it in its own words.
type Schema[R any] []struct {
	Index  Index
	Unique bool // besides the primary key
	Place  func(r *R) Tuple
}

// The tables.
var (
	Tasks = Schema[Row]{
		{TaskID, false, func(r *Row) Tuple { return Tuple{num(r.ID)} }},
		{TaskUniqueKey, true, func(r *Row) Tuple { return only(r.UniqueKey != "", r.UniqueKey) }},
		{TaskReady, false, func(r *Row) Tuple {
			return only(r.Takeable && r.Front != Shares, num(r.Priority), num(r.Round), num(r.Place))
		}},
		{TaskKind, false, func(r *Row) Tuple {
			return only(r.Takeable, r.Kind, num(r.Priority), num(r.Round), num(r.Place))
		}},
		{TaskLine, false, func(r *Row) Tuple {
			return Tuple{r.Key, num(r.Priority), num(r.Round), num(r.Place)}
		}},
		{TaskPlace, false, func(r *Row) Tuple {
			return only(r.inLine(), r.Key, num(r.Priority), bit(r.Front != AtFront), num(r.Place))
		}},
		{TaskKinds, false, func(r *Row) Tuple {
			return only(r.inLine(), r.Key, r.Kind, num(r.Priority), num(r.Front), num(r.Place))
		}},
		{TaskShown, false, func(r *Row) Tuple {
			return only(r.isShown(), r.Key, bit(r.Takeable), num(r.ID))
		}},
		{TaskWake, false, func(r *Row) Tuple { return only(r.Wake != 0, r.Wake) }},
		{TaskSince, false, func(r *Row) Tuple {
			is := r.State == driver.Taken || r.State == driver.Buried
			return only(is, num(r.Consumer), num(r.Since))
		}},
		{TaskState, false, func(r *Row) Tuple {
			return only(waitsLong(r.State), num(r.State), num(r.ID))
		}},
		{TaskGroup, false, func(r *Row) Tuple { return only(r.Group != "", r.Group, num(r.ID)) }},
	}
	Keys = Schema[Key]{
		{KeyName, false, func(k *Key) Tuple { return Tuple{k.Key} }},
		{KeyUntil, false, func(k *Key) Tuple { return only(k.Until != 0, bit(k.Waits), k.Until) }},
		{KeyLimits, false, func(k *Key) Tuple { return only(k.Limits != nil, k.Key) }},
	}
	ServedLines = Schema[Served]{
		{ServedLine, false, func(s *Served) Tuple { return Tuple{num(s.Priority), s.Key} }},
		{ServedRound, false, func(s *Served) Tuple { return Tuple{num(s.Priority), num(s.Round)} }},
	}
	Consumers = Schema[Consumer]{
		{ConsumerNumber, false, func(c *Consumer) Tuple { return Tuple{num(c.Number)} }},
		{ConsumerName, true, func(c *Consumer) Tuple { return Tuple{c.Name} }},
		{ConsumerDeadline, false, func(c *Consumer) Tuple {
			return only(c.Deadline != 0, c.Deadline)
		}},
	}
	Groups = Schema[Group]{
		{GroupName, false, func(g *Group) Tuple { return Tuple{g.Name} }},
	}
	Outcomes = Schema[Outcome]{
		{OutcomeKey, false, func(o *Outcome) Tuple { return Tuple{o.UniqueKey} }},
		{OutcomeUntil, false, func(o *Outcome) Tuple { return Tuple{o.Until} }},
		{OutcomeWritten, false, func(o *Outcome) Tuple {
			return only(o.Written != 0, num(o.Written))
		}},
	}
	History = Schema[Ended]{
		{HistoryID, false, func(d *Ended) Tuple { return Tuple{num(d.ID)} }},
		{HistoryUntil, false, func(d *Ended) Tuple { return only(d.Until != 0, d.Until) }},
	}
)

// waitsLong reports whether tasks in that state are in TaskState. Ready and taken tasks are not,
// or each Put, Take and Ack would write to it.
func waitsLong(s driver.State) bool { return s != driver.Ready && s != driver.Taken }

// inLine reports whether a task is at the front of a line, or behind it.
func (r *Row) inLine() bool { return r.State == driver.Ready && r.Front != NoFront }

// isShown reports whether a task is in TaskShown.
func (r *Row) isShown() bool {
	return r.inLine() && (r.Hidden || r.Takeable && r.Front == AtFront)
}

func bit(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

func num[N int | uint64 | driver.State | Front](n N) int64 {
	return int64(min(uint64(n), math.MaxInt64))
}

func only(is bool, fields ...any) Tuple {
	if !is {
		return nil
	}
	return fields
}

// Compare compares tuples as far as both go.
func (t Tuple) Compare(other Tuple) int {
	for i := range min(len(t), len(other)) {
		c := 0
		switch x := t[i].(type) {
		case int64:
			c = cmp.Compare(x, other[i].(int64))
		case string:
			c = cmp.Compare(x, other[i].(string))
		}
		if c != 0 {
			return c
		}
	}
	return 0
}

// Place returns where a row is in an index, nil if it is not in it.
func (s Schema[R]) Place(i Index, r *R) Tuple {
	for _, index := range s {
		if index.Index == i {
			return index.Place(r)
		}
	}
	panic("rows: a Range of an index that its table does not have")
}

// Select returns those of some rows that are in a range, in its order: what Scan would return if
// there were no others.
func (s Schema[R]) Select(r *Range, rows iter.Seq[*R]) (in []*R) {
	type entry struct {
		row    *R
		at, id Tuple
	}
	prefix := 0
	if len(r.Prefixes) > 0 {
		prefix = len(r.Prefixes[0])
	}
	var entries []entry
	for row := range rows {
		at := s.Place(r.Index, row)
		task, isTask := any(row).(*Row)
		if at != nil && r.holds(at, prefix) && (!isTask || r.Only.Match(task)) {
			entries = append(entries, entry{row, at, s[0].Place(row)})
		}
	}
	slices.SortFunc(entries, func(a, b entry) int {
		c := cmp.Or(a.at[prefix:].Compare(b.at[prefix:]), a.id.Compare(b.id))
		if r.Desc {
			c = -c
		}
		if r.Each {
			c = cmp.Or(a.at[:prefix].Compare(b.at[:prefix]), c)
		}
		return c
	})
	n := 0
	for i, e := range entries {
		if r.Each && i > 0 && e.at[:prefix].Compare(entries[i-1].at[:prefix]) != 0 {
			n = 0
		}
		if n++; r.Limit == 0 || n <= r.Limit {
			in = append(in, e.row)
		}
	}
	return in
}

// holds reports whether a place in the index is in the range. prefix is the number of fields in
// its prefix.
func (r *Range) holds(at Tuple, prefix int) bool {
	of := func(p Tuple) bool { return at.Compare(p) == 0 }
	rest := at[prefix:]
	return (r.Prefixes == nil || slices.ContainsFunc(r.Prefixes, of)) &&
		rest.Compare(r.From) >= 0 && (r.To == nil || rest.Compare(r.To) < 0)
}
