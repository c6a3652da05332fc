package rows

import (
	"cmp"
	"math"
	"slices"

	"github.com/fairq/fairq/internal/driver"
)

// Calls has the reads and writes of the rules in a View, as ranges. The rules make no others.
type Calls struct{ View }

// Filter says which tasks can be taken.
type Filter struct {
	MaxPriority int      // none less urgent; driver.MaxPriority means all, -1 none
	Kinds       []string // nil means all
}

// ReadyRange is the first n takeable tasks that pass a filter, in a queue without lines. There all
// tasks have the kind "".
func ReadyRange(f Filter, n int) Range {
	below := f.MaxPriority
	if f.Kinds != nil && !slices.Contains(f.Kinds, "") {
		below = -1
	}
	return Range{
		Index: TaskReady, To: through(int64(below)), Limit: n, Payload: true, Lock: SkipLocked,
	}
}

// TurnRange is the first n turns that can be taken and pass a filter.
func TurnRange(f Filter, n int) Range {
	r := Range{Index: TurnReady, To: through(int64(f.MaxPriority)), Limit: n, Lock: SkipLocked}
	if f.Kinds != nil {
		r.Index, r.Prefixes = TurnKind, each(slices.Compact(slices.Sorted(slices.Values(f.Kinds))))
	}
	return r
}

// turnsRange is all turns of some keys.
func turnsRange(keys []string) Range {
	return Range{Index: TurnLine, Prefixes: each(keys), Each: true}
}

// RowRange is the tasks with these ids.
func RowRange(payload bool, lock Lock, ids ...uint64) Range {
	return Range{Index: TaskID, Prefixes: eachNum(ids), Payload: payload, Lock: lock}
}

// KeyRange is the rows that some keys have in the table of keys.
func KeyRange(keys []string) Range { return Range{Index: KeyName, Prefixes: each(keys)} }

// FirstRange is the first n tasks with each of some prefixes in an index.
func FirstRange(i Index, prefixes []Tuple, n int, payload bool) Range {
	return Range{Index: i, Prefixes: prefixes, Each: true, Limit: n, Payload: payload}
}

// lastRange is the last ready task of each of some kinds in lines, which has to stay there.
func lastRange(of ...lineKind) Range {
	return Range{
		Index: TaskPlace, Prefixes: prefixesOf(of...), Each: true, Desc: true, Limit: 1, Lock: ForShare,
	}
}

// prefixesOf returns the prefixes of kinds in lines in TaskPlace, each once.
func prefixesOf(of ...lineKind) []Tuple {
	prefixes := make([]Tuple, len(of))
	for i, at := range of {
		prefixes[i] = Tuple{at.Key, at.kind, num(at.Priority)}
	}
	return eachOnce(prefixes)
}

// eachOnce sorts prefixes.
func eachOnce(prefixes []Tuple) []Tuple {
	slices.SortFunc(prefixes, Tuple.Compare)
	return slices.CompactFunc(prefixes, func(a, b Tuple) bool { return a.Compare(b) == 0 })
}

// AliveRange is consumers that must not go before the end of the transaction.
func AliveRange(numbers []uint64) Range {
	return Range{Index: ConsumerNumber, Prefixes: eachNum(numbers), Lock: ForShare}
}

func each(values []string) []Tuple {
	prefixes := make([]Tuple, len(values)) // not nil: of no values there are no rows
	for i, v := range values {
		prefixes[i] = Tuple{v}
	}
	return prefixes
}

func eachNum(values []uint64) []Tuple {
	prefixes := make([]Tuple, len(values))
	for i, v := range values {
		prefixes[i] = Tuple{num(v)}
	}
	return prefixes
}

func at(fields ...any) []Tuple { return []Tuple{fields} }

// through returns the end of a range up to a number, and after the begin of one behind it.
func through(n int64) Tuple { return Tuple{n + 1} }

func after(n uint64) Tuple { return Tuple{num(min(n, math.MaxInt64-1) + 1)} }

// Rows scans the table of tasks.
func (v Calls) Rows(r Range) ([]*Row, error) {
	found, err := v.Tasks().Scan(r)
	for _, r := range found {
		r.Was = r.State
	}
	return found, err
}

