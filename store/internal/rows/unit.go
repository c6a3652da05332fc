package rows

import (
	"slices"
	"time"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/life"
)

// pageSize is the number of rows that one read reads where there may be very many.
const pageSize = 1000

// unit is the work on a queue within a transaction. All calls of the transaction for the queue
// share it. Its cache is right because only insert, update and remove write tasks, and because no
// other transaction changes the rows that it has read: either the transaction is exclusive, or the
// contract allows old values of others' rows (see DB).
//
// Nothing outside of the unit and its Head changes before the commit. The unit notes the changes
// that must follow it, and deliver makes them. So a failed transaction leaves no trace, and can be
// tried again with a new unit.
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

	// Changed rows of the table of keys. Many calls change the same row, so they are written at the
	// end, or before a read of that table.
	unsaved map[*Key]bool

	lifeOf struct { // see life
		life.Task
		rare life.Rare
	}
	behind    map[lineKind]bool // a parked task is known there, see staysBehind
	gaps      map[Line]gap      // the first free turn of each; see closeGaps
	readAhead readAhead
	moved     map[uint64]*Row // tasks that got another turn since they were read
	passed    map[uint64]bool // tasks that are wrongly Takeable, see isNext
	large     []string        // keys of ready tasks that are not kept

	// The work after the commit: deliver first updates the state of this process, and then calls the
	// notifiers, so that the next calls find the new state.
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
	u.unsaved, u.behind, u.passed = map[*Key]bool{}, map[lineKind]bool{}, map[uint64]bool{}
	u.moved = map[uint64]*Row{}
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

// needExclusive ends a transaction that is not exclusive, and makes it begin again as an exclusive
// one. Most calls see only while they run that they must be exclusive, such as when a task is in a
// group: then beginning again is cheaper than always being exclusive.
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

// Where transactions lock keys, each first waits for the locks of its plan, in one order for all
// of them, and later only tries to lock: in ranges that pass over locked tasks. So two never
// wait for each other. What it reads or writes of a key that it does not hold shows that it
// needs the queue for itself.

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
		delete(u.head.readyTasks, key)
	}
	if !u.q.store.traits.Exclusive && len(u.head.readyTasks) > maxKnownKeys/2 {
		clear(u.head.readyTasks) // now, so that the next ones of prepare stay
	}
	if u.headChanged {
		check(u.v.Save())
	}
}

func (u *unit) saveKeys() {
	for k := range u.unsaved {
		check(u.v.SetKey(k))
		delete(u.unsaved, k)
	}
}

// insert, update and remove write a row, count it for its key, and update the cache. A row that
// becomes ready must be written before updateFront is called for it, because updateFront reads its
// line from the cache.
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

// addReady adds a task to the cached ones of its key, without its payload if that would stay for
// long.
func (u *unit) addReady(r *Row) {
	if u.head.readyTasks[r.Key] == nil || !r.inLine() {
		return
	}
	if r.Payload != nil && u.q.store.traits.Exclusive {
		known := *r
		known.Payload = nil
		r = &known
	}
	u.noteLarge(r)
	u.head.addReady(r)
}

// MaxKept is the greatest size in bytes of the payload of a cached ready task, where reading it
// later takes an exchange.
const MaxKept = 1 << 10

// noteLarge notes the key of a task that the cache will not keep: where reading its payload later
// takes an exchange, the payloads of all tasks that come to the front in a transaction are read at
// once.
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
	delete(u.behind, r.lineKind())
	u.written++
	u.bytes += r.namesSize()
	u.head.forgetReady(r)
}

func (u *unit) write(r *Row) {
	u.needKeys(r.Key)
	u.recount(r, r.State)
	delete(u.head.tasks, r.ID)
	delete(u.moved, r.ID)
	check(u.v.Put(r))
	delete(u.behind, r.lineKind())
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
	if u.head.keys[key] == nil {
		u.readKeys(key)
	}
	return u.head.keys[key]
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
	if u.q.turns != limits {
		return u.isHeld(key)
	}
	k := u.key(key)
	return k.IsHeld() ||
		k.Tasks[driver.Taken] >= life.MaxInFlight(&u.q.settings.Settings, u.limits(k))
}

// limits returns the own limits of a key, nil if it has none or the queue does not obey them.
func (u *unit) limits(k *Key) *driver.KeyLimits {
	if u.q.turns != limits {
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

// find returns the task of that id, nil if there is none. It is known if the plan has named it, or
// if it was taken here.
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

// get returns the task of that id, nil if there is none, after its due changes: advance may have
// left them to later transactions, but no call may see a task in an outdated state. A task in a
// group needs an exclusive transaction, because a change of it can end the group.
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

// A deadline must keep its value, even in the year 9999, because programs use such deadlines. It
// is stored as nanoseconds since 1970, plus one unless it is before 1970, because 0 means none;
// after far it counts microseconds.
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
