package rows

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/life"
)

// Line is a key in a priority. The ready tasks of a line have turns in the order of their places.
type Line struct {
	Key      string
	Priority int
}

// Compare compares lines by priority, and then by key.
func (l Line) Compare(other Line) int {
	return cmp.Or(l.Priority-other.Priority, cmp.Compare(l.Key, other.Key))
}

// Queue is a row of the table of queues.
type Queue struct {
	ID       uint64
	Settings []byte
}

// Row is a task. If a Ready task that is not InLine becomes Taken, that Put changes only the
// fields that [Row.SetTaken] sets.
type Row struct {
	ID          uint64
	Key         string
	Kind        string
	UniqueKey   string // "" means none, as for Group
	Role        driver.Role
	Priority    int // changes only in a Put by which it is Taken no more
	Weight      int
	Cost        int64 // at least 1
	Payload     []byte
	TTR         time.Duration
	MaxAttempts int
	Created     int64
	Deadline    int64
	Metadata    string // as JSON; "" means none

	// The following fields change.

	Group    string
	State    driver.State
	Takeable bool   // it is in the index of ready tasks
	InLine   bool   // if Ready or Taken: its line has its turn, or had it: see Turn
	Round    uint64 // the round of its turn, or of its last used turn; 0 without one
	Used     uint64 // the part of the share of that round that its line has used before it
	Gap      bool   // the turn of the next task of its line may be too late
	Returned bool   // it was handed back with its turn
	Untried  bool   // see life.Task
	Place    uint64 // its place among the tasks of its key
	Since    uint64 // a number of its change of state; the number of its lease if Taken
	Consumer uint64 // that holds it, if it is taken
	Follower uint64 // its follower, if it is taken; see life.Task.Replace. 0 in a new row
	Attempts int
	ReadyAt  int64
	Until    int64
	Expires  int64
	Latest   int64 // see life.Task
	Wake     int64 // the time of its next due change, 0 for never
	Err      *driver.Error

	// Was is the State with which the row was last read or written, 0 if the row is new. Calls sets
	// it. A driver may have to find the index entries of the old row. Such a driver keeps the old row
	// itself, because a row can have several copies, and another copy may have been written since.
	Was driver.State
}

// SetTaken sets the fields that change when a task that was Ready becomes Taken.
func (r *Row) SetTaken(to *Row) {
	r.State, r.Takeable, r.Since = to.State, to.Takeable, to.Since
	r.Consumer, r.Attempts, r.Until, r.Wake = to.Consumer, to.Attempts, to.Until, to.Wake
}

// Count updates the numbers of tasks by state, and of all tasks at 0, when one task goes from one
// state to another. from is 0 for a new task, and to is 0 for a task that leaves.
func Count(tasks *[driver.Held + 1]int, from, to driver.State) {
	if from != 0 {
		tasks[from]--
		tasks[0]--
	}
	if to != 0 {
		tasks[to]++
		tasks[0]++
	}
}

// Key is a row of the table of keys. A key has a row if it is paused, waits or has limits of its
// own, or if it has a rate and its bucket is not full. In queues that count by key, each key with
// tasks has a row too.
type Key struct {
	Key    string
	Tasks  [driver.Held + 1]int // by state, and all at 0
	Paused bool
	Limits *driver.KeyLimits // its own, which never change; nil if it has none
	life.Wait
	Oldest int64 // not in the table: the least Created of those Ready or Delayed, from KeyStats
}

// IsHeld reports whether no task of the key is to be taken, because the key is paused or waits.
func (k *Key) IsHeld() bool { return k.Paused || k.Waits }

// MayWait reports whether the key counts in Head.PausedKeys. It does if a call has paused it or
// made it wait, or if it has a rate of its own.
func (k *Key) MayWait() bool {
	return k.Paused || k.Hold != 0 || k.Limits != nil && k.Limits.Rate.Limit > 0
}

// LimitsText returns the limits of a key as JSON, "" for nil.
func LimitsText(l *driver.KeyLimits) string {
	if l == nil {
		return ""
	}
	text, err := json.Marshal(l)
	if err != nil {
		panic(err) // there is nothing in it that cannot be written
	}
	return string(text)
}

// ParseLimits returns the limits that LimitsText has turned into a text.
func ParseLimits(text string) (l *driver.KeyLimits, err error) {
	if text != "" {
		err = json.Unmarshal([]byte(text), &l)
	}
	return l, err
}

// Turn is a row of the table of turns, in a queue with lines: see lines.go. It is the turn of a
// line for its tasks of one kind, or the turn of one task that was handed back.
type Turn struct {
	Line
	Kind     string
	Task     uint64 // the task that was handed back, else 0
	Round    uint64
	Used     uint64 // as in Row
	Place    uint64 // that of its first task
	Leads    bool   // its first task is the first of the line, or was handed back
	Takeable bool   // it is in an index of turns
}

// Served is a row of the table of served lines, in a queue whose tasks have costs. A line has a
// row if it has used parts of later rounds. The row has the account of the line after the last
// task that was taken: see package account.
type Served struct {
	Line
	Round uint64
	Used  uint64
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
	Name string
	life.Group
}

// Outcome is a row of the table of outcomes: how a task with a unique key ended.
type Outcome struct {
	UniqueKey string
	ID        uint64
	Result    Result
	Err       *driver.Error // if Result is Failed
	Until     int64         // not 0
	Written   uint64        // the driver's, for View.Ended; Put does not copy it
}

// Ended is a row of the history: a task that has left a queue whose store keeps a history. No two
// rows have the same ID.
type Ended struct {
	ID                uint64
	Key, Kind         string
	UniqueKey         string
	Payload           []byte
	Attempts          int
	Created, Finished int64
	Result            Result
	Err               *driver.Error
	Until             int64 // when it is forgotten
}

// Result is the kind of a task's end.
type Result uint8

// The results.
const (
	Acked Result = iota
	Failed
	Deleted
	Expired
	Dropped
)