// one returns the first row, nil if there is none.
func one[R any](found []*R, err error) (*R, error) {
	if len(found) == 0 {
		return nil, err
	}
	return found[0], err
}

// Get locks a task. Like the other calls that return a pointer, it returns nil if there is none.
func (v Calls) Get(id uint64, payload bool) (*Row, error) {
	return one(v.Rows(RowRange(payload, ForUpdate, id)))
}

// Peek returns tasks that are not to be changed.
func (v Calls) Peek(ids []uint64, payload bool) ([]*Row, error) {
	return v.Rows(RowRange(payload, NoLock, ids...))
}

// ByUniqueKey returns a task that is not to be changed.
func (v Calls) ByUniqueKey(uniqueKey string, payload bool) (*Row, error) {
	return one(v.Rows(Range{Index: TaskUniqueKey, Prefixes: at(uniqueKey), Payload: payload}))
}

// Put writes a task, which must be locked or new.
func (v Calls) Put(r *Row) error {
	err := v.Tasks().Put(r)
	r.Was = r.State
	return err
}

// Delete deletes a task.
func (v Calls) Delete(r *Row) error { return v.Tasks().Delete(r) }

// Ready returns the first n tasks that can be taken.
func (v Calls) Ready(f Filter, n int) ([]*Row, error) { return v.Rows(ReadyRange(f, n)) }

// Due returns n tasks whose Wake is not after now, the earliest first.
func (v Calls) Due(now int64, n int, payload bool) ([]*Row, error) {
	return v.Rows(Range{
		Index: TaskWake, To: through(now), Limit: n, Payload: payload, Lock: SkipLocked,
	})
}

// TakenBy returns n tasks that a consumer holds, in the order of Since.
func (v Calls) TakenBy(consumer uint64, n int, payload bool) ([]*Row, error) {
	return v.Rows(Range{
		Index: TaskSince, Prefixes: at(num(consumer)), Limit: n, Payload: payload, Lock: SkipLocked,
	})
}

// Leases returns, by id, the Since of all that a consumer holds, also what others have locked.
func (v Calls) Leases(consumer uint64) (map[uint64]uint64, error) {
	held, err := v.Rows(Range{Index: TaskSince, Prefixes: at(num(consumer))})
	leases := make(map[uint64]uint64, len(held))
	for _, r := range held {
		leases[r.ID] = r.Since
	}
	return leases, err
}

// Buried returns tasks of a key and kind that are buried, in the order of Since.
func (v Calls) Buried(o driver.ListOptions) ([]*Row, error) {
	return v.Rows(Range{
		Index: TaskSince, Prefixes: at(num(0)), Limit: o.Limit, Only: Only{Key: o.Key, Kind: o.Kind},
		Lock: SkipLocked,
	})
}

// InGroup returns the first n tasks of a group that have greater ids than that, in their order.
func (v Calls) InGroup(group string, id uint64, n int) ([]*Row, error) {
	return v.Rows(Range{
		Index: TaskGroup, Prefixes: at(group), From: after(id), Limit: n, Lock: SkipLocked,
	})
}

// Deletable returns tasks of a State, Key and Kind, at least n if there are as many. all reports
// whether no others come after ListOptions.After.
//
// Tasks of a key are not ordered by id. In a queue with lines the ready ones come first. The last
// ready task of a kind comes before the first, because the turn changes when the first is deleted.
func (v Calls) Deletable(o driver.ListOptions, n int) (found []*Row, all bool, err error) {
	o.Limit = n
	if o.Key == nil {
		found, err = v.Rows(listRange(o, false))
		return found, len(found) < n, err
	}
	if o.State == 0 || o.State == driver.Ready {
		ready := Range{Index: TaskPlace, Prefixes: at(*o.Key), Desc: true, Limit: n}
		if o.Kind != nil {
			ready.Prefixes = at(*o.Key, *o.Kind)
		}
		if found, err = v.Rows(ready); len(found) > 0 || err != nil {
			return found, false, err
		}
	}
	found, err = v.Rows(Range{
		Index: TaskLine, Prefixes: at(*o.Key), Limit: n,
		Only: Only{State: o.State, Kind: o.Kind},
	})
	return found, len(found) < n, err
}

