package rows

import (
	"context"
	"time"

	"github.com/fairq/fairq/task/driver"
)

// DB is a database, as the rules of this package need it. It knows no rules: it keeps the tables
// that are declared in tables.go, and finds their rows by the indexes that are declared there.
// What a driver has to do is told here in full.
//
// All times are nanoseconds since 1970, and 0 means never. All strings may hold any bytes, also
// zero bytes and invalid UTF-8. No number is greater than math.MaxInt64.
//
// # Conflicts
//
// A driver may keep transactions apart by locks or find conflicts when they commit. Either way it
// must do so for the following, and for no more than that, or queues get slow:
//
//   - A transaction that has entered a queue exclusively conflicts with all others in that queue.
//     What it has read nobody else changes until it is committed.
//   - A row that was read with ForUpdate or SkipLocked conflicts with all who write it, or read it
//     in one of these ways. A row read with ForShare conflicts with who deletes it.
//   - Two transactions that put a new row with the same primary key, unique key or name of a
//     consumer conflict.
//
// Nothing else is a conflict: not a row that was passed over or read with NoLock; not that a
// range has another row by now; not Head.Rounds and the counts, which most
// transactions write (see [View.Save]); not what LastRound, CountKeys, KeyStats and Ended return.
// All these are as some transaction has committed them, not long ago, and as the own transaction
// has changed them.
type DB interface {
	// Traits tells what the database can do. It is always the same.
	Traits() Traits

	// Begin begins a transaction that can write. ctx is for all of it: when it is done, whatever the
	// transaction waits for, in particular for others, ends soon.
	Begin(ctx context.Context) (Tx, error)

	// Own returns the transaction of the caller's own that ctx carries, nil if it carries none. It
	// does not ask the database. If there is one, Joined returns it as a Tx. Commit of that writes
	// what is buffered; the end of the transaction is the caller's. Rollback undoes what was done
	// with the Tx, if Traits.Undo says so, or else nothing. Then Joined may be called again.
	Own(ctx context.Context) *driver.Tx
	Joined(ctx context.Context) (Tx, error)

	// Again tells whether a transaction that failed with this error, and of which nothing has
	// happened, may succeed if it is tried again from the beginning, and how long to wait before
	// that: after a deadlock, a conflict, or where another transaction was faster to write to a
	// unique index. After further tries the rules wait longer.
	Again(err error) (after time.Duration, again bool)

	// Changed tells whether others may have committed something since the last call, other
	// processes or Joined transactions. It is asked again and again, so it must be cheap. A
	// database that tells by itself calls the function given to it when it was opened.
	Changed(ctx context.Context) (bool, error)
}

// Traits are what databases differ in.
type Traits struct {
	// Exclusive is true if no two transactions run at the same time, whatever Plan.Exclusive
	// says. Then a Lock means nothing: nobody has locked anything.
	Exclusive bool

	// Optimistic is true if no transaction waits for another one, but of two that conflict the one
	// that is committed later fails. Two transactions that write or make the same row conflict,
	// also if they have read it with NoLock. So where tasks are counted by key or by group a
	// transaction does not need the queue for itself: it writes the row of each key and group
	// whose tasks it changes, and conflicts by that. (A driver that locks rows would have to know
	// ahead which ones, or two transactions would wait for each other.)
	Optimistic bool

	// Undo is true if Rollback of a Joined transaction undoes what was done with it. Otherwise
	// such a call is not tried again, and if it fails the caller must roll back its own
	// transaction.
	Undo bool

	// MaxWrites is how many rows a transaction should write at most, 0 if there is no such limit.
	// What has more to do takes several transactions. Either each of them leaves what is true by
	// itself, or nothing else happens in the queue before the last one. What cannot be divided is
	// refused before anything is written, with an error that names number and limit: many tasks in
	// one PutBatch, or a great weight. How many rows a transaction will write is estimated: see
	// bounds.go.
	MaxWrites int

	// MaxBytes is how many bytes of payloads, metadata, names and errors a transaction should
	// write, 0 if there is no such limit. When it has written that many it leaves the rest to
	// others, so its last task may exceed the limit. A PutBatch with more bytes is refused.
	MaxBytes int

	// Linger is how long to wait, before a transaction, for calls that may share it and have not
	// come yet. It is 0 where a transaction does not take much longer than that.
	Linger time.Duration

	// Skew is by how much two processes may differ in what View.Now returns, 0 if it is the time
	// of the database. A consumer is expired by other processes only that much after its deadline.
	Skew time.Duration
}

