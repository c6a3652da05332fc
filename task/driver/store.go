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
// It keeps tasks and their states, and says in which order they are taken. It need not wait for
// anything, nor know payload types, nor run goroutines: a task.Queue does that, the same for every
// Store.
type Store interface {
	// Open opens the queue of that name, and makes it if there is none. The Backend tells n what
	// happens to the queue. Several may be open at the same time, also in other processes if the
	// Store can be shared. See also Settings.AsIs.
	Open(ctx context.Context, queue string, settings Settings, n Notifier) (Backend, error)

	// Queues returns the names of n queues, or of all if n is 0, in alphabetical order: from that
	// one on, or the next if there is none of that name. It makes none.
	Queues(ctx context.Context, from string, n int) ([]string, error)
}

// Settings is what a Backend must know of the task.Options of its queue; they have been checked,
// and defaults are filled in. What is counted for a task, not for the queue, comes with the task.
type Settings struct {
	Capacity          int // fairq.MaxLen at most
	KeyCapacity       int
	CountOnlyWaiting  bool
	WhenFull          fairq.WhenFull
	Newcomers         fairq.Newcomers
	Quantum           int64 // 0 means that rounds share tasks, not work
	MaxInFlightPerKey int   // 0 means no limit
	KeepPlace         bool
	Retention         time.Duration
	Grace             time.Duration
	Format            string // of payloads; it cannot change while there are tasks

	// AsIs opens the queue with the settings that it has. If there is none, Open returns
	// ErrNotFound. No call is made that puts, takes or waits for tasks, so the Backend need not tell
	// the Notifier anything, and if the Store is shared nothing that is due happens by its calls.
	AsIs bool `json:"-"`
}

// Match returns a [FieldError] for each setting in which s, that a queue is to be opened with, is
// not what it must be; why says why it must.
func (s Settings) Match(must Settings, why string) error {
	if s.KeyCapacity == s.Capacity && must.KeyCapacity == must.Capacity {
		s.KeyCapacity = must.KeyCapacity // neither was set: it is the Capacity that differs
	}
	a, b := reflect.ValueOf(s), reflect.ValueOf(must)
	var errs []error
	for i := range a.NumField() {
		if is, be := a.Field(i).Interface(), b.Field(i).Interface(); is != be {
			errs = append(errs, &FieldError{"Options." + a.Type().Field(i).Name, given(is), fmt.Sprintf("%s, %s", text(given(be)), why)})
		}
	}
	return errors.Join(errs...)
}

// given returns a setting as it is given in the Options: no limit is 0 there.
func given(setting any) any {
	if setting == fairq.MaxLen {
		return 0
	}
	return setting
}

// Counts tells whether a task in that state counts in Capacity and KeyCapacity. The state 0 is
// that of a task that is gone.
func (s *Settings) Counts(state State) bool {
	return state == Ready || state == Delayed || state != 0 && !s.CountOnlyWaiting
}

// Counted returns how many of some tasks count in Capacity or KeyCapacity; there are so many in
// each state, and in all at 0.
func (s *Settings) Counted(tasks *[Held + 1]int) int {
	if s.CountOnlyWaiting {
		return tasks[Ready] + tasks[Delayed]
	}
	return tasks[0]
}

