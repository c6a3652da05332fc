package task

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/account"
	"github.com/fairq/fairq/internal/driver"
)

// notifier is the [driver.Notifier] of a [Queue].
type notifier struct {
	ending   // of the queue
	payload  reflect.Type
	inMemory bool // see driver.Notifier; it does not change once the queue is open
	backend  driver.Backend
	ctx      context.Context // done when the queue is over
	cancel   context.CancelFunc

	// The numbers of waiting callers, which are read without the lock. A caller adds itself before it
	// checks whether it must wait. A call that changes the queue reads the number afterwards. So at
	// least one of the two sees the other. Interest.Waiting is the sum of the numbers that addWaiting
	// changes, and Interest.Listening counts the readers of events and the contexts of leases.
	interest       driver.Interest
	takersWaiting  atomic.Int32
	puttersWaiting atomic.Int32
	awaiting       atomic.Int32  // calls of wait, in waits
	putting        atomic.Int32  // calls of Put that will read calling
	calling        atomic.Bool   // calls is not empty
	refused        atomic.Uint64 // calls of admit that found others waiting for room

	expiries expiries
	learned  account.Means
	learns   bool // Options.ShareTime

	// mu protects all fields that follow. No Backend is called under it.
	mu       sync.Mutex
	takers   takers
	putters  putters
	waits    map[ID][]chan error        // of callers that wait for a task to end
	contexts map[uint64][]*leaseContext // by lease
	readers  map[*reader]struct{}
	calls    []func()       // functions of Watches to call
	due      time.Time      // when Tick must be called; zero for never
	timer    chan struct{}  // wakes the goroutine that calls it; nil if it does not run
	running  sync.WaitGroup // that goroutine
}

func newNotifier(payload reflect.Type) *notifier {
	n := &notifier{
		payload: payload, waits: map[ID][]chan error{}, contexts: map[uint64][]*leaseContext{},
		readers: map[*reader]struct{}{},
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.putters.rooms = 1
	return n
}

// InMemory implements [driver.Notifier].
func (n *notifier) InMemory() reflect.Type {
	n.inMemory, n.putters.inMemory = true, true
	return n.payload
}

// Ready implements [driver.Notifier].
func (n *notifier) Ready(priority int, kind string) {
	if n.takersWaiting.Load() > 0 {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.takers.ready(priority, kind)
	}
}

// Look implements [driver.Notifier].
func (n *notifier) Look() {
	if n.takersWaiting.Load() > 0 || n.puttersWaiting.Load() > 0 {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.takers.look()
		if !n.inMemory { // there it makes no room: see Room
			n.putters.retryAll()
		}
	}
}

// Room implements [driver.Notifier].
func (n *notifier) Room(key string) {
	if n.puttersWaiting.Load() > 0 {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.putters.retry(key)
	}
}

// Event implements [driver.Notifier].
func (n *notifier) Event(e driver.Event) {
	if !n.interest.Listens() {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for r := range n.readers {
		r.add(e)
	}
	switch {
	case e.Lease == 0:
	case e.Type == EventDelete:
		n.endContextsLocked(e.Lease, taskDeleted{})
	case e.Type == EventCancel:
		n.endContextsLocked(e.Lease, ErrGroupCancelled)
	default:
		n.endContextsLocked(e.Lease, ErrLeaseLost)
	}
}

// Interest implements [driver.Notifier].
func (n *notifier) Interest() *driver.Interest { return &n.interest }

// addWaiting changes one of the numbers of waiting callers.
func (n *notifier) addWaiting(to *atomic.Int32, more int32) {
	to.Add(more)
	n.interest.Waiting.Add(more)
}

// Awaited implements [driver.Notifier].
func (n *notifier) Awaited() []ID {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Keys(n.waits))
}

// Ended implements [driver.Notifier].
func (n *notifier) Ended(id ID, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.waits[id] {
		c <- err
	}
	delete(n.waits, id)
}

// LearnedCost implements [driver.Notifier].
func (n *notifier) LearnedCost(key string) int64 {
	if !n.learns {
		return 0
	}
	return n.learned.Estimate(key, timeQuantum)
}

// Dropped implements [driver.Notifier].
func (n *notifier) Dropped() { n.stop(ErrDropped) }

// Due implements [driver.Notifier].
func (n *notifier) Due(at time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.over() != nil || !n.due.IsZero() && !at.Before(n.due) {
		return
	}
	n.due = at
	n.tickLocked()
}

// start sets the backend, which may have made reports before.
func (n *notifier) start(b driver.Backend) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.backend, n.takers.oneAtATime = b, n.inMemory
	n.tickLocked()
}

