package rows

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fairq/fairq/internal/account"
	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/life"
)

// put puts a task.
func (u *unit) put(n *driver.New) (driver.ID, error) {
	payload, err := u.checkPayload(n.Payload)
	if err != nil {
		return 0, err
	}
	var first *Row // that the task follows
	if n.UniqueKey != "" {
		if first = u.findUniqueKey(n.UniqueKey, false); first != nil {
			if n.Replace {
				u.needExclusive()
				first = u.get(first.ID) // to be changed
			}
			if id, err := u.replace(first, n, u.now); id != 0 || err != nil {
				return id, err
			}
			follower := *n
			follower.UniqueKey = ""
			n = &follower
		}
	}
	var g *Group
	if n.Group != "" {
		g = u.group(n.Group)
		if err := g.Admits(n.Group); err != nil {
			return 0, err
		}
	}
	if full := u.checkRoom(n); full != nil {
		u.stats.Refused++
		return 0, full
	}
	r := u.newRow(n, payload)
	t := u.life(r)
	if g != nil {
		g.Join(r.Role)
		check(u.v.SetGroup(g))
		t.Group = &groupOf{read: g}
	}
	u.stats.Puts++
	state := t.Put(n, first != nil, u.now)
	r.copyFrom(t)
	u.set(r, state)
	behind := r.State == driver.Ready && u.staysBehind(r.lineKind(), r.Place)
	u.insert(r)
	u.schedule(r.Wake)
	if first != nil {
		first.Follower = r.ID
		u.update(first)
	}
	if r.State == driver.Ready && !behind {
		u.updateLine(r, came)
	}
	u.event(driver.EventPut, r, u.now, 0)
	if u.isDue(r, u.now) { // its deadline was over
		u.fire(r)
	}
	return driver.ID(r.ID), nil
}

// replace makes a task that is not running take the values of n, a new task with the same unique
// key. If r is taken, replace does that to the follower of r. If r has no follower it returns 0,
// and the new task becomes the follower.
func (u *unit) replace(r *Row, n *driver.New, now int64) (driver.ID, error) {
	t, record := u.life(r), u.record(r)
	is := record.Info()
	f, err := t.Replace(n, &is, u.q.costs, now)
	if err != nil {
		return 0, err
	}
	if f.State == driver.Taken {
		if next := u.follower(r.Follower, now); next != nil {
			return u.replace(next, n, now)
		}
		return 0, nil
	}
	r.TTR, r.MaxAttempts, r.Cost = n.TTR, n.MaxAttempts, n.Cost
	r.Deadline, r.Metadata = deadline(n.Deadline), encodeMetadata(n.Metadata)
	a := &driver.Amendment{Priority: &n.Priority, Payload: &n.Payload}
	u.amend(r, t, a, f, now)
	u.endHold(r)
	if u.isDue(r, now) { // its deadline was over
		r.Wake = now // not when the first task was put, as end says
		u.fire(r)
	}
	return driver.ID(r.ID), nil
}

// follower returns the task of that id if it follows another one, else nil: it may be gone, or
// buried.
func (u *unit) follower(id uint64, now int64) *Row {
	r := u.find(id)
	switch {
	case r == nil || r.State != driver.Held:
		return nil
	case u.isDue(r, now):
		u.fire(r)
		return nil
	}
	return r
}

// follow decides about the follower of a task that is not taken any more after a transition.
func (u *unit) follow(first, next *Row, f life.Transition, now int64) {
	if f.Waits() {
		next.Payload = must(u.v.Get(next.ID, true)).Payload
		record := u.record(next)
		n := record.New(now)
		n.MaxDelay = u.life(next).MaxDelay(now)
		u.delete(next, driver.ErrDeleted, now)
		r := u.find(first.ID) // it may have got another turn
		must(u.replace(r, &n, now))
		first.State = r.State
		return
	}
	next.UniqueKey = first.UniqueKey
	if f.State == driver.Buried { // a Put of a row does not change its unique key
		first.Payload = must(u.v.Get(first.ID, true)).Payload
		u.remove(first)
		first.UniqueKey, first.Was = "", 0
		u.insert(first)
	}
	t := u.life(next)
	u.amend(next, t, &driver.Amendment{}, t.Start(now), now)
}

// checkPayload returns a payload, or an error if it is too long.
func (u *unit) checkPayload(of any) ([]byte, error) {
	payload, _ := of.([]byte)
	if most := u.q.store.options.MaxPayload; len(payload) > most {
		return nil, &driver.FieldError{
			Field: "the length of the payload", Value: len(payload),
			Limit: fmt.Sprintf("%d bytes at most", most),
		}
	}
	return payload, nil
}

