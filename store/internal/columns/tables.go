package columns

import (
	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
)

// The tables.
var (
	Tasks = table("tasks", rows.Tasks, `id:.@ follower:~? key:.@ kind:.~ unique_key:.~? role:s.~
		priority:s@ weight:.@?1 cost:.@?1 ttr:.? max_attempts:.? created:. deadline:.~? grp:~? state:s@
		takeable round:@ used:@? gap:~ returned:~@ untried:~ in_line place:@ since:^
		consumer:~^? attempts:~^ ready_at:? until:~^? expires:~? latest:~? wake:~^? err_code:~?
		err_message:~ metadata:.~? payload:.`,
		func(r *rows.Row) []any {
			return []any{
				&r.ID, &r.Follower, &r.Key, &r.Kind, &r.UniqueKey, (*uint8)(&r.Role), &r.Priority, &r.Weight,
				&r.Cost, (*int64)(&r.TTR), &r.MaxAttempts, &r.Created, &r.Deadline, &r.Group,
				(*uint8)(&r.State), &r.Takeable, &r.Round, &r.Used, &r.Gap, &r.Returned, &r.Untried,
				&r.InLine, &r.Place, &r.Since, &r.Consumer, &r.Attempts, &r.ReadyAt, &r.Until, &r.Expires,
				&r.Latest, &r.Wake,
				code{&r.Err},
				message{&r.Err},
				&r.Metadata,
				&r.Payload,
			}
		})

	Keys = table("keys", rows.Keys, `key:. tasks ready delayed taken buried held paused waits until:?
		hold:? held_by filled:? limits:?`,
		func(k *rows.Key) []any {
			n := &k.Tasks
			return []any{
				&k.Key, &n[0], &n[driver.Ready], &n[driver.Delayed], &n[driver.Taken], &n[driver.Buried],
				&n[driver.Held], &k.Paused, &k.Waits, &k.Until, &k.Hold, (*uint64)(&k.By), &k.Full, &k.Limits,
			}
		})

	Turns = table("turns", rows.Turns,
		"key:. priority:. kind:. task:. round used place leads takeable",
		func(t *rows.Turn) []any {
			return []any{
				&t.Key, &t.Priority, &t.Kind, &t.Task, &t.Round, &t.Used, &t.Place, &t.Leads, &t.Takeable,
			}
		})

	Served = table("served", rows.ServedLines, "key:. priority:. round used",
		func(s *rows.Served) []any { return []any{&s.Key, &s.Priority, &s.Round, &s.Used} })

	// Only the deadline of a consumer changes. In a database that locks rows, a change of other
	// columns would wait for transactions that hold a shared lock on the row.
	Consumers = table("consumers", rows.Consumers, "number:. name:. epoch:. deadline:?",
		func(c *rows.Consumer) []any { return []any{&c.Number, &c.Name, &c.Epoch, &c.Deadline} })

	Groups = table("groups", rows.Groups, "name:. started cancelled tasks members",
		func(g *rows.Group) []any {
			return []any{&g.Name, &g.Started, &g.Cancelled, &g.Tasks, &g.Members}
		})

	Outcomes = table("outcomes", rows.Outcomes,
		"unique_key:. id result err_code:? err_message until:?",
		func(o *rows.Outcome) []any {
			return []any{
				&o.UniqueKey, &o.ID, (*uint8)(&o.Result), code{&o.Err}, message{&o.Err}, &o.Until,
			}
		})

	History = table("history", rows.History, `id:. key kind unique_key attempts created finished
		result err_code:? err_message until:? payload`,
		func(d *rows.Ended) []any {
			return []any{
				&d.ID, &d.Key, &d.Kind, &d.UniqueKey, &d.Attempts, &d.Created, &d.Finished,
				(*uint8)(&d.Result),
				code{&d.Err},
				message{&d.Err},
				&d.Until, &d.Payload,
			}
		})
)

// The columns of tasks that statements write or read:
//
//   - Usual, and rarely Rare, if the task is new;
//   - Updated if it is updated, and Taken if it is taken, both with the id at the end;
//   - TurnFields if a Range.Turns reads it.
var (
	Usual      = Tasks.Without("~")
	Rare       = Tasks.with("~")
	Updated    = append(Tasks.Without("."), Tasks.Key...)
	Taken      = append(Tasks.with("^"), Tasks.Key...)
	TurnFields = Tasks.with("@")
)

// Index is an index of a table in SQL.
type Index struct {
	Table  string
	Name   string   // without that of the table; "" for the primary key
	Fields []string // after the queue, as in rows.Index
	Where  string   // a condition of all its rows, by which a planner knows it; "" for none
}

// Indexes are the indexes by their numbers.
var Indexes [rows.NumIndexes]Index

// indexes have the names, fields and conditions of Indexes.
var indexes = [rows.NumIndexes][3]string{
	rows.TaskID:        {"", "id"},
	rows.TaskUniqueKey: {"unique_key", "unique_key", "unique_key <> ''"},
	rows.TaskReady:     {"ready", "priority round place", "takeable"},
	rows.TaskLine:      {"line", "key priority round place", "key IS NOT NULL"},
	rows.TaskPlace:     {"place", "key kind priority place", "state = 1 AND in_line"},
	rows.TaskWake:      {"wake", "wake", "wake > 0"},
	rows.TaskSince:     {"since", "coalesce(consumer,0) since", "state IN (3, 4)"},
	rows.TaskState:     {"state", "state id", "state <> 1 AND state <> 3"},
	rows.TaskGroup:     {"group", "grp id", "grp <> ''"},

	rows.KeyName:          {"", "key"},
	rows.KeyUntil:         {"until", "waits::int until", "until > 0"},
	rows.KeyLimits:        {"limits", "key", "limits <> ''"},
	rows.TurnLine:         {"", "key priority kind task"},
	rows.TurnReady:        {"ready", "priority round place", "takeable AND leads"},
	rows.TurnKind:         {"kind", "kind priority round place", "takeable"},
	rows.ServedLine:       {"", "priority key"},
	rows.ServedRound:      {"round", "priority round", "round > 0"},
	rows.ConsumerNumber:   {"", "number"},
	rows.ConsumerName:     {"name", "name"},
	rows.ConsumerDeadline: {"deadline", "deadline", "deadline > 0"},
	rows.GroupName:        {"", "name"},
	rows.OutcomeKey:       {"", "unique_key"},
	rows.OutcomeUntil:     {"until", "until", "until > 0"},
	rows.HistoryID:        {"", "id"},
	rows.HistoryUntil:     {"until", "until", "until > 0"},
}
