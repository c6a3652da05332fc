package rows

import (
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/fairq/fairq/task"
)

func newName() string { return rand.Text() }

// member returns a consumer that lives here, and makes it known if it is not.
func (u *unit) member(name string) *member {
	if c := u.q.members[name]; c != nil && u.now < c.deadline {
		return c
	}
	deadline := plus(u.now, u.q.settings.Grace)
	row := must(u.v.Consumer(name))
	if row == nil {
		row = must(u.v.AddConsumer(name, deadline))
	} else {
		check(u.v.Beat([]uint64{row.Number}, deadline))
	}
	c := &member{row.Number, deadline}
	u.later(func() { u.q.join(name, c) })
	return c
}

func (q *queue) join(name string, c *member) {
	q.part(name)
	q.members[name] = c
	q.names[c.number] = name
}

func (q *queue) part(name string) {
	if c := q.members[name]; c != nil {
		delete(q.members, name)
		delete(q.names, c.number)
	}
}

// beat renews all members, in one statement.
func (u *unit) beat() {
	q := u.q
	if q.beat > u.now || len(q.members) == 0 {
		return
	}
	deadline := plus(u.now, q.settings.Grace)
	numbers := make([]uint64, 0, len(q.members))
	for name, c := range q.members {
		if u.now < c.deadline {
			numbers = append(numbers, c.number)
		} else {
			u.member(name) // others may have taken it for dead; then it is another one now
		}
	}
	slices.Sort(numbers)
	check(u.v.Beat(numbers, deadline))
	u.later(func() {
		q.beat = u.now + int64(q.settings.Grace)/3
		for _, c := range q.members {
			c.deadline = deadline
		}
	})
}

// leave ends a consumer: at once, or if it does not come back in time.
func (u *unit) leaveConsumer(name string, grace time.Duration) {
	u.later(func() { u.q.part(name) })
	c := must(u.v.Consumer(name))
	switch {
	case c == nil && grace == 0:
		return
	case grace == 0:
		u.handAllBack(c.Number)
		check(u.v.DeleteConsumer(c.Number))
		return
	case c == nil:
		check2(u.v.AddConsumer(name, plus(u.now, grace)))
	default:
		check(u.v.Beat([]uint64{c.Number}, plus(u.now, grace)))
	}
	u.arm(plus(u.now, grace))
}

func check2[T any](_ T, err error) { check(err) }

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
	c := must(u.v.Consumer(name))
	if c == nil || c.Deadline <= u.now {
		return nil, fmt.Errorf("%w: consumer %q", task.ErrNotFound, name)
	}
	deadline := plus(u.now, u.q.settings.Grace)
	check(u.v.Beat([]uint64{c.Number}, deadline))
	u.later(func() { u.q.join(name, &member{c.Number, deadline}) })
	rows := must(u.v.HeldBy(c.Number, task.MaxBatch*pageSize, true))
	records := make([]task.Record, len(rows))
	for i, r := range rows {
		records[i] = u.record(r)
		records[i].Consumer = name
		u.notice(notice{what: leaseBegun, id: r.ID, lease: r.Since, kind: r.Key})
	}
	return records, nil
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
		check(u.v.DeleteConsumer(c.Number))
		u.later(func() { u.q.part(c.Name) })
	}
	return most
}
