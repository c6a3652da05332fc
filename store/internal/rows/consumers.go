package rows

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/life"
)

// A consumer is a row with a deadline, which the process of the consumer renews. Leases need no
// deadlines of their own, because the leases of a consumer are lost when its row is gone. Two
// things must never happen:
//
//   - A task is taken for a consumer that another process has just ended: no call would hand the
//     task back (see alive).
//   - A consumer goes on here after another process has resumed it (see epoch).

// ownConsumer returns the consumer of a handle in this process, and registers it if it is unknown.
// If another process has resumed the consumer, it returns ErrResumed.
func (u *unit) ownConsumer(h driver.Handle) (*ownConsumer, error) {
	if c := u.q.ownConsumers[h.ID]; c != nil && c.epoch == h.Epoch && u.now < c.deadline &&
		u.alive(c) {
		return c, nil
	}
	deadline := life.Plus(u.now, u.q.lifetime())
	row := must(u.v.Consumer(h.ID))
	if row != nil && row.Epoch != h.Epoch {
		u.onCommit(func() { u.q.part(h) })
		return nil, driver.ErrResumed
	}
	// Renew returns nothing if another process has just expired the consumer.
	if row == nil || len(must(u.v.Renew([]uint64{row.Number}, deadline))) == 0 {
		row = must(u.v.AddConsumer(h.ID, h.Epoch, deadline))
	}
	return u.join(row), nil
}

// join registers a consumer, which was just made or renewed, as one of this process.
func (u *unit) join(row *Consumer) *ownConsumer {
	c := &ownConsumer{row.Name, row.Number, row.Epoch, life.Plus(u.now, u.q.lifetime())}
	u.onCommit(func() { u.q.join(c) })
	return c
}

// alive reports whether a consumer of this process still has its row. If it has, no other
// transaction can end the consumer until this one is over. Otherwise the other transaction would
// not see the tasks that are taken here for the consumer, and would not hand them back.
func (u *unit) alive(c *ownConsumer) bool {
	if !u.head.alive[c.number] { // else no other process has written since
		numbers := u.plan.Alive // which were read ahead
		if !slices.Contains(numbers, c.number) {
			numbers = []uint64{c.number}
		}
		for _, n := range must(u.v.Alive(numbers)) {
			u.head.alive[n] = true
		}
	}
	return u.head.alive[c.number]
}

func (q *queue) join(c *ownConsumer) {
	if old := q.ownConsumers[c.name]; old != nil {
		delete(q.names, old.number)
	}
	q.ownConsumers[c.name] = c
	q.names[c.number] = c.name
	q.renewAt = sooner(q.renewAt, q.renewalOf(c.deadline))
}

func (q *queue) part(h driver.Handle) {
	if c := q.ownConsumers[h.ID]; c != nil && c.epoch == h.Epoch {
		delete(q.ownConsumers, h.ID)
		delete(q.names, c.number)
	}
}

// lifetime returns how long a consumer lives without renewal: Grace, but at least a second. With a
// very short Grace a process would do nothing but renew.
func (q *queue) lifetime() time.Duration { return max(q.settings.Grace, time.Second) }

// renewalOf returns the time to renew consumers with that deadline: after a third of their
// lifetime, so that one renewal may fail.
func (q *queue) renewalOf(deadline int64) int64 { return deadline - int64(q.lifetime())/3*2 }

// renewConsumers renews all consumers of this process at once, if it is time. If this process is
// late, others may have expired some of its consumers: it registers these again, without tasks.
// Other processes may then be late too, so this one expires no consumers for half a lifetime.
func (u *unit) renewConsumers() {
	q := u.q
	if q.renewAt == 0 || q.renewAt > u.now {
		return
	}
	deadline := life.Plus(u.now, q.lifetime())
	numbers := make([]uint64, 0, len(q.ownConsumers))
	for _, c := range q.ownConsumers {
		if numbers = append(numbers, c.number); u.now >= c.deadline {
			q.noExpiryBefore = life.Plus(u.now, q.lifetime()/2)
		}
	}
	slices.Sort(numbers)
	alive := must(u.v.Renew(numbers, deadline))
	slices.Sort(alive)
	for name, c := range q.ownConsumers {
		if _, ok := slices.BinarySearch(alive, c.number); !ok { // expired or resumed by another process
			c.deadline = 0
			if _, err := u.ownConsumer(driver.Handle{ID: name, Epoch: c.epoch}); err != nil {
				u.notify(driver.Notifier.Look) // so that waiting callers see it
			}
		}
	}
	u.onCommit(func() {
		q.renewAt = q.renewalOf(deadline)
		for _, c := range q.ownConsumers {
			c.deadline = deadline
		}
	})
}