// List returns tasks with their payloads, in the order of ids or of ListOptions.NextFirst.
func (v Calls) List(o driver.ListOptions) ([]*Row, error) {
	if o.State == driver.Taken && o.Group == "" {
		return v.listTaken(o)
	}
	return v.Rows(listRange(o, true))
}

// listRange is what List reads.
func listRange(o driver.ListOptions, payload bool) Range {
	r := Range{
		Index: TaskID, From: after(uint64(o.After)), Limit: cmp.Or(o.Limit, 100),
		Only: Only{o.State, o.Key, o.Kind}, Payload: payload,
	}
	switch {
	case o.NextFirst && o.State == driver.Delayed:
		r.Index, r.From = TaskWake, nil
	case o.NextFirst:
		r.Index, r.Prefixes, r.From = TaskSince, at(num(0)), nil
	case o.Group != "":
		r.Index, r.Prefixes = TaskGroup, at(o.Group)
	case o.State != 0 && waitsLong(o.State):
		r.Index, r.Prefixes, r.Only.State = TaskState, at(num(o.State)), 0
	}
	return r
}

// listTaken is List for taken tasks. The index of leases, which has them, is in another order. So
// listTaken reads all of them without payloads, and then the selected ones with their payloads.
func (v Calls) listTaken(o driver.ListOptions) ([]*Row, error) {
	taken := Range{Index: TaskSince, From: Tuple{num(1)}, Only: Only{Key: o.Key, Kind: o.Kind}}
	all, err := v.Rows(taken)
	var ids []uint64
	for _, r := range all {
		if r.ID > uint64(o.After) {
			ids = append(ids, r.ID)
		}
	}
	slices.Sort(ids)
	if ids = ids[:min(len(ids), cmp.Or(o.Limit, 100))]; err != nil || len(ids) == 0 {
		return nil, err
	}
	found, err := v.Peek(ids, true)
	slices.SortFunc(found, func(a, b *Row) int { return cmp.Compare(a.ID, b.ID) })
	// Others may have changed the rows, which are not locked.
	return slices.DeleteFunc(found, func(r *Row) bool { return r.State != driver.Taken }), err
}

// Next returns the first task of a line that is Ready and comes after a round and place.
func (v Calls) Next(l Line, round, place uint64) (*Row, error) {
	return one(v.Rows(NextRange(l, round, place)))
}

// NextRange is what Next reads.
func NextRange(l Line, round, place uint64) Range {
	return Range{
		Index: TaskLine, Prefixes: at(l.Key, num(l.Priority)),
		From: Tuple{num(round), num(place + 1)}, Limit: 1, Only: Only{State: driver.Ready},
		Lock: SkipLocked,
	}
}

// SetKey writes a row, or deletes it if there is nothing to be known of the key.
func (v Calls) SetKey(k *Key) error {
	return set(v.Keys(), k, k.Tasks[0] > 0 || k.Paused || k.Until != 0 || k.Limits != nil)
}

// SetTurn writes a turn, or deletes it if it has no place.
func (v Calls) SetTurn(t *Turn) error { return set(v.Turns(), t, t.Place > 0) }

// DueKeys returns n keys whose waits are over, the earliest first.
func (v Calls) DueKeys(now int64, n int) ([]*Key, error) {
	return v.Keys().Scan(untilRange(true, now, n))
}

// FullKeys returns n keys that do not wait, and whose buckets are full, the earliest first.
func (v Calls) FullKeys(now int64, n int) ([]*Key, error) {
	return v.Keys().Scan(untilRange(false, now, n))
}

func untilRange(waits bool, now int64, n int) Range {
	return Range{
		Index: KeyUntil, Prefixes: at(bit(waits)), To: through(now), Limit: n, Lock: SkipLocked,
	}
}

// LimitedKeys returns n keys with limits of their own that are not before from.
func (v Calls) LimitedKeys(from string, n int) ([]*Key, error) {
	return v.Keys().Scan(Range{Index: KeyLimits, From: Tuple{from}, Limit: n})
}

