package memory

import (
	"context"
	"time"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/life"
)

// arm sets the time of the next due change of a task; 0 means never.
func (q *queue) arm(it *item, wake int64) {
	if wake != it.wake {
		q.rearm(it, wake)
	}
}

// rearm is not a part of arm, so that arm can be inlined.
func (q *queue) rearm(it *item, wake int64) {
	it.wake = wake
	switch t := (byTime{it}); {
	case wake == 0:
		q.timers.remove(t)
	case it.timer == 0:
		q.timers.push(t)
	default:
		q.timers.fix(t)
	}
	q.announce()
}

// next returns when Tick must be called, 0 for never.
func (q *queue) next() (at int64) {
	if len(q.timers) > 0 {
		at = q.timers[0].wake
	}
	if len(q.waiting) > 0 && (at == 0 || q.waiting[0].wait.Until < at) {
		at = q.waiting[0].wait.Until
	}
	if len(q.leaving) > 0 && (at == 0 || q.leaving[0].deadline < at) {
		at = q.leaving[0].deadline
	}
	if o := q.outcomes.first; o != nil {
		// Outcomes past this time are ignored, so they can be forgotten later, many at a time.
		if soon := o.until + int64(q.settings.Retention/4); at == 0 || soon < at {
			at = soon
		}
	}
	return at
}

// announce reports to the notifiers if Tick must be called earlier than they know.
func (q *queue) announce() {
	at := q.next()
	if at == 0 || q.due != 0 && at >= q.due {
		return
	}
	q.due = at
	for _, n := range q.notifiers {
		n.Due(q.time(at))
	}
}

// Tick implements driver.Backend.
func (q *queue) Tick(context.Context) (time.Time, error) {
	if _, err := q.enter(); err != nil {
		return time.Time{}, err
	}
	defer q.exit()
	q.outcomes.expire(q.now(), timersPerCall)
	q.due = q.next()
	return q.time(q.due), nil
}

// advance makes up to most due changes, and returns how many more it could have made.
func (q *queue) advance(now int64, most int) int {
	for ; most > 0 && len(q.timers) > 0 && q.timers[0].wake <= now; most-- {
		q.fire(q.timers[0].item)
	}
	for ; most > 0 && len(q.waiting) > 0 && q.waiting[0].wait.Until <= now; most-- {
		q.settleWait(q.waiting[0], now)
	}
	for most > 0 && len(q.leaving) > 0 && q.leaving[0].deadline <= now {
		c := q.leaving[0]
		for ; most > 0 && c.leases.first != nil; most-- {
			q.fire(c.leases.first)
		}
		if c.leases.first == nil {
			q.forgetConsumer(c)
		}
	}
	return most
}

// setWait applies a changed wait of a key, or of the queue.
func (q *queue) setWait(k *keyState, now int64) {
	was := k.blocked
	q.waiting.index(k, k.wait.Until != 0)
	switch q.block(k); {
	case !was:
	case k == &q.all && !k.blocked:
		q.look()
	default:
		q.wake(k, min(k.tasks[driver.Ready], q.slots(k), k.wait.Tokens(q.rate(k), now)))
	}
	q.announce()
}

// settleWait updates the wait of a key, and forgets the key if it has no state left.
func (q *queue) settleWait(k *keyState, now int64) {
	k.wait.Settle(q.rate(k), now)
	q.setWait(k, now)
	if k != &q.all {
		q.forgetKey(k)
	}
}

// hold makes a key wait until a time: see life.Wait.Begin.
func (q *queue) hold(k *keyState, until, now int64, by driver.ID) {
	k.wait.Begin(until, now, by)
	q.settleWait(k, now)
}

// endHold ends the wait of a key for a failed task, if it waits for this one.
func (q *queue) endHold(it *item) {
	if w := &it.key.wait; w.By == it.id {
		w.Hold = 0
		q.settleWait(it.key, q.now())
	}
}

// rate returns the rate of a key, or of the queue.
func (q *queue) rate(k *keyState) driver.Rate {
	if k == &q.all {
		return q.settings.Rate
	}
	return life.KeyRate(&q.settings, k.own)
}

// charge changes the buckets of a task's key and of the queue.
func (q *queue) charge(
	it *item, now int64, change func(w *life.Wait, rate driver.Rate, tokens, now int64),
) {
	if !q.limited && q.settings.Rate.Limit == 0 {
		return
	}
	for _, k := range [...]*keyState{it.key, &q.all} {
		if rate := q.rate(k); rate.Limit > 0 {
			change(&k.wait, rate, q.tokens(it), now)
			q.setWait(k, now)
		}
	}
}

func (q *queue) tokens(it *item) int64 { return life.Tokens(&q.settings, int64(it.cost)) }

// due returns the time of the next due change of the task, 0 for never.
func (it *item) due() int64 {
	if c := it.consumer; c != nil && c.deadline != 0 && (it.wake == 0 || c.deadline < it.wake) {
		return c.deadline
	}
	return it.wake
}

// isDue reports whether a change of the task is due.
func (it *item) isDue(now int64) bool {
	at := it.due()
	return at != 0 && at <= now
}

// fire makes the due change of a task.
func (q *queue) fire(it *item) {
	at := it.due()
	q.apply(it, it.Due(at, &q.stats), at)
}
