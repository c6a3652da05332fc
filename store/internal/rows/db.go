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
// If two transactions conflict, a driver lets one wait for the other, by locks, or lets the later
// commit fail. The following transactions conflict:
//
//   - A transaction that has entered a queue exclusively conflicts with all others in that queue.
//     No other transaction changes the rows that it has read until it is committed.
//   - A row that was read with ForUpdate or SkipLocked conflicts with all transactions that write
//     it, or read it in one of these ways. A row read with ForShare conflicts with its deletion.
//   - Two transactions that put a new row with the same primary key, unique key or name of a
//     consumer conflict.
//
// Traits.Optimistic and NoMore add further conflicts. A driver must find no others, or queues get
// slow. There is no conflict about
//
//   - a row that was passed over, or read with NoLock;
//   - a new row in a range that was read;
//   - Head.Rounds and the counts, which most transactions write (see [View.Save]);
//   - the results of CountKeys, KeyStats and Ended.
//
// Reads of these return values that were committed lately, with the changes of the own
// transaction.
type DB interface {
	// Traits returns the abilities of the database. They never change.
	Traits() Traits

	// Begin begins a transaction that can write. When ctx is done, every wait of the transaction ends
	// soon, such as a wait for a lock.
	Begin(ctx context.Context) (Tx, error)

	// Own returns the caller's own transaction that ctx carries; nil if it carries none. Own does not
	// ask the database.
	//
	// Joined returns the caller's transaction as a Tx. Commit of that Tx writes the buffered changes,
	// but the caller ends the transaction. Rollback undoes the changes of the Tx if Traits.Undo is
	// set; otherwise it does nothing. After a Rollback, Joined may be called again.
	Own(ctx context.Context) *driver.Tx
	Joined(ctx context.Context) (Tx, error)

	// Again reports whether a transaction that failed with this error has changed nothing, and may
	// succeed if it is tried again from the beginning. Examples are a deadlock, a conflict, or
	// another transaction that was faster to write to a unique index. after is the time to wait
	// before the second try; the rules wait longer before further tries.
	Again(err error) (after time.Duration, again bool)

	// Changed reports whether other processes, or Joined transactions, may have committed a change
	// since the last call. The rules call it all the time, so it must be cheap. A driver that gets
	// notices of changes need not report them here: it calls the function Changed of this package.
	Changed(ctx context.Context) (bool, error)
}

// Traits are the differences between databases.
type Traits struct {
	// Exclusive is true if the database runs one transaction at a time, whatever Plan.Exclusive is. A
	// Lock then has no meaning.
	Exclusive bool

	// Optimistic is true if no transaction waits for another one: of two that conflict, the later
	// commit fails. Here two transactions also conflict if both write or make the same row, even a
	// row read with NoLock. So a transaction that counts the tasks of keys or groups in their rows
	// need not enter the queue exclusively: it conflicts with others that write the same rows. (A
	// driver that locks rows would have to know these rows in advance, or two transactions could wait
	// for each other.)
	Optimistic bool

	// Undo is true if Rollback of a Joined transaction undoes its changes. Without Undo the rules do
	// not try a failed call in the caller's transaction again, and the caller must roll the
	// transaction back.
	Undo bool

	// MaxWrites is the greatest number of rows that a transaction should write; 0 means no limit. A
	// larger change takes several transactions. Either each of them leaves the queue in a valid
	// state, or no other call runs in the queue before the last one. A call that cannot be divided,
	// such as a PutBatch of many tasks, is refused before it writes anything. Its error names the
	// number and the limit. bounds.go estimates how many rows a transaction will write.
	MaxWrites int

	// MaxBytes is the number of bytes of payloads, metadata, names and errors that a transaction
	// should write; 0 means no limit. A transaction that has written this many leaves the rest to the
	// next one, so the last task that it writes may exceed the limit. A PutBatch with more bytes is
	// refused.
	MaxBytes int

	// Linger is the time for which the rules wait before a transaction, for further calls that may
	// share it. Linger is 0 where a transaction takes hardly longer than such a wait.
	Linger time.Duration

	// Skew is the greatest difference between the results of View.Now in two processes; 0 if View.Now
	// returns the time of the database. A process ends a lease or a consumer of another process only
	// when its deadline was over for that long.
	Skew time.Duration
}

// Tx is a transaction. Only one goroutine uses it, and after an error it can only be rolled back.
// Its reads see its earlier writes, so a driver that buffers writes sends them before the next
// read.
type Tx interface {
	// Queue returns the row of the queue of that name. If there is none, Queue makes one, with an ID
	// never used before; but if settings are nil it returns nil. Queue locks the row against other
	// calls of Queue, and against transactions that enter exclusively.
	Queue(name string, settings []byte) (*Queue, error)

	// Queues returns the names of the first n queues that are not before from, in alphabetical order.
	// It locks nothing.
	Queues(from string, n int) ([]string, error)

	// Enter enters a queue until the end of the transaction. plan has the probable reads, so that a
	// driver can make them at once. Two transactions can be in a queue at the same time, unless one
	// of them is exclusive. A transaction enters queues in the order of their IDs. Enter returns nil
	// if there is no such queue.
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

	// With LocksKeys, and without Exclusive, a transaction locks keys instead of tasks. Enter locks
	// the keys in Locks, which are sorted. It waits while another such transaction has locked one of
	// them.
	//
	// A Range of tasks, turns or rows of keys with SkipLocked passes over rows whose key another
	// transaction has locked. It locks the keys of the rows that it returns. Whatever the Lock of a
	// Range is, the transaction may put all tasks, turns and rows of the keys that it has locked, and
	// no others.
	LocksKeys bool
	Locks     []string

	Counts  bool    // Counts is called
	Numbers int     // calls of Number
	Ranges  []Range // as Fetch gets them; nil with Traits.Exclusive, which does not need it

	// Kept returns the Ranges to read if the driver has kept the Head since an earlier transaction.
	// If Kept is nil, the driver must not keep the Head after this transaction, because transactions
	// that are not exclusive may write to the queue.
	Kept func(*Head) []Range
}

