package driver

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/fairq/fairq"
)

// A Store keeps task queues, in memory or in a database.
//
// It keeps tasks and their states, and decides the order in which they are taken. It need not
// wait, know payload types or run goroutines: a task.Queue does that, the same way for every
// Store.
type Store interface {
	// Open opens the queue of that name, and makes it if there is none. The Backend reports events of
	// the queue to n. A queue may be open several times, and in several processes if the Store can
	// be shared. See also Settings.AsIs.
	Open(ctx context.Context, queue string, settings Settings, n Notifier) (Backend, error)

	// Queues returns the names of n queues, or of all if n is 0, in alphabetical order, from the name
	// from on. It makes no queue.
	Queues(ctx context.Context, from string, n int) ([]string, error)
}

// Settings are the task.Options of a queue that matter to a Backend. They are valid, and defaults
// are filled in. Options for single tasks come with the tasks.
type Settings struct {
	Capacity          int // fairq.MaxLen at most
	KeyCapacity       int
	CountOnlyWaiting  bool
	WhenFull          fairq.WhenFull
	Quantum           int64 // 0 means that rounds share tasks, not work
	ShareTime         bool  // costs are times, so an attempt takes one token of a rate
	MaxInFlightPerKey int   // 0 means no limit
	Rate, KeyRate     Rate
	KeepPlace         bool
	Retention         time.Duration
	Grace             time.Duration
	Format            string // of payloads; it cannot change while there are tasks

	// AsIs opens the queue with the settings that it has. If there is none, Open returns ErrNotFound.
	// The Queue makes no call that puts, takes or waits for tasks. So the Backend need not call the
	// Notifier. In a shared Store its calls do not make due changes.
	AsIs bool `json:"-"`
}

// Match returns a [FieldError] for each setting in which s, with which a caller opens a queue,
// differs from must. why is the reason in the error.
func (s Settings) Match(must Settings, why string) error {
	if s.KeyCapacity == s.Capacity && must.KeyCapacity == must.Capacity {
		s.KeyCapacity = must.KeyCapacity // neither was set: it is the Capacity that differs
	}
	a, b := reflect.ValueOf(s), reflect.ValueOf(must)
	var errs []error
	for i := range a.NumField() {
		if is, be := a.Field(i).Interface(), b.Field(i).Interface(); is != be {
			limit := fmt.Sprintf("%s, %s", text(given(be)), why)
			errs = append(errs, &FieldError{"Options." + a.Type().Field(i).Name, given(is), limit})
		}
	}
	return errors.Join(errs...)
}

// given returns a setting in the form of the Options, where no limit is 0.
func given(setting any) any {
	if setting == fairq.MaxLen {
		return 0
	}
	return setting
}

// Counts reports whether a task in that state counts in Capacity and KeyCapacity. The state 0
// means that the task is gone.
func (s *Settings) Counts(state State) bool {
	return state == Ready || state == Delayed || state != 0 && !s.CountOnlyWaiting
}

// Counted returns how many tasks count in Capacity or KeyCapacity. tasks has their numbers by
// state, and all at 0.
func (s *Settings) Counted(tasks *[Held + 1]int) int {
	if s.CountOnlyWaiting {
		return tasks[Ready] + tasks[Delayed]
	}
	return tasks[0]
}

// LimitsKeys reports whether keys have limits, so that the queue counts their taken tasks.
func (s *Settings) LimitsKeys() bool { return s.MaxInFlightPerKey > 0 || s.KeyRate.Limit > 0 }

