package rows

import (
	"time"

	"github.com/fairq/fairq/internal/life"
	"github.com/fairq/fairq/task/driver"
)

// pageSize is how many rows are read at once where there may be very many.
const pageSize = 1000

// unit is the work on a queue within a transaction: all calls of the transaction that are about the
// queue share it. What it caches is right because nothing is written past it (insert, update and
// remove are the only ones that write tasks), and because nobody else changes what it has read:
// either the transaction is exclusive, or what is cached of others' rows may be old, as the
// contract says (see DB).
//
// Nothing outside of the unit and its Head changes before the commit. What is to happen after it is
// noted here, and deliver does it. So a transaction that fails leaves no trace, and can be tried
// again with a new unit.
type unit struct {
	q           *queue
	v           Calls
	plan        *wants
	head        *Head
	now         int64
	changed     bool              // something has happened that other processes may wait for
	headChanged bool              // the head has changed
	dropped     bool              // there is no queue any more
	opening     []driver.Notifier // of those who open the queue by this
	asIs        bool              // all who call have the queue open AsIs, so nothing becomes due

	// Rows of the table of keys that are to be written. Many calls change the same one, so they are
	// written at the end, or before the database is asked about that table.
	unsaved map[*Key]bool

	lifeOf struct { // see life
		life.Task
		rare life.Rare
	}
	behind    map[lineKind]bool // where a task is known to be parked, see staysBehind
	gaps      map[Line]gap      // the first free turn of each; see closeGaps
	got       map[uint64]*Row   // tasks that the plan has named, as they are; nil if there is none
	readAhead readAhead
	moved     map[uint64]*Row // tasks that got another turn since they were read
	passed    map[uint64]bool // tasks that are Takeable and must not be, see isNext
	large     []string        // keys of ready tasks that are not kept

	// What happens once the transaction is committed, in this order: first what this process knows
	// is brought up to date, then those who wait are told, so that what they ask next finds it so.
	notices     []func([]driver.Notifier)
	stats       driver.Stats // those of the queue, with what happens in this transaction
	due         int64        // the earliest time that was set
	afterCommit []func()

	taken []driver.Lease // those that the call has begun by taking tasks
	begun []ownLease     // those of this process, also by resuming a consumer
	over  []driver.Lease // those that have ended

	written     int // rows of tasks; see bounds.go
	bytes       int
	purges      bool // all tasks are deleted, so it does not matter which turns they have
	advanced    bool // all that was due has happened, so due is the earliest time of all
	listens     bool
	followsEnds bool // see follow
}

// enter enters a queue. If it is not there any more it returns nil.
func (q *queue) enter(tx Tx, plan *wants) *unit {
	v := must(tx.Enter(q.number, plan.forDriver(q)))
	if v == nil {
		return nil
	}
	u := &unit{q: q, v: Calls{v}, plan: plan, head: v.Head(), now: v.Now(), listens: q.listens(), stats: q.stats}
	u.unsaved, u.behind, u.passed = map[*Key]bool{}, map[lineKind]bool{}, map[uint64]bool{}
	u.got, u.moved = map[uint64]*Row{}, map[uint64]*Row{}
	if u.head.accounts == nil {
		u.head.cache = newCache()
	}
	if len(u.head.keys) > maxKnownKeys {
		clear(u.head.keys)
	}
	return u
}

// needExclusive ends the transaction, and has it begun again, if it does not have the queue for
// itself. Most calls are not exclusive and find out only in the middle that they must be, as when
// a task turns out to be in a group: then it is cheaper to begin again than to always be alone.
func (u *unit) needExclusive() {
	if !u.plan.Exclusive {
		panic(failure{errNotExclusive})
	}
}

// needGroup is needExclusive for a change of a group, unless changes of the same group conflict
// anyway.
func (u *unit) needGroup() {
	if !u.q.store.traits.Optimistic {
		u.needExclusive()
	}
}

// onCommit has f called once the transaction is committed.
func (u *unit) onCommit(f func()) { u.afterCommit = append(u.afterCommit, f) }

// save writes what was not written at once.
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
		clear(u.head.readyTasks) // now, so that those which prepare reads stay
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

// insert, update and remove write a row, count it for its key, and correct what is cached of it. A
// row that becomes ready must be written before updateFront is called for it, because updateFront
// reads the line from what is cached here.
func (u *unit) insert(r *Row) {
	u.bytes += len(r.Payload)
	u.write(r)
	u.addReady(r)
}

func (u *unit) update(r *Row) {
	delete(u.head.taken, r.ID)
	u.write(r)
	u.head.forgetReady(r)
	u.addReady(r)
	u.schedule(r.Wake)
}

// addReady notes a task among those of its key, without its payload if that would be kept for long.
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

// MaxKept is how many bytes the payload of a ready task that is kept has at most, where to read it
// later costs an exchange.
const MaxKept = 1 << 10

// noteLarge notes the key of a task that is not kept: where to read its payload later costs an
// exchange, those of all tasks that come to the front in a transaction are read at once.
func (u *unit) noteLarge(r *Row) {
	if !u.q.store.traits.Exclusive && (r.Payload == nil || len(r.Payload) > MaxKept) {
		u.large = append(u.large, r.Key)
	}
}

