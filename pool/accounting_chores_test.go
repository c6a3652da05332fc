package pool_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

var choreKeys = []string{"a", "b", "c"}

// chore is the payload of a task in the random tests: what its attempts are to do, and what
// becomes of it. It is protected by ledger.mu.
type chore struct {
	id    int
	class *testClass
	plan  []act // of the attempts, one after the other; those after it do nothing but succeed
	put   pool.PutOptions
	key   string
	plain bool // it is for Submit
	waits bool // for Do

	offered     bool // the call has returned
	err         error
	task        task.ID // 0 if it is not known
	taken       int     // attempts so far, also those of rivals
	snoozed     int     // attempts that do not count
	at          int     // handlers that are at it
	last        act     // of the last attempt
	attempts    int     // at the last event
	over        bool    // the last attempt was the last one indeed
	dropped     bool    // a handler has deleted it
	acked       bool    // a handler, or a rival, has
	kicked      bool
	interrupted bool // the last attempt was, by Shutdown

	letters  []pool.DeadLetter[*chore]
	refusals []pool.Reason
	left     int // in Leftovers
}

func (c *chore) String() string {
	return fmt.Sprintf("chore %d of key %q in %q, task %d: %+v, plan %v, taken %d, last %v with "+
		"attempts %d, error %v, %d letters, refusals %v, left %d",
		c.id, c.key, c.class.name, c.task, c.put, c.plan, c.taken, c.last, c.attempts, c.err,
		len(c.letters), c.refusals, c.left)
}

// act is what an attempt does.
type act struct {
	how   string        // how it ends
	by    string        // how it passes the time before that
	lasts time.Duration // the time before
}

var (
	errChore = errors.New("could not do it")
	ends     = []string{
		"done", "done", "done", "fail", "fail", "permanent", "again", "snooze",
		"panic", "exit", "broken", "ack", "bury", "delete", "release",
	}
	pastimes  = []string{"none", "none", "sleep", "sleep", "ctx", "ctx"}
	nestTimes = []string{"yield", "both", "exit inside", "nested", "submit"}
)

func (l *ledger) newChore(r *rand.Rand, nested bool) *chore {
	c := &chore{class: l.classes[r.IntN(len(l.classes))], key: choreKeys[r.IntN(len(choreKeys))]}
	for range r.IntN(4) {
		a := act{
			how: ends[r.IntN(len(ends))], by: pastimes[r.IntN(len(pastimes))],
			lasts: time.Duration(r.IntN(60)) * time.Millisecond,
		}
		if r.IntN(20) == 0 {
			a.lasts *= 20
		}
		if l.nesting && !nested && r.IntN(4) == 0 {
			a.by = nestTimes[r.IntN(len(nestTimes))]
		}
		c.plan = append(c.plan, a)
	}
	o := &c.put
	o.Class, o.Kind, o.Priority = c.class.name, []string{"", "", "x", "y"}[r.IntN(4)], r.IntN(3)
	if r.IntN(4) == 0 {
		o.Delay = time.Duration(r.IntN(100)) * time.Millisecond
	}
	if r.IntN(6) == 0 {
		o.TTL = time.Duration(1+r.IntN(200)) * time.Millisecond
	}
	if r.IntN(6) == 0 {
		o.TTR = time.Duration(1+r.IntN(100)) * time.Millisecond
	}
	if r.IntN(6) == 0 {
		o.Deadline = time.Now().Add(time.Duration(r.IntN(300)-20) * time.Millisecond)
	}
	if r.IntN(4) == 0 {
		o.MaxAttempts = 1 + r.IntN(3)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c.id = len(l.chores)
	l.chores = append(l.chores, c)
	return c
}

func (l *ledger) produce(r *rand.Rand) {
	for range 5 + r.IntN(20) {
		ctx, cancel := context.WithTimeout(l.ctx, time.Duration(r.IntN(400))*time.Millisecond)
		how := []string{"submit", "put", "put", "try", "wait"}[r.IntN(5)]
		l.offer(ctx, l.newChore(r, false), how, r.IntN(2) == 0)
		cancel()
		if r.IntN(2) == 0 {
			time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond)
		}
	}
}

// offer submits a chore.
func (l *ledger) offer(ctx context.Context, c *chore, how string, uniqueKey bool) {
	var id task.ID
	var err error
	switch how {
	case "submit":
		l.mu.Lock()
		c.plain, c.class, c.key, c.put = true, l.classes[0], fmt.Sprint("s", c.id), pool.PutOptions{}
		l.mu.Unlock()
		err = l.p.Submit(ctx, c.key, c)
	case "wait":
		l.mu.Lock()
		c.waits, c.put.UniqueKey = true, fmt.Sprint("w", c.id)
		l.mu.Unlock()
		err = l.p.Do(ctx, c.key, c, c.put)
	case "try":
		id, err = l.p.TrySubmit(ctx, c.key, c, c.put)
	default:
		if uniqueKey {
			c.put.UniqueKey = fmt.Sprint("w", c.id)
		}
		id, err = l.p.Put(ctx, c.key, c, c.put)
	}
	l.put(c, id, err)
}

// put notes what came of submitting a chore.
func (l *ledger) put(c *chore, id task.ID, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.offered, c.err = true, err
	if id != 0 {
		c.task = id
	}
}