// A Backend is one open queue of a [Store]. Each method is one transaction: it happens as a whole
// or, if it returns an error, not at all (except Put, see there). No method waits for a task, for
// room or for time to pass. All methods are safe for concurrent use.
//
// Whenever a call, or another process, makes a change, the Backend reports it to its Notifier.
// Each call first makes the due changes: delayed tasks become ready, tasks whose time to live or
// deadline is over are removed, and expired leases are lost. If very many changes are due at once,
// a Backend may leave some to later calls, but not those of the tasks of this call.
type Backend interface {
	// Put puts the tasks one after the other, until one is refused. It returns the number of tasks
	// that were put, the tasks that were evicted for them, and the error for the refused one. It
	// writes the ids into ids, which is as long as tasks. Ids grow from Put to Put of one process,
	// and are never used again. A task whose deadline is over needs room like any other, and is gone
	// before the next one is put.
	//
	// With New.Replace, a task with the UniqueKey that is not taken is changed as by Amend, and Put
	// returns its id. If the task is taken the new one follows it, or replaces its follower: see
	// task.PutOptions.
	//
	// Errors: a *FullError, ErrDuplicate, ErrReplace, ErrGroupCancelled; a *FieldError, and
	// nothing is put, if the Store cannot put that many tasks at once.
	Put(ctx context.Context, tasks []New, ids []ID) (n int, evicted []Record, err error)

	// PutOne is Put for one task. It returns the evicted task, nil if there is none.
	PutOne(ctx context.Context, task New) (id ID, evicted *Record, err error)

	// Joined returns the caller's own transaction that ctx carries, nil without one. A call that is
	// part of such a transaction must not wait for other calls, because it may hold them up.
	Joined(ctx context.Context) *Tx

	// Take takes up to len(into) tasks for a taker, and returns their number: the first tasks in
	// order that pass its filter. A Store may take fewer than there are. The filter's Kinds are in
	// alphabetical order, each once. Take counts an attempt for each task. It registers an unknown
	// consumer. If the consumer is known with another epoch, Take returns ErrResumed.
	Take(ctx context.Context, by *Taker, into []Record) (n int, err error)

	// TakeOne is Take for one task. If there is none, it returns the zero Attempt.
	TakeOne(ctx context.Context, by *Taker) (Attempt, error)

	// TakeID is Take for the task of that id, out of order. The task takes no turn: if it is handed
	// back it gets a new place, behind all of its key, unless Settings.KeepPlace is set. A delayed or
	// buried task becomes ready first (EventDelay, EventKick). Errors: ErrNotFound, ErrTaken,
	// ErrResumed, and ErrBlocked if it is held or its key is paused, waits or is at its limit.
	TakeID(ctx context.Context, consumer Handle, id ID) (Record, error)

	// Settle ends a lease, and returns the new state of the task, 0 if it is gone. It returns
	// ErrLeaseLost if the lease is no longer held.
	Settle(ctx context.Context, lease Lease, how Settlement) (State, error)

	// SettleAndTakeOne is Settle, and then TakeOne, in one transaction. If Settle returns an error,
	// so does SettleAndTakeOne, and takes nothing. If then no task can be taken, for whatever reason,
	// next is the zero Attempt: the next call of TakeOne returns the reason.
	SettleAndTakeOne(
		ctx context.Context, lease Lease, how Settlement, by *Taker,
	) (state State, next Attempt, err error)

	// Touch extends a lease by d, and returns its new end: the zero Time, without an extension, if
	// the lease never ends. It returns ErrLeaseLost if the lease is no longer held, even if d is 0.
	// If d is 0 and the group of the task was cancelled, it returns ErrGroupCancelled.
	Touch(ctx context.Context, lease Lease, d time.Duration) (time.Time, error)

	// Leave ends a consumer, which need not have taken anything. Its leases are lost after the given
	// time, or, if that is 0, handed back at once without counting the attempts. If the consumer is
	// known with another epoch, Leave changes nothing and returns ErrResumed.
	Leave(ctx context.Context, consumer Handle, after time.Duration) error

	// Return hands back all tasks of a consumer, without counting the attempts. If the consumer is
	// known with another epoch, it changes nothing and returns ErrResumed.
	Return(ctx context.Context, consumer Handle) error

	// Rejoin undoes Leave and begins the next epoch of a consumer. It returns the number of the
	// epoch, and the tasks that the consumer holds, in the order in which they were taken. They have
	// new leases; the old ones are lost (EventResume). It returns ErrNotFound for an unknown or
	// forgotten consumer.
	Rejoin(ctx context.Context, consumer string) (epoch uint64, held []Record, err error)

	// Peek returns the task of that id, or if id is 0 the task with that unique key, or
	// ErrNotFound.
	Peek(ctx context.Context, id ID, uniqueKey string) (Record, error)

	// List returns tasks in the order of their ids.
	List(ctx context.Context, q ListOptions) ([]Record, error)

	// Count returns the number of tasks of the State, Key, Kind and Group. It is not one transaction.
	Count(ctx context.Context, q ListOptions) (int, error)

	// Kick makes up to Limit buried tasks of the Key and Kind ready, in the order in which they were
	// buried, and returns their number.
	Kick(ctx context.Context, q ListOptions) (int, error)

	// Change makes a change to a task in any state. A lease on it is lost. Change returns ErrNotFound
	// if there is no such task, and for KickOne if it is not buried. With unlessTaken it does nothing
	// to a taken task and returns ErrTaken.
	Change(ctx context.Context, id ID, change Change, unlessTaken bool, reason *Error) error

	// Amend changes a task that is not taken, and reports an EventChange. A task with another
	// priority is behind all of its key. Errors: ErrNotFound, ErrTaken, and a *FieldError for an
	// Amendment.Delay if the task is held or buried, and for a payload that is too long.
	Amend(ctx context.Context, id ID, a Amendment) error

	// Pause stops or resumes the taking of tasks: of all if key is nil, else of one key. Resuming a
	// key also ends its wait after HoldKey.
	Pause(ctx context.Context, key *string, paused bool) error

	// HoldKey makes a key wait for d, which is more than 0: none of its tasks is taken until then. A
	// longer wait of the key stays.
	HoldKey(ctx context.Context, key string, d time.Duration) error

	// SetKey replaces the limits of a key, which need not have tasks, and keeps them until the next
	// SetKey. A task that is taken stays so, even above the new limits. SetKey returns a *FieldError
	// if the queue does not count the taken tasks of its keys: see Settings.LimitsKeys.
	SetKey(ctx context.Context, key string, limits KeyLimits) error

	// LimitedKeys returns the first n keys that have limits of their own and are not before from, in
	// alphabetical order.
	LimitedKeys(ctx context.Context, from string, n int) ([]LimitedKey, error)

	// Group starts or cancels a group. It returns ErrNotFound if there is no task in it, and
	// ErrGroupCancelled on starting a cancelled group.
	Group(ctx context.Context, group string, cancel bool) error

	// DeleteSome deletes the tasks of the State, Key and Kind, and returns their number. It deletes
	// taken tasks only if the State is Taken. It is not one transaction.
	DeleteSome(ctx context.Context, q ListOptions) (int, error)

	// Truncate deletes all tasks, and returns their number. Drop deletes all tasks and the queue, for
	// all that have it open: from then on each call returns ErrDropped. With unlessTaken Drop does
	// nothing and returns ErrTaken if a task is taken. Once it has begun no task can be taken.
	Truncate(ctx context.Context) (int, error)
	Drop(ctx context.Context, unlessTaken bool) error

	// Outcome returns the outcome of the task that has, or had last, a unique key. It returns
	// ErrNotFound if there is none: the outcome is kept for Settings.Retention after the task is
	// gone.
	Outcome(ctx context.Context, uniqueKey string) (Outcome, error)

	// Upcoming returns the tasks that n calls of TakeOne, with a filter that passes all, would take
	// now, and takes nothing. It locks nothing, and no change conflicts with it.
	Upcoming(ctx context.Context, n int) ([]UpcomingTask, error)

	Stats(ctx context.Context) (Stats, error)

	// KeyStats returns the n keys with the most tasks, most first. Behind them come all other paused
	// keys, even keys without tasks. Other keys that wait (see HoldKey) may be missing. If n is 0, up
	// to 1,000 of these may follow, and the counts of their tasks may be missing.
	KeyStats(ctx context.Context, n int) ([]KeyStat, error)

	// Tick makes the due changes, and returns the time of its next call, the zero Time if there is
	// nothing to wait for. The Queue calls it at the time given to Notifier.Due or earlier. A shared
	// Store that must look for changes of other processes returns the time to look.
	Tick(ctx context.Context) (next time.Time, err error)

	// Close ends the use of the queue, not the queue.
	Close() error
}

