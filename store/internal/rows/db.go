package rows

import (
	"context"
	"time"

	"github.com/fairq/fairq/task"
)

// DB is a database, as the rules of this package need it. What a driver has to do is told here in full; it knows no rules.
//
// All times are nanoseconds since 1970, and 0 means never. All strings may hold any bytes, also zero bytes and invalid UTF-8.
type DB interface {
	// Begin begins a transaction that can write. ctx is for all of it.
	Begin(ctx context.Context) (Tx, error)

	// Joined returns the transaction of the caller's own that ctx carries, nil if it carries none. Commit of such a Tx writes
	// what is buffered; the end of the transaction is the caller's. Rollback undoes what was done with the Tx, or does nothing if
	// the database is Exclusive. Then Joined may be called again.
	Joined(ctx context.Context) (Tx, error)

	// Again tells whether a transaction that failed with this error may succeed if it is tried again from the beginning at
	// once: a deadlock, or a unique index that another transaction was faster to write to.
	Again(err error) bool

	// Changed tells whether others may have committed something since the last call, other processes or Joined
	// transactions. It is asked again and again, so it must be cheap. A database that tells by itself calls the function given to
	// it when it was opened.
	Changed(ctx context.Context) (bool, error)

	// Exclusive is true if no two transactions run at the same time, whatever Plan.Exclusive says.
	Exclusive() bool
}

// Tx is a transaction. What was written in it is seen by what is read later in it, so a driver that buffers writes sends them
// ahead of the next read. It is used by one goroutine. After an error it can only be rolled back.
type Tx interface {
	// Queue returns the row of the queue of that name. If there is none and settings are not nil, it is made, with an ID never
	// used before; else nil is returned. It locks the row against others that do the same or Enter exclusively.
	Queue(name string, settings []byte) (*Queue, error)

	// Enter locks a queue until the end of the transaction, and says what will probably be wanted of it, so that a driver can
	// fetch it at once. Two that are not exclusive can be in a queue at the same time; then each row that is read to be changed is
	// locked too: by Get, Ready, Due, HeldBy and Buried, of which all but Get pass over rows that others have locked.
	// A transaction enters queues in the order of their IDs. It returns nil if there is no such queue (any more).
	Enter(queue uint64, plan *Plan) (View, error)

	// Notify tells other processes, once the transaction is committed, that something has changed in a queue. It may do
	// nothing if they look by themselves.
	Notify(queue uint64)

	Commit() error
	Rollback()
}

// Plan is what will probably be done in a queue. It is a hint but for Exclusive: other things may be asked for too.
type Plan struct {
	Exclusive bool
	Tasks     bool     // Tasks is called
	Numbers   int      // calls of Number
	Get       []uint64 // ids
	Payloads  bool     // of the rows of Get
	Take      int      // rows of Ready with the Filter
	Filter    Filter
	Last      []Line   // calls of Last
	Alive     []uint64 // Alive is called with these
	Keys      []string // Lines is called with these and Parked, in order and each once, without payloads
	Parked    int
}

// Line is a key in a priority.
type Line struct {
	Key      string
	Priority int
}

// Queue is a row of the table of queues.
type Queue struct {
	ID       uint64
	Settings []byte
}

// Head is what is known of a queue while one works in it.
//
// A driver that can tell that nobody else has written to the database since its last transaction, which was committed,
// returns the same Head again from View.Head, so that what is cached in it stays. Otherwise it returns a new one.
type Head struct {
	Settings   []byte
	Paused     bool
	PausedKeys int            // rows of keys that are paused
	Rounds     map[int]uint64 // by priority, the round being served
	Removed    uint64         // grows when ready tasks are removed; a driver that returns Heads again need not keep it
	cache                     // what the rules know, and what the driver leaves alone
}

