package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing/synctest"
	"time"

	"github.com/fairq/fairq/task"
)

// crowd is goroutines that put and take tasks. Each task must be done once, and never be with two
// of them at a time.
type crowd struct {
	e       *env
	q       *queue
	wg      sync.WaitGroup
	over    context.Context // when all tasks are done
	end     context.CancelFunc
	serial  bool
	tasks   int
	mu      sync.Mutex
	running map[string]int // by key if they are serial, else by payload
	done    map[string]bool
}

func (e *env) crowd(o options, tasks int) *crowd {
	c := &crowd{
		e: e, q: e.open(o), serial: o.MaxInFlightPerKey == 1, tasks: tasks, running: map[string]int{},
		done: map[string]bool{},
	}
	c.over, c.end = context.WithCancel(ctx)
	return c
}

// pause lets some time pass, or none.
func pause() {
	if n := rand.IntN(4); n > 0 {
		time.Sleep(time.Duration(n*n) * time.Microsecond)
	}
}

// impatient returns a context that ends soon, perhaps at once, perhaps just when something
// happens.
func (c *crowd) impatient() (context.Context, context.CancelFunc) {
	if rand.IntN(3) == 0 {
		ctx, cancel := context.WithCancel(c.over)
		go cancel()
		return ctx, cancel
	}
	return context.WithTimeout(c.over, time.Duration(rand.IntN(20))*time.Microsecond)
}

// put puts tasks.
func (c *crowd) put(who, n int, put func(key, payload string) error) {
	c.wg.Go(func() {
		for i := range n {
			pause()
			name := fmt.Sprintf("%c%d-%d", 'a'+rand.IntN(5), who, i)
			if err := put(name[:1], name); err != nil {
				c.e.Errorf("put: %v", err)
				return
			}
		}
	})
}

// enter says that a task is being worked on, and whether it may.
func (c *crowd) enter(t *task.Task[string], by int) {
	name := t.Payload
	if c.serial {
		name = t.Key
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running[name] += by
	if c.running[name] > 1 {
		c.e.Errorf("%q is running twice at the same time", name)
	}
	if c.done[t.Payload] {
		c.e.Errorf("task %q was taken again after it was done", t.Payload)
	}
}

// finish says that a task is being done.
func (c *crowd) finish(t *task.Task[string]) {
	c.enter(t, -1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done[t.Payload] = true
	if len(c.done) == c.tasks {
		c.end()
	}
}

// take takes tasks until all are done. It acks some of them, and gives up the others in one way or
// another.
func (c *crowd) take() {
	c.wg.Go(func() {
		for c.over.Err() == nil {
			consumer := c.q.NewConsumer(task.Filter{})
			for range rand.IntN(5) {
				c.some(consumer)
			}
			if err := consumer.Close(ctx); err != nil {
				c.e.Errorf("Close: %v", err)
			}
			pause()
		}
	})
}

// some takes a few tasks. What it leaves is handed back when the consumer is closed.
func (c *crowd) some(consumer *task.Consumer[string]) {
	ctx, cancel := c.impatient()
	defer cancel()
	tasks := make([]*task.Task[string], 1)
	var err error
	switch rand.IntN(3) {
	case 0:
		if tasks[0], _, err = consumer.TryTake(ctx); tasks[0] == nil {
			tasks = nil
		}
	case 1:
		if tasks[0], err = consumer.Take(ctx); err != nil {
			tasks = nil
		}
	default:
		tasks, err = consumer.TakeBatch(ctx, 3)
	}
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		c.e.Errorf("take: %v", err)
	}
	for _, t := range tasks {
		c.enter(t, 1)
		pause()
		err = nil
		switch rand.IntN(5) {
		case 0:
			c.enter(t, -1)
			err = t.Release(context.Background(), 0)
		case 1:
			c.enter(t, -1)
			err = t.Fail(context.Background(), errOops, time.Microsecond)
		case 2:
			c.enter(t, -1)
		default:
			c.finish(t)
			err = t.Ack(context.Background())
		}
		if err != nil {
			c.e.Errorf("task %q: %v", t.Payload, err)
		}
	}
}

// wait waits until all is over, and checks that nothing is left.
func (c *crowd) wait() {
	c.e.Helper()
	for i := 0; c.over.Err() == nil && i < 1000; i++ {
		time.Sleep(time.Millisecond)
	}
	c.end()
	c.wg.Wait()
	synctest.Wait()
	equal(c.e, "tasks done", len(c.done), c.tasks)
	s := c.q.stats()
	equal(c.e, "puts, acks, tasks left", [3]uint64{s.Puts, s.Acks, uint64(s.Len())},
		[3]uint64{uint64(c.tasks), uint64(c.tasks), 0})
	equal(c.e, "WaitingPut and WaitingTake", [2]int{s.WaitingPut, s.WaitingTake}, [2]int{0, 0})
}

var concurrentCases = []testCase{
	{"Crowd", "Nothing is lost ... A context that ends loses nothing. ... With 1, a key's tasks " +
		"are done strictly one after the other", func(e *env) {
		for _, o := range []options{
			{}, {Capacity: 7, KeyCapacity: 3}, {Capacity: 20, MaxInFlightPerKey: 1},
		} {
			c := e.crowd(o, 320)
			for i := range 8 {
				c.put(i, 40, func(key, payload string) error {
					for {
						ctx, cancel := c.impatient()
						_, err := c.q.PutWait(ctx, key, payload, task.PutOptions{})
						cancel()
						if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) ||
							c.over.Err() != nil {
							return err
						}
						time.Sleep(time.Microsecond)
					}
				})
			}
			for range 8 {
				c.take()
			}
			c.wait()
			e.ok(c.q.Drop(ctx))
		}
	}},
	{"Settle", "A lease ends with Ack, Release, Snooze, Return, Fail, HoldKey, " +
		"Repeat, Bury or Discard", func(e *env) {
		q := e.open()
		for range 50 {
			q.put("a1")
			all := ends(q.first("a1").Task, time.Hour)
			delete(all, "Touch")
			errs := make(chan error)
			for _, settle := range all {
				go func() { errs <- settle(ctx) }()
			}
			ended := 0
			for range all {
				if err := <-errs; err == nil {
					ended++
				} else {
					e.is(err, task.ErrLeaseLost)
				}
			}
			equal(e, "calls that ended the lease", ended, 1)
			q.truncate()
			q.resumeKey("a")
		}
	}},
}