// leaveConsumer ends a consumer: at once if grace is 0, otherwise if it does not come back in
// time. If done is false, another transaction must do the rest.
func (u *unit) leaveConsumer(h driver.Handle, grace time.Duration) (done bool, err error) {
	u.onCommit(func() { u.q.part(h) })
	row := must(u.v.Consumer(h.ID))
	if row != nil && row.Epoch != h.Epoch {
		return false, driver.ErrResumed
	}
	u.forgetOwnConsumer(h.ID)
	switch {
	case row == nil && grace == 0:
		return true, nil
	case grace == 0:
		if !u.handBackAll(row.Number) {
			return false, nil
		}
		u.endConsumer(row.Number)
		return true, nil
	case row == nil:
		must(u.v.AddConsumer(h.ID, h.Epoch, life.Plus(u.now, grace)))
	default:
		must(u.v.Renew([]uint64{row.Number}, life.Plus(u.now, grace)))
	}
	u.schedule(life.Plus(u.now, grace))
	return true, nil
}

// forgetOwnConsumer makes later calls in this transaction look up the consumer again.
func (u *unit) forgetOwnConsumer(name string) {
	if c := u.q.ownConsumers[name]; c != nil {
		c.deadline = 0
	}
}

// endConsumer ends a consumer whose tasks were handed back. Tasks that another transaction has
// locked were passed over, and stay with the consumer if that transaction is rolled back. So while
// the consumer has tasks, endConsumer only makes it due again after a pause.
func (u *unit) endConsumer(number uint64) {
	if !u.q.store.traits.Exclusive && len(must(u.v.Leases(number))) > 0 {
		until := life.Plus(u.now, lockedPause)
		must(u.v.Renew([]uint64{number}, until))
		u.schedule(until)
		return
	}
	check(u.v.DeleteConsumer(number))
}

// handBackAll hands back the tasks of a consumer, at most as many as one transaction may. It
// reports whether these were all. The attempts do not count.
func (u *unit) handBackAll(number uint64) (done bool) {
	u.needAnyKeys()
	wanted := u.room(pageSize)
	return u.eachOf(must(u.v.TakenBy(number, wanted, u.needsPayload())), wanted, u.handBack)
}

// returnAll is handBackAll for a consumer that goes on.
func (u *unit) returnAll(h driver.Handle) (done bool, err error) {
	switch row := must(u.v.Consumer(h.ID)); {
	case row == nil:
		return true, nil
	case row.Epoch != h.Epoch:
		return false, driver.ErrResumed
	default:
		return u.handBackAll(row.Number), nil
	}
}

// handBack hands back a task of a consumer that is gone. The attempt does not count.
func (u *unit) handBack(r *Row) {
	u.charge(r, (*life.Wait).Refund)
	t := u.life(r)
	u.applyTransition(r, t, t.Return(u.now, &u.stats), u.now)
}