// Tx is a transaction. What was written in it is seen by what is read later in it, so a driver
// that buffers writes sends them ahead of the next read. It is used by one goroutine. After an
// error it can only be rolled back.
type Tx interface {
	// Queue returns the row of the queue of that name. If there is none and settings are not nil,
	// it is made, with an ID never used before; else nil is returned. It locks the row against
	// others that do the same or Enter exclusively.
	Queue(name string, settings []byte) (*Queue, error)

	// Queues returns the names of n queues in alphabetical order, those that are not before from.
	// It locks nothing.
	Queues(from string, n int) ([]string, error)

	// Enter enters a queue until the end of the transaction, and says what will probably be read
	// of it, so that a driver can read it at once. Two that are not exclusive can be in a queue
	// at the same time. A transaction enters queues in the order of their IDs. It returns nil if
	// there is no such queue (any more).
	Enter(queue uint64, plan *Plan) (View, error)

	// Notify tells other processes, once the transaction is committed, that something has changed
	// in a queue. It may do nothing if they look by themselves.
	Notify(queue uint64)

	Commit() error
	Rollback()
}

// Plan is what will probably be read in a queue. It is a hint but for Exclusive: other things may
// be asked for too.
type Plan struct {
	Exclusive  bool
	Counts     bool    // Counts is called
	Numbers    int     // calls of Number
	LastRounds []Line  // calls of LastRound, after the round being served; each once
	ByKey      bool    // of a key, few tasks can be taken at the same time
	Ranges     []Range // as Fetch gets them; nil for Traits.Exclusive, to which it is no use

	// Kept returns what is needed of Ranges if Head is kept. It is nil if that must not be kept after
	// this transaction either, because others may write to the queue that do not enter it exclusively.
	Kept func(*Head) []Range
}

// Head is what is known of a queue within a transaction.
//
// A driver that can tell that nobody else has written to the queue since its last transaction there,
// which was committed, returns the same Head again from View.Head, so that what is cached in it
// stays. Otherwise it returns a new one.
type Head struct {
	Settings   []byte
	Paused     bool
	PausedKeys int            // rows of keys that IsPaused
	Rounds     map[int]uint64 // by priority, the round being served

	cache // what the rules know, and what the driver leaves alone
}

// View is a queue within a transaction: a head, and tables. Rows that it returns are the caller's
// to change.
type View interface {
	Head() *Head

	// Save writes what has changed in Head. A driver need not lock Rounds against others: a
	// greater round stays, and if another transaction is just writing one, this one may be left
	// out.
	Save() error

	// Now is the time of the database, when the transaction entered. See also Traits.Skew.
	Now() int64

	// Number returns a number greater than all that this process has had of the queue, and never
	// the same twice, whatever becomes of the transaction.
	Number() (uint64, error)

	// Counts returns how many tasks there are by state, and all at 0. The driver counts them when
	// they are put and deleted, also those of this transaction.
	Counts() ([driver.Held + 1]int, error)

	// Fetch says what will be read next. Where each exchange with the database costs, a driver
	// reads all of it at once, and the Scan of one of these ranges returns what was read unless
	// something was written in between that may concern it. Otherwise it does nothing.
	Fetch(ranges ...Range) error

	Tasks() Table[Row]
	Keys() Table[Key]
	Served() Table[Served]
	Consumers() Table[Consumer]
	Groups() Table[Group]
	Outcomes() Table[Outcome]
	History() Table[Ended]

	// LastRound returns the greatest Round of a line that is greater than after, and how many rows
	// of the line have it; 0 if there is none. Rows in all states count.
	LastRound(l Line, after uint64) (round uint64, rows int, err error)

	// KeyStats returns n keys, those with the most tasks first, with how many these are, counted
	// from the tasks, Paused and Oldest; and all others that are paused, with tasks or without. Keys
	// that wait do not count as paused.
	KeyStats(n int) ([]Key, error)

	// CountKeys returns how many keys have tasks, of those from one on, but n at most. next is the
	// key from which to go on, "" if there are no more.
	CountKeys(from string, n int) (keys int, next string, err error)

	// Ended returns the ids of the outcomes that were written since a mark was returned, whoever
	// has written them, with Result and Err; maybe also some that were written before. It returns a
	// mark from which to go on; with the mark "" nothing else.
	Ended(mark string) ([]*Outcome, string, error)

	// Drop deletes the queue and all rows of it that are left. A driver that may not write that
	// many deletes some of these, and returns false; then it is called again in the next
	// transaction.
	Drop() (done bool, err error)
}