// set writes a row, or deletes it.
func set[R any](t Table[R], r *R, keep bool) error {
	if keep {
		return t.Put(r)
	}
	return t.Delete(r)
}

// LastRange is the last task, in any state, of each of some lines of a priority, unless its Round
// is before from.
func LastRange(from uint64, lines ...Line) Range {
	prefixes := make([]Tuple, len(lines))
	for i, l := range lines {
		prefixes[i] = Tuple{l.Key, num(l.Priority)}
	}
	return Range{
		Index: TaskLine, Prefixes: prefixes, Each: true, From: Tuple{num(from)}, Desc: true, Limit: 1,
		Turns: true,
	}
}

// ServedOf returns the row of a line that was served.
func (v Calls) ServedOf(l Line) (*Served, error) { return one(v.Served().Scan(servedRange(l))) }

// servedRange is what ServedOf reads.
func servedRange(l Line) Range {
	return Range{Index: ServedLine, Prefixes: at(num(l.Priority), l.Key)}
}

// Furthest returns the served line of a priority with the greatest Round.
func (v Calls) Furthest(priority int) (*Served, error) {
	return one(v.Served().Scan(furthestRange(priority)))
}

// furthestRange is what Furthest reads.
func furthestRange(priority int) Range {
	return Range{Index: ServedRound, Prefixes: at(num(priority)), Desc: true, Limit: 1}
}

// SweepServed forgets lines of a priority whose Round is before another one.
func (v Calls) SweepServed(priority int, before uint64, n int) error {
	return v.Served().Sweep(Range{
		Index: ServedRound, Prefixes: at(num(priority)), To: Tuple{num(before)}, Limit: n,
	})
}

// Consumer returns the consumer of that name.
func (v Calls) Consumer(name string) (*Consumer, error) {
	return one(v.Consumers().Scan(Range{Index: ConsumerName, Prefixes: at(name)}))
}

// AddConsumer adds a consumer, and gives it a number.
func (v Calls) AddConsumer(name string, epoch uint64, deadline int64) (*Consumer, error) {
	number, err := v.Number()
	if err != nil {
		return nil, err
	}
	c := &Consumer{number, name, epoch, deadline}
	return c, v.Consumers().Put(c)
}

// ConsumerNames returns the names of those of these consumers that there are.
func (v Calls) ConsumerNames(numbers []uint64) (map[uint64]string, error) {
	found, err := v.Consumers().Scan(Range{Index: ConsumerNumber, Prefixes: eachNum(numbers)})
	names := make(map[uint64]string, len(found))
	for _, c := range found {
		names[c.Number] = c.Name
	}
	return names, err
}

// Alive returns which of these consumers exist. They do until the end of the transaction.
func (v Calls) Alive(numbers []uint64) (found []uint64, err error) {
	alive, err := v.Consumers().Scan(AliveRange(numbers))
	for _, c := range alive {
		found = append(found, c.Number)
	}
	return found, err
}

// Renew sets the deadlines of consumers, and returns the numbers of the existing ones.
func (v Calls) Renew(numbers []uint64, deadline int64) (found []uint64, err error) {
	these := Range{Index: ConsumerNumber, Prefixes: eachNum(numbers), Lock: ForUpdate}
	all, err := v.Consumers().Scan(these)
	for _, c := range all {
		c.Deadline = deadline
		if err == nil {
			err = v.Consumers().Put(c)
		}
		found = append(found, c.Number)
	}
	return found, err
}

// DueConsumers returns n consumers whose deadlines are not after now.
func (v Calls) DueConsumers(now int64, n int) ([]*Consumer, error) {
	due := Range{Index: ConsumerDeadline, To: through(now), Limit: n, Lock: SkipLocked}
	return v.Consumers().Scan(due)
}

// DeleteConsumer deletes a consumer, if it is there.
func (v Calls) DeleteConsumer(number uint64) error {
	return v.Consumers().Delete(&Consumer{Number: number})
}

