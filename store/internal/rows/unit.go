package rows

import (
	"math"
	"slices"
	"time"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/life"
)

// pageSize is the number of rows that one read reads where there may be very many.
const pageSize = 1000

// unit is the work of a transaction in one queue; all calls of the transaction for the queue share
// it. The cache of its Head is right because only insert, update and remove write tasks, and
// because other transactions leave the rows alone that this one has read. The transaction is
// exclusive, or has locked the rows, or the contract allows old values (see DB).
//
// Before the commit nothing changes outside of the unit and its Head. The unit notes the changes
// that must follow the commit, and deliver makes them. So a failed transaction leaves no trace,
// and can be tried again with a new unit.
type unit struct {
	q           *queue
	v           Calls
	plan        *wants
	locked      map[string]bool // keys: see needKeys
	head        *Head
	now         int64
	changed     bool // other processes may wait for one of the changes
	headChanged bool
	dropped     bool              // the queue was dropped
	opening     []driver.Notifier // of calls that open the queue
	asIs        bool              // all callers have the queue open AsIs, so nothing becomes due

	// unsaved has the changed rows of keys. Many calls change the same row, so it is written at the
	// end, or before a read of the table of keys.
	unsaved      map[*Key]bool
	unsavedTurns map[turnID]*Turn // the same of turns

	lifeOf struct { // see life
		life.Task
		rare life.Rare
	}
	gaps      map[Line]gap // the first free turn of each; see closeGaps
	readAhead readAhead
	passed    map[turnID]bool // turns that may be wrong, see isNext
	large     []string        // keys of ready tasks that are not kept

	// These fields have the work after the commit. deliver first updates the state of this process,
	// and then calls the notifiers, so that the calls that follow find the new state.
	notices     []func([]driver.Notifier)
	stats       driver.Stats // of the queue, with the changes of this transaction
	due         int64        // the earliest time that was set
	afterCommit []func()

	taken []newLease     // begun by the running call
	begun []ownLease     // begun in this process, also by resuming a consumer
	over  []driver.Lease // ended

	written     int // rows of tasks; see bounds.go
	bytes       int
	purges      bool // all tasks are being deleted, so their turns do not matter
	advanced    bool // all due changes were made, so due is the earliest time of all
	listens     bool
	followsEnds bool // see follow
}

// enter enters a queue. It returns nil if the queue was dropped.
func (q *queue) enter(tx Tx, plan *wants) *unit {
	v := must(tx.Enter(q.number, plan.forDriver(q)))
	if v == nil {
		return nil
	}
	u := &unit{
		q: q, v: Calls{v}, plan: plan, head: v.Head(), now: v.Now(), listens: q.listens(),
		stats: q.stats,
	}
	u.unsaved, u.unsavedTurns, u.passed = map[*Key]bool{}, map[turnID]*Turn{}, map[turnID]bool{}
	u.hold(plan.Locks...)
	kept := u.head.accounts != nil
	if !kept {
		u.head.cache = newCache()
	}
	if q.locksKeys {
		u.onCommit(func() { q.entered(kept) })
	}
	if len(u.head.keys) > maxKnownKeys {
		clear(u.head.keys)
	}
	return u
}

// prepare makes the planned reads of the calls, before any of them writes. From then on the cache
// has the rows, so a driver that has read the ranges of the Plan need not keep them up to date.
func (u *unit) prepare() {
	for lines := range byPriority(u.plan.Lines) {
		u.readAccounts(u.q.rounds[lines[0].Priority], lines)
	}
	u.readKeys(u.plan.Keys...)
	if u.q.store.traits.Exclusive {
		return // reading ahead saves nothing there
	}
	if ids := u.plan.unread(u.head); len(ids) > 0 {
		for _, id := range ids {
			u.head.tasks[id] = nil
		}
		for _, r := range must(u.v.Rows(RowRange(false, ForUpdate, ids...))) {
			u.head.tasks[r.ID] = r
		}
	}
	var keys []string
	for _, id := range u.plan.Get {
		if r := u.head.tasks[id]; r != nil {
			keys = append(keys, r.Key)
		}
	}
	for _, at := range u.plan.Puts {
		if !u.staysBehind(at, math.MaxUint64) {
			keys = append(keys, at.Key)
		}
	}
	if u.plan.Take > 0 && !u.head.Paused {
		u.readReady(u.plan.Filter, u.plan.Take, keys...)
		for _, t := range u.readAhead.turns {
			keys = append(keys, t.Key)
		}
	}
	u.readFor(keys)
}

// readFor reads the rows that changes of tasks of some keys will need.
func (u *unit) readFor(keys []string) {
	if u.q.byKey() {
		u.readKeys(keys...)
	}
}

// keysOf returns the keys of some tasks.
func keysOf(rows []*Row) []string {
	keys := make([]string, len(rows))
	for i, r := range rows {
		keys[i] = r.Key
	}
	return keys
}