// tickLocked makes the goroutine call Tick when it is due.
func (n *notifier) tickLocked() {
	switch {
	case n.backend == nil || n.due.IsZero():
	case n.timer == nil:
		n.timer = make(chan struct{}, 1)
		wake := n.timer
		n.running.Go(func() { n.tick(wake) })
	default:
		select {
		case n.timer <- struct{}{}:
		default: // it has not seen the last signal yet
		}
	}
}

// retryTick is the time from a failed Tick to the next one.
const retryTick = time.Second

// tick calls Backend.Tick when it is due. It returns when no further call is due.
func (n *notifier) tick(wake <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for n.ctx.Err() == nil {
		n.mu.Lock()
		due := n.due
		if due.IsZero() {
			n.timer = nil
			n.mu.Unlock()
			return
		}
		n.mu.Unlock()
		// Do not receive from an overdue timer: in a bubble of testing/synctest two goroutines that
		// do so at once crash the race detector (go1.26).
		if wait := time.Until(due); wait > 0 {
			timer.Reset(wait)
			select {
			case <-n.ctx.Done():
				return
			case <-wake:
				continue
			case <-timer.C:
			}
		}
		n.mu.Lock()
		n.due = time.Time{}
		n.mu.Unlock()
		next, err := n.backend.Tick(n.ctx)
		if err != nil {
			next = time.Now().Add(retryTick)
		}
		n.mu.Lock()
		if !next.IsZero() && (n.due.IsZero() || next.Before(n.due)) {
			n.due = next
		}
		n.mu.Unlock()
	}
}

// stop ends the use of the queue, and wakes all waiting callers.
func (n *notifier) stop(why error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.over() != nil {
		return
	}
	n.why.Store(&why)
	n.cancel()
	for id, waits := range n.waits {
		for _, c := range waits {
			c <- why
		}
		delete(n.waits, id)
	}
	for lease := range n.contexts {
		n.endContextsLocked(lease, ErrLeaseLost)
	}
	n.takers.signalEnded(nil)
}

// admit returns an error if a task of a key cannot be put because the queue is over, or because
// callers that wait for room come first.
func (n *notifier) admit(key string) error {
	if n.puttersWaiting.Load() > 0 && n.putters.policy < fairq.EvictHeaviest {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.putters.policy == fairq.RejectOverShare && len(n.putters.blocked[key]) > 0 {
			// The key's share may have grown. Waiting callers come first, and in memory take no time.
			n.putters.retry(key)
			n.admitLocked(nil, n.backend.PutOne)
			return n.over()
		}
		if n.over() == nil && n.putters.waitQueue.Len() > 0 && n.putters.full != nil {
			n.refused.Add(1)
			return n.putters.full
		}
	}
	return n.over()
}

