package storetest

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// ctx is never done.
var ctx = context.Background()

const second = time.Second

// ages is longer than anything else. It is not longer still because a store may have something to
// do again and again.
const ages = 3 * time.Hour

// soon is the time within which processes that share a store see each other's changes, if they
// have to look for them.
const soon = time.Minute

// env is what a case runs in.
type env struct {
	*testing.T
	store    task.Store
	reopener Reopener // store, in cases for a Reopener
	reopened bool     // store was reopened
	killed   bool     // store was killed
	skipped  string   // why the case was skipped
}

// skip ends the case, which is not for this store. A skip in a bubble does not count as a skip
// outside.
func (e *env) skip(why string) {
	e.skipped = why
	e.SkipNow()
}

func (e *env) ok(err error) {
	e.Helper()
	if err != nil {
		e.Fatalf("error: %v", err)
	}
}

// is checks that a call returned the error that it should.
func (e *env) is(err, want error) {
	e.Helper()
	if !errors.Is(err, want) {
		e.Fatalf("the error is: %v; it should be: %v", err, want)
	}
}

// equal checks a value.
func equal[T any](e *env, what string, got, want T) {
	e.Helper()
	if !reflect.DeepEqual(got, want) {
		e.Fatalf("%s: %v; it should be %v", what, got, want)
	}
}

// at checks that a time is that long after start.
func (e *env) at(what string, got, start time.Time, after time.Duration) {
	e.Helper()
	if !got.Equal(start.Add(after)) {
		e.Fatalf("%s: %v; it should be %v after %v", what, got, after, start)
	}
}

// options are the Options of a queue of strings.
type options = task.Options[string]

// modes has Options for each way in which a store may keep tasks in order.
var modes = []options{
	{},
	{KeepPlace: true},
	{MaxInFlightPerKey: 1},
	{Quantum: 1},
	{KeyCapacity: 1 << 20},
	{KeepPlace: true, MaxInFlightPerKey: 1, Quantum: 1},
}

// each runs a case in queues with some Options, one after the other.
func (e *env) each(all []options, f func(q *queue)) {
	e.Helper()
	for _, o := range all {
		q := e.open(o)
		f(q)
		e.ok(q.Drop(ctx))
	}
}

// queue is a queue whose tasks have keys of one letter, which their payloads begin with.
type queue struct {
	*task.Queue[string]
	taker
	ticks *ticks
}

// open opens the queue that most cases need one of. It is closed when the case ends.
func (e *env) open(o ...options) *queue {
	e.Helper()
	return e.openIn(e.store, "queue", o...)
}

func (e *env) openIn(store task.Store, name string, o ...options) *queue {
	e.Helper()
	ticks := new(ticks)
	tasks, err := task.Open(ctx, watched{store, ticks}, name, &append(o, options{})[0])
	e.ok(err)
	q := &queue{tasks, taker{e, tasks}, ticks}
	e.Cleanup(func() {
		if err := q.Close(ctx); err != nil && !(e.killed && store == e.store) {
			e.Errorf("Close: %v", err)
		}
		synctest.Wait()
	})
	e.Cleanup(func() {
		if !e.Failed() && !(e.killed && store == e.store) {
			q.addsUp()
			q.idles()
		}
	})
	return q
}

// put puts tasks, such as "a1 b1", all with the same options.
func (q *queue) put(tasks string, o ...task.PutOptions) (ids []task.ID) {
	q.e.Helper()
	for name := range strings.FieldsSeq(tasks) {
		id, err := q.Put(ctx, name[:1], name, append(o, task.PutOptions{})[0])
		q.e.ok(err)
		ids = append(ids, id)
	}
	return ids
}

// one puts one task.
func (q *queue) one(name string, o task.PutOptions) task.ID {
	q.e.Helper()
	return q.put(name, o)[0]
}

// many puts n tasks of key a in one transaction.
func (q *queue) many(n int, o task.PutOptions) []task.ID {
	q.e.Helper()
	ids, err := q.PutBatch(ctx,
		slices.Repeat([]task.Entry[string]{{Key: "a", Payload: "a1", Options: o}}, n))
	q.e.ok(err)
	return ids
}