// needExclusive ends a transaction that is not exclusive. The committer then runs its calls again
// in an exclusive transaction. Most calls find out only while they run that they need one, such as
// when a task is in a group. Running these again is cheaper than making all transactions
// exclusive.
func (u *unit) needExclusive() {
	if !u.plan.Exclusive {
		panic(failure{errNotExclusive})
	}
}

// needGroup is needExclusive for a change of a group, where changes of the same group do not
// conflict.
func (u *unit) needGroup() {
	if !u.q.store.traits.Optimistic {
		u.needExclusive()
	}
}

// Some transactions lock keys. Such a transaction first locks the keys of its plan, and may wait
// for them; all transactions lock them in the same order. Later it only tries to lock keys, in
// ranges that pass over locked tasks. So no two transactions wait for each other. If it reads or
// writes rows of a key that it has not locked, it must enter the queue exclusively instead.

// hold notes that some keys are locked, if the transaction locks keys.
func (u *unit) hold(keys ...string) {
	if !u.plan.LocksKeys {
		return
	}
	if u.locked == nil {
		u.locked = map[string]bool{}
	}
	for _, key := range keys {
		u.locked[key] = true
	}
}

// holdThose is hold for the keys of tasks that were read with SkipLocked.
func (u *unit) holdThose(rows []*Row) []*Row {
	for _, r := range rows {
		u.hold(r.Key)
	}
	return rows
}

// needKeys is needExclusive unless the transaction holds some keys.
func (u *unit) needKeys(keys ...string) {
	isFree := func(key string) bool { return !u.locked[key] }
	if u.q.locksKeys && slices.ContainsFunc(keys, isFree) {
		u.needExclusive()
	}
}

// needAnyKeys is needKeys for unknown keys.
func (u *unit) needAnyKeys() {
	if u.q.locksKeys {
		u.needExclusive()
	}
}

// onCommit makes deliver call f after the commit.
func (u *unit) onCommit(f func()) { u.afterCommit = append(u.afterCommit, f) }

// save makes the writes that were put off.
func (u *unit) save() {
	if u.dropped {
		return
	}
	u.closeGaps()
	u.saveKeys()
	for _, key := range u.large {
		if k := u.head.keys[key]; k != nil {
			clear(k.firsts)
		}
	}
	if u.headChanged {
		check(u.v.Save())
	}
}

// saveKeys writes the changed rows of keys and turns: at the end, or before a read of their
// tables.
func (u *unit) saveKeys() {
	for k := range u.unsaved {
		check(u.v.SetKey(k))
		delete(u.unsaved, k)
	}
	for _, t := range u.unsavedTurns {
		check(u.v.SetTurn(t))
	}
	clear(u.unsavedTurns)
}

// insert, update and remove write a row, count it for its key, and update the cache. updateLine
// reads the line of a task from the cache. So a task that becomes ready, or leaves, is written
// before updateLine is called for it.
func (u *unit) insert(r *Row) {
	u.bytes += len(r.Payload)
	u.write(r)
	u.addReady(r)
}

func (u *unit) update(r *Row) {
	u.write(r)
	u.head.forgetReady(r)
	u.addReady(r)
	u.schedule(r.Wake)
}

// MaxKept is the greatest size in bytes of the payload of a cached ready task, where reading it
// later takes an exchange.
const MaxKept = 1 << 10

// noteLarge notes the key of a task that is too large for the cache. Where reading a payload later
// takes an exchange, the first tasks of lines are read with their payloads. save then makes the
// cache forget those of the noted keys.
func (u *unit) noteLarge(r *Row) {
	if !u.q.store.traits.Exclusive && (r.Payload == nil || len(r.Payload) > MaxKept) {
		u.large = append(u.large, r.Key)
	}
}

func (u *unit) remove(r *Row) {
	u.needKeys(r.Key)
	if r.Round > 0 && r.Was != driver.Taken {
		delete(u.head.accounts, r.line()) // it may have been the last task of its line
	}
	u.recount(r, 0)
	delete(u.head.tasks, r.ID)
	check(u.v.Delete(r))
	u.written++
	u.bytes += r.namesSize()
	u.head.forgetReady(r)
}

func (u *unit) write(r *Row) {
	u.needKeys(r.Key)
	u.recount(r, r.State)
	delete(u.head.tasks, r.ID)
	check(u.v.Put(r))
	u.written++
	u.bytes += r.size()
}

// recount counts a row in its new state, 0 if it is gone.
func (u *unit) recount(r *Row, state driver.State) {
	u.noteRoom(r, state)
	if from, to := u.q.counted(r.Was), u.q.counted(state); from != to {
		u.count(u.key(r.Key), from, to)
	}
}

// count counts a row for its key.
func (u *unit) count(k *Key, from, to driver.State) {
	Count(&k.Tasks, from, to)
	u.unsaved[k] = true
}

// key returns the row of a key, an empty row if there is none.
func (u *unit) key(key string) *Key {
	return u.known(key).Key
}

// keysWait reports whether any key, or the queue, may be paused or wait.
func (u *unit) keysWait() bool {
	return u.head.PausedKeys > 0 || u.q.settings.KeyRate.Limit+u.q.settings.Rate.Limit > 0
}

