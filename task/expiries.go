package task

import (
	"context"
	"sync"
)

// expiries hands tasks that have expired to Options.OnExpire, one after the other, in a goroutine that runs as long as there
// are any.
type expiries struct {
	wanted bool // there is an OnExpire

	// mu protects all that follows. OnExpire is not called under it.
	mu      sync.Mutex
	line    []Record
	handOut func(*Record) // nil until the queue is open
	done    chan struct{} // closed when the goroutine ends; nil if it does not run
}

// WantsExpired tells whether Expired does anything. If it does not, a Backend need not call it, nor read what it would tell.
func (n *Notifier) WantsExpired() bool { return n.expiries.wanted }

// Expired says that a task is gone because its time to live or its deadline has ended, in whatever state. Each such task must
// be told to one Queue only, of all that have the queue open: by a Memory to the first one that was opened of those that want
// it, by a Store that several processes share to one in the process that removes the task. The order of calls is that in which
// the tasks have expired.
func (n *Notifier) Expired(r Record) {
	if n.expiries.wanted {
		n.expiries.add(r)
	}
}

func (x *expiries) add(r Record) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.line = append(x.line, r)
	x.runLocked()
}

// start says how tasks are handed out. There may be some already.
func (x *expiries) start(handOut func(*Record)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.handOut = handOut
	x.runLocked()
}

// runLocked sees to it that the goroutine runs if there is something to do.
func (x *expiries) runLocked() {
	if x.done == nil && x.handOut != nil && len(x.line) > 0 {
		x.done = make(chan struct{})
		go x.run()
	}
}

func (x *expiries) run() {
	over := false
	defer func() {
		if !over { // OnExpire has ended the goroutine, as runtime.Goexit does
			go x.run()
		}
	}()
	for !over {
		over = !x.next()
	}
}

// next hands out the first task. If there is none, it returns false.
func (x *expiries) next() bool {
	x.mu.Lock()
	if len(x.line) == 0 {
		x.line = nil
		close(x.done)
		x.done = nil
		x.mu.Unlock()
		return false
	}
	r := x.line[0]
	x.line[0] = Record{}
	x.line = x.line[1:]
	x.mu.Unlock()
	_ = guard("Options.OnExpire", func() { x.handOut(&r) }) // there is nobody who could be told
	return true
}

// wait waits until all that has expired by now has been handed out, or returns the error of ctx if that is done first.
func (x *expiries) wait(ctx context.Context) error {
	x.mu.Lock()
	done := x.done
	x.mu.Unlock()
	if done == nil {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