// refuses checks that a task cannot be put.
func (q *queue) refuses(name string, o task.PutOptions, want error) {
	q.e.Helper()
	before := q.stats()
	id, err := q.Put(ctx, name[:1], name, o)
	q.e.is(err, want)
	equal(q.e, "id", id, 0)
	equal(q.e, "tasks after a Put that was refused", q.stats().Len(), before.Len())
}

func (q *queue) stats() task.Stats {
	q.e.Helper()
	s, err := q.Stats(ctx)
	q.e.ok(err)
	s.Conflicts = 0 // they are the store's own affair
	return s
}

// counts checks how many tasks are ready, delayed, taken, buried and held.
func (q *queue) counts(ready, delayed, taken, buried, held int) {
	q.e.Helper()
	s := q.stats()
	equal(q.e, "tasks ready, delayed, taken, buried, held",
		[]int{s.Ready, s.Delayed, s.Taken, s.Buried, s.Held}, []int{ready, delayed, taken, buried, held})
}

// addsUp checks that no task is forgotten or counted twice, unless the queue has been closed or
// dropped.
func (q *queue) addsUp() {
	q.e.Helper()
	s, err := q.Stats(ctx)
	if errors.Is(err, task.ErrClosed) || errors.Is(err, task.ErrDropped) {
		return
	}
	q.e.ok(err)
	if !q.e.reopened { // what other processes did is not counted
		equal(q.e, "Puts, and what has become of them", s.Puts,
			uint64(s.Len())+s.Acks+s.Deletes+s.Expiries+s.Evicted)
	}
	keys, err := q.KeyStats(ctx, 1000, fairq.ByBacklog)
	q.e.ok(err)
	var backlog, taken, buried, used int
	for _, k := range keys {
		backlog, taken, buried = backlog+k.Backlog, taken+k.Taken, buried+k.Buried
		if k.Backlog+k.Taken+k.Buried > 0 {
			used++
		}
	}
	equal(q.e, "the sum of KeyStats", []int{backlog, taken, buried},
		[]int{s.Ready + s.Delayed + s.Held, s.Taken, s.Buried})
	equal(q.e, "Stats.Keys", s.Keys, used)
}

func (q *queue) peek(id task.ID) *task.Task[string] {
	q.e.Helper()
	t, err := q.Peek(ctx, id)
	q.e.ok(err)
	return t
}

// state checks the state of some tasks.
func (q *queue) state(want task.State, ids ...task.ID) {
	q.e.Helper()
	for _, id := range ids {
		equal(q.e, "state", q.peek(id).Info().State, want)
	}
}

// gone checks that there are no such tasks.
func (q *queue) gone(ids ...task.ID) {
	q.e.Helper()
	for _, id := range ids {
		_, err := q.Peek(ctx, id)
		q.e.is(err, task.ErrNotFound)
	}
}

// taker is a queue or a consumer.
type taker struct {
	e    *env
	from interface {
		Take(context.Context) (*task.Task[string], error)
		TryTake(context.Context) (*task.Task[string], bool, error)
		TakeBatch(context.Context, int) ([]*task.Task[string], error)
	}
}

// takes takes the first tasks, without waiting, and checks which they are.
func (k taker) takes(want string) (leases []*lease) {
	k.e.Helper()
	names := strings.Fields(want)
	for i, name := range names {
		t, ok, err := k.from.TryTake(ctx)
		k.e.ok(err)
		if !ok {
			k.e.Fatalf("there is no task; it should be %q", name)
		}
		if t.Payload != name {
			k.e.Fatalf("task %q; in order are %q, so after %q it should be %q", t.Payload,
				names, names[:i], name)
		}
		leases = append(leases, &lease{t, k.e})
	}
	return leases
}

// first takes the first task.
func (k taker) first(want string) *lease {
	k.e.Helper()
	return k.takes(want)[0]
}

// none checks that no task can be taken.
func (k taker) none() {
	k.e.Helper()
	t, ok, err := k.from.TryTake(ctx)
	k.e.ok(err)
	if ok {
		k.e.Fatalf("task %q; there should be none to be taken", t.Payload)
	}
}

// order takes and acks tasks until there is none, and checks which they were.
func (k taker) order(want string) {
	k.e.Helper()
	var names []string
	for {
		t, ok, err := k.from.TryTake(ctx)
		k.e.ok(err)
		if !ok {
			break
		}
		k.e.ok(t.Ack(ctx))
		names = append(names, t.Payload)
	}
	equal(k.e, "order", strings.Join(names, " "), want)
}