// A Backend is one open queue of a [Store]. Each method is one transaction: it happens as a whole
// or, if it returns an error, not at all (Put says what it does). None of them waits for a task,
// for room or for time to pass. They may be called by any goroutine at any time.
//
// Whenever a call, or another process, makes a change, the Backend tells its Notifier. Before each
// call, what is due has happened: delayed tasks are ready, tasks whose time to live or deadline is
// over are gone, and leases that have run out are lost. If very much is due at once, a part may be
// left to later calls, but not what concerns the tasks that this one is about.
type Backend interface {
	// Put puts the tasks one after the other, until one is refused, and returns how many were put,
	// and the error for the next. It writes their ids into ids, which is as long as tasks. Ids
	// grow from Put to Put as far as one process can see, and are never used again. A task whose
	// deadline is over needs room like any other, and is gone before the next one is put. Put
	// returns the tasks that were evicted to make room.
	//
	// Errors: a *FullError, ErrDuplicate, ErrGroupCancelled; a *FieldError, and nothing is put, if
	// these are more tasks than the Store can put at once.
	Put(ctx context.Context, tasks []New, ids []ID) (n int, evicted []Record, err error)

	// PutOne is Put for one task. It returns the task that was evicted, nil if none was.
	PutOne(ctx context.Context, task New) (id ID, evicted *Record, err error)

	// Joined returns the transaction of the caller's own that ctx carries, nil if it carries none. A
	// call that is part of one must not wait for what others do, which it may keep them from doing.
	Joined(ctx context.Context) *Tx

	// Take takes up to len(into) tasks for a taker, the first ones in order that pass its filter,
	// and returns how many; a Store may take fewer than there are. The filter's Kinds are in
	// alphabetical order, each once. It counts an attempt for each. A consumer that is not known
	// yet is from now on. If it is known with another epoch, Take returns ErrResumed.
	Take(ctx context.Context, by *Taker, into []Record) (n int, err error)

	// TakeOne is Take for one task. If there is none, it returns the zero Attempt.
	TakeOne(ctx context.Context, by *Taker) (Attempt, error)

	// TakeID is Take for the task of that id, whatever the order. It takes no turn: if it is handed
	// back it has a new place, behind all of its key, unless Settings.KeepPlace is set. A task that
	// is delayed or buried is made ready first (EventDelay, EventKick). Errors: ErrNotFound,
	// ErrTaken, ErrResumed, and ErrBlocked if its group holds it or its key can have none taken.
	TakeID(ctx context.Context, consumer Handle, id ID) (Record, error)

	// Settle ends a lease in the given way, and returns the state in which the task is then, 0 if
	// it is gone. It returns ErrLeaseLost if the lease is not held any more.
	Settle(ctx context.Context, lease Lease, how Settlement) (State, error)

	// SettleAndTakeOne is Settle, and then TakeOne, as one transaction. If the lease is not held
	// any more, or anything else is wrong with Settle, it returns the error, and takes nothing. If
	// then no task can be taken, whatever the reason, next is the zero Attempt: the next call of
	// TakeOne tells why.
	SettleAndTakeOne(
		ctx context.Context, lease Lease, how Settlement, by *Taker,
	) (state State, next Attempt, err error)

	// Touch makes a lease run out d later than it would, and returns when. If it never runs out,
	// that is the zero Time, and nothing has happened. It returns ErrLeaseLost if the lease is not
	// held any more, also if d is 0. If d is 0 and the group of the task was cancelled, it returns
	// ErrGroupCancelled.
	Touch(ctx context.Context, lease Lease, d time.Duration) (time.Time, error)

	// Leave says that a consumer will not be heard of any more; it may be one that has taken
	// nothing. Its leases are lost after the given time, or, if that is 0, given back at once
	// without counting the attempts. If the consumer is known with another epoch, Leave changes
	// nothing and returns ErrResumed.
	Leave(ctx context.Context, consumer Handle, after time.Duration) error

	// Return gives back all that a consumer holds, without counting the attempts. If the consumer
	// is known with another epoch, it changes nothing and returns ErrResumed.
	Return(ctx context.Context, consumer Handle) error

	// Rejoin undoes Leave and begins the next epoch of a consumer. It returns its number and the
	// tasks that the consumer holds, in the order in which they were taken, with new leases; the
	// old ones are lost (EventResume). It returns ErrNotFound if the consumer is not known (any
	// more).
	Rejoin(ctx context.Context, consumer string) (epoch uint64, held []Record, err error)

	// Peek returns the task of that id, or if that is 0 the one with that unique key, or
	// ErrNotFound.
	Peek(ctx context.Context, id ID, uniqueKey string) (Record, error)

	// List returns tasks in the order of their ids.
	List(ctx context.Context, q ListOptions) ([]Record, error)

	// Count returns how many tasks there are of the State, Key, Kind and Group. It is not one
	// transaction.
	Count(ctx context.Context, q ListOptions) (int, error)

	// Kick makes buried tasks of the Key and Kind ready, up to Limit, in the order in which they
	// were buried, and returns how many.
	Kick(ctx context.Context, q ListOptions) (int, error)

	// Change does to a task, whatever its state, what the call says. A lease on it is lost. It
	// returns ErrNotFound if there is no such task, and for KickOne if it is not buried. If it must
	// not be taken but is, Change does nothing and returns ErrTaken.
	Change(ctx context.Context, id ID, change Change, unlessTaken bool, reason *Error) error

	// Pause stops or resumes the taking of tasks: of all if key is nil, else of those of a key.
	// Resuming a key also ends the wait that HoldKey began.
	Pause(ctx context.Context, key *string, paused bool) error

	// HoldKey has a key wait for d, which is more than 0: none of its tasks is taken until then. A
	// key that waits for longer goes on waiting for as long.
	HoldKey(ctx context.Context, key string, d time.Duration) error

	// Group starts or cancels a group. It returns ErrNotFound if there is no task in it, and to
	// start a cancelled one ErrGroupCancelled.
	Group(ctx context.Context, group string, cancel bool) error

	// DeleteSome deletes the tasks of the State, Key and Kind, and returns how many; those that are
	// taken only if that is the State. It is not one transaction.
	DeleteSome(ctx context.Context, q ListOptions) (int, error)

	// Truncate deletes all tasks, and returns how many. Drop does the same and ends the queue, for
	// all that have it open: from then on each call returns ErrDropped. If no task must be taken
	// but one is, Drop does nothing and returns ErrTaken; none is taken any more once it has begun.
	Truncate(ctx context.Context) (int, error)
	Drop(ctx context.Context, unlessTaken bool) error

	// Outcome tells about the task that has, or had last, a unique key. It returns ErrNotFound if
	// there is none, or none any more: the outcome is kept for Settings.Retention after the task
	// is gone.
	Outcome(ctx context.Context, uniqueKey string) (Outcome, error)

	// Upcoming returns what n calls of TakeOne, with a filter that passes all, would take now, and
	// takes nothing. It locks nothing, and nothing that happens conflicts with it.
	Upcoming(ctx context.Context, n int) ([]UpcomingTask, error)

	Stats(ctx context.Context) (Stats, error)

	// KeyStats returns the n keys with the most tasks, those with the most first, and behind them all
	// others that are paused, with tasks or without. One that waits need not be there without tasks.
	KeyStats(ctx context.Context, n int) ([]KeyStat, error)

	// Tick makes happen what is due, and returns when it should be called again, the zero Time if
	// there is nothing to wait for. It is called at the time given to Notifier.Due or earlier. A
	// shared Store that must look for changes made by others names the time to look.
	Tick(ctx context.Context) (next time.Time, err error)

	// Close ends the use of the queue, not the queue.
	Close() error
}