func (u *unit) newRow(n *driver.New, payload []byte) *Row {
	id := u.number()
	return &Row{
		ID: id, Key: n.Key, Kind: n.Kind, UniqueKey: n.UniqueKey, Group: n.Group, Role: n.Role,
		Priority: n.Priority, Weight: n.Weight, Cost: n.Cost, Payload: payload, TTR: n.TTR,
		MaxAttempts: n.MaxAttempts, Created: u.now, Deadline: deadline(n.Deadline),
		Metadata: encodeMetadata(n.Metadata), Place: id,
	}
}

// set puts a task into a state, and does not write it.
func (u *unit) set(r *Row, state driver.State) {
	if r.State == driver.Taken {
		u.leaseEnds(r.ID, r.Since)
	}
	r.State, r.Takeable, r.InLine = state, false, false
	r.Consumer, r.Since, r.Wake = 0, 0, u.life(r).Wake(state)
	switch state {
	case driver.Ready:
		u.place(r)
	case driver.Buried:
		r.Since = u.number()
	}
	u.changed = true
}

// take takes the first task that passes the filter; it returns nil if there is none.
//
// The order of its steps matters. First the round of the task becomes the round being served,
// because the next turn of the line depends on it. Then the lease is written, before updateLine
// reads the line, because a taken task has left its line. Last the gap behind the task is closed,
// because the task that moves up must come behind it.
func (u *unit) take(c *ownConsumer, f Filter, wanted int) *Row {
	r := u.next(f, wanted)
	if r == nil {
		return nil
	}
	u.markServed(r)
	u.grant(r, c)
	u.updateLine(r, used)
	if r.Gap {
		u.closeGap(r.line(), gap{r.turn(), r.Place}, u.following(r.turn(), r))
	}
	return r
}

// next returns the next task to take. It returns nil if there is none, or if work is left, because
// turns may wrongly be Takeable until the work is done.
func (u *unit) next(f Filter, wanted int) *Row {
	u.closeGaps()
	for !u.stopped() && !u.workLeft() {
		t := u.ready(f, wanted)
		switch {
		case t.Turn == nil:
			return nil
		case !u.isNext(t.Turn):
			continue
		case t.task == nil:
			t.task = u.firstTask(t.Turn)
		}
		if r := t.task; u.isDue(r, u.now) { // it has expired, but too many were due before
			u.fire(r)
		} else {
			r.setTurn(t.turn(), r.Returned)
			return r
		}
	}
	return nil
}

// grant begins a lease.
func (u *unit) grant(r *Row, c *ownConsumer) {
	r.State, r.Takeable, r.Consumer, r.Since = driver.Taken, false, c.number, u.number()
	t := u.life(r)
	t.Take(u.now)
	r.copyFrom(t)
	r.Wake = t.Wake(driver.Taken)
	u.schedule(r.Wake)
	if r.Wake != 0 && r.Wake < life.Plus(u.now, u.q.store.options.Poll) {
		u.changed = true // waiting processes poll too rarely to see the end of the lease in time
	}
	u.write(r)
	u.charge(r, (*life.Wait).Spend)
	u.head.forgetReady(r)
	if u.q.keepsHead() {
		known := *r
		if !u.needsPayload() && (u.q.store.traits.Exclusive || len(r.Payload) > MaxKept) {
			known.Payload = nil
		}
		u.head.tasks[r.ID] = &known
	}
	u.stats.Takes++
	u.taken = append(u.taken, newLease{
		driver.Lease{ID: driver.ID(r.ID), Number: r.Since}, c.name,
	})
	u.leaseBegins(r)
	u.event(driver.EventTake, r, u.now, 0)
}

// takeID takes a task by its id. It uses no turn: it leaves its own to the tasks behind it.
func (u *unit) takeID(h driver.Handle, id uint64) (*Row, error) {
	c, err := u.ownConsumer(h)
	if err != nil {
		return nil, err
	}
	r := u.get(id)
	if r == nil {
		return nil, driver.ErrNotFound
	}
	payload := must(u.v.Get(id, true)).Payload
	u.endWait(r.Key) // too many changes may have been due
	if u.q.settings.Rate.Limit > 0 {
		u.endWait(allKeys)
	}
	t := u.life(r)
	f, err := t.Hurry(u.stopped() || u.blocked(r.Key), u.now, &u.stats)
	if err != nil {
		return nil, err
	}
	if f.Event != 0 {
		u.applyTransition(r, t, f, u.now)
	}
	r.Payload = payload
	u.leave(r)
	was := *r
	u.newTurn(r)
	// Held comes first, because a row that changes from Ready to Taken is not written as a whole.
	r.State, r.Takeable, r.InLine = driver.Held, false, false
	u.update(r)
	u.grant(r, c)
	u.updateLine(&was, left)
	return r, nil
}

