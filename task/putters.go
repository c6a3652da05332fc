package task

import (
	"context"
	"errors"
	"slices"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task/driver"
)

// putters are those who wait for room, in rounds by key. The first one in line tries to put its
// task when it gets there, and again whenever a task has gone. One whose key has as many tasks as
// it may is barred until a task of the key has gone, and then takes a new turn in line. With
// RejectOverShare more than one of a key may have room then, so each that was let in has the next
// one try.
//
// If the queue is in memory, whoever makes room tries for those in line before it lets others in,
// see Admit, and so what room is left then is there for newcomers at once: these need not wait for
// goroutines that were let in and have not run yet.
type putters struct {
	line     fairq.Queue[string, *putter]
	barred   map[string][]*putter
	rooms    uint64 // how often there may have been room
	policy   fairq.WhenFull
	inMemory bool
	full     error     // what newcomers are told while there is a line; nil if they may try
	spare    []*putter // to be used again
}

// putter is a goroutine that waits for room.
type putter struct {
	ctx     context.Context
	task    driver.New
	ticket  fairq.Ticket // in the line
	rooms   uint64       // putters.rooms as of when it was tried last; 0 if it was not
	wake    chan struct{}
	trying  bool // somebody puts its task just now
	done    bool // it is in line no more, for that has returned what follows
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
	if p.line.Len() == 0 {
		p.full = nil // those whom it was about are gone
	}
	w.ticket = p.line.Add(w.task.Key, w)
}

func (p *putters) bar(w *putter) {
	if p.barred == nil {
		p.barred = map[string][]*putter{}
	}
	p.barred[w.task.Key] = append(p.barred[w.task.Key], w)
}

// roomOf lets one of a key that was barred get into line.
func (p *putters) roomOf(key string) {
	if barred := p.barred[key]; len(barred) > 0 {
		p.join(barred[0])
		p.unbar(key, 0)
	}
}

func (p *putters) unbar(key string, i int) {
	if p.barred[key] = slices.Delete(p.barred[key], i, i+1); len(p.barred[key]) == 0 {
		delete(p.barred, key)
	}
}

// room lets the first one in line try, and one of the key that was barred get into line.
func (p *putters) room(key string) {
	p.rooms++
	p.roomOf(key)
	p.rouse()
}

// look lets the first one in line try, and the first one of each key that was barred get into
// line.
func (p *putters) look() {
	for key := range p.barred {
		p.roomOf(key)
	}
	p.rooms++
	p.rouse()
}

// rouse makes the first one in line try. In memory others try for him.
func (p *putters) rouse() {
	if _, first, ok := p.line.Peek(); ok && !p.inMemory {
		first.signal()
	}
}

// leave takes one out, wherever it is. The room for which it got into line, if it was barred, is
// the next one's.
func (p *putters) leave(w *putter) {
	if _, ok := p.line.Remove(w.ticket); ok {
		p.roomOf(w.task.Key)
	} else if i := slices.Index(p.barred[w.task.Key], w); i >= 0 {
		p.unbar(w.task.Key, i)
	}
	p.rooms++
	p.rouse()
}

// tried says what one in line was told.
func (p *putters) tried(w *putter) {
	switch {
	case errors.Is(w.err, fairq.ErrKeyFull):
		p.line.Remove(w.ticket)
		p.bar(w)
		p.rouse()
	case errors.Is(w.err, fairq.ErrFull):
		p.full = w.err
	case w.err != nil:
		w.done = true
		p.leave(w)
	default:
		w.done = true
		if p.line.Pop(); p.policy == fairq.RejectOverShare {
			p.roomOf(w.task.Key)
		}
		p.rouse()
	}
}

// sparePutters is how many putters are kept to be used again.
const sparePutters = 64

// enter puts one into line that was refused.
func (p *putters) enter(ctx context.Context, task *driver.New, refused error) *putter {
	w := &putter{}
	if n := len(p.spare); n > 0 {
		w, p.spare = p.spare[n-1], p.spare[:n-1]
	} else {
		w.wake = make(chan struct{}, 1)
	}
	w.ctx, w.task = ctx, *task
	if p.join(w); !errors.Is(refused, fairq.ErrKeyFull) {
		p.full = refused
	}
	return w
}

// put puts a task that was refused, or has others put it, as soon as there is room.
func (n *notifier) put(ctx context.Context, task *driver.New, refused error) (id ID, evicted *driver.Record, err error) {
	cancelled := ctx.Done()
	n.puttersWaiting.Add(1)
	n.mu.Lock()
	defer n.mu.Unlock()
	p := &n.putters
	w := p.enter(ctx, task, refused)
	n.countLocked(1)
	for err == nil && !w.done {
		if n.letInLocked(w, n.backend.PutOne); !w.done {
			if err = n.end; err == nil {
				err = n.sleepLocked(ctx, cancelled, w.wake)
			}
		}
	}
	for w.leaving = true; w.trying; { // what is let in at the same moment cannot be taken back
		n.mu.Unlock()
		<-w.wake
		n.mu.Lock()
	}
	if w.done {
		id, evicted, err = w.id, w.evicted, w.err
	} else {
		n.withdrawLocked(w)
		n.letInLocked(nil, n.backend.PutOne)
	}
	select {
	case <-w.wake:
	default:
	}
	if *w = (putter{wake: w.wake}); len(p.spare) < sparePutters {
		p.spare = append(p.spare, w)
	}
	return id, evicted, err
}

// withdrawLocked takes one out of line that was not let in.
func (n *notifier) withdrawLocked(w *putter) {
	n.putters.leave(w)
	n.puttersWaiting.Add(-1)
}

// Admit implements [driver.Notifier].
func (n *notifier) Admit(put func(context.Context, driver.New) (ID, *driver.Record, error)) {
	if n.puttersWaiting.Load() > 0 && n.inMemory {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.letInLocked(nil, put)
	}
}

// letInLocked puts the task of the first one in line, and then of the next, as long as that may
// help. If it takes time, each puts only its own. One that somebody else is putting just now is
// looked at again by him.
func (n *notifier) letInLocked(own *putter, put func(context.Context, driver.New) (ID, *driver.Record, error)) {
	p := &n.putters
	for n.end == nil {
		_, w, ok := p.line.Peek()
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
			n.puttersWaiting.Add(-1)
		}
		if w != own && (w.done || w.leaving) {
			w.signal()
		}
	}
}
