package driver

import (
	"context"
	"reflect"
	"sync/atomic"
	"time"
)

// Notifier is what a [Backend] tells a task.Queue by what happens. None of its methods waits for
// anything or runs code of the user's, so they may be called with a lock held, as long as no call
// of a Backend needs that lock to return from a Notifier. The order of calls is the order in which
// the Queue takes things to have happened. They may be called by any goroutine at any time, also
// before Open returns.
type Notifier interface {
	// InMemory is called by a Store in Open, if it keeps queues in the memory of this process: its
	// calls take next to no time, and payloads stay what they are, for the Queue does not encode
	// them. It returns their type, on which all that have the queue open must agree.
	InMemory() reflect.Type

	// Ready says that one more task can be taken, of that priority and kind.
	Ready(priority int, kind string)

	// Look says that there may be any number of tasks that can be taken, and any room, that were
	// not there before.
	Look()

	// Room says that a task of that key is gone.
	Room(key string)

	// Admit puts the tasks of those who wait for room as long as there is some. A Store in memory
	// calls it before it gives up its lock, if it has called Room since it has it; put is PutOne
	// for one who has the lock. Other Stores need not: there those who wait call PutOne.
	Admit(put func(context.Context, New) (ID, *Record, error))

	// Event says what happened to a task, for those who observe the queue. Lease must be set if
	// one has ended by it, and for EventCancel. A Backend may leave out what was done by other
	// processes, but not the end of a lease that a consumer of this Queue held (EventDelete if the
	// task is gone by the time it sees that), nor EventCancel if one holds it.
	Event(e Event)

	// Interest tells who wants to know what happens. It is the same each time.
	Interest() *Interest

	// Awaited returns the tasks whose end somebody waits for, nil if there are none.
	Awaited() []ID

	// Ended says how a task with a unique key ended; see Outcome.
	Ended(id ID, err error)

	// LearnedCost returns what a task of that key costs as far as is known, 0 if costs are not
	// learned. A Store in memory asks when it gives a turn for a task whose New.Learned is set.
	LearnedCost(key string) int64

	// WantsExpired tells whether Expired does anything. If it does not, a Backend need not call
	// it, nor read what it would tell.
	WantsExpired() bool

	// Expired says that a task is gone because its time to live or its deadline has ended, in
	// whatever state. Each such task must be told to one Queue only, of all that have the queue
	// open: by a Store in memory to the first one that was opened of those that want it, by a
	// Store that several processes share to one in the process that removes the task. The order of
	// calls is that in which the tasks have expired.
	Expired(r Record)

	// Dropped says that the queue was dropped.
	Dropped()

	// Due says that Backend.Tick must be called at that time, if not sooner.
	Due(at time.Time)
}

// Interest is who wants to know what happens to a queue. It is not a matter of methods of a
// [Notifier], because a Store in memory looks at it in each call.
type Interest struct {
	Listening atomic.Int32 // how many want Event to be called; see Listens
	Waiting   atomic.Int32 // how many wait for something; see Waits
}

// Listens tells whether Notifier.Event does anything. If it does not, a Backend need not call it,
// nor find out what it would tell.
func (i *Interest) Listens() bool { return i.Listening.Load() > 0 }

// Waits tells whether somebody waits for something that another process might do: a Backend need
// not look for it otherwise, but for what Event must tell if Listens is true, nor call Ready, Look
// and Room. Who begins to wait calls a method of the Backend after that is so.
func (i *Interest) Waits() bool { return i.Waiting.Load() > 0 }
