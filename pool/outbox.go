package pool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairq/fairq"
)

// outbox owns the dead letters of a pool, and their tasks, until the sink has taken them, and is
// the only caller of the sink. Letters wait in turns by key, so that a tenant whose tasks all fail
// delays nobody else's. There are at most as many senders as workers; a sender ends when no letter
// waits.
//
// post never waits, because the sink itself may call it. Workers and calls of Submit wait before
// they make more letters, see waitForRoom.
type outbox struct {
	set *workerSet

	mu        sync.Mutex // protects the fields below; no sink, store or Observer is called under it
	queue     *fairq.FairQueue[string, *outgoing]
	held      map[*outgoing]bool // all that wait, are being sent, or are being settled
	room      chan struct{}      // closed when there is room again; nil if there is
	senders   int
	sent      chan struct{} // closed when the last sender has ended; nil if there is none
	closed    bool          // letters were abandoned
	abandoned chan struct{} // closed when they were, and their tasks are settled
}

// outgoing is a letter on its way.
type outgoing struct {
	key    string
	send   func(ctx context.Context) error // calls the sink, if the pool still has the task
	settle func(refused error)             // called once; may end the goroutine

	taken atomic.Bool   // finish has begun
	done  chan struct{} // closed when it has ended
}

var (
	errNotSent       = fmt.Errorf("%w before the sink had the letter", ErrShutdown)
	errSinkAbandoned = fmt.Errorf("%w: the sink does not end", ErrShutdown)
	errSinkGoexit    = errors.New("pool: sink called runtime.Goexit")
)

// maxLetters is how many letters may be in hand before workers and calls of Submit wait.
const maxLetters = 256

// post hands a letter over.
func (o *outbox) post(l *outgoing) {
	o.mu.Lock()
	closed := o.closed
	o.held[l] = true
	if len(o.held) == maxLetters {
		o.room = make(chan struct{})
	}
	if !closed {
		_ = o.queue.Push(l) // it is unbounded
		if o.senders < o.set.base.Max {
			if o.senders++; o.senders == 1 {
				o.sent = make(chan struct{})
			}
			go o.sendAll()
		}
	}
	o.mu.Unlock()
	if closed {
		o.finish(l, errNotSent)
	}
}

// sendAll sends letters until none waits.
func (o *outbox) sendAll() {
	ended := false
	defer func() {
		if !ended { // the sink or the Observer has ended the goroutine
			go o.sendAll()
		}
	}()
	for !ended {
		if l, ok := o.queue.Pop(); ok {
			o.deliver(l)
			continue
		}
		o.mu.Lock()
		if ended = o.queue.Len() == 0; ended { // or post has counted on this sender
			o.senders--
			if o.senders == 0 {
				close(o.sent)
				o.sent = nil
			}
		}
		o.mu.Unlock()
	}
	o.set.notifyQuiet()
}

// deliver hands a letter to the sink, and settles its task by the result.
func (o *outbox) deliver(l *outgoing) {
	ctx, err := o.set.storeCtx, errSinkGoexit
	defer func() {
		if v := recover(); v != nil {
			err = newPanicError("the sink", v)
		}
		o.finish(l, safeError(err))
	}()
	switch {
	case ctx.Err() != nil: // Shutdown must not have to wait for yet another sink
		err = errNotSent
	case !l.taken.Load():
		err = l.send(ctx)
	}
}

// finish settles a letter that the sink has refused, or with a nil error has taken, unless another
// call has done that.
func (o *outbox) finish(l *outgoing, refused error) {
	if l.taken.Swap(true) {
		return
	}
	defer func() {
		close(l.done)
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.held, l)
		if o.room != nil && len(o.held) < maxLetters {
			close(o.room)
			o.room = nil
		}
	}()
	l.settle(refused)
}

// busy returns the number of senders.
func (o *outbox) busy() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.senders
}

// waitForRoom waits until there is room for more letters, or until either context is done.
func (o *outbox) waitForRoom(ctx, or context.Context) {
	o.mu.Lock()
	room := o.room
	o.mu.Unlock()
	if room == nil {
		return
	}
	select {
	case <-room:
	case <-ctx.Done():
	case <-or.Done():
	}
}

// wait waits until all letters are sent or abandoned.
func (o *outbox) wait() {
	o.mu.Lock()
	sent := o.sent
	o.mu.Unlock()
	if sent == nil {
		return
	}
	select {
	case <-sent:
	case <-o.abandoned:
	}
}

// giveUpAfter gives up in three steps when ctx is done. After one AbandonAfter it ends the
// contexts of sinks and stores, after two it abandons the letters, and after three it ends the
// settling of their tasks.
func (o *outbox) giveUpAfter(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		for i, end := range []func(){o.set.cancelStore, o.abandon, o.set.cancelSettle} {
			time.AfterFunc(time.Duration(i+1)*o.set.abandonAfter, end)
		}
	})
}

// abandon settles all letters that no sink has taken so far as refused, whatever the sinks do.
func (o *outbox) abandon() {
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return
	}
	defer close(o.abandoned)
	o.closed = true
	sent := o.sent
	held := slices.Collect(maps.Keys(o.held))
	o.mu.Unlock()
	var all sync.WaitGroup
	stuck := false
	for _, l := range held {
		stuck = stuck || !l.taken.Load()
		all.Go(func() {
			o.finish(l, errSinkAbandoned)
			<-l.done
		})
	}
	all.Wait()
	if sent != nil && !stuck {
		<-sent
	}
}
