package rows

import (
	"fmt"
	"time"

	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/driver"
)

// put puts a task. If it returns a victim, that was evicted.
func (u *unit) put(n *driver.New) (id task.ID, victim *driver.Record, err error) {
	payload, _ := n.Payload.([]byte)
	if most := u.q.store.options.MaxPayload; len(payload) > most {
		return 0, nil, &task.FieldError{Field: "the length of the payload", Value: len(payload), Limit: fmt.Sprintf("%d bytes at most", most)}
	}
	if n.Kind != "" {
		u.hasKind()
	}
	if n.UniqueKey != "" {
		if r := u.findUniqueKey(n.UniqueKey); r != nil {
			return 0, nil, fmt.Errorf("%w: %q is task %d", task.ErrDuplicate, n.UniqueKey, r.ID)
		}
	}
	var g *Group
	if n.Group != "" {
		if g = u.group(n.Group); g.Cancelled {
			return 0, nil, fmt.Errorf("%w: %q", task.ErrGroupCancelled, n.Group)
		}
	}
	if victim, err = u.makeRoom(n, g); err != nil {
		u.stats.Refused++
		return 0, nil, err
	}
	r := u.newRow(n, payload)
	if g != nil {
		u.joinGroup(r, g)
	}
	if u.q.reserves {
		u.turn(r)
	}
	u.stats.Puts++
	u.wait(r, g, u.now)
	u.insert(r)
	u.arm(r.Wake)
	if r.State == task.Ready {
		u.refile(r, turn{}, turn{})
	}
	u.event(task.EventPut, r, u.now, 0)
	if r.isDue(u.now) { // its deadline was over
		u.fire(r)
	}
	return task.ID(r.ID), victim, nil
}

func (u *unit) newRow(n *driver.New, payload []byte) *Row {
	id := u.number()
	r := &Row{
		ID: id, Key: n.Key, Kind: n.Kind, UniqueKey: n.UniqueKey, Group: n.Group, Role: n.Role, Priority: n.Priority, Weight: n.Weight,
		Payload: payload, TTR: n.TTR, MaxAttempts: n.MaxAttempts, Created: u.now, Deadline: deadline(n.Deadline), Place: id,
	}
	if n.TTL > 0 {
		r.Expires = plus(u.now, n.TTL+n.Delay)
	}
	if n.Delay > 0 {
		r.Until = plus(u.now, n.Delay)
	}
	return r
}

// wait makes a task held, delayed or ready, whichever it is. It is not written yet. g is its group, nil if it has none.
func (u *unit) wait(r *Row, g *Group, now int64) {
	switch {
	case g != nil && (r.Role != task.Member || !g.Started):
		u.set(r, task.Held)
	case r.Until > 0:
		u.set(r, task.Delayed)
	default:
		r.ReadyAt = now
		u.set(r, task.Ready)
	}
}

// set puts a task into a state. It is not written yet.
func (u *unit) set(r *Row, state task.State) {
	if r.State == task.Taken {
		u.notice(notice{what: leaseOver, id: r.ID, lease: r.Since})
	}
	r.State, r.Takeable, r.Counted, r.Consumer, r.Since, r.Wake = state, false, false, 0, 0, r.ends()
	switch state {
	case task.Ready:
		u.place(r)
	case task.Delayed:
		r.Wake = sooner(r.Until, r.Wake)
	case task.Buried:
		r.Since = u.number()
	}
	if u.q.evicts && (state == task.Ready || state == task.Delayed) {
		r.Counted, r.Since = true, u.number()
	}
	u.changed = true
}

