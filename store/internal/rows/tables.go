package rows

import (
	"cmp"
	"math"

	"github.com/fairq/fairq/task/driver"
)

// An Index is one of those of one of the tables of a queue.
type Index uint8

// The indexes. What is in brackets are their fields, and which rows are in them if not all are.
const (
	TaskID        Index = iota // (id), the primary key
	TaskUniqueKey              // (unique key) that have one; no two rows have the same
	TaskReady                  // (priority, round, seq, place) that are Takeable
	TaskKind                   // (kind, priority, round, seq, place) that are Takeable
	TaskLine                   // (key, priority, round, seq, place)
	TaskParked                 // (key, priority, kind, place) that are Ready, not Takeable, without Round
	TaskWake                   // (wake) that have one
	TaskHeld                   // (consumer, since) that are Taken
	TaskBuried                 // (since) that are Buried
	TaskGroup                  // (group, id) that have one
	TaskEvictable              // (key, since) that are Counted

	KeyName // (key), the primary key
	KeyLoad // (load)

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
			return only(r.Takeable, num(r.Priority), num(r.Round), num(r.Seq), num(r.Place))
		}},
		{TaskKind, false, func(r *Row) Tuple {
			return only(r.Takeable, r.Kind, num(r.Priority), num(r.Round), num(r.Seq), num(r.Place))
		}},
		{TaskLine, false, func(r *Row) Tuple {
			return Tuple{r.Key, num(r.Priority), num(r.Round), num(r.Seq), num(r.Place)}
		}},
		{TaskParked, false, func(r *Row) Tuple {
			is := r.State == driver.Ready && !r.Takeable && r.Round == 0
			return only(is, r.Key, num(r.Priority), r.Kind, num(r.Place))
		}},
		{TaskWake, false, func(r *Row) Tuple { return only(r.Wake != 0, r.Wake) }},
		{TaskHeld, false, func(r *Row) Tuple {
			return only(r.State == driver.Taken, num(r.Consumer), num(r.Since))
		}},
		{TaskBuried, false, func(r *Row) Tuple {
			return only(r.State == driver.Buried, num(r.Since))
		}},
		{TaskGroup, false, func(r *Row) Tuple { return only(r.Group != "", r.Group, num(r.ID)) }},
		{TaskEvictable, false, func(r *Row) Tuple { return only(r.Evictable, r.Key, num(r.Since)) }},
	}
	Keys = Schema[Key]{
		{KeyName, false, func(k *Key) Tuple { return Tuple{k.Key} }},
		{KeyLoad, false, func(k *Key) Tuple { return Tuple{num(k.Load)} }},
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
	History = Schema[Done]{
		{HistoryID, false, func(d *Done) Tuple { return Tuple{num(d.ID)} }},
		{HistoryUntil, false, func(d *Done) Tuple { return only(d.Until != 0, d.Until) }},
	}
)

func num[N int | uint64](n N) int64 { return int64(min(uint64(n), math.MaxInt64)) }

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