// Tx is a transaction of the caller's own that calls are part of. The zero Tx is one that the caller
// commits, so that no Store knows when; InTx makes the others.
type Tx struct {
	known bool

	mu       sync.Mutex // protects onCommit
	onCommit []func()
}

// OnCommit has f called after the commit, and never after a rollback. If nobody will know of the
// commit it returns false, and f is never called.
func (tx *Tx) OnCommit(f func()) (known bool) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.known {
		tx.onCommit = append(tx.onCommit, f)
	}
	return tx.known
}

// InTx calls f, which makes a transaction, and commits it unless it returns an error. Then it calls
// the functions given to OnCommit, in the order in which they were given.
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

// PutOne implements Backend.PutOne by Put, for a Backend to which one task is as good as several.
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
	if n == 0 { // what a transaction has written that was tried again may still be there
		return Attempt{}, err
	}
	return one[0].Attempt(), err
}

// SettleAndTakeOne implements Backend.SettleAndTakeOne by Settle and TakeOne, for a Backend to
// which two transactions are as good as one.
func SettleAndTakeOne(
	ctx context.Context, b Backend, lease Lease, how Settlement, by *Taker,
) (state State, next Attempt, err error) {
	if state, err = b.Settle(ctx, lease, how); err != nil {
		return 0, Attempt{}, err
	}
	next, _ = b.TakeOne(ctx, by)
	return state, next, nil
}

