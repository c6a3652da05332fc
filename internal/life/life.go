// Package life has the rules of the life of a task. Given a task's state and an operation, it
// computes the next state, turn, notifications and outcome. It does not know where tasks are kept;
// each store of this repository applies its results in its own way.
package life

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/fairq/fairq/internal/driver"
)

// Task has the fields of a task that the rules need. Times are in nanoseconds since a moment that
// the store chooses; 0 means never.
type Task struct {
	State       driver.State
	Untried     bool // it was handed back untried and kept its turn, as it may only once
	Attempts    int32
	MaxAttempts int32 // 0 means no limit
	ReadyAt     int64
	Until       int64 // when the delay ends or the lease runs out
	Expires     int64 // the end of its time to live; see Ends
	TTR         time.Duration
	*Rare       // nil if all its fields are zero
}

// Rare has the rare fields of a task.
type Rare struct {
	UniqueKey string
	Err       *driver.Error
	Group     GroupOf // nil without a group
	Role      driver.Role
	Deadline  time.Time
	End       int64 // the deadline as a time of the store; for a past deadline, the time of the put
	Metadata  map[string]string
	Follower  driver.ID // of a taken task; see Replace
	Latest    int64     // when Replace delays it no more; 0 without a New.MaxDelay
}

// GroupOf finds the group of a task.
type GroupOf interface {
	Values() *Group
}

// Transition is the result of an operation on a task. Transition and Events have at most four
// fields each, so that the compiler keeps them in registers.
type Transition struct {
	State   driver.State // the next state; 0 if the task has left
	Events               // for readers of events
	Turn    Turn         // whether the task keeps its turn and its place in its key
	Outcome error        // of a task that has left or is buried; see driver.Outcome
}

// Turn is the turn and the place of a task that waits again.
type Turn uint8

// The turns.
const (
	SameTurn  Turn = iota
	NewTurn        // it takes a new turn, and without KeepPlace a new place in its key
	NewPlace       // it takes a new turn and a new place
	SamePlace      // it takes a new turn, and keeps its place in its key
)

// Events are the events of one transition, in order; 0 is none.
type Events struct {
	First, Second driver.EventType // before the task gets its next state
	Event         driver.EventType // in the next state; 0 if only records have changed
}

// Put sets the times of a new task, and returns its first state. follows says that the task
// follows another one; see Replace.
func (t *Task) Put(n *driver.New, follows bool, now int64) driver.State {
	delay := t.delay(n, now)
	if n.TTL > 0 {
		t.Expires = Plus(now, n.TTL+delay)
	}
	if delay > 0 {
		t.Until = Plus(now, delay)
	}
	if follows {
		return driver.Held
	}
	return t.wait(now)
}

// delay returns for how long n delays the task: until Latest at most, which the first put with a
// MaxDelay sets.
func (t *Task) delay(n *driver.New, now int64) time.Duration {
	if n.MaxDelay != 0 && t.Latest == 0 {
		t.Latest = Plus(now, n.MaxDelay)
	}
	if t.Rare == nil || t.Latest == 0 { // a task with a MaxDelay has a unique key or follows one
		return n.Delay
	}
	return max(0, min(n.Delay, time.Duration(t.Latest-now)))
}

// MaxDelay returns the MaxDelay of a New that replaces a task by this one: with the same Latest.
func (t *Task) MaxDelay(now int64) time.Duration {
	if t.Latest == 0 {
		return 0
	}
	return cmp.Or(time.Duration(t.Latest-now), -1)
}

// wait returns the state in which the task waits, and makes it ready now if that is Ready.
func (t *Task) wait(now int64) driver.State {
	if t.Rare != nil && t.holds() {
		return driver.Held
	}
	return t.queue(now)
}

// holds reports whether the group of the task holds it back. t.Rare must not be nil.
func (t *Task) holds() bool {
	if t.Group == nil {
		return false
	}
	return !t.Group.Values().Started || t.Role != driver.Member
}

// queue is wait for a task that no group holds back.
func (t *Task) queue(now int64) driver.State {
	if t.Until > 0 {
		return driver.Delayed
	}
	t.ReadyAt = now
	return driver.Ready
}

