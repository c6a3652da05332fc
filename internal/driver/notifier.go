package driver

import (
	"context"
	"reflect"
	"sync/atomic"
	"time"
)

// Notifier receives the reports of a [Backend] for a task.Queue. Its methods do not wait and run
// no code of the user's. So a Backend may call them with a lock held, unless that lock could keep
// such a call from returning. The Queue takes the order of the calls for the order of events. All
// methods are safe for concurrent use, even before Open returns.
type Notifier interface {
	// InMemory is called in Open by a Store that keeps queues in the memory of this process. Its
	// calls are fast, and the Queue does not encode payloads for it. InMemory returns the type of
	// the payloads, which must be the same for all that have the queue open.
	InMemory() reflect.Type

	// Ready reports that one more task of that priority and kind can be taken.
	Ready(priority int, kind string)

	// Look reports that there may be any number of new tasks that can be taken, and any new room.
	Look()

	// Room reports that a task of that key is gone.
	Room(key string)

	// Admit puts the tasks of callers that wait for room, while there is room. A Store in memory
	// that has called Room calls Admit before it releases its lock; put is PutOne with the lock
	// held. Other Stores need not call it: there the waiting callers call PutOne.
	Admit(put func(context.Context, New) (ID, *Record, error))

	// Event reports an event of a task to the observers of the queue. Lease must be set if the event
	// has ended one, and for EventCancel. A Backend may leave out events of other processes, with two
	// exceptions: the end of a lease that a consumer of this Queue held (EventDelete if the task is
	// already gone), and the EventCancel of a task that such a consumer holds.
	Event(e Event)

	// Interest returns the numbers of listeners and waiters. It is the same each time.
	Interest() *Interest

	// Awaited returns the tasks for whose end callers wait, nil if there are none.
	Awaited() []ID

	// Ended reports the end of a task with a unique key; see Outcome.
	Ended(id ID, err error)

	// LearnedCost returns the learned cost of a task of that key, 0 if costs are not learned. A
	// Store in memory asks when it gives out a task whose New.Learned is set.
	LearnedCost(key string) int64

	// WantsExpired reports whether Expired has an effect. If not, a Backend need not call it, nor
	// read the tasks for it.
	WantsExpired() bool

	// Expired reports that a task, in any state, is gone because its time to live or its deadline is
	// over. A Store must report each such task to one Queue only. In memory that is the first opened
	// Queue that wants it, and in a shared Store a Queue of the process that removes the task. The
	// order of calls is the order in which the tasks have expired.
	Expired(r Record)

	// Dropped reports that the queue was dropped.
	Dropped()

	// Due makes the Queue call Backend.Tick at that time, or earlier.
	Due(at time.Time)
}

// Interest has the numbers of listeners and waiters of a queue. They are fields, and not methods
// of a [Notifier], because a Store in memory reads them in each call.
type Interest struct {
	Listening atomic.Int32 // listeners for Event; see Listens
	Waiting   atomic.Int32 // callers that wait; see Waits
}

// Listens reports whether Notifier.Event has an effect. If not, a Backend need not call it, nor
// find out what happened.
func (i *Interest) Listens() bool { return i.Listening.Load() > 0 }

// Waits reports whether a caller waits for a change that another process might make. If not, a
// Backend need not call Ready, Look and Room, and need not look for such changes. (If Listens is
// true, it must still look for the events that Event must report.) A caller that begins to wait
// calls a method of the Backend after Waits has become true.
func (i *Interest) Waits() bool { return i.Waiting.Load() > 0 }