// Tx is a transaction of the caller's own, and calls can be part of it. A Tx of InTx calls the
// functions given to OnCommit after its commit. A zero Tx is committed by the caller, and no Store
// learns when.
type Tx struct {
	known bool

	mu       sync.Mutex // protects onCommit
	onCommit []func()
}

// OnCommit makes InTx call f after the commit, and never after a rollback. If only the caller will
// know of the commit, OnCommit returns false, and f is never called.
func (tx *Tx) OnCommit(f func()) (known bool) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.known {
		tx.onCommit = append(tx.onCommit, f)
	}
	return tx.known
}

// InTx calls f, which must make a transaction and commit it, or return an error. After the commit
// InTx calls the functions given to OnCommit, in the order in which they were given.
func InTx(f func(*Tx) error) error {
	tx := &Tx{known: true}
	if err := f(tx); err != nil {
		return err
	}
	tx.mu.Lock()
	defer tx.mu.Unlock()
	for _, f := range tx.onCommit {
		f()
	}
	tx.onCommit = nil
	return nil
}

// PutOne implements Backend.PutOne by Put.
func PutOne(ctx context.Context, b Backend, task New) (ID, *Record, error) {
	var id [1]ID
	_, evicted, err := b.Put(ctx, []New{task}, id[:])
	if len(evicted) == 0 {
		return id[0], nil, err
	}
	return id[0], &evicted[0], err
}

// TakeOne implements Backend.TakeOne by Take.
func TakeOne(ctx context.Context, b Backend, by *Taker) (Attempt, error) {
	var one [1]Record
	n, err := b.Take(ctx, by, one[:])
	if n == 0 { // one may still hold the result of a transaction that was tried again
		return Attempt{}, err
	}
	return one[0].Attempt(), err
}