func (u *unit) remove(r *Row) {
	if r.Round > 0 && r.Was != driver.Taken {
		delete(u.head.accounts, r.line()) // it may have been the last one
	}
	u.recount(r, 0)
	delete(u.head.taken, r.ID)
	delete(u.got, r.ID)
	check(u.v.Delete(r))
	delete(u.behind, r.lineKind())
	u.written++
	u.bytes += r.namesSize()
	u.head.forgetReady(r)
}

func (u *unit) write(r *Row) {
	u.recount(r, r.State)
	delete(u.got, r.ID)
	delete(u.moved, r.ID)
	check(u.v.Put(r))
	delete(u.behind, r.lineKind())
	u.written++
	u.bytes += r.size()
}

// recount says that a row is in a state now, or if that is 0 in none.
func (u *unit) recount(r *Row, state driver.State) {
	u.noteRoom(r, state)
	if from, to := u.q.counted(r.Was), u.q.counted(state); from != to {
		u.count(u.key(r.Key), r, from, to)
	}
}

// count counts a row for its key.
func (u *unit) count(k *Key, r *Row, from, to driver.State) {
	Count(&k.Tasks, from, to)
	if from == 0 {
		k.Weight = r.Weight
	}
	u.unsaved[k] = true
}

// key returns the row of a key, an empty one if there is none.
func (u *unit) key(key string) *Key {
	if u.head.keys[key] == nil {
		u.readKeys(key)
	}
	return u.head.keys[key]
}

// keysWait reports whether any key may be paused or wait, or the queue.
func (u *unit) keysWait() bool {
	return u.head.PausedKeys > 0 || u.q.settings.KeyRate.Limit+u.q.settings.Rate.Limit > 0
}

// isHeld reports whether a key is paused or waits. One that has waited long enough does so until
// endWait is called.
func (u *unit) isHeld(key string) bool {
	return (u.head.PausedKeys > 0 || u.q.settings.KeyRate.Limit > 0) && u.key(key).IsHeld()
}

// blocked tells whether no task of a key can be taken.
func (u *unit) blocked(key string) bool {
	most := u.q.settings.MaxInFlightPerKey
	return most > 0 && u.key(key).Tasks[driver.Taken] >= most || u.isHeld(key)
}

// number returns one that was never used before.
func (u *unit) number() uint64 { return must(u.v.Number()) }

// schedule sees to it that something is done at that time; 0 means never.
func (u *unit) schedule(at int64) { u.due = sooner(u.due, at) }

// needsPayload tells whether rows are to be read with their payloads, because they are told about
// when they are gone.
func (u *unit) needsPayload() bool { return u.q.store.options.History > 0 || u.wantsExpired() }

// find returns the task of that id, nil if there is none.
func (u *unit) find(id uint64) *Row {
	payload := u.needsPayload()
	r, ok := u.got[id]
	if !ok || r != nil && payload && r.Payload == nil {
		return must(u.v.Get(id, payload))
	}
	delete(u.got, id) // for what is returned is changed
	return r
}

// get returns the task of that id, nil if there is none, after all that is due for it has happened:
// advance may have left that to later transactions, but no call may see a task as it should not be
// any more. A task in a group needs the queue exclusively, as what happens to it can end the group.
func (u *unit) get(id uint64) *Row {
	for {
		r := u.find(id)
		if r != nil && r.Group != "" {
			u.needGroup()
		}
		if r == nil || u.asIs || !r.isDue(u.now) {
			return r
		}
		u.fire(r)
	}
}

// peek is get for a task that is not to be changed.
func (u *unit) peek(id uint64) *Row {
	return u.upToDate(func() (*Row, error) {
		found, err := u.v.Peek([]uint64{id}, true)
		return append(found, nil)[0], err
	})
}

// findUniqueKey returns the task with that unique key, nil if there is none. It is not to be
// changed.
func (u *unit) findUniqueKey(uniqueKey string, payload bool) *Row {
	return u.upToDate(func() (*Row, error) { return u.v.ByUniqueKey(uniqueKey, payload) })
}

// upToDate returns what look finds after all that is due for that has happened.
func (u *unit) upToDate(look func() (*Row, error)) *Row {
	for {
		r := must(look())
		if r == nil || u.asIs || !r.isDue(u.now) {
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

// line returns where the task queues.
func (r *Row) line() Line { return Line{r.Key, r.Priority} }

func (r *Row) lineKind() lineKind { return lineKind{r.line(), r.Kind} }

// isDue tells whether something should have happened to the task already.
func (r *Row) isDue(now int64) bool { return r.Wake != 0 && r.Wake <= now }

// A deadline must be told as it was put, also if it is the year 9999, for programs have such ones.
// So what is kept of it is nanoseconds since 1970, plus one if it is not before that, for 0 means
// none; but from farYear on microseconds.
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

// nanos returns when a deadline is as other times are; no time is later than far.
func nanos(d int64) int64 { return max(0, d-1) }

func timeOf(at int64) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return time.Unix(0, at)
}

// sooner returns the sooner one of two times, of which 0 is never.
func sooner(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