// New is a task to be put. All of it has been checked, and defaults are filled in: here a duration
// of 0 means none.
type New struct {
	Key         string
	Payload     any // a []byte made by the queue's codec; after Notifier.InMemory the payload itself
	Weight      int
	Cost        int64 // at least 1
	Learned     bool  // the Cost is what Notifier.LearnedCost returned
	Priority    int
	Kind        string
	UniqueKey   string
	Group       string
	Role        Role
	Delay       time.Duration
	TTL         time.Duration
	Deadline    time.Time // the zero Time means none; it may be over; it is before the year 10,000
	TTR         time.Duration
	MaxAttempts int // 0 means no limit

	// Metadata is UTF-8, nil if there is none. Nobody else has the map.
	Metadata map[string]string
}

// Handle is what a consumer is known by. Whoever resumes it has a new one, so that those who had
// it before can be told apart.
type Handle struct {
	ID    string
	Epoch uint64 // how often it had been resumed by then
}

// Taker is a consumer and what it takes. It never changes, so a Store may keep it.
type Taker struct {
	Handle
	Filter
}

// Lease is what a consumer must show to settle a task. No two leases of a queue have the same
// number.
type Lease struct {
	ID     ID
	Number uint64
}

// Method is one of a task's methods by which its lease ends.
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
	Repeat                // it is done, and ready again after Delay as if it had never been taken
)

var methodNames = [...]string{Ack: "Ack", Release: "Release", Snooze: "Snooze", Return: "Return", Fail: "Fail", Bury: "Bury", Discard: "Discard", Repeat: "Repeat"}

// String returns the method's name.
func (m Method) String() string { return methodNames[m] }

// Settlement is how a lease ends. Err, if not nil, is recorded. A task that is not gone then has
// that Priority from now on: if it is another one than before, the task has a new turn and a new
// place, behind all of its key, also with Settings.KeepPlace.
//
// With HoldKey, a Fail or Snooze has not the task wait for Delay, but its key, as Backend.HoldKey
// does, unless a task that failed is buried or gone by it. The task keeps its place, so it is the
// next one of its key. One that is snoozed keeps its turn too, as by Return: not twice in a row.
type Settlement struct {
	Method   Method
	HoldKey  bool
	Priority int
	Delay    time.Duration
	Err      *Error
}

// HoldsKey reports whether the key waits from now on, if the task is in that state then.
func (s *Settlement) HoldsKey(state State) bool {
	return s.HoldKey && s.Delay > 0 && (s.Method == Snooze || state != Buried && state != 0)
}

// Ends tells whether the task is gone then.
func (s *Settlement) Ends() bool { return s.Method == Ack || s.Method == Discard }

// Change is something that can be done to a task by those who do not hold it.
type Change uint8

// The changes.
const (
	KickOne Change = iota // make a buried task ready
	BuryOne               // bury it
	Delete                // remove it
)

// Outcome tells how a task with a unique key ended.
type Outcome struct {
	ID   ID
	Done bool  // it is gone, or buried
	Err  error // nil if it was acked; an *Error if it is buried or was discarded; ErrDeleted or ErrExpired
}

// Ended is a task that is gone, as a Store with a history tells about it. Of Info it has ID, Key,
// Kind, UniqueKey, Attempts, Created and Err.
type Ended struct {
	Info
	Payload []byte // as the queue's codec has made it
	At      time.Time
	Outcome error // nil if it was acked; an *Error if it failed, also if it was buried before; ErrDeleted, ErrExpired or ErrDropped
}