// consumer is a consumer of a queue.
type consumer struct {
	*task.Consumer[string]
	taker
}

func (q *queue) consumer(f task.Filter) *consumer {
	c := q.NewConsumer(f)
	return &consumer{c, taker{q.e, c}}
}

// resume resumes a consumer, and checks which tasks it holds.
func (q *queue) resume(id, want string) (*consumer, []*lease) {
	q.e.Helper()
	c, tasks, err := q.ResumeConsumer(ctx, id, task.Filter{})
	q.e.ok(err)
	var leases []*lease
	for _, t := range tasks {
		leases = append(leases, &lease{t, q.e})
	}
	equal(q.e, "tasks of the consumer", payloads(tasks), want)
	return &consumer{c, taker{q.e, c}}, leases
}

func payloads(tasks []*task.Task[string]) string {
	var names []string
	for _, t := range tasks {
		names = append(names, t.Payload)
	}
	return strings.Join(names, " ")
}

// lease is a task that was taken.
type lease struct {
	*task.Task[string]
	e *env
}

func (l *lease) ack()                    { l.e.Helper(); l.e.ok(l.Ack(ctx)) }
func (l *lease) release(d time.Duration) { l.e.Helper(); l.e.ok(l.Release(ctx, d)) }
func (l *lease) snooze(d time.Duration)  { l.e.Helper(); l.e.ok(l.Snooze(ctx, d)) }
func (l *lease) back()                   { l.e.Helper(); l.e.ok(l.Return(ctx)) }
func (l *lease) fail(why error)          { l.e.Helper(); l.e.ok(l.Fail(ctx, why, 0)) }
func (l *lease) bury()                   { l.e.Helper(); l.e.ok(l.Bury(ctx, errOops)) }
func (l *lease) discard()                { l.e.Helper(); l.e.ok(l.Discard(ctx, errOops)) }
func (l *lease) touch(d time.Duration)   { l.e.Helper(); l.e.ok(l.Touch(ctx, d)) }
func (l *lease) holds()                  { l.e.Helper(); l.e.ok(l.Touch(ctx, 0)) }
func (q *queue) remove(id task.ID)       { q.e.Helper(); q.e.ok(q.Delete(ctx, id)) }
func (q *queue) bury(id task.ID)         { q.e.Helper(); q.e.ok(q.Bury(ctx, id, errOops)) }
func (q *queue) start(group string)      { q.e.Helper(); q.e.ok(q.StartGroup(ctx, group)) }
func (q *queue) cancel()                 { q.e.Helper(); q.e.ok(q.CancelGroup(ctx, "g")) }
func (c *consumer) close()               { c.e.Helper(); c.e.ok(c.Close(ctx)) }
func (c *consumer) disconnect()          { c.e.Helper(); c.e.ok(c.Disconnect(ctx)) }
func (q *queue) close()                  { q.e.Helper(); q.e.ok(q.Close(ctx)) }
func (q *queue) pauseKey(key string)     { q.e.Helper(); q.e.ok(q.PauseKey(ctx, key)) }
func (q *queue) resumeKey(key string)    { q.e.Helper(); q.e.ok(q.ResumeKey(ctx, key)) }
func (q *queue) truncate() int {
	q.e.Helper()
	n, err := q.Truncate(ctx)
	q.e.ok(err)
	return n
}

func (l *lease) holdKey(reason error, d time.Duration) {
	l.e.Helper()
	l.e.ok(l.HoldKey(ctx, reason, d))
}

func (q *queue) kick(n, want int) {
	q.e.Helper()
	k, err := q.Kick(ctx, task.ListOptions{Limit: n})
	q.e.ok(err)
	equal(q.e, "kicked", k, want)
}

var errOops = errors.New("oops")

// ends are the calls that need the lease of a task, and end it or extend it by d.
func ends[P any](t *task.Task[P], d time.Duration) calls {
	return calls{
		"Ack":     t.Ack,
		"Return":  t.Return,
		"Release": func(ctx context.Context) error { return t.Release(ctx, d) },
		"Snooze":  func(ctx context.Context) error { return t.Snooze(ctx, d) },
		"Repeat":  func(ctx context.Context) error { return t.Repeat(ctx, d) },
		"Touch":   func(ctx context.Context) error { return t.Touch(ctx, d) },
		"Fail":    func(ctx context.Context) error { return t.Fail(ctx, errOops, d) },
		"HoldKey": func(ctx context.Context) error { return t.HoldKey(ctx, errOops, d) },
		"Wait":    func(ctx context.Context) error { return t.HoldKey(ctx, nil, d) },
		"Bury":    func(ctx context.Context) error { return t.Bury(ctx, errOops) },
		"Discard": func(ctx context.Context) error { return t.Discard(ctx, errOops) },
	}
}

