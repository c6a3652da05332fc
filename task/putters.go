package task

import (
	"context"
	"errors"
	"slices"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/driver"
)

// putters are the goroutines that wait for room, in rounds by key. The first putter in the wait
// queue tries to put its task when it becomes first, and again whenever a task is gone. A putter
// whose key is at its limit is blocked: it leaves the wait queue until a task of the key is gone,
// and then takes a new turn. With RejectOverShare several putters of a key may have room then, so
// each admitted putter lets the next one of its key try.
//
// If tasks are in memory, the call that makes room puts the tasks of the wait queue before it
// releases the lock, see Admit. Newcomers can use the rest of the room at once: they need not wait
// for admitted goroutines that have not run yet.
type putters struct {
	waitQueue fairq.Queue[string, *putter]
	blocked   map[string][]*putter
	rooms     uint64 // the number of times that there may have been new room
	policy    fairq.WhenFull
	inMemory  bool
	full      error // the error for newcomers while putters wait; nil if they may try
}

// putter is a goroutine that waits for room.
type putter struct {
	ctx     context.Context
	task    driver.New
	ticket  fairq.Ticket // in putters.waitQueue
	rooms   uint64       // putters.rooms at its last try; 0 before the first
	wake    chan struct{}
	trying  bool // a goroutine is putting its task
	done    bool // it has left the wait queue, because its put has returned id, evicted and err
	id      ID
	evicted *driver.Record
	err     error
	leaving bool // its goroutine has stopped waiting
}

func (w *putter) signal() {
	select {
	case w.wake <- struct{}{}:
	default: // it has not seen the last signal yet
	}
}

func (p *putters) join(w *putter) {
	if p.waitQueue.Len() == 0 {
		p.full = nil // all putters that it was about have left
	}
	w.ticket = p.waitQueue.Add(w.task.Key, w)
}

func (p *putters) block(w *putter) {
	if p.blocked == nil {
		p.blocked = map[string][]*putter{}
	}
	p.blocked[w.task.Key] = append(p.blocked[w.task.Key], w)
}

// rejoin puts the first blocked putter of a key back into the wait queue.
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

// retry makes the first putter in the wait queue try, after the first blocked one of the key has
// joined it.
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

// wakeFirst wakes the first putter in the wait queue to try. In memory other calls try for it.
func (p *putters) wakeFirst() {
	if _, first, ok := p.waitQueue.Peek(); ok && !p.inMemory {
		first.signal()
	}
}

// leave takes a putter out of the wait queue or the blocked ones. If it is in the wait queue
// because its key got room, the next blocked putter of the key can have that room.
func (p *putters) leave(w *putter) {
	if _, ok := p.waitQueue.Remove(w.ticket); ok {
		p.rejoin(w.task.Key)
	} else if i := slices.Index(p.blocked[w.task.Key], w); i >= 0 {
		p.unblock(w.task.Key, i)
	}
	p.rooms++
	p.wakeFirst()
}

// handleTry handles the result of the try of the first putter.
func (p *putters) handleTry(w *putter) {
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

// put puts a refused task as soon as there is room, or waits until another goroutine has put it.
func (n *notifier) put(
	ctx context.Context, task *driver.New, refused error,
) (_ ID, _ *driver.Record, err error) {
	cancelled := ctx.Done()
	n.addWaiting(&n.puttersWaiting, 1)
	n.mu.Lock()
	defer n.mu.Unlock()
	w := &putter{ctx: ctx, task: *task, wake: make(chan struct{}, 1)}
	n.putters.join(w)
	if !errors.Is(refused, fairq.ErrKeyFull) {
		n.putters.full = refused
	}
	for err == nil && !w.done {
		if n.admitLocked(w, n.backend.PutOne); !w.done {
			if err = n.over(); err == nil {
				err = n.sleepLocked(ctx, cancelled, w.wake)
			}
		}
	}
	for w.leaving = true; w.trying; { // a put that has begun cannot be undone
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

// withdrawLocked takes out a putter that was not admitted.
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

// admitLocked puts the task of the first putter in the wait queue, and then of the next, while
// there may be room. If a put takes time, each goroutine puts only its own task. If another
// goroutine is putting the first task, that goroutine checks for new room afterwards.
func (n *notifier) admitLocked(
	own *putter, put func(context.Context, driver.New) (ID, *driver.Record, error),
) {
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
		// a new number of rooms means that the put may succeed now
		if w.rooms == p.rooms || !errors.Is(w.err, fairq.ErrFull) {
			p.handleTry(w)
		}
		if w.done {
			n.addWaiting(&n.puttersWaiting, -1)
		}
		if w != own && (w.done || w.leaving) {
			w.signal()
		}
	}
}