// Hurry makes a task ready for TakeID: a delayed task as at the end of its delay, a buried task as
// Kick does. A ready task stays as it is. blocked says that no task of its key can be taken.
func (t *Task) Hurry(blocked bool, now int64, s *driver.Stats) (Transition, error) {
	switch {
	case t.State == driver.Taken:
		return Transition{}, driver.ErrTaken
	case blocked || t.State == driver.Held || t.Rare != nil && t.holds():
		return Transition{}, driver.ErrBlocked
	case t.State == driver.Buried:
		return t.Kick(now, s), nil
	case t.State == driver.Delayed:
		t.Until = 0
		state := t.queue(now)
		return Transition{State: state, Events: Events{Event: driver.EventDelay}, Turn: NewTurn}, nil
	}
	return Transition{State: t.State}, nil
}

// Take begins a lease. It ignores the time if the task has no time to run.
func (t *Task) Take(now int64) {
	t.Attempts++
	t.Until = 0
	if t.TTR > 0 {
		t.Until = Plus(now, t.TTR)
	}
}

// Touch extends a lease by d. It returns false if the lease stays the same.
func (t *Task) Touch(d time.Duration, s *driver.Stats) bool {
	if d <= 0 || t.Until == 0 {
		return false
	}
	t.Until = Plus(t.Until, d)
	s.Touches++
	return true
}

// Settle ends a lease. It uses the time only if it releases or buries the task.
func (t *Task) Settle(how *driver.Settlement, now int64, s *driver.Stats) Transition {
	if how.Err != nil {
		t.setError(how.Err)
	}
	switch how.Method {
	case driver.Ack:
		s.Acks++
		return t.leave(driver.EventAck, nil, s)
	case driver.Bury:
		return t.bury(0, now, s)
	case driver.Discard:
		return t.leave(driver.EventDelete, t.Failure(), s)
	}
	if how.Method == driver.Return {
		return t.Return(now, s)
	}
	s.Releases++
	return t.handBack(driver.EventRelease, how, now, s)
}

// Moves reports whether a task gets another priority when its lease ends. The store then queues it
// there like a new task, before it calls Settle.
func Moves(how *driver.Settlement, priority int) bool {
	return !how.Ends() && how.Priority != priority
}

// Return ends a lease whose task was not tried. The task keeps its turn, but not twice in a row:
// otherwise a task whose consumers close again and again would be served before all others.
func (t *Task) Return(now int64, s *driver.Stats) Transition {
	s.Releases++
	t.Attempts--
	t.Until = 0
	return t.requeue(driver.EventRelease, turnIf(t.Untried, NewTurn), now, s)
}

// Lose ends a lease that has run out, or whose consumer has left.
func (t *Task) Lose(now int64, s *driver.Stats) Transition {
	s.Losses++
	return t.handBack(driver.EventTTR, &driver.Settlement{Method: driver.Release}, now, s)
}

// turnIf returns turn if is is true, else SameTurn.
func turnIf(is bool, turn Turn) Turn {
	if is {
		return turn
	}
	return SameTurn
}

// handBack ends a lease whose task was tried and is not done. The task takes a new turn even
// without a delay: if it were first again, workers might never take another task. With HoldKey a
// snoozed task, which has not failed, keeps its turn, but not twice in a row.
func (t *Task) handBack(why driver.EventType, how *driver.Settlement, now int64,
	s *driver.Stats,
) Transition {
	t.Until = 0
	turn := NewTurn
	if how.HoldKey {
		turn = turnIf(how.Method != driver.Snooze || t.Untried, SamePlace)
	}
	switch {
	case how.Method == driver.Repeat:
		if t.Attempts = 0; t.Rare != nil {
			t.Err = nil
		}
	case how.Method == driver.Snooze:
		t.Attempts--
	case t.MaxAttempts > 0 && t.Attempts >= t.MaxAttempts:
		if t.Rare == nil || t.Err == nil {
			t.setError(&driver.Error{Message: fmt.Sprintf("not done after %d attempts", t.Attempts)})
		}
		return t.bury(why, now, s)
	}
	if how.Delay > 0 {
		if !how.HoldKey {
			t.Until = Plus(now, how.Delay)
		}
		if t.Expires > 0 {
			t.Expires = Plus(t.Expires, how.Delay)
		}
	}
	return t.requeue(why, turn, now, s)
}

// requeue makes a task wait again, or ends it if endReason says so.
func (t *Task) requeue(why driver.EventType, turn Turn, now int64, s *driver.Stats) Transition {
	t.Untried = turn == SameTurn
	t.forgetLatest()
	if end, outcome := t.endReason(now); end != 0 {
		f := t.leave(end, outcome, s)
		f.First = why
		return f
	}
	return Transition{State: t.wait(now), Events: Events{Event: why}, Turn: turn}
}