// rejoin begins the next epoch of a consumer, and returns it with its tasks, which get new leases.
// The consumer gets a new number, so that its former owner does not find it. If the consumer may
// hold more tasks than a transaction may write, held is nil.
func (u *unit) rejoin(name string) (c *ownConsumer, held []driver.Record, err error) {
	u.needAnyKeys()
	old := must(u.v.Consumer(name))
	deadline := life.Plus(u.now, u.q.lifetime())
	if old == nil || old.Deadline <= u.now ||
		len(must(u.v.Renew([]uint64{old.Number}, deadline))) == 0 { // it has just expired
		return nil, nil, fmt.Errorf("%w: consumer %q", driver.ErrNotFound, name)
	}
	check(u.v.DeleteConsumer(old.Number)) // this waits for transactions that take tasks for it
	u.forgetOwnConsumer(name)
	c = u.join(must(u.v.AddConsumer(name, old.Epoch+1, deadline)))
	w := &work{What: moveLeases, From: old.Number, To: c.number}
	if u.limited() {
		u.do(w)
	} else {
		rows, _ := u.moveLeases(w, math.MaxInt)
		held = u.resumed(name, rows)
	}
	u.notify(driver.Notifier.Look) // callers that wait with the old epoch must see it
	u.changed = true
	return c, held, nil
}

// moveLeases gives up to n tasks of a resumed consumer to its new number, and reports whether
// these were all. It reads no payloads where a transaction may write few rows, because rejoin then
// returns no tasks.
func (u *unit) moveLeases(w *work, n int) (rows []*Row, done bool) {
	rows = must(u.v.TakenBy(w.From, min(n, driver.MaxBatch*pageSize), !u.limited()))
	if !u.q.store.traits.Exclusive && !u.limited() {
		rows = u.waitForLocked(w.From, rows)
	}
	return rows, u.eachOf(rows, n, func(r *Row) { u.lease(r, w.To) })
}

// resumed returns the tasks of a consumer that was resumed here.
func (u *unit) resumed(name string, rows []*Row) []driver.Record {
	records := make([]driver.Record, len(rows))
	for i, r := range rows {
		records[i] = u.record(r)
		records[i].Consumer = name
		u.leaseBegins(r)
	}
	return records
}

// lease gives a taken task another lease.
func (u *unit) lease(r *Row, consumer uint64) {
	old := r.Since
	u.leaseEnds(r.ID, old)
	r.Consumer, r.Since = consumer, u.number()
	u.update(r)
	u.event(driver.EventResume, r, u.now, old)
}

// waitForLocked adds the consumer's tasks that other transactions have locked. It waits for these
// transactions: a transaction of a process that has just died may last for a moment.
func (u *unit) waitForLocked(consumer uint64, rows []*Row) []*Row {
	left := must(u.v.Leases(consumer))
	for _, r := range rows {
		delete(left, r.ID)
	}
	for id := range left {
		if r := must(u.v.Get(id, true)); r != nil && r.State == driver.Taken && r.Consumer == consumer {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, func(a, b *Row) int { return cmp.Compare(a.Since, b.Since) })
	return rows
}

// handBackInDoubt hands back tasks that were taken in transactions whose commit is unknown. Their
// callers have got an error, so no worker has the tasks. If such a transaction was rolled back,
// another process may have used the same number for a lease. So handBackInDoubt also compares the
// consumer.
func (u *unit) handBackInDoubt() {
	for _, l := range u.q.inDoubt {
		r := u.leased(l.Lease)
		if r == nil {
			continue
		}
		if c := must(u.v.Consumer(l.consumer)); c != nil && r.Consumer == c.Number {
			u.handBack(r)
		}
	}
	u.onCommit(func() { clear(u.q.inDoubt) })
}

// expireConsumers hands back the tasks of consumers that did not come back in time, and ends these
// consumers. It handles at most left rows, and returns how many more the transaction may handle.
func (u *unit) expireConsumers(left int) int {
	if left <= 0 {
		return left
	}
	for _, c := range must(u.v.DueConsumers(u.now-int64(u.q.store.traits.Skew), left)) {
		u.needAnyKeys()
		rows := must(u.v.TakenBy(c.Number, left, u.needsPayload()))
		done := u.each(rows, func(r *Row) {
			t, at := u.life(r), min(c.Deadline, u.now)
			u.applyTransition(r, t, t.Lose(at, &u.stats), at)
		})
		if !done {
			return 0
		}
		if left -= len(rows) + 1; left <= 0 {
			break
		}
		u.endConsumer(c.Number)
		u.onCommit(func() { u.q.part(driver.Handle{ID: c.Name, Epoch: c.Epoch}) })
	}
	return left
}