// handle is the handler of the pool.
func (l *ledger) handle(ctx context.Context, t *task.Task[*chore]) error {
	c := t.Payload
	a := l.begin(t)
	began := time.Now()
	defer l.end(c)
	l.pass(ctx, c, a)
	l.checkContext(ctx, t, began)
	how := a.how
	if err := ctx.Err(); a.by == "ctx" && err != nil && how != "done" {
		l.mu.Lock()
		c.interrupted = errors.Is(context.Cause(ctx), pool.ErrShutdown)
		l.mu.Unlock()
		return err
	}
	background := context.WithoutCancel(ctx)
	switch how {
	case "fail":
		return errChore
	case "permanent":
		return fmt.Errorf("no: %w", pool.Permanent(errChore))
	case "again":
		return errors.Join(errChore, pool.RetryAfter(a.lasts))
	case "snooze":
		l.mu.Lock()
		c.snoozed++
		l.mu.Unlock()
		return pool.Snooze(a.lasts)
	case "panic":
		panic(errChore)
	case "exit":
		runtime.Goexit()
	case "broken":
		return mistakenNil()
	case "ack":
		if insist(func() error { return t.Ack(background) }) == nil {
			l.note(&c.acked)
		}
	case "bury":
		_ = insist(func() error { return t.Bury(background, errChore) })
	case "delete":
		if l.p.Queue(c.class.name).Delete(background, t.ID) == nil {
			l.note(&c.dropped)
		}
		return errChore
	case "release":
		l.mu.Lock()
		c.at-- // from now on somebody else may have it
		l.mu.Unlock()
		_ = insist(func() error { return t.Release(background, a.lasts) })
	}
	return nil
}

// insist calls f until the store is there.
func insist(f func() error) (err error) {
	for err = f(); errors.Is(err, errStore); err = f() {
		time.Sleep(time.Millisecond)
	}
	return err
}

func (l *ledger) count(n *uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*n++
}

func (l *ledger) note(b *bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*b = true
}

// begin is called when a handler begins.
func (l *ledger) begin(t *task.Task[*chore]) (a act) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := t.Payload
	a = act{how: "done", by: "none"}
	if c.taken < len(c.plan) {
		a = c.plan[c.taken]
	}
	c.task, c.last, c.attempts, c.over = t.ID, a, t.Attempts, false
	c.taken++
	c.at++
	l.running++
	if l.most > 0 && l.running > l.most {
		l.Errorf("%d handlers run, where %d may", l.running, l.most)
	}
	if l.paused {
		l.Errorf("begun while the pool is paused: %v", c)
	}
	if !l.passes(t) {
		l.Errorf("kind %q and priority %d are taken, where the filter is %+v", t.Kind, t.Priority,
			l.options.Filter)
	}
	if !t.Info().Expires.IsZero() && !time.Now().Before(t.Info().Expires) ||
		!t.Info().Deadline.IsZero() && !time.Now().Before(t.Info().Deadline) {
		l.Errorf("begun after its time: %v", c)
	}
	steady := c.put.TTR == 0 && !c.kicked
	if steady && t.Attempts != c.taken-c.snoozed {
		l.Errorf("it says that this is attempt %d, but it is %d less %d: %v", t.Attempts, c.taken,
			c.snoozed, c)
	}
	if steady && c.at > 1 {
		l.Errorf("%d handlers at once: %v", c.at, c)
	}
	return a
}

func (l *ledger) end(c *chore) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running--
	if c.at > 0 {
		c.at--
	}
}

// pass passes the time of an attempt.
func (l *ledger) pass(ctx context.Context, c *chore, a act) {
	pause := func() { time.Sleep(a.lasts) }
	switch a.by {
	case "sleep":
		pause()
	case "ctx":
		select {
		case <-ctx.Done():
		case <-after(2 * a.lasts):
		}
	case "yield":
		l.away(func() { pool.Yield(ctx, func() { pool.Yield(ctx, pause) }) })
	case "exit inside":
		l.away(func() { pool.Yield(ctx, func() { pause(); runtime.Goexit() }) })
	case "both":
		l.away(func() {
			var both sync.WaitGroup
			for i := range 3 {
				both.Go(func() {
					for range 3 {
						pool.Yield(ctx, func() { time.Sleep(a.lasts * time.Duration(i+1) / 7) })
					}
				})
			}
			both.Wait()
		})
	case "nested", "submit":
		limited, cancel := context.WithTimeout(ctx, 3*a.lasts)
		defer cancel()
		l.mu.Lock()
		r := rand.New(rand.NewPCG(uint64(c.id), uint64(c.taken)))
		l.mu.Unlock()
		how := map[string]string{"nested": "wait", "submit": "put"}[a.by]
		l.away(func() { l.offer(limited, l.newChore(r, true), how, false) })
	}
}

// away calls what a handler does in Yield.
func (l *ledger) away(f func()) {
	l.mu.Lock()
	l.running--
	l.nested++
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.running++
		l.nested--
		if l.most > 0 && l.running > l.most && !l.forced {
			l.Errorf("%d handlers run after one came back, where %d may", l.running, l.most)
		}
	}()
	f()
}

// mistakenNil returns a nil pointer as an error. Its Error method panics.
func mistakenNil() error {
	var e *brokenError
	return e
}

// brokenError is an error whose nil pointer a handler returns by mistake.
type brokenError struct{ text string }

func (e *brokenError) Error() string { return e.text }
