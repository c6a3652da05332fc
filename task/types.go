package task

import (
	"time"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/printable"
)

// Store keeps queues of tasks, in memory or in a database, and is an argument of [Open]. Package
// memory and the modules of store/ have one. Its method
//
//	Queues(ctx context.Context, from string, n int) ([]string, error)
//
// lists the queues, from a name on: the names of n, or of all if n is 0.
type Store = driver.Store

// ID identifies a task within its queue. No two tasks of a queue ever have the same ID; 0 is none.
// It is a uint64.
type ID = driver.ID

// Info has all fields of a task but its payload.
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
	Attempts    int           // how often it was taken, without attempts that do not count
	MaxAttempts int           // 0 means no limit
	TTR         time.Duration // how long a lease lasts; 0 means until its consumer is closed or gone
	Created     time.Time     // when it was put
	ReadyAt     time.Time     // when it became ready last; zero if it never was
	Until       time.Time     // the end of the delay or of the lease; zero if there is none
	Deadline    time.Time     // zero if there is none
	Expires     time.Time     // the earlier of the end of its TTL and its deadline; zero without both
	Consumer    string        // that holds it, if it is taken
	Err         *Error        // of the last failure; nil if there was none

	// Metadata is nil if there is none. No other code has the map.
	Metadata map[string]string
}

// UpcomingTask is a task that can be taken, with its place in the order of [Queue.Upcoming].
type UpcomingTask struct {
	Info
	Round  int // of its priority, in which it is taken: 0 is the current one
	Weight int // of its key
}

// Rate is a token bucket, in the terms of golang.org/x/time/rate: there are Burst tokens at first,
// and Limit more of them a second, as long as there are fewer than Burst. A Burst of 0 means 1.
type Rate struct {
	Limit float64 // a second, up to MaxRate; 1.0/60 is one a minute
	Burst int
}

// KeyLimits are limits for one key, see [Queue.SetKey]. A zero field stands for the option of the
// queue.
type KeyLimits struct {
	Weight      int  // instead of Options.Weight, up to fairq.MaxWeight
	MaxInFlight int  // instead of Options.MaxInFlightPerKey; negative means no limit
	Rate        Rate // instead of Options.KeyRate; a negative Limit means no limit
}

// LimitedKey is a key with limits of its own.
type LimitedKey struct {
	Key string
	KeyLimits
}

// Ended is a task that is gone: the method History of a store in a database returns it. Of its
// [Info] it has the ID, Key, Kind, UniqueKey, Attempts, Created and Err. Its other fields are
//
//	Payload []byte // from the queue's Codec
//	At      time.Time
//	Outcome error // nil if it was acked, else an *Error, ErrDeleted, ErrExpired or ErrDropped
type Ended = driver.Ended

// State is the state of a task in its life cycle. Its method String returns the name in lower
// case.
type State = driver.State

// The states. A task that is done, discarded, deleted, evicted or expired has none: it is gone.
const (
	Ready   State = driver.Ready   // it can be taken
	Delayed State = driver.Delayed // it will be ready at Info.Until
	Taken   State = driver.Taken   // a consumer holds it
	Buried  State = driver.Buried  // it failed for good, and stays until it is kicked or deleted
	Held    State = driver.Held    // it waits for its group, or follows a task (PutOptions.Replace)
)

// Role is the role of a task in its group. Its method String returns the name.
type Role = driver.Role

// The roles.
const (
	Member  Role = driver.Member  // it is ready when the group is started
	AtEnd   Role = driver.AtEnd   // it is ready when the group was started and all members are gone
	AtAbort Role = driver.AtAbort // it is ready when the group was cancelled and no member runs
)

// Filter selects the tasks that a consumer takes. The zero Filter passes all.
type Filter struct {
	MaxPriority *int     // passes tasks up to this priority; nil means all, new(-1) none
	Kinds       []string // only of these kinds; nil means all
}

// ListOptions select the tasks for List, Count, Kick and DeleteSome. The zero value of each field
// but Limit means all.
type ListOptions struct {
	State State
	Key   *string
	Kind  *string
	Group string
	After ID  // only greater ids: the last id of the page before
	Limit int // the greatest number of tasks; 0 means 100

	// NextFirst makes List return tasks in the order of their next change. State must be Delayed or
	// Buried, and Group and After must be zero. Delayed tasks come in the order in which their
	// delays, or their lives, end; buried ones in the order of Kick.
	NextFirst bool
}

