package task

import (
	"time"

	"github.com/fairq/fairq/internal/printable"
	"github.com/fairq/fairq/task/driver"
)

// Store keeps queues of tasks, in memory or in a database. It is handed to [Open]. Its method
// Queues tells which queues there are, from a name on. Package driver is for those who write one.
type Store = driver.Store

// ID names a task within its queue. No two tasks of a queue ever have the same; 0 is none.
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

// UpcomingTask is a task that can be taken, with its place in the order of [Queue.Upcoming].
type UpcomingTask struct {
	Info
	Round  int // in which it is taken, of those of its priority: 0 is the current one
	Weight int // of its key, as it was told with a Put
}

// Rate is a token bucket, in the terms of golang.org/x/time/rate: there are Burst tokens at first,
// and Limit more of them a second, as long as there are fewer than Burst. A Burst of 0 means 1.
type Rate struct {
	Limit float64 // a second, up to MaxRate; 1.0/60 is one a minute
	Burst int
}

// State is where a task is in its life.
type State = driver.State

// The states. A task that is done, discarded, deleted, evicted or expired is in none: it is gone.
const (
	Ready   State = driver.Ready   // it can be taken
	Delayed State = driver.Delayed // it will be ready at Info.Until
	Taken   State = driver.Taken   // a consumer holds it
	Buried  State = driver.Buried  // it failed for good, and stays until somebody kicks or deletes it
	Held    State = driver.Held    // it waits for its group
)

// Role is what a task is in its group.
type Role = driver.Role

// The roles.
const (
	Member  Role = driver.Member  // it is ready when the group is started
	AtEnd   Role = driver.AtEnd   // it is ready when the group was started and all members are gone
	AtAbort Role = driver.AtAbort // it is ready when the group was cancelled and no member is running any more
)

// Filter says which tasks a consumer takes. The zero Filter passes all.
type Filter struct {
	MaxPriority *int     // none less urgent than this; nil means all, new(-1) none
	Kinds       []string // only of these kinds; nil means all
}

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

// Stats has the tasks of a queue by state, and counters.
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

// String shows the fields that are not zero, a Capacity without a limit as "unlimited".
func (s Stats) String() string { return printable.Fields(s) }

// Len returns the number of tasks in all states.
func (s Stats) Len() int { return s.Ready + s.Delayed + s.Taken + s.Buried + s.Held }

// Event is something that happened to a task.
type Event struct {
	Type   EventType
	Time   time.Time
	Task   Info   // after the event; State is as before if the task is gone, or if another event follows at once
	Lease  uint64 // the lease that ended, for EventCancel that which goes on; else 0
	Missed uint64 // how many events before this one were dropped because the reader was too slow
}

// EventType says what happened to a task.
type EventType = driver.EventType

// The events.
const (
	EventPut     EventType = driver.EventPut
	EventTake    EventType = driver.EventTake    // it was taken
	EventAck     EventType = driver.EventAck     // it is done, and gone
	EventRelease EventType = driver.EventRelease // it was handed back: it is ready or delayed, or EventBury follows
	EventBury    EventType = driver.EventBury    // it is buried
	EventKick    EventType = driver.EventKick    // it was buried, and is not any more
	EventDelete  EventType = driver.EventDelete  // it was deleted, discarded, truncated, or cancelled with its group, and is gone
	EventTTL     EventType = driver.EventTTL     // its time to live or its deadline has ended, and it is gone
	EventTTR     EventType = driver.EventTTR     // its lease ran out: it is ready, or EventBury follows
	EventTouch   EventType = driver.EventTouch   // its lease was extended
	EventDelay   EventType = driver.EventDelay   // its delay has ended, and it is ready
	EventStart   EventType = driver.EventStart   // its group does not hold it any more
	EventEvict   EventType = driver.EventEvict   // it made room for another one, and is gone
	EventResume  EventType = driver.EventResume  // its consumer was resumed, and holds it by another lease
	EventCancel  EventType = driver.EventCancel  // its group was cancelled while it is taken; its lease goes on
	EventChange  EventType = driver.EventChange  // its delay, priority or payload is another one now
)

const (
	// MaxPriority is the least urgent priority.
	MaxPriority = driver.MaxPriority

	// MaxDuration is the longest delay, time to live and time to run: a hundred years.
	MaxDuration = driver.MaxDuration

	// MaxRate is the highest Rate.Limit and Rate.Burst.
	MaxRate = driver.MaxRate

	// MaxBatch is how many tasks TakeBatch takes at most.
	MaxBatch = driver.MaxBatch

	// MaxName is the length in bytes of a queue's name and of a task's key, kind, unique key and
	// group.
	MaxName = driver.MaxName

	// MaxMetadata is the length in bytes of a task's metadata, all names and values together.
	MaxMetadata = driver.MaxMetadata
)
