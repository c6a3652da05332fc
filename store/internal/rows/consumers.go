package rows

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/fairq/fairq/task"
)

func newName() string { return rand.Text() }

// member returns a consumer that lives here, and makes it known if it is not.
func (u *unit) member(name string) *member {
	if c := u.q.members[name]; c != nil && u.now < c.deadline && u.alive(c) {
		return c
	}
	deadline := plus(u.now, u.q.settings.Grace)
	row := must(u.v.Consumer(name))
	if row == nil || len(must(u.v.Beat([]uint64{row.Number}, deadline))) == 0 { // others may just have taken it for dead
		row = must(u.v.AddConsumer(name, deadline))
	}
	c := &member{row.Number, deadline}
	u.later(func() { u.q.join(name, c) })
	return c
}

// alive tells whether a member was not taken for dead meanwhile, and keeps it from that: others do not see yet what it takes. Who has
// the queue for itself need not ask.
func (u *unit) alive(c *member) bool {
	return u.plan.Exclusive || len(must(u.v.Alive([]uint64{c.number}))) > 0
}

func (q *queue) join(name string, c *member) {
	q.part(name)
	q.members[name] = c
	q.names[c.number] = name
	q.beat = sooner(q.beat, q.beatOf(c.deadline))
}

// beatOf returns when members are to be renewed that have that deadline.
func (q *queue) beatOf(deadline int64) int64 { return deadline - int64(q.settings.Grace)/3*2 }

func (q *queue) part(name string) {
	if c := q.members[name]; c != nil {
		delete(q.members, name)
		delete(q.names, c.number)
	}
}

// beat renews all members, in one statement.
func (u *unit) beat() {
	q := u.q
	if q.beat == 0 || q.beat > u.now {
		return
	}
	if len(q.members) == 0 {
		q.beat = 0
		return
	}
	deadline := plus(u.now, q.settings.Grace)
	numbers := make([]uint64, 0, len(q.members))
	for _, c := range q.members {
		if numbers = append(numbers, c.number); u.now >= c.deadline {
			q.spares = plus(u.now, q.settings.Grace/2)
		}
	}
	slices.Sort(numbers)
	alive := must(u.v.Beat(numbers, deadline))
	slices.Sort(alive)
	for name, c := range q.members {
		if _, ok := slices.BinarySearch(alive, c.number); !ok { // others have taken it for dead, so it is another one now
			c.deadline = 0
			u.member(name)
		}
	}
	u.later(func() {
		q.beat = q.beatOf(deadline)
		for _, c := range q.members {
			c.deadline = deadline
		}
	})
}

// leave ends a consumer: at once, or if it does not come back in time.
func (u *unit) leaveConsumer(name string, grace time.Duration) {
	if c := u.q.members[name]; c != nil {
		c.deadline = 0 // who takes for it in this transaction yet makes it known again
	}
	u.later(func() { u.q.part(name) })
	c := must(u.v.Consumer(name))
	switch {
	case c == nil && grace == 0:
		return
	case grace == 0:
		u.handAllBack(c.Number)
		u.endConsumer(c.Number)
		return
	case c == nil:
		must(u.v.AddConsumer(name, plus(u.now, grace)))
	default:
		must(u.v.Beat([]uint64{c.Number}, plus(u.now, grace)))
	}
	u.arm(plus(u.now, grace))
}

// endConsumer ends a consumer whose tasks were handed back; later, if others have locked some: a transaction of a caller's that
// settles them may be rolled back.
func (u *unit) endConsumer(number uint64) {
	if !u.q.store.db.Exclusive() && len(must(u.v.Leases(number))) > 0 {
		until := plus(u.now, lockedPause)
		must(u.v.Beat([]uint64{number}, until))
		u.arm(until)
		return
	}
	check(u.v.DeleteConsumer(number))
}

// handAllBack hands back what a consumer holds. The attempts do not count.
func (u *unit) handAllBack(number uint64) {
	for {
		rows := must(u.v.HeldBy(number, pageSize, u.whole()))
		for _, r := range rows {
			u.stats.Releases++
			u.handBack(r, u.now, 0, task.EventRelease, false)
		}
		if len(rows) < pageSize {
			return
		}
	}
}

// rejoin returns what a consumer holds that is back.
func (u *unit) rejoin(name string) ([]task.Record, error) {
	gone := fmt.Errorf("%w: consumer %q", task.ErrNotFound, name)
	c := must(u.v.Consumer(name))
	if c == nil || c.Deadline <= u.now {
		return nil, gone
	}
	deadline := plus(u.now, u.q.settings.Grace)
	if len(must(u.v.Beat([]uint64{c.Number}, deadline))) == 0 {
		return nil, gone // just now
	}
	u.later(func() { u.q.join(name, &member{c.Number, deadline}) })
	rows := must(u.v.HeldBy(c.Number, task.MaxBatch*pageSize, true))
	if !u.q.store.db.Exclusive() {
		rows = u.waitForLocked(c.Number, rows)
	}
	records := make([]task.Record, len(rows))
	for i, r := range rows {
		records[i] = u.record(r)
		records[i].Consumer = name
		u.later(func() { u.q.held[r.ID] = held{r.Since, r.Key} })
	}
	return records, nil
}

// waitForLocked adds what a consumer holds but others have locked, as does a transaction of a process that has just died.
func (u *unit) waitForLocked(consumer uint64, rows []*Row) []*Row {
	left := must(u.v.Leases(consumer))
	for _, r := range rows {
		delete(left, r.ID)
	}
	for id := range left {
		if r := must(u.v.Get(id, true)); r != nil && r.State == task.Taken && r.Consumer == consumer {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, func(a, b *Row) int { return cmp.Compare(a.Since, b.Since) })
	return rows
}

// disown hands back what was taken in a transaction of which it is not known whether it was committed: nobody has got it.
func (u *unit) disown() {
	for id, lease := range u.q.unsure {
		if r := u.leased(task.Lease{ID: task.ID(id), Number: lease}); r != nil {
			u.stats.Releases++
			u.handBack(r, u.now, 0, task.EventRelease, false)
		}
	}
	u.later(func() { clear(u.q.unsure) })
}

// dead hands back what consumers hold that did not come back, and returns how much it has left to do.
func (u *unit) dead(most int) int {
	for _, c := range must(u.v.DueConsumers(u.now, most)) {
		rows := must(u.v.HeldBy(c.Number, most, u.whole()))
		for _, r := range rows {
			u.lose(r, min(c.Deadline, u.now))
		}
		if most -= len(rows) + 1; most <= 0 {
			break
		}
		u.endConsumer(c.Number)
		u.later(func() { u.q.part(c.Name) })
	}
	return most
}
