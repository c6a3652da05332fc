package rows

import (
	"context"
	"time"

	"github.com/fairq/fairq/internal/driver"
)

// DB is a database. It knows no rules of this package: it keeps the tables that tables.go
// declares, and finds their rows by the indexes declared there. The comments here are the whole
// contract of a driver.
//
// All times are nanoseconds since 1970, and 0 means never. Strings may hold any bytes, even zero
// bytes and invalid UTF-8. No number is greater than math.MaxInt64.
//
// # Conflicts
//
// A driver may keep transactions apart by locks or find conflicts when they commit. It must do so
// in the following cases, and in no others, or queues get slow:
//
//   - A transaction that has entered a queue exclusively conflicts with all others in that queue.
//     No other transaction changes the rows that it has read until it is committed.
//   - A row that was read with ForUpdate or SkipLocked conflicts with all transactions that write
//     it, or read it in one of these ways. A row read with ForShare conflicts with its deletion.
//   - Two transactions that put a new row with the same primary key, unique key or name of a
//     consumer conflict.
//
// Nothing else is a conflict: not a row that was passed over or read with NoLock; not a new row in
// a range; not Head.Rounds and the counts, which most transactions write (see [View.Save]); not
// the results of CountKeys, KeyStats and Ended. All these have values that were
// committed lately, with the changes of the own transaction.
type DB interface {
	// Traits returns the abilities of the database. They never change.
	Traits() Traits

	// Begin begins a transaction that can write. ctx is for all of it: when it is done, every wait of
	// the transaction, such as for a lock, ends soon.
	Begin(ctx context.Context) (Tx, error)

	// Own returns the caller's own transaction that ctx carries, nil without one. It does not ask the
	// database. Joined returns that transaction as a Tx. Its Commit writes the buffered changes, but
	// the caller ends the transaction. Its Rollback undoes the changes of the Tx if Traits.Undo is
	// set, or else nothing. Then Joined may be called again.
	Own(ctx context.Context) *driver.Tx
	Joined(ctx context.Context) (Tx, error)

	// Again reports whether a transaction that failed with this error has changed nothing and may
	// succeed if it is tried again from the beginning: after a deadlock, a conflict, or when another
	// transaction was faster to write to a unique index. It also returns the time to wait before
	// that. After further tries the rules wait longer.
	Again(err error) (after time.Duration, again bool)

	// Changed reports whether other processes, or Joined transactions, may have committed a change
	// since the last call. The rules call it all the time, so it must be cheap. A database that
	// reports changes by itself calls the function that it got when it was opened.
	Changed(ctx context.Context) (bool, error)
}

// Traits are the differences between databases.
type Traits struct {
	// Exclusive is true if no two transactions run at the same time, whatever Plan.Exclusive is. Then
	// a Lock has no meaning, because there is no other transaction.
	Exclusive bool

	// Optimistic is true if no transaction waits for another one: of two that conflict, the later
	// commit fails. Two conflict if they write or make the same row, even one read with NoLock.
	// So a transaction that counts the tasks of keys or groups need not be alone in the queue: it
	// writes their rows, and conflicts with others that do. (A driver that locks rows would have
	// to know the rows in advance, or two transactions would wait for each other.)
	Optimistic bool

	// Undo is true if Rollback of a Joined transaction undoes its changes. Otherwise the rules do not
	// try such a call again, and if it fails the caller must roll back its own transaction.
	Undo bool

	// MaxWrites is the greatest number of rows that a transaction should write, 0 without a limit.
	// A larger change takes several transactions. Either each of them leaves the queue in a valid
	// state, or no other call runs in the queue before the last one. A call that cannot be
	// divided, such as a PutBatch of many tasks, is refused before it writes
	// anything, with an error that names number and limit. bounds.go estimates how many rows a
	// transaction will write.
	MaxWrites int

	// MaxBytes is the number of bytes of payloads, metadata, names and errors that a transaction
	// should write, 0 without a limit. When it has written that many it leaves the rest to the next
	// one, so its last task may exceed the limit. A PutBatch with more bytes is refused.
	MaxBytes int

	// Linger is the time to wait, before a transaction, for further calls that may share it. It is 0
	// where a transaction is not much longer than such a wait.
	Linger time.Duration

	// Skew is the greatest difference between the results of View.Now in two processes, 0 if it is
	// the time of the database. Other processes end a lease, or a consumer, only that long after its
	// deadline.
	Skew time.Duration
}

