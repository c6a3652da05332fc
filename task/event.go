package task

import (
	"context"
	"iter"
	"strconv"
	"sync"
	"time"

	"github.com/fairq/fairq"
)

// EventType says what happened to a task.
type EventType uint8

// The events.
const (
	EventPut     EventType = iota + 1
	EventTake              // it was taken
	EventAck               // it is done, and gone
	EventRelease           // it was handed back: it is ready or delayed, or EventBury follows
	EventBury              // it is buried
	EventKick              // it was buried, and is not any more
	EventDelete            // it was deleted, discarded, truncated, or cancelled with its group, and is gone
	EventTTL               // its time to live or its deadline has ended, and it is gone
	EventTTR               // its lease ran out: it is ready, or EventBury follows
	EventTouch             // its lease was extended
	EventDelay             // its delay has ended, and it is ready
	EventStart             // its group does not hold it any more
	EventEvict             // it made room for another one, and is gone
	EventResume            // its consumer was resumed, and holds it by another lease
)

var eventNames = [...]string{
	EventPut: "put", EventTake: "take", EventAck: "ack", EventRelease: "release", EventBury: "bury", EventKick: "kick",
	EventDelete: "delete", EventTTL: "ttl", EventTTR: "ttr", EventTouch: "touch", EventDelay: "delay", EventStart: "start",
	EventEvict: "evict", EventResume: "resume",
}

// String returns the event's name in lower case.
func (t EventType) String() string {
	if int(t) < len(eventNames) && t > 0 {
		return eventNames[t]
	}
	return "EventType(" + strconv.Itoa(int(t)) + ")"
}

// Event is something that happened to a task.
type Event struct {
	Type   EventType
	Time   time.Time
	Task   Info   // after the event; State is as before if the task is gone, or if another event follows at once
	Lease  uint64 // the lease that ended; 0 if none did
	Missed uint64 // how many events before this one were dropped because the reader was too slow
}

// mostEvents is how many events a reader may be behind.
const mostEvents = 1 << 16

// reader is somebody who reads events. It is protected by Notifier.mu.
type reader struct {
	events fairq.Queue[struct{}, Event]
	missed uint64
	some   chan struct{}
}

func (r *reader) add(e Event) {
	if r.events.Len() == mostEvents {
		r.events.Pop()
		r.missed++
	}
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

// events returns what happens from now on.
func (n *Notifier) events(ctx context.Context) iter.Seq[Event] {
	r := &reader{some: make(chan struct{}, 1)}
	n.mu.Lock()
	n.readers[r] = struct{}{}
	n.mu.Unlock()
	n.listening.Add(1)
	end := sync.OnceFunc(func() {
		n.listening.Add(-1)
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
			over := n.end != nil
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
