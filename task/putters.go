package task

import (
	"context"
	"errors"
	"slices"

	"github.com/fairq/fairq"
)

// putters are those who wait for room, in rounds by key. The first one in line tries to put its
// task when it gets there, and again whenever a task has gone. One whose key has as many tasks as
// it may is barred until a task of the key has gone, and then takes a new turn in line. With
// RejectOverShare more than one of a key may have room then, so each that was let in has the next
// one try.
//
// If the queue is in memory, whoever makes room tries for those in line before its call returns,
// and so what room is left then is there for newcomers at once: these need not wait for goroutines
// that were let in and have not run yet.
type putters struct {
	line   fairq.Queue[string, *putter]
	barred map[string][]*putter
	rooms  uint64 // how often there may have been room
	policy fairq.WhenFull
	full   error // what the first one in line was told last, nil if none was told anything: what newcomers are told, too
}

// putter is a goroutine that waits for room.
type putter struct {
	key    string
	try    func() error
	ticket fairq.Ticket // in the line
	rooms  uint64       // putters.rooms as of when it was tried last; 0 if it was not
	wake   chan struct{}
	done   bool // it is in line no more, for try has returned err
	err    error
}

func (w *putter) signal() {
	select {
	case w.wake <- struct{}{}:
	default: // there is a signal that it has not seen yet
	}
}

func (p *putters) join(w *putter) { w.ticket = p.line.Add(w.key, w) }

func (p *putters) bar(w *putter) {
	if p.barred == nil {
		p.barred = map[string][]*putter{}
	}
	p.barred[w.key] = append(p.barred[w.key], w)
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

// rouse makes the first one in line try.
func (p *putters) rouse() {
	if _, first, ok := p.line.Peek(); ok {
		first.signal()
	}
}

// leave takes one out, wherever it is. The room for which it got into line, if it was barred, is
// the next one's.
func (p *putters) leave(w *putter) {
	if _, ok := p.line.Remove(w.ticket); ok {
		p.roomOf(w.key)
	} else if i := slices.Index(p.barred[w.key], w); i >= 0 {
		p.unbar(w.key, i)
	}
	p.rooms++
	p.rouse()
}

// tried says what the first one in line was told.
func (p *putters) tried(w *putter, err error) {
	switch {
	case errors.Is(err, fairq.ErrKeyFull):
		p.line.Remove(w.ticket)
		p.bar(w)
		p.rouse()
	case errors.Is(err, fairq.ErrFull):
		p.full = err
	case err != nil:
		w.done, w.err = true, err
		p.leave(w)
	default:
		w.done = true
		if p.line.Pop(); p.policy == fairq.RejectOverShare {
			p.roomOf(w.key)
		}
		p.rouse()
	}
}

// waitsForRoom counts one more who waits for room, or one less.
func (n *notifier) waitsForRoom(more int32) {
	n.puttersWaiting.Add(more)
	if more > 0 && n.counting.Load() > 0 {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.countLocked(1)
	}
}

// put calls try, or has others call it, until there is room, and in between waits until there may
// be.
func (n *notifier) put(ctx context.Context, key string, try func() error) error {
	cancelled := ctx.Done()
	n.waitsForRoom(1)
	defer n.waitsForRoom(-1)
	w := &putter{key: key, try: try, wake: make(chan struct{}, 1)}
	n.mu.Lock()
	n.putters.join(w)
	n.mu.Unlock()
	for {
		n.letInOwn(w)
		n.mu.Lock()
		err := n.end
		if err == nil && !w.done {
			err = n.sleepLocked(ctx, cancelled, w.wake)
		}
		done := w.done
		n.mu.Unlock()
		switch {
		case done:
			return w.err
		case err != nil:
			return n.giveUp(w, err)
		}
	}
}

// giveUp takes a putter out of line that does not want to wait any more, and returns why, unless
// it was let in at the same moment: that cannot be undone.
func (n *notifier) giveUp(w *putter, why error) error {
	if n.inMemory { // else nobody tries for others
		n.trying.Lock()
		defer n.trying.Unlock()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if w.done {
		return w.err
	}
	n.putters.leave(w)
	return why
}

// letIn tries for those who wait for room, if that takes no time. It is called by whoever may have
// made some.
func (n *notifier) letIn() {
	if n.puttersWaiting.Load() > 0 && n.inMemory {
		n.letInOwn(nil)
	}
}

// letInOwn tries for the first one in line, and then for the next, as long as that may help. If it
// takes time, each tries only for itself.
func (n *notifier) letInOwn(own *putter) {
	if n.inMemory {
		n.trying.Lock()
		defer n.trying.Unlock()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	p := &n.putters
	for n.end == nil {
		_, w, ok := p.line.Peek()
		if !ok || w.rooms == p.rooms || w != own && !n.inMemory {
			return
		}
		w.rooms = p.rooms
		var err error
		n.unlocked(func() { err = w.try() }, func() { p.leave(w) })
		if w.rooms != p.rooms && errors.Is(err, fairq.ErrFull) {
			continue // there may be room by now
		}
		if p.tried(w, err); w.done && w != own {
			w.signal()
		}
	}
}