// leased returns the task of a lease, nil if the lease is lost. Each lease has a number of its
// own. So a lost lease stays lost, even if the same consumer has taken the task again.
func (u *unit) leased(lease driver.Lease) *Row {
	r := u.find(uint64(lease.ID))
	if r != nil && r.Group != "" {
		u.needGroup()
	}
	switch {
	case r == nil || r.State != driver.Taken || r.Since != lease.Number:
		return nil
	case u.isDue(r, u.now):
		u.fire(r)
		return nil
	}
	return r
}

// settle ends a lease.
func (u *unit) settle(lease driver.Lease, how *driver.Settlement) (driver.State, error) {
	r := u.leased(lease)
	if r == nil {
		return 0, driver.ErrLeaseLost
	}
	if life.Moves(how, r.Priority) {
		u.reprioritize(r, how.Priority)
	}
	if how.Method == driver.Return {
		u.charge(r, (*life.Wait).Refund)
	}
	t := u.life(r)
	f := t.Settle(how, u.now, &u.stats)
	// The key first, so that the task is not shown.
	blocks := how.HoldsKey(f.State) && u.waitKey(r.Key, how.Delay, life.Failed(how, driver.ID(r.ID)))
	u.applyTransition(r, t, f, u.now)
	if blocks {
		u.showKey(r.Key)
	}
	if f.State == 0 {
		return 0, nil
	}
	return r.State, nil // not f.State: a follower may have replaced the task
}

// writeOutcome stores and reports the outcome of a task with a unique key.
func (u *unit) writeOutcome(r *Row, how Outcome) {
	if r.UniqueKey != "" {
		o := how
		o.UniqueKey, o.ID, o.Until = r.UniqueKey, r.ID, life.Plus(u.now, u.q.settings.Retention)
		check(u.v.SetOutcome(&o))
		u.schedule(u.forgetAt(o.Until))
		u.ended(r.ID, o)
	}
}

// leave is called before a task leaves its state, except by Take. In a queue without lines a ready
// task leaves a gap, which closeGaps closes later. leave also deletes the cached account of the
// line, which may be too late now.
func (u *unit) leave(r *Row) {
	if r.Was != driver.Ready || u.q.lines {
		return
	}
	u.readAhead.forget(r)
	if r.Round == 0 || r.Returned {
		return
	}
	delete(u.head.accounts, r.line()) // it may have been the last task of its line
	if !u.purges {
		u.leaveGap(r)
	}
}

// forget removes a task. It writes the outcome and the history in the same transaction, so a
// caller finds either the task or its outcome. The group is handled last, because the end of the
// group may remove other tasks.
func (u *unit) forget(r *Row, why driver.EventType, now int64, lease uint64, o Outcome) {
	if r.Payload == nil && u.needsPayload() { // some reads leave out payloads
		if known := must(u.v.Get(r.ID, true)); known != nil {
			r.Payload = known.Payload
		}
	}
	if why == driver.EventTTL {
		u.expired(r)
	}
	u.event(why, r, now, lease)
	if r.Was == driver.Taken {
		u.leaseEnds(r.ID, r.Since)
	}
	u.leave(r)
	u.remove(r)
	u.updateLine(r, left)
	u.writeOutcome(r, o)
	u.addHistory(r, &o)
	u.changed = u.changed || u.mattersToOthers(r)
	if r.Group != "" {
		u.leaveGroup(r, now)
	}
}

// mattersToOthers reports whether another process may wait for the end of a task. Nobody else
// waits for the end of a task that was taken here, with three exceptions: it has a unique key, it
// is in a group, or the queue has lines, where its end may free its key.
func (u *unit) mattersToOthers(r *Row) bool {
	_, here := u.q.names[r.Consumer]
	return r.Was != driver.Taken || !here || r.UniqueKey != "" || r.Group != "" || u.q.lines
}

// fire makes the due change of a task.
func (u *unit) fire(r *Row) {
	t, at := u.life(r), r.Wake
	u.applyTransition(r, t, t.Due(at, &u.stats), at)
}

// delete removes a task.
func (u *unit) delete(r *Row, outcome error, now int64) {
	t := u.life(r)
	u.applyTransition(r, t, t.Delete(outcome, &u.stats), now)
}

// life returns a task for package life. It is valid until the next call.
func (u *unit) life(r *Row) *life.Task {
	t := &u.lifeOf.Task
	*t = life.Task{
		State: r.State, Untried: r.Untried, Attempts: int32(r.Attempts),
		MaxAttempts: int32(r.MaxAttempts), TTR: r.TTR, ReadyAt: r.ReadyAt, Until: r.Until,
		Expires: r.Expires, Rare: &u.lifeOf.rare,
	}
	*t.Rare = life.Rare{Err: r.Err, Role: r.Role, End: r.end(), Latest: r.Latest}
	if r.Group != "" {
		t.Group = &groupOf{unit: u, name: r.Group}
	}
	return t
}

