package task

import (
	"context"
	"sync"

	"github.com/fairq/fairq/internal/driver"
)

// expiries hands tasks that have expired to Options.OnExpire, one after the other, in a goroutine
// that runs as long as there are any.
type expiries struct {
	wanted bool // there is an OnExpire

	// mu protects all fields that follow. OnExpire is not called under it.
	mu      sync.Mutex
	records []driver.Record
	handOut func(*driver.Record) // nil until the queue is open
	done    chan struct{}        // closed when the goroutine ends; nil if it does not run
}

// WantsExpired implements [driver.Notifier].
func (n *notifier) WantsExpired() bool { return n.expiries.wanted }

// Expired implements [driver.Notifier].
func (n *notifier) Expired(r driver.Record) {
	if n.expiries.wanted {
		n.expiries.add(r)
	}
}

func (x *expiries) add(r driver.Record) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.records = append(x.records, r)
	x.runLocked()
}

// start sets the function that hands out tasks. There may be some already.
func (x *expiries) start(handOut func(*driver.Record)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.handOut = handOut
	x.runLocked()
}

// runLocked starts the goroutine if it does not run and has tasks to hand out.
func (x *expiries) runLocked() {
	if x.done == nil && x.handOut != nil && len(x.records) > 0 {
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
	if len(x.records) == 0 {
		x.records = nil
		close(x.done)
		x.done = nil
		x.mu.Unlock()
		return false
	}
	r := x.records[0]
	x.records[0] = driver.Record{}
	x.records = x.records[1:]
	x.mu.Unlock()
	_ = guard("Options.OnExpire", func() { x.handOut(&r) }) // no caller could get the error
	return true
}

// wait waits until all tasks that have expired so far are handed out, or returns the error of ctx
// if that is done first.
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
