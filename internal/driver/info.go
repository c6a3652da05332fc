package driver

import (
	"slices"
	"strconv"
	"time"
)

const (
	// MaxPriority is the least urgent priority. A store may read something of each priority in each
	// transaction.
	MaxPriority = 99

	// MaxDuration is the longest delay, time to live and time to run: a hundred years.
	MaxDuration = 100 * 365 * 24 * time.Hour

	// MaxRate is the highest limit and burst of a Rate.
	MaxRate = 1_000_000_000

	// MaxBatch is the greatest number of tasks that TakeBatch takes.
	MaxBatch = 1000

	// MaxName is the greatest length in bytes of a queue's name and of a task's key, kind, unique
	// key and group.
	MaxName = 1 << 10

	// MaxMetadata is the greatest length in bytes of a task's metadata, all names and values
	// together.
	MaxMetadata = 1 << 13
)

// Rate is a task.Rate: see its fields. Without a limit both are 0; else the Burst is at least 1.
type Rate struct {
	Limit float64
	Burst int
}

// KeyLimits are a task.KeyLimits: see its fields. The zero value sets none. MaxInFlight and
// Rate.Limit are -1 for no limit.
type KeyLimits struct {
	Weight      int  `json:",omitzero"`
	MaxInFlight int  `json:",omitzero"`
	Rate        Rate `json:",omitzero"`
}

// LimitedKey is a key with limits of its own.
type LimitedKey struct {
	Key string
	KeyLimits
}

// ID identifies a task within its queue. No two tasks of a queue ever have the same ID; 0 is none.
type ID uint64

// State is the state of a task in its life cycle.
type State uint8

// The states. A task that is done, discarded, deleted, evicted or expired has none: it is gone.
const (
	Ready   State = iota + 1 // it can be taken
	Delayed                  // it will be ready at Info.Until
	Taken                    // a consumer holds it
	Buried                   // it failed for good, and stays until it is kicked or deleted
	Held                     // it waits for its group, or follows another task
)

var stateNames = [...]string{
	Ready: "ready", Delayed: "delayed", Taken: "taken", Buried: "buried", Held: "held",
}

// String returns the state's name in lower case.
func (s State) String() string {
	if int(s) < len(stateNames) && s > 0 {
		return stateNames[s]
	}
	return "State(" + strconv.Itoa(int(s)) + ")"
}

// Role is the role of a task in its group.
type Role uint8

var roleNames = [...]string{Member: "Member", AtEnd: "AtEnd", AtAbort: "AtAbort"}

// String returns the role's name.
func (r Role) String() string {
	if int(r) < len(roleNames) {
		return roleNames[r]
	}
	return "Role(" + strconv.Itoa(int(r)) + ")"
}

// The roles.
const (
	Member  Role = iota // it is ready when the group is started
	AtEnd               // it is ready when the group was started and all members are gone
	AtAbort             // it is ready when the group was cancelled and no member runs
)

// Info is a task.Info: see its fields.
type Info struct {
	ID          ID
	Key         string
	Kind        string
	UniqueKey   string
	Group       string
	Role        Role
	State       State
	Priority    int
	Cost        int64
	Attempts    int
	MaxAttempts int
	TTR         time.Duration
	Created     time.Time
	ReadyAt     time.Time
	Until       time.Time
	Deadline    time.Time
	Expires     time.Time
	Consumer    string
	Err         *Error
	Metadata    map[string]string
}

// UpcomingTask is a task.UpcomingTask.
type UpcomingTask struct {
	Info
	Round  int
	Weight int
}

// Stats is a task.Stats: see its fields.
type Stats struct {
	Ready       int
	Delayed     int
	Taken       int
	Buried      int
	Held        int
	Keys        int
	Capacity    int
	Counted     int
	WaitingPut  int
	WaitingTake int
	Paused      bool
	Puts        uint64
	Takes       uint64
	Acks        uint64
	Releases    uint64
	Losses      uint64
	Buries      uint64
	Kicks       uint64
	Touches     uint64
	Deletes     uint64
	Expiries    uint64
	Evicted     uint64
	Refused     uint64
	Conflicts   uint64
}

// KeyStat has the numbers of one key of a queue.
type KeyStat struct {
	Key                                 string
	Ready, Delayed, Taken, Buried, Held int
	Paused                              bool

	WaitsUntil time.Time // the end of its wait; zero if the key does not wait
	HeldUntil  time.Time // the same, but for the rate of the key
	Oldest     time.Time // the first put of its ready and delayed tasks; zero without any
}

// Len returns the number of the key's tasks in all states.
func (s KeyStat) Len() int { return s.Ready + s.Delayed + s.Taken + s.Buried + s.Held }

// ListOptions is a task.ListOptions: see its fields.
type ListOptions struct {
	State     State
	Key       *string
	Kind      *string
	Group     string
	After     ID
	Limit     int
	NextFirst bool
}

// Filter is a task.Filter: see its fields.
type Filter struct {
	MaxPriority *int
	Kinds       []string
}

// Passes reports whether the filter passes a task. Its Kinds must be in order.
func (f *Filter) Passes(priority int, kind string) bool {
	return (f.MaxPriority == nil || priority <= *f.MaxPriority) && f.passesKind(kind)
}

// passesKind reports whether the filter passes tasks of a kind. Its Kinds must be in order.
func (f *Filter) passesKind(kind string) bool {
	if f.Kinds == nil {
		return true
	}
	_, ok := slices.BinarySearch(f.Kinds, kind)
	return ok
}