// Stats has the tasks of a queue by state, and counters.
type Stats struct {
	// The numbers of tasks by state.
	Ready   int `json:"ready"`
	Delayed int `json:"delayed"`
	Taken   int `json:"taken"`
	Buried  int `json:"buried"`
	Held    int `json:"held"`

	Keys int `json:"keys"` // keys that have tasks

	// The greatest number of tasks in the queue; fairq.MaxLen if Options.Capacity is 0.
	Capacity int `json:"capacity"`

	// Tasks that count in Capacity: in all states, or ready and delayed, see
	// Options.CountOnlyWaiting.
	Counted     int  `json:"counted"`
	WaitingPut  int  `json:"waiting_put"`  // goroutines in PutWait of this Queue
	WaitingTake int  `json:"waiting_take"` // goroutines in Take and TakeBatch of this Queue
	Paused      bool `json:"paused"`

	// Events that this process has counted since the Store was opened. Every task has a state, or was
	// acked, deleted, expired or evicted: in memory, Puts is the sum of all these.
	Puts     uint64 `json:"puts"`
	Takes    uint64 `json:"takes"` // including repeated ones of the same task
	Acks     uint64 `json:"acks"`
	Releases uint64 `json:"releases"` // by Release, Snooze, Fail and consumers that were closed
	Losses   uint64 `json:"losses"`   // leases that expired, or whose consumers did not come back
	Buries   uint64 `json:"buries"`   // including those after the last attempt
	Kicks    uint64 `json:"kicks"`
	Touches  uint64 `json:"touches"`

	// By Delete, Discard, Truncate, and cancelled or finished groups.
	Deletes  uint64 `json:"deletes"`
	Expiries uint64 `json:"expiries"` // tasks whose time to live or deadline is over
	Evicted  uint64 `json:"evicted"`

	// Tasks that found the queue, or their key's share of it, full. A PutWait may count several
	// times.
	Refused uint64 `json:"refused"`

	// Transactions that were tried again, because of other processes; none in memory.
	Conflicts uint64 `json:"conflicts"`
}

// String shows the fields that are not zero, a Capacity without a limit as "unlimited".
func (s Stats) String() string { return printable.Fields(s) }

// Len returns the number of tasks in all states.
func (s Stats) Len() int { return s.Ready + s.Delayed + s.Taken + s.Buried + s.Held }

// Event is something that happened to a task.
type Event struct {
	Type   EventType
	Time   time.Time
	Task   Info   // after it; with the State before if the task is gone or another event follows
	Lease  uint64 // the lease that ended, for EventCancel the lease that goes on; else 0
	Missed uint64 // the number of dropped events before this one, because the reader was too slow
}

// EventType is the type of an [Event]. Its method String returns the name in lower case.
type EventType = driver.EventType

// The events.
const (
	EventPut     EventType = driver.EventPut
	EventTake    EventType = driver.EventTake    // it was taken
	EventAck     EventType = driver.EventAck     // it is done, and gone
	EventRelease EventType = driver.EventRelease // handed back: it waits, or EventBury follows
	EventBury    EventType = driver.EventBury    // it is buried
	EventKick    EventType = driver.EventKick    // it was buried, and is ready
	EventDelete  EventType = driver.EventDelete  // deleted, discarded or cancelled with its group
	EventTTL     EventType = driver.EventTTL     // its time to live or its deadline is over
	EventTTR     EventType = driver.EventTTR     // its lease expired: ready, or EventBury follows
	EventTouch   EventType = driver.EventTouch   // its lease was extended
	EventDelay   EventType = driver.EventDelay   // its delay is over, and it is ready
	EventStart   EventType = driver.EventStart   // its group holds it no longer
	EventEvict   EventType = driver.EventEvict   // it made room for another one, and is gone
	EventResume  EventType = driver.EventResume  // its consumer was resumed, and has a new lease
	EventCancel  EventType = driver.EventCancel  // its group was cancelled; its lease goes on
	EventChange  EventType = driver.EventChange  // its delay, priority or payload is another one now
)

const (
	// MaxPriority is the least urgent priority.
	MaxPriority = driver.MaxPriority

	// MaxDuration is the longest delay, time to live and time to run: a hundred years.
	MaxDuration = driver.MaxDuration

	// MaxRate is the highest Rate.Limit and Rate.Burst.
	MaxRate = driver.MaxRate

	// MaxBatch is the greatest number of tasks that TakeBatch takes.
	MaxBatch = driver.MaxBatch

	// MaxName is the greatest length in bytes of a queue's name and of a task's key, kind, unique
	// key and group.
	MaxName = driver.MaxName

	// MaxMetadata is the greatest length in bytes of a task's metadata, all names and values
	// together.
	MaxMetadata = driver.MaxMetadata
)
