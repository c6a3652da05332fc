package pool

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// SubmitWait is Put, and waits for the outcome: nil if the task was done; if it failed for good a [*task.Error], which also wraps the
// handler's error if it was this pool that ran it. If ctx is done first it returns its error; the task stays in the queue, unless
// it is put with CancelWithContext. Called by a handler of the pool, it gives the place back meanwhile, as [Yield] does.
func (p *Pool[V]) SubmitWait(ctx context.Context, key string, payload V, options PutOptions) error {
	c, err := p.lines.class(options.Class)
	if err != nil {
		return err
	}
	if options.UniqueKey == "" {
		options.UniqueKey = rand.Text()
	}
	follows := options.CancelWithContext
	options.CancelWithContext = false // it is done here, without a goroutine
	c.failures.expect(options.UniqueKey)
	defer c.failures.forget(options.UniqueKey)
	p.yield(ctx, new(submission), func() { // Put may wait for room, that is, for others too
		var id task.ID
		if id, err = p.Put(ctx, key, payload, options); err != nil {
			return
		}
		if err = fairq.ErrFull; id != 0 {
			err = c.queue.Wait(ctx, options.UniqueKey)
			if follows && err != nil && ctx.Err() != nil {
				p.cancelTask(c, id)
			}
			if p.open.Err() != nil && (isOver(err) || errors.Is(err, task.ErrDeleted)) {
				err = ErrShutdown // it is left over
			}
			err = c.failures.explain(options.UniqueKey, id, err)
		}
	})
	return err
}

// follow cancels a task when the context is done with which it was submitted.
func (p *Pool[V]) follow(ctx context.Context, c *class[V], uniqueKey string, id task.ID) {
	if ctx.Done() == nil {
		return
	}
	p.following.Go(func() {
		waiting, stop := context.WithCancel(p.followed) // not from ctx, which may have a transaction
		defer stop()
		defer context.AfterFunc(ctx, stop)()
		err := c.queue.Wait(waiting, uniqueKey)
		var failed *task.Error
		if err == nil || errors.As(err, &failed) || errors.Is(err, task.ErrDeleted) || errors.Is(err, task.ErrExpired) || isOver(err) {
			return
		}
		<-waiting.Done() // the store may have been away
		if ctx.Err() != nil {
			p.cancelTask(c, id)
		}
	})
}

// cancelTask removes a task, wherever it is, and if it is gone, does nothing. If a handler runs, the lease is lost, so that its context is done,
// in whatever process that is.
func (p *Pool[V]) cancelTask(c *class[V], id task.ID) {
	err := c.queue.Delete(p.steady, id)
	if err != nil && !errors.Is(err, task.ErrNotFound) && !isOver(err) {
		p.log.Warn("pool: a task could not be cancelled", about(c.name, &task.Info{ID: id}, err)...)
	}
}

// failures keeps why tasks with unique keys have failed for good in this process, for those in SubmitWait: a queue keeps no more
// than the text. It knows those unique keys only that somebody waits for.
type failures struct {
	mu sync.Mutex // protects by
	by map[string]*failure
}

// failure is why the last task with a unique key has failed for good.
type failure struct {
	waiting int // calls of SubmitWait
	task    task.ID
	err     error
}

func (f *failures) expect(uniqueKey string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.by == nil {
		f.by = map[string]*failure{}
	}
	if f.by[uniqueKey] == nil {
		f.by[uniqueKey] = new(failure)
	}
	f.by[uniqueKey].waiting++
}

func (f *failures) forget(uniqueKey string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.by[uniqueKey].waiting--; f.by[uniqueKey].waiting == 0 {
		delete(f.by, uniqueKey)
	}
}

// record is called with a task that has failed for good, before its queue knows.
func (f *failures) record(t *task.Info, err error) {
	if t.UniqueKey == "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if failed := f.by[t.UniqueKey]; failed != nil {
		failed.task, failed.err = t.ID, err
	}
}

// explain returns the outcome of a task, with the error that it is the outcome of, if that is known.
func (f *failures) explain(uniqueKey string, id task.ID, outcome error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	failed := f.by[uniqueKey]
	if recorded, ok := errors.AsType[*task.Error](outcome); ok && failed.task == id {
		return &failedError{recorded, failed.err}
	}
	return outcome
}

// failedError is what SubmitWait returns of a task that has failed in this process.
type failedError struct {
	recorded *task.Error
	cause    error
}

func (e *failedError) Error() string   { return e.recorded.Error() }
func (e *failedError) Unwrap() []error { return []error{e.recorded, e.cause} }