// Row is a task.
type Row struct {
	ID          uint64
	Key         string
	Kind        string
	UniqueKey   string // "" means none, as for Group
	Role        task.Role
	Priority    int
	Weight      int
	Payload     []byte
	TTR         time.Duration
	MaxAttempts int
	Created     int64
	Deadline    int64

	// What follows changes.

	Group    string
	State    task.State
	Takeable bool   // it is in the index that Ready reads
	Round    uint64 // 0 if it has none
	Seq      uint64 // its place in the round
	Gap      bool   // between its round and that of the next task of its line there may be rounds without one
	Returned bool   // it was taken by its turn and handed back, so it is first, and keeps the turn whatever happens to others
	Place    uint64 // its place among the tasks of its key
	Since    uint64 // a number from when it got into its state: if taken that of its lease, if buried that of its burial
	Counted  bool   // it may be evicted: it is in the index that Oldest and Newest read
	Consumer uint64 // who holds it, if it is taken
	Attempts int
	ReadyAt  int64
	Until    int64
	Expires  int64
	Wake     int64
	Err      *task.Error

	Was task.State // the driver's: the State it has written or read last
}

// Key is a row of the table of keys. There is one for each key that is paused, and in queues that count by key also for
// each key that has tasks.
type Key struct {
	Key    string
	Weight int
	Tasks  [task.Held + 1]int // by state, and all at 0
	Load   int                // by which Heaviest looks
	Paused bool
}

// Consumer is a row of the table of consumers.
type Consumer struct {
	Number   uint64
	Name     string
	Epoch    uint64
	Deadline int64
}

// Group is a row of the table of groups. There is one for each group that has tasks.
type Group struct {
	Name               string
	Started, Cancelled bool
	Tasks, Members     int
}

// Outcome is a row of the table of outcomes: how a task with a unique key ended.
type Outcome struct {
	UniqueKey string
	ID        uint64
	How       How
	Err       *task.Error // if How is Failed
	Until     int64
}

// Done is a row of the table of tasks that are gone, for queues that have a history. An ID can be there only once.
type Done struct {
	ID                uint64
	Key, Kind         string
	UniqueKey         string
	Payload           []byte
	Attempts          int
	Created, Finished int64
	How               How
	Err               *task.Error
	Until             int64 // when it is forgotten
}

// How is in what way a task ended.
type How uint8

// The ways.
const (
	Acked How = iota
	Failed
	Deleted
	Expired
	Dropped
)

// Filter says which rows Ready returns.
type Filter struct {
	MaxPriority int      // none less urgent; task.MaxPriority means all, -1 none
	Kinds       []string // nil means all
}