// Tx is a transaction. Its reads see its earlier writes, so a driver that buffers writes sends
// them before the next read. One goroutine uses it. After an error it can only be rolled back.
type Tx interface {
	// Queue returns the row of the queue of that name. If there is none, Queue makes it, with an ID
	// never used before, or returns nil if settings are nil. It locks the row against other calls of
	// Queue, and against transactions that enter exclusively.
	Queue(name string, settings []byte) (*Queue, error)

	// Queues returns the names of the first n queues that are not before from, in alphabetical order.
	// It locks nothing.
	Queues(from string, n int) ([]string, error)

	// Enter enters a queue until the end of the transaction. plan has the probable reads, so that a
	// driver can make them at once. Two transactions that are not exclusive can be in a queue at the
	// same time. A transaction enters queues in the order of their IDs. Enter returns nil if there is
	// no such queue.
	Enter(queue uint64, plan *Plan) (View, error)

	// Notify reports a change of a queue to other processes after the commit. It may do nothing if
	// these processes look by themselves.
	Notify(queue uint64)

	Commit() error
	Rollback()
}

// Plan has the probable reads in a queue, and how the transaction locks. The reads are a hint: it
// may make other ones too.
type Plan struct {
	Exclusive bool

	// LocksKeys makes the key of a task stand for it, unless Exclusive is set. Enter waits until no
	// other such transaction has locked one of Locks, which are sorted, and locks them. A Range of
	// tasks or of rows of keys with SkipLocked passes over rows whose key another one has locked,
	// and locks the keys of the others. Whatever a Range says, the transaction may put all tasks of
	// the keys that it has locked, and their rows, and no others.
	LocksKeys bool
	Locks     []string

	Counts  bool    // Counts is called
	Numbers int     // calls of Number
	ByKey   bool    // few tasks of a key can be taken at the same time
	Ranges  []Range // as Fetch gets them; nil with Traits.Exclusive, which does not need it

	// Kept returns the Ranges to read if the driver has kept the Head. It is nil if the driver must
	// not keep the Head after this transaction, because transactions that are not exclusive may
	// write to the queue.
	Kept func(*Head) []Range
}

// Head is the state of a queue within a transaction.
//
// A driver that knows that no other process has written to the queue since its own last
// transaction there, which was committed, returns the same Head again from View.Head, with its
// cache. Otherwise it returns a new Head.
type Head struct {
	Settings   []byte
	Paused     bool
	PausedKeys int            // rows of keys that MayWait
	Rounds     map[int]uint64 // by priority, the round being served

	cache // of the rules; the driver leaves it alone
}

// View is a queue within a transaction: a head, and tables. The caller may change the rows that it
// returns.
type View interface {
	Head() *Head

	// Save writes the changes of Head. A driver need not lock Rounds: a greater round stays, and
	// while another transaction is writing a round, Save may leave out its own.
	Save() error

	// Now is the time of the database, when the transaction entered. See also Traits.Skew.
	Now() int64

	// Number returns a number greater than all earlier ones that this process has had of the queue,
	// and never the same twice, even after a rollback.
	Number() (uint64, error)

	// Counts returns the numbers of tasks by state, and all at 0. The driver counts tasks when they
	// are put and deleted, including those of this transaction.
	Counts() ([driver.Held + 1]int, error)

	// Fetch announces the next reads. If exchanges with the database are expensive, a driver reads
	// all ranges at once, and Scan of one of these ranges returns the rows read, unless a write in
	// between may have changed them. Otherwise it does nothing.
	Fetch(ranges ...Range) error

	Tasks() Table[Row]
	Keys() Table[Key]
	Served() Table[Served]
	Consumers() Table[Consumer]
	Groups() Table[Group]
	Outcomes() Table[Outcome]
	History() Table[Ended]

	// KeyStats returns the n keys with the most tasks, most first, with the numbers of their tasks,
	// counted from the tasks, Paused and Oldest; and all other paused keys, with tasks or without.
	// Keys that wait do not count as paused.
	KeyStats(n int) ([]Key, error)

	// CountKeys counts up to n keys that have tasks, beginning with the key from. next is the key
	// from which to go on, "" if there are no more.
	CountKeys(from string, n int) (keys int, next string, err error)

	// Ended returns the outcomes that any process has written since a mark was returned, with their
	// ids, Result and Err, and perhaps some earlier ones. It returns a new mark to go on from; with
	// the mark "" nothing else.
	Ended(mark string) ([]*Outcome, string, error)

	// Drop deletes the queue and all its remaining rows. A driver that may not write that many rows
	// deletes some of them, and returns false; then the rules call it again in the next transaction.
	Drop() (done bool, err error)
}