// isHeld reports whether a key is paused or waits. A wait lasts until endWait is called.
func (u *unit) isHeld(key string) bool {
	return (u.head.PausedKeys > 0 || u.q.settings.KeyRate.Limit > 0) && u.key(key).IsHeld()
}

// blocked reports whether no task of a key can be taken.
func (u *unit) blocked(key string) bool {
	if !u.q.limits {
		return u.isHeld(key)
	}
	k := u.key(key)
	return k.IsHeld() ||
		k.Tasks[driver.Taken] >= life.MaxInFlight(&u.q.settings.Settings, u.limits(k))
}

// limits returns the own limits of a key, nil if it has none or the queue does not obey them.
func (u *unit) limits(k *Key) *driver.KeyLimits {
	if !u.q.limits {
		return nil
	}
	return k.Limits
}

// number returns a new number.
func (u *unit) number() uint64 { return must(u.v.Number()) }

// schedule makes a Tick due at that time; 0 means never.
func (u *unit) schedule(at int64) { u.due = sooner(u.due, at) }

// needsPayload reports whether rows must be read with their payloads, for the history or for
// notifiers that want expired tasks.
func (u *unit) needsPayload() bool { return u.q.store.options.History > 0 || u.wantsExpired() }

// find returns the task of that id, nil if there is none. The cache has the task if the plan names
// it, or if this process has taken it.
func (u *unit) find(id uint64) *Row {
	payload := u.needsPayload()
	r, ok := u.head.tasks[id]
	delete(u.head.tasks, id) // because the caller changes the row
	if !ok {
		u.needAnyKeys()
	}
	if !ok || r != nil && payload && r.Payload == nil {
		return must(u.v.Get(id, payload))
	}
	return r
}

// get returns the task of that id, nil if there is none, after it has made the due changes of the
// task. advance may have left these to later transactions, but no call may see an outdated state.
// A task in a group needs an exclusive transaction, because a change of the task can end the
// group.
func (u *unit) get(id uint64) *Row {
	for {
		r := u.find(id)
		if r != nil && r.Group != "" {
			u.needGroup()
		}
		if r == nil || u.asIs || !u.isDue(r, u.now) {
			return r
		}
		u.fire(r)
	}
}

// peek is get for a task that the caller does not change.
func (u *unit) peek(id uint64) *Row {
	return u.upToDate(func() (*Row, error) {
		found, err := u.v.Peek([]uint64{id}, true)
		return append(found, nil)[0], err
	})
}

// findUniqueKey returns the task with that unique key, nil if there is none. The caller must not
// change it.
func (u *unit) findUniqueKey(uniqueKey string, payload bool) *Row {
	return u.upToDate(func() (*Row, error) { return u.v.ByUniqueKey(uniqueKey, payload) })
}

// upToDate returns the result of look after the due changes of that task.
func (u *unit) upToDate(look func() (*Row, error)) *Row {
	for {
		r := must(look())
		if r == nil || u.asIs || !u.isDue(r, u.now) {
			return r
		}
		u.get(r.ID)
	}
}

// lease returns the number of the task's lease, 0 if it is not taken.
func (r *Row) lease() uint64 {
	if r.State != driver.Taken {
		return 0
	}
	return r.Since
}

// line returns the line of the task.
func (r *Row) line() Line { return Line{r.Key, r.Priority} }

func (r *Row) lineKind() lineKind { return lineKind{r.line(), r.Kind} }

// isDue reports whether a change of the task is due. The clock of another process may be late, and
// its lease lasts until then.
func (u *unit) isDue(r *Row, now int64) bool {
	if _, own := u.q.names[r.Consumer]; r.State == driver.Taken && !own {
		now -= int64(u.q.store.traits.Skew)
	}
	return r.Wake != 0 && r.Wake <= now
}

// A deadline must keep its value, even in the year 9999, because programs use such deadlines. A
// deadline from 1970 on is stored as nanoseconds since 1970, plus one, because 0 means none. After
// far the number counts microseconds instead. Before 1970 it is negative, and nothing is added.
var far = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

func deadline(t time.Time) int64 {
	switch {
	case t.IsZero():
		return 0
	case t.After(far):
		return far.UnixNano() + t.UnixMicro() - far.UnixMicro()
	case t.Year() < 1970:
		return min(-1, max(t.Unix(), -1<<33)*int64(time.Second)+int64(t.Nanosecond()))
	}
	return t.UnixNano() + 1
}

func timeOfDeadline(d int64) time.Time {
	switch {
	case d == 0:
		return time.Time{}
	case d < 0:
		return time.Unix(0, d)
	case d > far.UnixNano():
		return time.UnixMicro(far.UnixMicro() + d - far.UnixNano())
	}
	return time.Unix(0, d-1)
}

// nanos returns a deadline as a time, at most far.
func nanos(d int64) int64 { return max(0, d-1) }

func timeOf(at int64) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return time.Unix(0, at)
}

// sooner returns the earlier of two times, where 0 means never.
func sooner(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
