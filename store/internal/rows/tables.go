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
	TaskReady                  // (priority, round, place) that are Takeable
	TaskLine                   // (key, priority, round, place)
	TaskPlace                  // (key, kind, priority, place) that are Ready and InLine
	TaskWake                   // (wake) that have one
	TaskSince                  // (consumer, since) that are Taken, or Buried with consumer 0
	TaskState                  // (state, id) that are Delayed, Buried or Held
	TaskGroup                  // (group, id) that have one

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

	TurnLine  // (key, priority, kind, task), the primary key
	TurnReady // (priority, round, place) that are Takeable and lead
	TurnKind  // (kind, priority, round, place) that are Takeable

	KeyUntil  // (whether it waits, until) that have an until
	KeyLimits // (key) that have limits of their own

	NumIndexes
)

// Schema declares the indexes of a table; the first is its primary key. Place returns the place of
// a row in an index, nil if the row is not in it. A driver for ordered keys stores what Place
// returns; a driver for SQL declares the same indexes in SQL.
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
			return only(r.Takeable, num(r.Priority), num(r.Round), num(r.Place))
		}},
		{TaskLine, false, func(r *Row) Tuple {
			return Tuple{r.Key, num(r.Priority), num(r.Round), num(r.Place)}
		}},
		{TaskPlace, false, func(r *Row) Tuple {
			return only(r.State == driver.Ready && r.InLine, r.Key, r.Kind, num(r.Priority), num(r.Place))
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
	Turns = Schema[Turn]{
		{TurnLine, false, func(t *Turn) Tuple {
			return Tuple{t.Key, num(t.Priority), t.Kind, num(t.Task)}
		}},
		{TurnReady, false, func(t *Turn) Tuple {
			return only(t.Takeable && t.Leads, num(t.Priority), num(t.Round), num(t.Place))
		}},
		{TurnKind, false, func(t *Turn) Tuple {
			return only(t.Takeable, t.Kind, num(t.Priority), num(t.Round), num(t.Place))
		}},
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

// waitsLong reports whether tasks in that state are in the index TaskState. Ready and taken tasks
// are not, because otherwise each Put, Take and Ack would write to that index.
func waitsLong(s driver.State) bool { return s != driver.Ready && s != driver.Taken }

func bit(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

func num[N int | uint64 | driver.State](n N) int64 {
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