// bury buries a task, or ends it if endReason says so. why, unless it is 0, is the event before
// EventBury.
func (t *Task) bury(why driver.EventType, now int64, s *driver.Stats) (f Transition) {
	s.Buries++
	t.Until = 0
	t.forgetLatest()
	if end, _ := t.endReason(now); end != 0 {
		f = t.leave(end, t.Failure(), s)
		f.First, f.Second = why, driver.EventBury
		return f
	}
	return Transition{
		State: driver.Buried, Events: Events{First: why, Event: driver.EventBury},
		Outcome: t.Failure(),
	}
}

// endReason returns why a task must not wait: its group is cancelled, or its time to live or its
// deadline is over. For a task that may wait, end is 0.
func (t *Task) endReason(now int64) (end driver.EventType, outcome error) {
	if t.Cancelled() {
		return driver.EventDelete, driver.ErrDeleted
	}
	if ends := t.Ends(); ends > 0 && ends <= now {
		return driver.EventTTL, driver.ErrExpired
	}
	return 0, nil
}

// Cancelled reports whether a task is a member of a cancelled group.
func (t *Task) Cancelled() bool {
	if t.Rare == nil || t.Group == nil || t.Role != driver.Member {
		return false
	}
	return t.Group.Values().Cancelled
}

// Kick makes a buried task ready, and counts its attempts from 0 again.
func (t *Task) Kick(now int64, s *driver.Stats) Transition {
	s.Kicks++
	t.Attempts = 0
	return t.requeue(driver.EventKick, NewTurn, now, s)
}

// Due applies the change that Wake has announced for that time.
func (t *Task) Due(at int64, s *driver.Stats) Transition {
	switch ends := t.Ends(); {
	case t.State == driver.Taken:
		return t.Lose(at, s)
	case ends > 0 && ends <= at && t.State == driver.Buried:
		return t.leave(driver.EventTTL, t.Failure(), s)
	case ends > 0 && ends <= at:
		return t.leave(driver.EventTTL, driver.ErrExpired, s)
	}
	t.Until = 0
	return Transition{State: t.queue(at), Events: Events{Event: driver.EventDelay}, Turn: NewTurn}
}

// Change applies a call that does not need a lease. It returns ErrNotFound if the state does not
// allow the change, and ErrTaken if unlessTaken is true and the task is taken.
func (t *Task) Change(
	change driver.Change, unlessTaken bool, reason *driver.Error, now int64, s *driver.Stats,
) (Transition, error) {
	switch {
	case unlessTaken && t.State == driver.Taken:
		return Transition{}, driver.ErrTaken
	case change == driver.Delete:
		return t.Delete(driver.ErrDeleted, s), nil
	case change == driver.BuryOne:
		if t.setError(reason); t.State == driver.Buried {
			return Transition{State: driver.Buried}, nil
		}
		return t.bury(0, now, s), nil
	case t.State != driver.Buried:
		return Transition{}, driver.ErrNotFound
	}
	return t.Kick(now, s), nil
}

// Amend changes delay and priority of a task that is not taken. Without an Event the task stays
// where it is.
func (t *Task) Amend(a *driver.Amendment, priority int, now int64) (Transition, error) {
	waits, delays := t.State == driver.Ready || t.State == driver.Delayed, a.Delay != nil
	f := Transition{State: t.State}
	if a.Priority != nil && *a.Priority != priority {
		f.Turn = NewPlace
	}
	switch {
	case t.State == driver.Taken:
		return f, driver.ErrTaken
	case delays && !waits:
		return f, &driver.FieldError{
			Field: "Change.Delay", Value: *a.Delay,
			Limit: fmt.Sprintf("left out for a task that is %v", t.State),
		}
	case delays && (t.State == driver.Delayed || *a.Delay > 0):
		until := Plus(now, *a.Delay)
		if t.Expires > 0 { // the time to live begins after the delay, as at the put
			t.Expires = Plus(t.Expires, time.Duration(until-max(t.Until, now)))
		}
		if t.Until = 0; *a.Delay > 0 {
			t.Until = until
		}
		t.forgetLatest()
		f.State = t.queue(now)
	case t.State != driver.Ready || f.Turn != NewPlace:
		return f, nil
	}
	t.Untried, f.Event, f.Turn = false, driver.EventChange, max(f.Turn, NewTurn)
	return f, nil
}

