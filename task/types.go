package task

import "github.com/fairq/fairq/task/driver"

// Store keeps queues of tasks, in memory or in a database. It is handed to [Open]. Its method
// Queues tells which queues there are, from a name on. Package driver is for those who write one.
type Store = driver.Store

// ID names a task within its queue. No two tasks of a queue ever have the same; 0 is none.
type ID = driver.ID

// Info is what there is to know of a task besides its payload. For its fields, and those of the
// other types that are aliases here, see package driver.
type Info = driver.Info

// UpcomingTask is a task that can be taken, as [Queue.Upcoming] tells of it.
type UpcomingTask = driver.UpcomingTask

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

// Filter says which tasks a consumer takes: those of priority *MaxPriority at most, and only of
// the Kinds. The zero Filter passes all, as nil means for each of the two.
type Filter = driver.Filter

// ListOptions say which tasks List returns, Count counts and Kick makes ready: those of a State,
// Key, Kind and Group, whose ids are greater than After, and no more than Limit, where 0 means 100.
// The zero value of each other field means all. For its fields see package driver.
type ListOptions = driver.ListOptions

// Condition is when a call is not to do anything.
type Condition uint8

// UnlessTaken makes a call return [ErrTaken], and change nothing, if the task is taken, or to drop
// a queue if any task is. The call looks and acts in one step: nobody can take it in between.
const UnlessTaken Condition = 1

// Stats tells how a queue is doing: tasks by state, and counters. For its fields see package
// driver.
type Stats = driver.Stats

// Event is something that happened to a task.
type Event = driver.Event

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
)

const (
	// MaxPriority is the least urgent priority.
	MaxPriority = driver.MaxPriority

	// MaxDuration is the longest delay, time to live and time to run: a hundred years.
	MaxDuration = driver.MaxDuration

	// MaxBatch is how many tasks TakeBatch takes at most.
	MaxBatch = driver.MaxBatch

	// MaxName is the length in bytes of a queue's name and of a task's key, kind, unique key and
	// group.
	MaxName = driver.MaxName

	// MaxMetadata is the length in bytes of a task's metadata, all names and values together.
	MaxMetadata = driver.MaxMetadata
)