// lost checks that nothing can be done by a lease. The queue is that of the task.
func (l *lease) lost(q *queue) {
	l.e.Helper()
	look := func() (infos []task.Info) {
		tasks, err := q.List(ctx, task.ListOptions{})
		l.e.ok(err)
		for _, t := range tasks {
			infos = append(infos, t.Info())
		}
		return infos
	}
	stats, infos := q.stats(), look()
	for _, d := range []time.Duration{0, second} {
		l.e.refuse(task.ErrLeaseLost, ends(l.Task, d))
	}
	equal(l.e, "Stats after calls without the lease", q.stats(), stats)
	equal(l.e, "tasks after calls without the lease", look(), infos)
}

// call is a call that may wait.
type call[T any] struct {
	e     *env
	done  chan struct{}
	value T
	err   error
	at    time.Time // when it returned
}

func begin[T any](e *env, f func() (T, error)) *call[T] {
	c := &call[T]{e: e, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.value, c.err = f()
		c.at = time.Now()
	}()
	synctest.Wait()
	return c
}

func (c *call[T]) over() bool {
	synctest.Wait()
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// waits checks that the call has not returned.
func (c *call[T]) waits() {
	c.e.Helper()
	if c.over() {
		c.e.Fatalf("the call returned %v, %v; it should wait", c.value, c.err)
	}
}

// returns checks that the call has returned an error, or none.
func (c *call[T]) returns(want error) T {
	c.e.Helper()
	if !c.over() {
		c.e.Fatal("the call waits; it should have returned")
	}
	c.e.is(c.err, want)
	return c.value
}

// taking begins a Take.
func (k taker) taking() *call[*lease] { return k.takingUntil(ctx) }

func (k taker) takingUntil(ctx context.Context) *call[*lease] {
	return begin(k.e, func() (*lease, error) {
		t, err := k.from.Take(ctx)
		return &lease{t, k.e}, err
	})
}

// got checks that a Take has returned a task.
func got(c *call[*lease], want string) *lease {
	c.e.Helper()
	l := c.returns(nil)
	equal(c.e, "task", l.Payload, want)
	return l
}

// gotAll checks that several Takes have returned tasks, in whatever order.
func gotAll(e *env, want string, calls ...*call[*lease]) {
	e.Helper()
	var names []string
	for _, c := range calls {
		names = append(names, c.returns(nil).Payload)
	}
	slices.Sort(names)
	equal(e, "tasks", strings.Join(names, " "), want)
}

// putting begins a PutWait.
func (q *queue) putting(name string) *call[task.ID] {
	return begin(q.e, func() (task.ID, error) {
		return q.PutWait(ctx, name[:1], name, task.PutOptions{})
	})
}

// waiting begins a Wait for the unique key x.
func (q *queue) waiting() *call[struct{}] {
	return begin(q.e, func() (struct{}, error) { return struct{}{}, q.Wait(ctx, "x") })
}

// watch has the events that a reader has seen.
type watch struct {
	e      *env
	mu     sync.Mutex
	events []task.Event
	over   bool
}

// watch reads events, until ctx is done.
func (q *queue) watch(ctx context.Context) *watch {
	w := &watch{e: q.e}
	events := q.Events(ctx)
	go func() {
		for e := range events {
			w.mu.Lock()
			w.events = append(w.events, e)
			w.mu.Unlock()
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.over = true
	}()
	return w
}

// saw checks the events since the last call: "put a" means that a task of key a was put.
func (w *watch) saw(want string) []task.Event {
	w.e.Helper()
	events, got := w.seen()
	equal(w.e, "events", got, want)
	return events
}

func (w *watch) seen() ([]task.Event, string) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, e := range w.events {
		all = append(all, e.Type.String()+" "+e.Task.Key)
	}
	events := w.events
	w.events = nil
	return events, strings.Join(all, ", ")
}