// Table is one of the tables of a queue. tables.go declares its primary key and its indexes.
type Table[R any] interface {
	// Scan returns the rows of a range.
	Scan(r Range) ([]*R, error)

	// Put writes a copy of a row: a new row, or the new values of the row with the same primary
	// key. A task is new if Was is 0; otherwise it was read with a Lock, or put, in a View of the
	// same Head, and the driver need only write its changed fields. A Ready task that becomes
	// Taken changes fewer fields: see Row.
	Put(r *R) error

	// Delete deletes the row with the primary key of r, if there is one. A task must have been
	// read or put as for Put.
	Delete(r *R) error

	// Sweep deletes the first rows of a range, up to its Limit. It may pass over locked rows. The
	// rules never call it for tasks.
	Sweep(r Range) error
}

// Range selects rows of a table that are next to each other in an index.
//
// It has the rows whose first fields in the index are one of Prefixes; nil means all rows of the
// index. From and To bound the fields that follow, as far as they go.
//
// A range is read in the order of the fields that follow the prefix, so rows of several prefixes
// are merged. (Rows that have all these fields in common may come in any order.) With Each the
// Limit is for each prefix, and only the order of rows with the same prefix is defined.
type Range struct {
	Index    Index
	Prefixes []Tuple // all of the same length, each once
	Each     bool
	From     Tuple // the first place in the range, nil without a bound
	To       Tuple // the first place behind the range, nil without a bound
	Desc     bool  // the last rows come first
	Limit    int   // 0 means all
	Only     Only  // other rows are passed over, and do not count for Limit; only for tasks

	Payload bool // tasks are read with their payloads; otherwise they may be
	Turns   bool // of tasks only ID and the fields of their turns are read; others may be
	Lock    Lock
}

// Tuple has values of the fields of an index, each an int64 or a string. Numbers and strings
// compare as in Go, and the first field in which two tuples differ decides.
type Tuple []any

// Only selects the tasks of a range that agree with all its fields that are not zero.
type Only struct {
	State     driver.State
	Key, Kind *string
}

// Match reports whether a task agrees with all fields that are not zero.
func (o *Only) Match(r *Row) bool {
	return (o.State == 0 || r.State == o.State) && (o.Key == nil || r.Key == *o.Key) &&
		(o.Kind == nil || r.Kind == *o.Kind)
}

// Lock restricts the use of the rows of a range by other transactions until the end of this one.
// It has no meaning in an exclusive View.
type Lock uint8

const (
	// NoLock restricts nothing: this transaction does not put or delete the rows.
	NoLock Lock = iota

	// SkipLocked is for rows that this transaction will change. It passes over locked rows: a driver
	// may return any of the first free rows, in order. A driver that finds conflicts at the commit
	// makes processes choose different rows, for example at random among the first k, or leaves rows
	// to others for a moment, and only the returned rows can conflict.
	SkipLocked

	// ForUpdate is for rows that this transaction will change, and waits for their locks.
	ForUpdate

	// ForShare keeps others from deleting the rows, and from finding them with SkipLocked. Others may
	// read them with ForUpdate and ForShare, and put them. It is for consumers; and with
	// Traits.Optimistic for tasks, which no other transaction may change then.
	ForShare

	// NoMore is for ranges whose rows are all known, and only with Traits.Optimistic: it reads
	// nothing, and conflicts with a transaction that puts another row there.
	NoMore
)
