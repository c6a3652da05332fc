package task

import (
	"context"
	"iter"
	"maps"
	"sync"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/driver"
)

// maxUnread is the greatest number of events that a reader may be behind.
const maxUnread = 1 << 16

// reader is a loop that reads events. It is protected by notifier.mu.
type reader struct {
	events fairq.Queue[struct{}, Event]
	missed uint64
	some   chan struct{}
}

func (r *reader) add(of driver.Event) {
	if r.events.Len() == maxUnread {
		r.events.Pop()
		r.missed++
	}
	e := Event{Type: of.Type, Time: of.Time, Task: Info(of.Task), Lease: of.Lease, Missed: of.Missed}
	e.Task.Metadata = maps.Clone(e.Task.Metadata) // because there are other readers
	r.events.Push(struct{}{}, e)
	select {
	case r.some <- struct{}{}:
	default:
	}
}

// next returns the next event, false if there is none.
func (r *reader) next() (e Event, ok bool) {
	if _, e, ok = r.events.Pop(); ok {
		e.Missed, r.missed = r.missed, 0
	}
	return e, ok
}

// events returns the events from now on.
func (n *notifier) events(ctx context.Context) iter.Seq[Event] {
	r := &reader{some: make(chan struct{}, 1)}
	n.mu.Lock()
	n.readers[r] = struct{}{}
	n.mu.Unlock()
	n.interest.Listening.Add(1)
	end := sync.OnceFunc(func() {
		n.interest.Listening.Add(-1)
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.readers, r)
	})
	stop := context.AfterFunc(ctx, end)
	return func(yield func(Event) bool) {
		defer end()
		defer stop()
		for {
			n.mu.Lock()
			e, ok := r.next()
			over := n.over() != nil
			n.mu.Unlock()
			switch {
			case ctx.Err() != nil || over && !ok:
				return
			case ok:
				if !yield(e) {
					return
				}
			default:
				select {
				case <-r.some:
				case <-n.ctx.Done():
				case <-ctx.Done():
				}
			}
		}
	}
}
