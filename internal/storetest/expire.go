package storetest

import (
	"context"
	"errors"
	"sync"
	"testing/synctest"
	"time"

	"github.com/fairq/fairq/task"
)

// expired has the tasks that OnExpire got.
type expired struct {
	e     *env
	mu    sync.Mutex
	tasks []*task.Task[string]
}

// expiring returns options whose OnExpire keeps its tasks.
func (e *env) expiring() (options, *expired) {
	x := &expired{e: e}
	return options{OnExpire: func(t *task.Task[string]) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.tasks = append(x.tasks, t)
	}}, x
}

// got checks the tasks that OnExpire got since the last call.
func (x *expired) got(want string) []*task.Task[string] {
	x.e.Helper()
	synctest.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	equal(x.e, "given to OnExpire", payloads(x.tasks), want)
	tasks := x.tasks
	x.tasks = nil
	return tasks
}

var expireCases = []testCase{
	{"States", "gets the tasks, in any state, whose time to live or deadline is over", func(e *env) {
		o, x := e.expiring()
		q := e.open(o)
		q.one("b1", task.PutOptions{TTL: second})
		q.first("b1").bury()
		q.one("r1", by(2*second))
		q.one("d1", task.PutOptions{Deadline: time.Now().Add(3 * second), Delay: 4 * second})
		q.one("h1", task.PutOptions{TTL: 4 * second, Group: "g"})
		time.Sleep(2 * second)
		x.got("b1 r1")
		q.close()
		time.Sleep(time.Hour)
		e.open(o).none()
		x.got("d1 h1")
	}},
	{"Calls", "after they are gone", func(e *env) {
		var q *queue
		var errs error
		q = e.open(options{Capacity: 1, OnExpire: func(t *task.Task[string]) {
			_, err := q.Peek(ctx, t.ID)
			_, putErr := q.Put(ctx, "b", "b1", task.PutOptions{})
			if errs = errors.Join(errs, putErr); !errors.Is(err, task.ErrNotFound) {
				errs = errors.Join(errs, errors.New("the task is there"))
			}
		}})
		q.put("a1", by(second))
		time.Sleep(second)
		synctest.Wait()
		e.ok(errs)
		q.order("b1")
	}},
	{"Panics", "A panic of OnExpire is swallowed, and it gets the next task.", func(e *env) {
		var names string
		q := e.open(options{OnExpire: func(t *task.Task[string]) {
			names += t.Payload
			panic(errOops)
		}})
		q.put("a1 b1", by(second))
		time.Sleep(second)
		synctest.Wait()
		equal(e, "given to OnExpire", names, "a1b1")
	}},
	{"Close", "waits until Options.OnExpire has got all expired tasks", func(e *env) {
		hold, names := make(chan struct{}), ""
		q := e.open(options{OnExpire: func(t *task.Task[string]) {
			<-hold
			names += t.Payload
		}})
		q.put("a1 b1", by(second))
		q.put("c1", by(time.Hour))
		q.first("a1") // its lease ends with the Queue
		time.Sleep(second)
		synctest.Wait()
		q.stats() // nobody waits for OnExpire
		impatient, cancel := context.WithTimeout(ctx, second)
		defer cancel()
		e.is(q.Close(impatient), context.DeadlineExceeded)
		end := begin(e, func() (struct{}, error) { return struct{}{}, q.Close(ctx) })
		end.waits()
		hold <- struct{}{}
		end.waits()
		hold <- struct{}{}
		end.returns(nil)
		equal(e, "given to OnExpire", names, "b1a1")
	}},
}