// Table is one of the tables of a queue. What its primary key and its indexes are is declared in
// tables.go.
type Table[R any] interface {
	// Scan returns the rows of a range.
	Scan(r Range) ([]*R, error)

	// Put writes a row: a new one, or one in the place of that with the same primary key. It is
	// copied. A task is new if Was is 0; otherwise it was read with a Lock, or put, in a View of
	// the same Head, and only what changes need be written of it. Of a task that becomes Taken
	// but was Ready this is less: see Row.
	Put(r *R) error

	// Delete deletes the row with the primary key of r, if there is one. For a task the same
	// holds as for one that is put.
	Delete(r *R) error

	// Sweep deletes the first rows of a range, up to its Limit. It may pass over those that
	// others have locked. It is not asked of tasks.
	Sweep(r Range) error
}

// Range is some rows of a table, next to each other in an index.
//
// It begins with those rows whose first fields in the index are one of Prefixes; nil means all
// rows of the index. The fields that follow are compared with From and To, as far as these go.
//
// A range is read in the order of the fields that follow the prefix, so rows of several prefixes
// are merged. (Rows that have all these fields in common may come in any order.) But with Each the
// Limit is for each prefix, and only the order of those with the same prefix is defined.
type Range struct {
	Index    Index
	Prefixes []Tuple // all of the same length, each once
	Each     bool
	From     Tuple // the first that is in the range, nil if it is not bounded
	To       Tuple // the first that is not, nil if it is not bounded
	Desc     bool  // the last come first
	Limit    int   // 0 means all
	Only     Only  // others are passed over, and do not count for Limit; for tasks only

	Payload bool // tasks are read with their payloads; otherwise they may be
	Lock    Lock
}

// Tuple is values of fields of an index, each an int64 or a string. Numbers and strings are
// compared as Go does, and the first field in which two tuples differ decides.
type Tuple []any

// Only says which tasks of a range are wanted: those that agree with all that is not zero.
type Only struct {
	State     driver.State
	Key, Kind *string
}

// Match tells whether a task is one of these.
func (o *Only) Match(r *Row) bool {
	return (o.State == 0 || r.State == o.State) && (o.Key == nil || r.Key == *o.Key) &&
		(o.Kind == nil || r.Kind == *o.Kind)
}

// Lock says what others may do with the rows of a range until the end of the transaction. It
// means nothing in a View that is exclusive.
type Lock uint8

const (
	// NoLock lets them do all: the rows are only looked at, and not put nor deleted.
	NoLock Lock = iota

	// SkipLocked is for rows that are to be changed. It passes over rows that others have locked:
	// a driver may return any of the first rows that nobody else has, as long as they are in
	// order. A driver that finds conflicts at the commit has processes choose different ones, for
	// example at random among the first k, and has only those conflict that it has returned.
	SkipLocked

	// ForUpdate is for rows that are to be changed, and waits for others that have locked them.
	ForUpdate

	// ForShare lets nobody delete the rows, nor find them with SkipLocked. Others may read them
	// with ForUpdate and ForShare, and put them. It is for consumers; and with Traits.Optimistic for
	// tasks, which nobody may change then.
	ForShare

	// NoMore is for ranges all of whose rows are known, and only with Traits.Optimistic: it conflicts
	// with who puts another one there. Nothing is read.
	NoMore
)