// take takes the first task that passes the filter; nil if there is none.
func (u *unit) take(c *member, f Filter, wanted int) *Row {
	if u.head.Paused {
		return nil
	}
	u.closeGaps()
	r := u.ready(f, wanted)
	for r != nil && r.isDue(u.now) { // it has expired, but there were too many to be handled before
		u.fire(r)
		r = u.ready(f, wanted)
	}
	if r == nil {
		return nil
	}
	if r.Payload == nil && u.q.fronted { // it has just come to the front
		r.Payload = must(u.v.Get(r.ID, true)).Payload
	}
	r.State, r.Takeable, r.Counted, r.Consumer, r.Since = task.Taken, false, false, c.number, u.number()
	r.Attempts++
	r.Until = 0
	if r.TTR > 0 {
		r.Until = plus(u.now, r.TTR)
	}
	r.Wake = r.Until
	u.arm(r.Wake)
	u.served(r)
	u.recount(r, task.Taken)
	check(u.v.Put(r))
	u.lines[r.Key].remove(r)
	if u.q.store.traits.Exclusive { // else the head is not kept
		known := *r
		if !u.whole() {
			known.Payload = nil
		}
		u.head.taken[r.ID] = &known
	}
	u.refile(r, turn{}, r.turn())
	if r.Gap {
		u.closeGap(r.line(), r.turn(), turn{round: u.current(r.Priority) + 1})
	}
	u.stats.Takes++
	u.notice(notice{what: leaseBegun, id: r.ID, lease: r.Since, kind: r.Key})
	u.event(task.EventTake, r, u.now, 0)
	return r
}

// leased returns the task of a lease, nil if it is lost.
func (u *unit) leased(lease driver.Lease) *Row {
	r := u.head.taken[uint64(lease.ID)]
	if r == nil || u.whole() && r.Payload == nil {
		r = must(u.v.Get(uint64(lease.ID), u.whole()))
	}
	delete(u.head.taken, uint64(lease.ID)) // for what is returned is changed
	if r != nil && r.Group != "" {
		u.needAlone()
	}
	switch {
	case r == nil || r.State != task.Taken || r.Since != lease.Number:
		return nil
	case r.isDue(u.now):
		u.fire(r)
		return nil
	}
	return r
}

// settle ends a lease.
func (u *unit) settle(lease driver.Lease, how *driver.Settlement) error {
	r := u.leased(lease)
	if r == nil {
		return task.ErrLeaseLost
	}
	if how.Err != nil {
		r.Err = how.Err
	}
	switch {
	case how.Bury:
		u.bury(r, u.now, lease.Number)
	case how.Discard:
		u.gone(r, task.EventDelete, u.now, lease.Number, outcomeOf(r))
	case how.Release:
		u.stats.Releases++
		u.handBack(r, u.now, how.Delay, task.EventRelease, !how.Uncounted)
	default:
		u.stats.Acks++
		u.gone(r, task.EventAck, u.now, lease.Number, Outcome{How: Acked})
	}
	return nil
}

// handBack ends a lease whose task is not done.
func (u *unit) handBack(r *Row, now int64, delay time.Duration, why task.EventType, counts bool) {
	lease := r.Since
	switch {
	case !counts:
		r.Attempts--
	case r.MaxAttempts > 0 && r.Attempts >= r.MaxAttempts:
		if r.Err == nil {
			r.Err = &task.Error{Message: fmt.Sprintf("not done after %d attempts", r.Attempts)}
		}
		u.event(why, r, now, lease)
		u.bury(r, now, 0)
		return
	}
	r.Until = 0
	if delay > 0 {
		r.Until = plus(now, delay)
		if r.Expires > 0 {
			r.Expires = plus(r.Expires, delay)
		}
	}
	u.back(r, delay == 0, why, now, lease)
}

// back makes a task wait again, or removes it if it must not. If keep is true, it keeps its turn and is first.
func (u *unit) back(r *Row, keep bool, why task.EventType, now int64, lease uint64) {
	g := u.groupOf(r)
	if end, outcome := r.unwanted(now, g); end != 0 {
		u.event(why, r, now, lease)
		u.gone(r, end, now, 0, outcome)
		return
	}
	if r.Returned = keep; !keep {
		u.newTurn(r)
	}
	u.wait(r, g, now)
	u.update(r)
	u.refile(r, turn{}, turn{})
	u.event(why, r, now, lease)
}

// unwanted tells how a task must end instead of waiting: its group is cancelled, or its time to live or deadline is over. If
// it may wait, end is 0.
func (r *Row) unwanted(now int64, g *Group) (end task.EventType, o Outcome) {
	if g != nil && g.Cancelled && r.Role == task.Member {
		return task.EventDelete, Outcome{How: Deleted}
	}
	if ends := r.ends(); ends > 0 && ends <= now {
		return task.EventTTL, Outcome{How: Expired}
	}
	return 0, Outcome{}
}