// wait waits until the task with a unique key ends.
func (n *notifier) wait(ctx context.Context, uniqueKey string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := n.over(); err != nil {
		return err
	}
	outcome, err := n.backend.Outcome(ctx, uniqueKey)
	if err != nil || outcome.Done {
		return cmp.Or(err, outcome.Err)
	}
	// Ended reports the end from now on, but the task may have ended before this.
	end := make(chan error, 1)
	n.mu.Lock()
	if n.over() != nil {
		n.mu.Unlock()
		return n.over()
	}
	n.waits[outcome.ID] = append(n.waits[outcome.ID], end)
	n.addWaiting(&n.awaiting, 1)
	n.mu.Unlock()
	defer func() {
		n.addWaiting(&n.awaiting, -1)
		n.mu.Lock()
		defer n.mu.Unlock()
		isEnd := func(c chan error) bool { return c == end }
		n.waits[outcome.ID] = slices.DeleteFunc(n.waits[outcome.ID], isEnd)
		if len(n.waits[outcome.ID]) == 0 {
			delete(n.waits, outcome.ID)
		}
	}()
	again, err := n.backend.Outcome(ctx, uniqueKey)
	switch {
	case again.ID == outcome.ID && again.Done:
		return again.Err
	case again.ID != outcome.ID || err != nil:
		// The outcome is not stored any more. If the task ended while the call waited, Ended has
		// sent the outcome; else nobody knows it.
		select {
		case err := <-end:
			return err
		default:
			return cmp.Or(err, ErrNotFound)
		}
	}
	select {
	case err := <-end:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// taskDeleted is the cause of a context whose lease has ended because the task is gone.
type taskDeleted struct{}

func (taskDeleted) Error() string   { return ErrLeaseLost.Error() + ": the task was deleted" }
func (taskDeleted) Unwrap() []error { return []error{ErrLeaseLost, ErrDeleted} }

// leaseContext is a context that ends with a lease.
type leaseContext struct{ end context.CancelCauseFunc }

// context returns a context that ends with a lease, and the function that cancels it.
func (n *notifier) context(
	parent context.Context, lease driver.Lease,
) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	c := &leaseContext{cancel}
	n.mu.Lock()
	if n.over() != nil {
		n.mu.Unlock()
		cancel(ErrLeaseLost)
		return ctx, func() {}
	}
	n.contexts[lease.Number] = append(n.contexts[lease.Number], c)
	n.interest.Listening.Add(1)
	n.mu.Unlock()
	if cause := n.endedBefore(ctx, lease); cause != nil {
		n.mu.Lock()
		n.endContextsLocked(lease.Number, cause)
		n.mu.Unlock()
		cancel(cause)
	}
	return ctx, func() {
		cancel(context.Canceled)
		n.mu.Lock()
		defer n.mu.Unlock()
		n.dropContextLocked(lease.Number, c)
	}
}

// endedBefore returns nil while a lease lasts. If the lease ended before its context was made, it
// returns the cause for that context.
func (n *notifier) endedBefore(ctx context.Context, lease driver.Lease) error {
	_, err := n.backend.Touch(ctx, lease, 0)
	switch {
	case errors.Is(err, ErrGroupCancelled):
		return ErrGroupCancelled
	case !errors.Is(err, ErrLeaseLost):
		return nil
	}
	if _, err = n.backend.Peek(ctx, lease.ID, ""); errors.Is(err, ErrNotFound) {
		return taskDeleted{}
	}
	return ErrLeaseLost
}

// endContextsLocked ends all contexts of a lease. It does so in other goroutines, because ending a
// context may call methods of its parent, which is the user's.
func (n *notifier) endContextsLocked(lease uint64, cause error) {
	for _, c := range n.contexts[lease] {
		go c.end(cause)
		n.interest.Listening.Add(-1)
	}
	delete(n.contexts, lease)
}

func (n *notifier) dropContextLocked(lease uint64, c *leaseContext) {
	all := n.contexts[lease]
	i := slices.Index(all, c)
	if i < 0 {
		return
	}
	n.interest.Listening.Add(-1)
	if len(all) == 1 {
		delete(n.contexts, lease)
		return
	}
	n.contexts[lease] = slices.Delete(all, i, i+1)
}
