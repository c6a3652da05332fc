package rows

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/fairq/fairq/internal/driver"
)

// Take implements [driver.Backend].
func (b *backend) Take(
	ctx context.Context, by *driver.Taker, into []driver.Record,
) (n int, err error) {
	wanted := filterOf(&by.Filter)
	into = into[:b.store.step(len(into))]
	for look, others := 1, true; others && look <= maxLooks; look++ {
		if look > 1 {
			_ = Pause(ctx, time.Millisecond+rand.N(4*time.Millisecond)) // who waits notices that it is over
		}
		err = b.steps(ctx, "Take", call{
			order: takes, tasks: len(into),
			plan: func(q *queue, p *wants) { p.take(q, by.Handle, wanted, len(into)) },
		}, func(u *unit) (done bool, err error) {
			n, err = u.takeSome(by.Handle, wanted, into)
			others = err == nil && n == 0 && u.leftToOthers(wanted)
			return n > 0 || !u.workLeft(), err
		})
		if err != nil {
			return 0, err
		}
	}
	return n, nil
}

// maxLooks is how often a take looks for tasks at most, if all that there are are left to others.
const maxLooks = 8

// leftToOthers reports whether nothing was taken because other processes probably take the tasks.
func (u *unit) leftToOthers(f Filter) bool {
	return u.q.lines && !u.plan.Exclusive && !u.stopped() && u.anyReady(f)
}

// anyReady reports whether there is a task that next returns or passes over.
func (u *unit) anyReady(f Filter) bool {
	if u.q.lines {
		u.saveKeys()
		r := TurnRange(f, 1)
		r.Lock = NoLock
		return len(must(u.v.Turns().Scan(r))) > 0
	}
	r := ReadyRange(f, 1)
	r.Payload, r.Lock = false, NoLock
	return len(must(u.v.Rows(r))) > 0
}

// take says that some tasks are to be taken.
func (w *wants) take(q *queue, consumer driver.Handle, filter Filter, n int) {
	w.Numbers += n
	if q.settings.Rate.Limit > 0 {
		w.Keys = append(w.Keys, allKeys)
	}
	if c := q.ownConsumers[consumer.ID]; c != nil {
		w.Alive = append(w.Alive, c.number)
	}
	if w.Take == 0 {
		w.Filter = filter
	}
	if filter.equal(w.Filter) {
		w.Take += n
	}
}

// takeSome takes up to len(into) tasks. It writes each task before it looks for the next one. So
// it finds no task twice, and a task that brings its key to the limit hides the key's other tasks.
func (u *unit) takeSome(
	consumer driver.Handle, filter Filter, into []driver.Record,
) (n int, err error) {
	c, err := u.ownConsumer(consumer)
	if err != nil {
		return 0, err
	}
	for ; n < len(into) && (n == 0 || !u.isLarge()); n++ {
		r := u.take(c, filter, len(into)-n)
		if r == nil {
			u.lookAgainIfLocked(filter, n)
			u.poll()
			break
		}
		into[n] = u.record(r)
		into[n].Consumer = consumer.ID
	}
	return n, nil
}

// TakeOne implements [driver.Backend].
func (b *backend) TakeOne(ctx context.Context, by *driver.Taker) (driver.Attempt, error) {
	return driver.TakeOne(ctx, b, by)
}

// TakeID implements [driver.Backend].
func (b *backend) TakeID(
	ctx context.Context, consumer driver.Handle, id driver.ID,
) (record driver.Record, err error) {
	err = b.call(ctx, "TakeID", call{
		order: takes,
		task:  uint64(id),
		plan:  func(_ *queue, p *wants) { p.Numbers++ },
		run: func(u *unit) error {
			r, err := u.takeID(consumer, uint64(id))
			if err == nil {
				record = u.record(r)
				record.Consumer = consumer.ID
			}
			return err
		},
	})
	return record, err
}

// poll makes this process look for changes of others, because its callers wait. A lease of another
// process may end before the first poll, so poll also reads when the next one ends.
func (u *unit) poll() {
	if u.q.pollAt.Load() == 0 {
		u.schedule(must(u.v.Times(u.keysWait())).Wake)
	}
	u.onCommit(func() {
		u.q.startPolling()
		u.q.wakeToLook()
	})
}

// Settle implements [driver.Backend].
func (b *backend) Settle(
	ctx context.Context, lease driver.Lease, how driver.Settlement,
) (state driver.State, err error) {
	err = b.call(ctx, how.Method.String(), call{
		joins: true, task: uint64(lease.ID), exclusive: how.HoldKey, lines: how.HoldKey,
		run: func(u *unit) (err error) {
			state, err = u.settle(lease, &how)
			return err
		},
	})
	return state, err
}

// SettleAndTakeOne implements [driver.Backend]. Once the task is settled, the call must not fail
// because no task can be taken, or its caller would settle again. So it drops an error of the
// take; the next Take returns that error. If the settlement has left work to other transactions,
// no task can be taken before that work is done. The take then has a transaction of its own.
func (b *backend) SettleAndTakeOne(
	ctx context.Context, lease driver.Lease, how driver.Settlement, by *driver.Taker,
) (state driver.State, next driver.Attempt, err error) {
	wanted := filterOf(&by.Filter)
	var taken [1]driver.Record
	n, later := 0, false
	err = b.call(ctx, how.Method.String(), call{
		order: takes, task: uint64(lease.ID), exclusive: how.HoldKey, lines: how.HoldKey,
		plan: func(q *queue, p *wants) { p.take(q, by.Handle, wanted, 1) },
		run: func(u *unit) (err error) {
			if state, err = u.settle(lease, &how); err == nil {
				n, _ = u.takeSome(by.Handle, wanted, taken[:])
				later = n == 0 && (u.workLeft() || u.leftToOthers(wanted))
			}
			return err
		},
	})
	switch {
	case err == nil && later:
		next, _ = b.TakeOne(ctx, by)
	case err == nil && n > 0:
		next = taken[0].Attempt()
	}
	return state, next, err
}

// Touch implements [driver.Backend].
func (b *backend) Touch(
	ctx context.Context, lease driver.Lease, d time.Duration,
) (until time.Time, err error) {
	err = b.call(ctx, "Touch", call{
		joins: true, task: uint64(lease.ID),
		run: func(u *unit) error {
			r := u.leased(lease)
			if r == nil {
				return driver.ErrLeaseLost
			}
			t := u.life(r)
			if t.Touch(d, &u.stats) {
				r.copyFrom(t)
				r.Wake = r.Until
				u.update(r)
				u.event(driver.EventTouch, r, u.now, 0)
			} else {
				u.poll()
			}
			if until = timeOf(r.Until); d == 0 && t.Cancelled() {
				return driver.ErrGroupCancelled
			}
			return nil
		},
	})
	return until, err
}