// bury buries a task that is not ready.
func (u *unit) bury(r *Row, now int64, lease uint64) {
	u.stats.Buries++
	r.Until = 0
	if end, _ := r.unwanted(now, u.groupOf(r)); end != 0 {
		u.event(task.EventBury, r, now, lease)
		u.gone(r, end, now, 0, outcomeOf(r))
		return
	}
	left := u.leave(r)
	if !u.q.reserves {
		r.Round = 0
	}
	u.set(r, task.Buried)
	u.update(r)
	u.refile(r, left, turn{})
	u.event(task.EventBury, r, now, lease)
	u.end(r, outcomeOf(r))
}

// end tells how a task has ended, here and to others, if it has a unique key.
func (u *unit) end(r *Row, o Outcome) {
	if r.UniqueKey != "" {
		o.UniqueKey, o.ID, o.Until = r.UniqueKey, r.ID, plus(u.now, u.q.settings.Retention)
		check(u.v.SetOutcome(&o))
		u.arm(u.forgets(o.Until))
		u.ended(r.ID, o)
	}
}

// leave is called before a task leaves its state otherwise than by Take. It returns the turn that it leaves to others.
func (u *unit) leave(r *Row) turn {
	if r.Was != task.Ready {
		return turn{}
	}
	u.ahead.remove(r)
	if r.Round == 0 {
		return turn{}
	}
	delete(u.head.lasts, r.line()) // it may have been the last one
	u.removes()
	if !u.q.fronted && !u.q.reserves && !u.purges {
		u.free(r)
	}
	return r.turn()
}

// gone removes a task.
func (u *unit) gone(r *Row, why task.EventType, now int64, lease uint64, o Outcome) {
	if r.Payload == nil && u.whole() { // it was read where many are read of which few go
		if known := must(u.v.Get(r.ID, true)); known != nil {
			r.Payload = known.Payload
		}
	}
	switch why {
	case task.EventDelete:
		u.stats.Deletes++
	case task.EventTTL:
		u.stats.Expiries++
		u.expired(r)
	case task.EventEvict:
		u.stats.Evicted++
	}
	u.event(why, r, now, lease)
	if r.Was == task.Taken {
		u.notice(notice{what: leaseOver, id: r.ID, lease: r.Since})
	}
	left := u.leave(r)
	u.remove(r)
	u.refile(r, left, turn{})
	u.end(r, o)
	u.remember(r, &o)
	u.changed = true
	if r.Group != "" {
		u.leaveGroup(r, now)
	}
}

// kick makes a buried task ready, with all attempts before it.
func (u *unit) kick(r *Row) {
	u.stats.Kicks++
	r.Attempts = 0
	if r.UniqueKey != "" { // it has not ended any more
		check(u.v.SetOutcome(&Outcome{UniqueKey: r.UniqueKey, ID: r.ID}))
	}
	u.back(r, false, task.EventKick, u.now, 0)
}

// fire makes happen what is due for a task.
func (u *unit) fire(r *Row) {
	now, ends := r.Wake, r.ends()
	switch {
	case r.State == task.Taken:
		u.lose(r, now)
	case ends > 0 && ends <= now:
		o := Outcome{How: Expired}
		if r.State == task.Buried {
			o = outcomeOf(r)
		}
		u.gone(r, task.EventTTL, now, 0, o)
	default:
		r.Until, r.ReadyAt = 0, now
		u.newTurn(r)
		u.set(r, task.Ready)
		u.update(r)
		u.refile(r, turn{}, turn{})
		u.event(task.EventDelay, r, now, 0)
	}
}

// lose ends a lease that has run out, or whose consumer is gone.
func (u *unit) lose(r *Row, now int64) {
	u.stats.Losses++
	u.handBack(r, now, 0, task.EventTTR, true)
}

// outcomeOf returns how a task with an error ends.
func outcomeOf(r *Row) Outcome {
	if r.Err != nil {
		return Outcome{How: Failed, Err: r.Err}
	}
	return Outcome{How: Deleted}
}