// SettleAndTakeOne implements Backend.SettleAndTakeOne by Settle and TakeOne, in two transactions.
func SettleAndTakeOne(
	ctx context.Context, b Backend, lease Lease, how Settlement, by *Taker,
) (state State, next Attempt, err error) {
	if state, err = b.Settle(ctx, lease, how); err != nil {
		return 0, Attempt{}, err
	}
	next, _ = b.TakeOne(ctx, by)
	return state, next, nil
}

// New is a task to put. Its fields are valid, and defaults are filled in: a duration of 0 means
// none.
type New struct {
	Key         string
	Payload     any // a []byte from the queue's codec; after Notifier.InMemory the payload itself
	Weight      int
	Cost        int64 // at least 1
	Learned     bool  // the Cost is the result of Notifier.LearnedCost
	Priority    int
	Kind        string
	UniqueKey   string
	Replace     bool // the task with the UniqueKey is replaced, or followed
	Group       string
	Role        Role
	Delay       time.Duration
	MaxDelay    time.Duration // 0 means none; the rest of a follower's is negative when it is over
	TTL         time.Duration
	Deadline    time.Time // the zero Time means none; may be over; before the year 10,000
	TTR         time.Duration
	MaxAttempts int // 0 means no limit

	// Metadata is UTF-8, nil if there is none. No other code has the map.
	Metadata map[string]string
}

// Handle identifies a consumer. Resuming the consumer gives it a new Handle, so that a Backend can
// refuse the earlier owner.
type Handle struct {
	ID    string
	Epoch uint64 // the number of times that it was resumed
}

// Taker is a consumer and its filter. It never changes, so a Store may keep it.
type Taker struct {
	Handle
	Filter
}

// Lease identifies the lease of a consumer on a task, which it needs to settle the task. No two
// leases of a queue have the same number.
type Lease struct {
	ID     ID
	Number uint64
}

// Method is a method of a task that ends its lease.
type Method uint8

// The methods.
const (
	Ack     Method = iota // it is done, and gone
	Release               // it is ready again after Delay, or buried if that was its last attempt
	Snooze                // it is ready again after Delay, and the attempt does not count
	Return                // it is ready again, the attempt does not count, and it keeps its turn once
	Fail                  // as Release
	Bury                  // it is buried
	Discard               // it is gone, and Err is its outcome
	Repeat                // it is done, and ready again after Delay like a new task
)

var methodNames = [...]string{
	Ack: "Ack", Release: "Release", Snooze: "Snooze", Return: "Return", Fail: "Fail", Bury: "Bury",
	Discard: "Discard", Repeat: "Repeat",
}

// String returns the method's name.
func (m Method) String() string { return methodNames[m] }

// Settlement ends a lease. It records Err, if that is not nil. A task that is not gone gets the
// Priority. If that is another one than before, the task has a new turn and a new place, behind
// all of its key, even with Settings.KeepPlace.
//
// With HoldKey, a Fail or Snooze makes the key wait for Delay, as Backend.HoldKey does, and not
// the task. If the failed task is buried or gone, the key does not wait. The task keeps its place,
// so it is the next one of its key. A snoozed task keeps its turn too, but not twice in a row, as
// with Return. A wait for a failed task ends when the task leaves its place, or is replaced,
// unless the key waits for another reason too.
type Settlement struct {
	Method   Method
	HoldKey  bool
	Priority int
	Delay    time.Duration
	Err      *Error
}

// HoldsKey reports whether the settlement makes the key wait, if it leaves the task in that state.
func (s *Settlement) HoldsKey(state State) bool {
	return s.HoldKey && s.Delay > 0 && (s.Method == Snooze || state != Buried && state != 0)
}

// Ends reports whether the settlement removes the task.
func (s *Settlement) Ends() bool { return s.Method == Ack || s.Method == Discard }

// Change is a change of a task that needs no lease.
type Change uint8

// The changes.
const (
	KickOne Change = iota // make a buried task ready
	BuryOne               // bury it
	Delete                // remove it
)

// Amendment is a change of a task. A nil field stays as it is.
type Amendment struct {
	Delay    *time.Duration // until it is ready, from now; 0 means that it is at once
	Priority *int
	Payload  *any // as New.Payload
}

// Outcome is the outcome of a task with a unique key.
type Outcome struct {
	ID   ID
	Done bool // it is gone, or buried

	// Err is nil if the task was acked, an *Error if it is buried or was discarded, ErrDeleted or
	// ErrExpired.
	Err error
}

// Ended is a task that is gone, in a Store with a history. Its Info has only ID, Key, Kind,
// UniqueKey, Attempts, Created and Err.
type Ended struct {
	Info
	Payload []byte // from the queue's codec
	At      time.Time

	// Outcome is nil if the task was acked, an *Error if it failed, even if it was buried before,
	// ErrDeleted, ErrExpired or ErrDropped.
	Outcome error
}