// View is a queue within a transaction. Rows that it returns are the caller's to change, and are written by Update. Where a
// method takes payload, the payloads are read only if it is true.
type View interface {
	Head() *Head

	// Tasks returns how many tasks there are by state, and all at 0. The driver counts them from Insert, Update, Take and Delete,
	// also those of this transaction.
	Tasks() ([task.Held + 1]int, error)

	// Save writes what has changed in Head. A driver need not lock Rounds against others: a greater round stays,
	// and if another transaction is just writing one, this one may be left out.
	Save() error

	// Now is the time of the database, when the transaction entered.
	Now() int64

	// Number returns a number greater than all that this process has had of the queue, and never the same twice, whatever becomes
	// of the transaction.
	Number() (uint64, error)

	// Get returns the row with that id, nil if there is none. So do ByUniqueKey and the other methods that return a pointer.
	Get(id uint64, payload bool) (*Row, error)

	// Peek returns the rows with these ids, in any order, and ByUniqueKey the one with that unique key. They lock nothing, so that nobody
	// passes over what is only looked at; to change such a row it is read again.
	Peek(ids []uint64, payload bool) ([]*Row, error)
	ByUniqueKey(uniqueKey string, payload bool) (*Row, error)

	Insert(r *Row) error
	Update(r *Row) error // all but what never changes
	Take(r *Row) error   // Update for a row that was just taken: State, Takeable, Since, Counted, Consumer, Attempts, Until and Wake
	Delete(r *Row) error

	// Ready returns the first n rows that are Takeable, in the order of priority, round, seq and place.
	Ready(f Filter, n int) ([]*Row, error)

	// Locked tells whether there is a row that Ready has passed over, as others have locked it.
	Locked(f Filter) (bool, error)

	// Last returns the greatest Round of a line that is greater than after, and how many rows of the line have it; 0 if there is
	// none. Rows in all states count.
	Last(l Line, after uint64) (round uint64, rows int, err error)

	// Due returns n rows whose Wake is not after now, the earliest first. NextWake returns the earliest Wake, 0 if there is none.
	Due(now int64, n int, payload bool) ([]*Row, error)
	NextWake() (int64, error)

	// Leases returns, by id, the Since of all that HeldBy would return if others had nothing locked. It locks nothing itself.
	Leases(consumer uint64) (map[uint64]uint64, error)

	HeldBy(consumer uint64, n int, payload bool) ([]*Row, error) // n rows that are taken, in the order of Since
	Buried(n int) ([]*Row, error)                                // n rows that are buried, in the order of Since
	InGroup(group string) ([]*Row, error)                        // in the order of ids
	List(o task.ListOptions) ([]*Row, error)                     // with payloads

	// Lines returns the rows that some keys have in the table of keys, and of those that they have in the table of tasks these:
	// all that are Ready and have a Round, whether Takeable or not; and the first ones, in the order of Place, that are Ready, not
	// Takeable and have no Round, so many of each line and kind as parked says. They are in no order. If parked is 0, no tasks are
	// returned.
	Lines(keys []string, parked int, payload bool) ([]Key, []*Row, error)

	// Next returns the first row of a line, in the order of round and seq, that is Ready and comes after that round and seq. It
	// locks it, and passes over rows that others have locked. It is without payload.
	Next(l Line, round, seq uint64) (*Row, error)

	// Hide makes all rows of a key not Takeable, and changes nothing else.
	Hide(key string) error

	// Newest returns the row of a key that is Counted with the greatest Since, Oldest that with the least.
	Newest(key string) (*Row, error)
	Oldest(key string) (*Row, error)

	SetKey(k *Key) error           // writes the row, or deletes it if there is no task and it is not paused
	Heaviest() (*Key, error)       // the one with the greatest Load
	KeyStats(n int) ([]Key, error) // counted from the tasks, joined with the keys that are paused; those with the most tasks first
	Keys() (int, error)            // how many keys have tasks
	Served(l Line) (uint64, error) // what SetServed was called with last, 0 if it was not
	SetServed(l Line, r uint64) error
	SweepServed(priority int, before uint64, n int) error

	Consumer(name string) (*Consumer, error)
	AddConsumer(name string, epoch uint64, deadline int64) (*Consumer, error)
	ConsumerNames(numbers []uint64) (map[uint64]string, error)

	// Alive tells which of these consumers still exist. They do until the end of the transaction, for DueConsumers passes over them.
	Alive(numbers []uint64) ([]uint64, error)

	// Beat sets the deadlines of consumers, and returns the numbers of those that still exist. It locks them. DueConsumers returns n
	// whose deadlines are not after now. It locks these too, and passes over those that others have locked.
	Beat(numbers []uint64, deadline int64) ([]uint64, error)
	DueConsumers(now int64, n int) ([]Consumer, error)

	NextDeadline() (int64, error)
	DeleteConsumer(number uint64) error
	Consumers(prefix string, after int64) ([]Consumer, error) // whose names begin so, with deadlines after that

	Group(name string) (*Group, error)
	SetGroup(g *Group) error // writes the row, or deletes it if it has no tasks

	Outcome(uniqueKey string) (*Outcome, error)
	SetOutcome(o *Outcome) error // writes the row, or deletes it if Until is 0

	// Ended returns the ids of the outcomes that were written since a mark was returned, whoever has written them, with How and
	// Err; maybe also some that were written before. It returns a mark from which to go on; with the mark "" nothing else.
	Ended(mark string) ([]*Outcome, string, error)

	SweepOutcomes(now int64, n int) error
	NextOutcome() (int64, error) // the least Until, 0 if there is none

	AddDone(d *Done) error
	Done(after uint64, n int) ([]*Done, error) // n of them in the order of ids, those with greater ids than after
	SweepDone(now int64, n int) error
	NextDone() (int64, error) // the least Until, 0 if there is none

	SetSettings(settings []byte) error
	Drop() error // deletes the queue and all rows of it that are left
}