// ConsumersNamed returns the consumers whose names begin so, with deadlines after that.
func (v Calls) ConsumersNamed(prefix string, after int64) ([]*Consumer, error) {
	named := Range{Index: ConsumerName, From: Tuple{prefix}, To: behind(prefix)}
	found, err := v.Consumers().Scan(named)
	over := func(c *Consumer) bool { return c.Deadline != 0 && c.Deadline <= after }
	return slices.DeleteFunc(found, over), err
}

// behind returns the end of a range of all strings that begin with prefix.
func behind(prefix string) Tuple {
	b := []byte(prefix)
	for len(b) > 0 && b[len(b)-1] == 0xff {
		b = b[:len(b)-1]
	}
	if len(b) == 0 {
		return nil
	}
	b[len(b)-1]++
	return Tuple{string(b)}
}

// Group locks the group of that name.
func (v Calls) Group(name string) (*Group, error) {
	return one(v.Groups().Scan(Range{Index: GroupName, Prefixes: at(name), Lock: ForUpdate}))
}

// SetGroup writes a row, or deletes it if it has no tasks.
func (v Calls) SetGroup(g *Group) error { return set(v.Groups(), g, g.Tasks > 0) }

// Outcome returns how the task with a unique key ended.
func (v Calls) Outcome(uniqueKey string) (*Outcome, error) {
	return one(v.Outcomes().Scan(Range{Index: OutcomeKey, Prefixes: at(uniqueKey)}))
}

// SetOutcome writes a row, or deletes it if Until is 0.
func (v Calls) SetOutcome(o *Outcome) error { return set(v.Outcomes(), o, o.Until != 0) }

// SweepOutcomes forgets n outcomes whose Until is not after now.
func (v Calls) SweepOutcomes(now int64, n int) error {
	return v.Outcomes().Sweep(Range{Index: OutcomeUntil, To: through(now), Limit: n})
}

// HistoryAfter returns n tasks that are gone, in the order of ids, those with greater ids than
// after.
func (v Calls) HistoryAfter(id uint64, n int) ([]*Ended, error) {
	if n == 0 {
		return nil, nil
	}
	return v.History().Scan(Range{Index: HistoryID, From: after(id), Limit: n})
}

// SweepHistory forgets up to n entries of the history whose Until is now or earlier.
func (v Calls) SweepHistory(now int64, n int) error {
	return v.History().Sweep(Range{Index: HistoryUntil, To: through(now), Limit: n})
}

// Times are when something is due next, 0 for never.
type Times struct{ Wake, Full, Deadline, Outcome, History int64 }

// Times returns the earliest times of a queue. Wake is of tasks, and if keysWait of keys; Full is
// that of a bucket then.
func (v Calls) Times(keysWait bool) (t Times, err error) {
	var ranges []Range
	for _, i := range [...]Index{TaskWake, ConsumerDeadline, OutcomeUntil, HistoryUntil} {
		ranges = append(ranges, Range{Index: i, Limit: 1})
	}
	if keysWait {
		for _, waits := range [...]bool{true, false} {
			ranges = append(ranges, Range{Index: KeyUntil, Prefixes: at(bit(waits)), Limit: 1})
		}
	}
	err = v.Fetch(ranges...)
	t.Wake = earliest(Tasks, v.Tasks(), ranges[0], &err)
	t.Deadline = earliest(Consumers, v.Consumers(), ranges[1], &err)
	t.Outcome = earliest(Outcomes, v.Outcomes(), ranges[2], &err)
	t.History = earliest(History, v.History(), ranges[3], &err)
	if keysWait {
		t.Wake = sooner(t.Wake, earliest(Keys, v.Keys(), ranges[4], &err))
		t.Full = earliest(Keys, v.Keys(), ranges[5], &err)
	}
	return t, err
}

// earliest returns the time of the first row of an index of times, unless there is an error.
func earliest[R any](s Schema[R], t Table[R], r Range, err *error) int64 {
	if *err != nil {
		return 0
	}
	found, failed := one(t.Scan(r))
	if *err = failed; found == nil {
		return 0
	}
	at := s.Place(r.Index, found)
	return at[len(at)-1].(int64)
}