// Replace puts a new task in the place of a task with its unique key, whose Info is given. If the
// transition has no Event, the task stays where it is. If costs count, a different cost moves it
// as a different priority does: the key pays it with a new turn.
//
// If the task is taken, nothing changes: the new one follows it. The follower is Held, has no
// unique key, and is the next one to be replaced. When the first task is taken no more, the store
// asks Waits.
func (t *Task) Replace(
	n *driver.New, is *driver.Info, costs bool, now int64,
) (Transition, error) {
	why := ""
	switch {
	case !n.Replace:
		return Transition{}, fmt.Errorf("%w: %q is task %d", driver.ErrDuplicate, n.UniqueKey, is.ID)
	case t.State == driver.Buried:
		why = "it is buried"
	case is.Key != n.Key:
		why = fmt.Sprintf("its key is %q, not %q", is.Key, n.Key)
	case is.Kind != n.Kind:
		why = fmt.Sprintf("its kind is %q, not %q", is.Kind, n.Kind)
	case is.Group != n.Group:
		why = fmt.Sprintf("its group is %q, not %q", is.Group, n.Group)
	case max(is.Role, n.Role) != driver.Member:
		why = "only members of a group can be replaced, by members"
	}
	if why != "" {
		return Transition{}, fmt.Errorf("%w: %q is task %d; %s",
			driver.ErrReplace, n.UniqueKey, is.ID, why)
	}
	if t.State == driver.Taken {
		return Transition{State: driver.Taken}, nil
	}
	delay := t.delay(n, now)
	latest, a := t.Latest, driver.Amendment{Delay: &delay, Priority: &n.Priority}
	if t.State == driver.Held {
		if a.Delay, t.Until = nil, 0; delay > 0 {
			t.Until = Plus(now, delay)
		}
	}
	f, err := t.Amend(&a, is.Priority, now)
	t.Latest = latest
	if costs && f.Event == 0 && t.State == driver.Ready && is.Cost != n.Cost {
		t.Untried, f.Event, f.Turn = false, driver.EventChange, NewPlace
	}
	if t.Attempts, t.Err, t.Expires = 0, nil, 0; n.TTL > 0 {
		t.Expires = Plus(now, n.TTL+delay)
	}
	return f, err
}

// Waits reports whether a task waits after a transition. If it waits, its follower, if any,
// replaces it and is deleted. If not, the follower gets its unique key, and starts.
func (f *Transition) Waits() bool { return f.State != 0 && f.State != driver.Buried }

// Delete removes a task.
func (t *Task) Delete(outcome error, s *driver.Stats) Transition {
	return t.leave(driver.EventDelete, outcome, s)
}

// Evict removes a task to make room for another one.
func (t *Task) Evict(s *driver.Stats) Transition {
	return t.leave(driver.EventEvict, driver.ErrDeleted, s)
}

// leave counts the end of a task that leaves the queue.
func (t *Task) leave(why driver.EventType, outcome error, s *driver.Stats) Transition {
	switch why {
	case driver.EventDelete:
		s.Deletes++
	case driver.EventTTL:
		s.Expiries++
	case driver.EventEvict:
		s.Evicted++
	}
	if t.State == driver.Taken {
		t.Until = 0
	}
	return Transition{Events: Events{Event: why}, Outcome: outcome}
}

// Ends returns when the task expires, 0 for never.
func (t *Task) Ends() int64 {
	if t.Rare != nil && t.End != 0 && (t.Expires == 0 || t.End <= t.Expires) {
		return t.End
	}
	return t.Expires
}

// Wake returns when a change of the task is due in that state, 0 for never.
func (t *Task) Wake(state driver.State) int64 {
	ends := t.Ends()
	switch {
	case state == driver.Taken:
		return t.Until
	case state == driver.Delayed && (ends == 0 || t.Until < ends):
		return t.Until
	}
	return ends
}

// Failure returns the task's last error as an outcome, ErrDeleted if there is none.
func (t *Task) Failure() error {
	if t.Rare == nil || t.Err == nil {
		return driver.ErrDeleted
	}
	return t.Err
}

// OutcomeSoFar returns the outcome of a task in the queue: only a buried task has one already.
func (t *Task) OutcomeSoFar(id driver.ID) driver.Outcome {
	if t.State != driver.Buried {
		return driver.Outcome{ID: id}
	}
	return driver.Outcome{ID: id, Done: true, Err: t.Failure()}
}

func (t *Task) forgetLatest() {
	if t.Rare != nil {
		t.Latest = 0
	}
}

func (t *Task) setError(err *driver.Error) {
	if t.Rare == nil {
		t.Rare = new(Rare)
	}
	t.Err = err
}

// Plus returns the time d after t, or the latest time if that would overflow.
func Plus(t int64, d time.Duration) int64 {
	if int64(d) > math.MaxInt64-t {
		return math.MaxInt64
	}
	return t + int64(d)
}
