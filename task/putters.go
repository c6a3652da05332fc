package task

import (
	"context"
	"errors"
	"slices"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task/driver"
)

// putters are those who wait for room, in rounds by key. One whose key has as many tasks as it may is barred until a task of the
// key has gone, and then takes a new turn in line.
type putters struct {
	line   fairq.Queue[string, *putter]
	barred map[string][]*putter
}

// putter is a goroutine that waits for room.
type putter struct {
	key    string
	ticket fairq.Ticket // in the line
	wake   chan struct{}

	// Of one that waits for a Memory, which puts the task and says what came of it:
	task   *driver.New
	id     ID
	victim *driver.Record
	err    error
	next   *putter // that was let in at the same time
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

// leave takes one out, and tells whether it was there. The room for which it got into line, if it was barred, is the next
// one's.
func (p *putters) leave(w *putter) bool {
	if _, ok := p.line.Remove(w.ticket); ok {
		p.roomOf(w.key)
		return true
	}
	i := slices.Index(p.barred[w.key], w)
	if i >= 0 {
		p.unbar(w.key, i)
	}
	return i >= 0
}

// triers are the putters of a Store that cannot put their tasks by itself when there is room: the first one in line tries when
// it gets there and whenever a task has gone; once it is admitted, the next one does.
type triers struct {
	putters
	rooms uint64 // calls of room and look
	full  error  // what the first one in line was told last, nil if none was told anything: what newcomers are told, too
}

// room lets the first one in line try, and one of the key that was barred get into line.
func (p *triers) room(key string) {
	p.rooms++
	p.roomOf(key)
	p.rouse()
}

// look lets the first one in line try, and the first one of each key that was barred get into line.
func (p *triers) look() {
	for key := range p.barred {
		p.roomOf(key)
	}
	p.rooms++
	p.rouse()
}

// isFirst tells whether it is the first one in line.
func (p *triers) isFirst(w *putter) bool {
	_, first, _ := p.line.Peek()
	return first == w
}

// rouse makes the first one in line try.
func (p *triers) rouse() {
	if _, first, ok := p.line.Peek(); ok {
		select {
		case first.wake <- struct{}{}:
		default: // there is a signal that it has not seen yet
		}
	}
}

// giveUp takes one out, wherever it is.
func (p *triers) giveUp(w *putter) {
	if p.leave(w) {
		p.rooms++
		p.rouse()
	}
}

// tried says what the first one in line was told.
func (p *triers) tried(w *putter, err error) (done bool) {
	switch {
	case errors.Is(err, fairq.ErrKeyFull):
		p.line.Remove(w.ticket)
		p.bar(w)
		p.rouse()
		return false
	case errors.Is(err, fairq.ErrFull):
		p.full = err
		return false
	case err != nil:
		p.giveUp(w)
		return true
	}
	p.line.Pop()
	p.rouse()
	return true
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

// put calls try until there is room, and in between waits until there may be.
func (n *notifier) put(ctx context.Context, key string, try func() error) error {
	done := ctx.Done()
	n.trying.Add(1)
	defer n.trying.Add(-1)
	n.waitsForRoom(1)
	defer n.waitsForRoom(-1)
	w := &putter{key: key, wake: make(chan struct{}, 1)}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.triers.join(w)
	for {
		if n.end != nil {
			n.triers.giveUp(w)
			return n.end
		}
		if n.triers.isFirst(w) {
			rooms := n.triers.rooms
			var err error
			n.unlocked(func() { err = try() }, func() { n.triers.giveUp(w) })
			if rooms != n.triers.rooms && errors.Is(err, fairq.ErrFull) {
				continue
			}
			if n.triers.tried(w, err) {
				return err
			}
		}
		if err := n.sleepLocked(ctx, done, w.wake); err != nil {
			n.triers.giveUp(w)
			return err
		}
	}
}