// end returns the time of the deadline, at least that of the Put, 0 if there is none.
func (r *Row) end() int64 {
	if r.Deadline == 0 {
		return 0
	}
	return max(nanos(r.Deadline), r.Created)
}

// copyFrom copies the fields that package life has changed.
func (r *Row) copyFrom(t *life.Task) {
	r.Untried, r.Attempts, r.Err = t.Untried, int(t.Attempts), t.Err
	r.ReadyAt, r.Until, r.Expires, r.Latest = t.ReadyAt, t.Until, t.Expires, t.Latest
}

// groupOf is the group of a task, which is read when package life needs it.
type groupOf struct {
	*unit
	name string
	read *Group
}

// Values implements [life.GroupOf].
func (g *groupOf) Values() *life.Group {
	if g.read == nil {
		g.read = g.group(g.name)
	}
	return &g.read.Group
}

// applyTransition makes a transition of a task.
func (u *unit) applyTransition(r *Row, t *life.Task, f life.Transition, now int64) {
	r.copyFrom(t)
	var next *Row
	if r.Follower != 0 && !u.purges {
		u.needExclusive()
		next = u.follower(r.Follower, now)
	}
	r.Follower = 0
	lease, wasReady := r.lease(), r.State == driver.Ready
	for _, before := range [...]driver.EventType{f.First, f.Second} {
		if before != 0 {
			u.event(before, r, now, lease)
			lease = 0
		}
	}
	switch {
	case f.Event == 0:
		u.update(r)
	case f.State == 0:
		u.forget(r, f.Event, now, lease, outcomeOf(f.Outcome))
	default:
		u.move(r, f, now, lease)
	}
	if wasReady {
		u.endHold(r)
	}
	if next != nil {
		u.follow(r, next, f, now)
	}
}

// amend makes a caller's changes to a task, and the transition that follows from them. It deletes
// the row and puts it again, because a Put changes neither the payload of a row nor the priority
// of a ready task.
func (u *unit) amend(
	r *Row, t *life.Task, a *driver.Amendment, f life.Transition, now int64,
) {
	var payload []byte
	if a.Payload != nil {
		payload, _ = (*a.Payload).([]byte)
	} else {
		payload = must(u.v.Get(r.ID, true)).Payload
	}
	moves := f.Event != 0
	if moves {
		u.leave(r)
	}
	u.remove(r)
	if moves {
		u.updateLine(r, left)
	}
	r.copyFrom(t)
	if r.Payload, r.Was = payload, 0; f.Turn == life.NewPlace {
		u.reprioritize(r, *a.Priority)
	}
	if moves {
		u.newTurn(r)
		u.set(r, f.State)
	}
	r.Wake = u.life(r).Wake(f.State)
	u.readAhead = readAhead{}
	u.insert(r)
	u.schedule(r.Wake)
	if moves {
		if f.State == driver.Ready {
			u.updateLine(r, came)
		}
		u.endHold(r)
	}
	u.event(cmp.Or(f.Event, driver.EventChange), r, now, 0)
}

// move puts a task into its next state.
func (u *unit) move(r *Row, f life.Transition, now int64, lease uint64) {
	if r.State == driver.Buried && r.UniqueKey != "" { // it has no outcome any more
		check(u.v.SetOutcome(&Outcome{UniqueKey: r.UniqueKey, ID: r.ID}))
	}
	was := *r
	switch {
	case f.State == driver.Buried:
		u.leave(r)
		r.setTurn(account.Account{}, false)
	case f.Turn == life.NewTurn:
		u.newTurn(r)
	case f.Turn == life.SamePlace:
		r.setTurn(account.Account{}, false)
		r.Gap = false
	default:
		r.Returned, r.Gap = r.Round != 0, false // else it was taken without a turn
	}
	u.set(r, f.State)
	if u.update(r); f.State == driver.Ready {
		u.updateLine(r, came)
	} else {
		u.updateLine(&was, left)
	}
	u.event(f.Event, r, now, lease)
	if f.State == driver.Buried {
		u.writeOutcome(r, outcomeOf(f.Outcome))
	}
}

// outcomeOf returns an outcome in its stored form.
func outcomeOf(err error) Outcome {
	if failed, ok := err.(*driver.Error); ok { //nolint:errorlint // it is not wrapped
		return Outcome{Result: Failed, Err: failed}
	}
	return Outcome{Result: Result(slices.Index(results[:], err))}
}
