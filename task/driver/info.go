package driver

import (
	"slices"
	"strconv"
	"time"
)

const (
	// MaxPriority is the least urgent priority.
	MaxPriority = 1<<15 - 1

	// MaxDuration is the longest delay, time to live and time to run: a hundred years.
	MaxDuration = 100 * 365 * 24 * time.Hour

	// MaxBatch is how many tasks TakeBatch takes at most.
	MaxBatch = 1000

	// MaxName is the length in bytes of a queue's name and of a task's key, kind, unique key and
	// group.
	MaxName = 1 << 10

	// MaxMetadata is the length in bytes of a task's metadata, all names and values together.
	MaxMetadata = 1 << 13
)

// ID names a task within its queue. No two tasks of a queue ever have the same; 0 is none.
type ID uint64

// State is where a task is in its life.
type State uint8

// The states. A task that is done, discarded, deleted, evicted or expired is in none: it is gone.
const (
	Ready   State = iota + 1 // it can be taken
	Delayed                  // it will be ready at Info.Until
	Taken                    // a consumer holds it
	Buried                   // it failed for good, and stays until somebody kicks or deletes it
	Held                     // it waits for its group
)

var stateNames = [...]string{Ready: "ready", Delayed: "delayed", Taken: "taken", Buried: "buried", Held: "held"}

// String returns the state's name in lower case.
func (s State) String() string {
	if int(s) < len(stateNames) && s > 0 {
		return stateNames[s]
	}
	return "State(" + strconv.Itoa(int(s)) + ")"
}

// Role is what a task is in its group.
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
	AtAbort             // it is ready when the group was cancelled and no member is running any more
)

// Info is what there is to know of a task besides its payload.
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
	Attempts    int           // how often it was taken; if its consumer was closed meanwhile, or by Snooze, that does not count
	MaxAttempts int           // 0 means no limit
	TTR         time.Duration // how long a lease lasts; 0 means until its consumer is closed or gone
	Created     time.Time     // when it was put
	ReadyAt     time.Time     // when it became ready last; zero if it never was
	Until       time.Time     // when the delay ends or the lease runs out, unless extended; zero if it does neither
	Deadline    time.Time     // as it was put; zero if there is none
	Expires     time.Time     // when its time to live ends, or its deadline if that is sooner; zero if there is neither
	Consumer    string        // who holds it, if it is taken
	Err         *Error        // of the last failure; nil if there was none

	// Metadata is as it was put, in a map that nobody else has; nil if there is none.
	Metadata map[string]string
}

// UpcomingTask is a task that can be taken, as Upcoming tells of it.
type UpcomingTask struct {
	Info
	Round  int // in which it is taken, of those of its priority: 0 is the current one
	Weight int // of its key, as it was told with a Put
}

// Stats tells how a queue is doing.
type Stats struct {
	// How many tasks are in each state.
	Ready   int `json:"ready"`
	Delayed int `json:"delayed"`
	Taken   int `json:"taken"`
	Buried  int `json:"buried"`
	Held    int `json:"held"`

	Keys int `json:"keys"` // keys that have tasks

	// The most tasks that the queue can hold; fairq.MaxLen if Options.Capacity is 0.
	Capacity int `json:"capacity"`

	// Tasks that count in it: those in all states, or those that wait, see
	// Options.CountOnlyWaiting.
	Counted     int  `json:"counted"`
	WaitingPut  int  `json:"waiting_put"`  // goroutines in PutWait of this Queue
	WaitingTake int  `json:"waiting_take"` // goroutines in Take and TakeBatch of this Queue
	Paused      bool `json:"paused"`

	// What has happened, as far as it was counted in this process, since the Store was opened.
	// Every task put is in one of the states or was acked, deleted, expired or evicted: in memory,
	// Puts is the sum of all these.
	Puts     uint64 `json:"puts"`
	Takes    uint64 `json:"takes"` // also repeated ones of the same task
	Acks     uint64 `json:"acks"`
	Releases uint64 `json:"releases"` // by Release, Snooze, Fail and consumers that were closed
	Losses   uint64 `json:"losses"`   // leases that ran out, or whose consumers did not come back
	Buries   uint64 `json:"buries"`   // also after the last attempt
	Kicks    uint64 `json:"kicks"`
	Touches  uint64 `json:"touches"`

	// By Delete, Discard, Truncate, and cancelled or finished groups.
	Deletes  uint64 `json:"deletes"`
	Expiries uint64 `json:"expiries"` // tasks whose time to live or deadline ended
	Evicted  uint64 `json:"evicted"`

	// How often the queue, or a key's share of it, was too full for a task. A PutWait may count
	// several times.
	Refused uint64 `json:"refused"`

	// Transactions that were tried again, because other processes were faster; none in memory.
	Conflicts uint64 `json:"conflicts"`
}

// Len returns the number of tasks in all states.
func (s Stats) Len() int { return s.Ready + s.Delayed + s.Taken + s.Buried + s.Held }

// KeyStat tells how one key of a queue is doing.
type KeyStat struct {
	Key                                 string
	Ready, Delayed, Taken, Buried, Held int
	Paused                              bool
	Oldest                              time.Time // when the first one that is ready or delayed was put; zero if none is
}

// Len returns the number of the key's tasks in all states.
func (s KeyStat) Len() int { return s.Ready + s.Delayed + s.Taken + s.Buried + s.Held }

// ListOptions say which tasks List returns, Count counts and Kick makes ready. The zero value of
// each field but Limit means all.
type ListOptions struct {
	State State
	Key   *string
	Kind  *string
	Group string
	After ID  // only those with greater ids: the last one of the page before
	Limit int // how many; 0 means 100

	// NextFirst has List return tasks in the order in which they come. State must be Delayed: first
	// those whose delay, or life, ends first; or Buried: in the order of Kick. Group and After must
	// be zero.
	NextFirst bool
}

// Filter says which tasks a consumer takes. The zero Filter passes all.
type Filter struct {
	MaxPriority *int     // none less urgent than this; nil means all, new(-1) none
	Kinds       []string // only of these kinds; nil means all
}

// Passes tells whether the filter passes a task, if its Kinds are in order.
func (f *Filter) Passes(priority int, kind string) bool {
	return (f.MaxPriority == nil || priority <= *f.MaxPriority) && f.PassesKind(kind)
}

// PassesKind tells whether the filter passes tasks of a kind, if its Kinds are in order.
func (f *Filter) PassesKind(kind string) bool {
	if f.Kinds == nil {
		return true
	}
	_, ok := slices.BinarySearch(f.Kinds, kind)
	return ok
}
