package task

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task/driver"
)

// putters are the goroutines that wait for room, in rounds by key. The first one in the wait queue
// tries to put its task when it gets there, and again whenever a task has gone. One whose key has
// as many tasks as it may is blocked: it leaves the wait queue until a task of the key has gone,
// and then takes a new turn. With RejectOverShare more than one of a key may have room then, so
// each that is admitted has the next one try.
//
// If tasks are in memory, the call that makes room puts those of the wait queue before it gives up
// the lock, see Admit. The room that is left after that is there for newcomers at once: they need
// not wait for goroutines that were admitted and have not run yet.
type putters struct {
	waitQueue fairq.Queue[string, *putter]
	blocked   map[string][]*putter
	rooms     uint64 // how often there may have come to be room
	policy    fairq.WhenFull
	inMemory  bool
	full      error // what newcomers are told while somebody waits; nil if they may try
}

// putter is a goroutine that waits for room.
type putter struct {
	ctx     context.Context
	task    driver.New
	ticket  fairq.Ticket // in putters.waitQueue
	rooms   uint64       // putters.rooms as of when it was tried last; 0 if it was not
	wake    chan struct{}
	trying  bool // a goroutine puts its task just now
	done    bool // it has left the wait queue, for that put has returned what follows
	id      ID
	evicted *driver.Record
	err     error
	leaving bool // it does not want to wait any more
}

func (w *putter) signal() {
	select {
	case w.wake <- struct{}{}:
	default: // there is a signal that it has not seen yet
	}
}

func (p *putters) join(w *putter) {
	if p.waitQueue.Len() == 0 {
		p.full = nil // those whom it was about are gone
	}
	w.ticket = p.waitQueue.Add(w.task.Key, w)
}

func (p *putters) block(w *putter) {
	if p.blocked == nil {
		p.blocked = map[string][]*putter{}
	}
	p.blocked[w.task.Key] = append(p.blocked[w.task.Key], w)
}

// rejoin puts the first one of a key that is blocked back into the wait queue.
func (p *putters) rejoin(key string) {
	if blocked := p.blocked[key]; len(blocked) > 0 {
		p.join(blocked[0])
		p.unblock(key, 0)
	}
}

func (p *putters) unblock(key string, i int) {
	if p.blocked[key] = slices.Delete(p.blocked[key], i, i+1); len(p.blocked[key]) == 0 {
		delete(p.blocked, key)
	}
}

// retry has the first one in the wait queue try, after one of the key that was blocked has joined
// it.
func (p *putters) retry(key string) {
	p.rooms++
	p.rejoin(key)
	p.wakeFirst()
}

// retryAll is retry for all keys.
func (p *putters) retryAll() {
	for key := range p.blocked {
		p.rejoin(key)
	}
	p.rooms++
	p.wakeFirst()
}

// wakeFirst makes the first one in the wait queue try. In memory others try for it.
func (p *putters) wakeFirst() {
	if _, first, ok := p.waitQueue.Peek(); ok && !p.inMemory {
		first.signal()
	}
}

// leave takes one out, wherever it is. If it was blocked before, the room for which it joined the
// wait queue is there for the next one of its key.
func (p *putters) leave(w *putter) {
	if _, ok := p.waitQueue.Remove(w.ticket); ok {
		p.rejoin(w.task.Key)
	} else if i := slices.Index(p.blocked[w.task.Key], w); i >= 0 {
		p.unblock(w.task.Key, i)
	}
	p.rooms++
	p.wakeFirst()
}

// tried does what follows from the result of the first one's try.
func (p *putters) tried(w *putter) {
	switch {
	case errors.Is(w.err, fairq.ErrKeyFull):
		p.waitQueue.Remove(w.ticket)
		p.block(w)
		p.wakeFirst()
	case errors.Is(w.err, fairq.ErrFull):
		p.full = w.err
	case w.err != nil:
		w.done = true
		p.leave(w)
	default:
		w.done = true
		if p.waitQueue.Pop(); p.policy == fairq.RejectOverShare {
			p.rejoin(w.task.Key)
		}
		p.wakeFirst()
	}
}

// put puts a task that was refused, or has another goroutine put it, as soon as there is room.
func (n *notifier) put(ctx context.Context, task *driver.New, refused error) (_ ID, _ *driver.Record, err error) {
	cancelled := ctx.Done()
	n.addWaiting(&n.puttersWaiting, 1)
	n.mu.Lock()
	defer n.mu.Unlock()
	w := &putter{ctx: ctx, task: *task, wake: make(chan struct{}, 1)}
	n.putters.join(w)
	if errors.Is(refused, fairq.ErrKeyFull) {
		n.countLocked(1)
	} else {
		n.putters.full = refused
		n.countLocked(math.MaxInt)
	}
	for err == nil && !w.done {
		if n.admitLocked(w, n.backend.PutOne); !w.done {
			if err = n.over(); err == nil {
				err = n.sleepLocked(ctx, cancelled, w.wake)
			}
		}
	}
	for w.leaving = true; w.trying; { // a put that has begun cannot be taken back
		n.mu.Unlock()
		<-w.wake
		n.mu.Lock()
	}
	if w.done {
		return w.id, w.evicted, w.err
	}
	n.withdrawLocked(w)
	n.admitLocked(nil, n.backend.PutOne)
	return 0, nil, err
}

// withdrawLocked takes one out of the wait queue that was not admitted.
func (n *notifier) withdrawLocked(w *putter) {
	n.putters.leave(w)
	n.addWaiting(&n.puttersWaiting, -1)
}

// Admit implements [driver.Notifier].
func (n *notifier) Admit(put func(context.Context, driver.New) (ID, *driver.Record, error)) {
	if n.puttersWaiting.Load() > 0 && n.inMemory {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.admitLocked(nil, put)
	}
}

// admitLocked puts the task of the first one in the wait queue, and then of the next, as long as
// there may be room. If a put takes time, each goroutine puts only its own. If another one is
// putting the first task just now, that one looks at it again.
func (n *notifier) admitLocked(own *putter, put func(context.Context, driver.New) (ID, *driver.Record, error)) {
	p := &n.putters
	for n.over() == nil {
		_, w, ok := p.waitQueue.Peek()
		if !ok || w.trying || w.rooms == p.rooms || w != own && !n.inMemory {
			return
		}
		w.rooms, w.trying = p.rooms, true
		n.unlocked(func() { w.id, w.evicted, w.err = put(w.ctx, w.task) }, func() {
			if w.trying = false; w == own {
				n.withdrawLocked(w)
			}
		})
		w.trying = false
		if w.rooms == p.rooms || !errors.Is(w.err, fairq.ErrFull) { // else there may be room by now
			p.tried(w)
		}
		if w.done {
			n.addWaiting(&n.puttersWaiting, -1)
		}
		if w != own && (w.done || w.leaving) {
			w.signal()
		}
	}
}