// Head is the state of a queue within a transaction.
//
// A driver keeps the Head, with its cache, after a committed transaction. In the next transaction
// View.Head returns the same Head, if the driver knows that no other process has written to the
// queue in between. Otherwise it returns a new Head.
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

	// Save writes the changes of Head. A driver need not lock Rounds: Save never replaces a round by
	// a smaller one, and may leave out a round while another transaction writes it.
	Save() error

	// Now is the time of the database, when the transaction entered. See also Traits.Skew.
	Now() int64

	// Number returns a number greater than all that it has returned to this process for the queue. It
	// never returns the same number twice, even after a rollback.
	Number() (uint64, error)

	// Counts returns the number of tasks in each state, and at 0 the number of all tasks. The driver
	// counts tasks when they are put and deleted, including the tasks of this transaction.
	Counts() ([driver.Held + 1]int, error)

	// Fetch announces the next reads. Where exchanges with the database are expensive, a driver reads
	// all ranges at once. Scan of one of these ranges then returns the rows read, unless a write in
	// between may have changed them. Other drivers do nothing.
	Fetch(ranges ...Range) error

	Tasks() Table[Row]
	Turns() Table[Turn]
	Keys() Table[Key]
	Served() Table[Served]
	Consumers() Table[Consumer]
	Groups() Table[Group]
	Outcomes() Table[Outcome]
	History() Table[Ended]

	// KeyStats returns the n keys with the most tasks, most first, and all other paused keys, with
	// tasks or without. A key that only waits is not paused. Of each key it fills in the numbers of
	// tasks, which it counts from the tasks, Paused and Oldest.
	KeyStats(n int) ([]Key, error)

	// CountKeys counts keys that have tasks, at most n, and begins with the key from. next is the key
	// from which to go on, "" if there are no more.
	CountKeys(from string, n int) (keys int, next string, err error)

	// Ended returns the outcomes that any process has written since an earlier call returned the
	// mark, and perhaps some older ones. It fills in their ids, Result and Err. It also returns a new
	// mark to go on from. With the mark "" it returns only a new mark.
	Ended(mark string) ([]*Outcome, string, error)

	// Drop deletes the queue and all its remaining rows. A driver that may not write that many rows
	// deletes some of them, and returns false. The rules then call Drop again in the next
	// transaction.
	Drop() (done bool, err error)
}

// Table is one of the tables of a queue. tables.go declares its primary key and its indexes.
type Table[R any] interface {
	// Scan returns the rows of a range.
	Scan(r Range) ([]*R, error)

	// Put writes a copy of a row: a new row, or new values of the row with the same primary key. A
	// task is new if its Was is 0. Any other task was read with a Lock, or put, in a View of the same
	// Head, so the driver need only write the changed fields. Some tasks that become Taken change
	// fewer fields: see Row.
	Put(r *R) error

	// Delete deletes the row with the primary key of r, if there is one. A task must have been read
	// with a Lock, or put, as for Put.
	Delete(r *R) error

	// Sweep deletes the first rows of a range, up to its Limit. It may pass over locked rows. The
	// rules never call it for tasks.
	Sweep(r Range) error
}

// Range selects rows of a table that are next to each other in an index.
//
// Prefixes are values of the first fields of the index: the range has the rows with one of them.
// Nil means all rows of the index. From and To bound the fields behind the prefix; they may have
// fewer fields than the index.
//
// A range is read in the order of the fields behind the prefix, so rows of several prefixes are
// merged. (Rows that have all these fields in common may come in any order.) With Each, the Limit
// is for each prefix, and only rows with the same prefix are in order.
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

// Tuple has values of the fields of an index, each an int64 or a string. Tuples are compared as in
// Go, number by number and string by string: the first field that differs decides.
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

// Lock says how other transactions may use the rows of a range until the end of this transaction.
// It has no meaning in an exclusive View.
type Lock uint8

const (
	// NoLock restricts nothing: this transaction does not put or delete the rows.
	NoLock Lock = iota

	// SkipLocked is for rows that this transaction will change. It passes over locked rows: a driver
	// may return any of the first free rows, in order. A driver that finds conflicts at the commit
	// makes processes choose different rows, for example at random among the first k, or leaves rows
	// to others for a moment. Only the returned rows can conflict.
	SkipLocked

	// ForUpdate is for rows that this transaction will change, and waits for their locks.
	ForUpdate

	// ForShare keeps other transactions from deleting the rows, and from finding them with
	// SkipLocked. Others may read the rows with ForUpdate and ForShare, and put them. ForShare is for
	// consumers. With Traits.Optimistic it is also for tasks, and no other transaction may change
	// these.
	ForShare

	// NoMore is for ranges whose rows are all known, and only with Traits.Optimistic. It reads
	// nothing. It conflicts with a transaction that puts another row into the range.
	NoMore
)
