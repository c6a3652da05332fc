package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// Subject is a store that Compare tests, with what it can do beyond a [task.Store].
type Subject struct {
	task.Store

	// Others are the same store as other processes have it open. Calls are made to one or the
	// other.
	Others []task.Store

	// InTurn says that only one of the processes has the queue open at a time. When it closes it,
	// another one goes on. What each of them counts is not compared.
	InTurn bool

	// Check, if not nil, returns what is wrong with the queue of that name as it is stored, "" if
	// nothing is. It is called after each call.
	Check func(queue string) string

	// Exact says that nothing may differ but IDs and the names of consumers, as where one of the
	// stores is a model of the other.
	Exact bool
}

// Compare makes random calls to queues in one store, such as a [memory.Store], and the same calls
// to queues in another. It makes all calls that do not wait. After each call it compares the
// results, all tasks, all events and the stats. It runs n seeds, each in a bubble of
// testing/synctest, with new stores and queues of other Options.
//
// If the other store is a [Transactor], a third of the seeds make calls in transactions of the
// caller's own. These make each call twice: first in a transaction that is rolled back.
//
// A failure names the seed. With that in the environment variable STORETEST_SEED, Compare makes
// the same calls again.
//
// # What may differ
//
// These are all differences that are allowed unless Subject.Exact is set, because package task
// promises none of it:
//
//   - IDs, and the names of consumers.
//   - Which of several keys with the longest backlog loses a task that is evicted. Its task must
//     be the choice of Options.WhenFull.
//   - Between processes, the order of events.
func Compare(
	t *testing.T, n int, want func(t *testing.T) task.Store,
	got func(t *testing.T, seed uint64) Subject,
) {
	t.Helper()
	for _, seed := range seeds(t, n) {
		if synctest.Test(t, func(t *testing.T) { compare(t, seed, want(t), got(t, seed)) }); t.Failed() {
			return
		}
	}
}

// comparison drives two queues.
type comparison struct {
	*testing.T
	*rand.Rand
	seed    uint64
	name    string // of the queues
	options task.Options[int]
	weights map[string]int
	costs   *rand.Rand
	follows *rand.Rand
	dearest int64 // the most that a task costs
	keys    []string
	kinds   []string
	groups  []string
	removes bool       // tasks leave the line otherwise than by being taken
	pauses  bool       // keys are paused
	limits  *rand.Rand // of keys; nil if they get none of their own

	subject Subject
	tx      Transactor // the first store, if calls are made in transactions of the caller's own
	want    *side
	got     []*side
	closed  []*side         // see Subject.InTurn
	ctx     context.Context // for calls that can be parts of a transaction
	ids     map[task.ID]task.ID
	names   map[string]string // of the wanted consumers, by those of the others
	workers []*worker
	left    []*worker // that have disconnected
	leases  []*twins
	failed  task.ID // the last task whose failure has made its key wait
	calls   []string
	payload int
}

// side is a queue in one process, with the events that it has got.
type side struct {
	*task.Queue[int]
	evicted []*task.Task[int]

	mu      sync.Mutex // protects what other goroutines add to
	events  []task.Event
	expired []*task.Task[int]
}

// worker is a consumer of each queue.
type worker struct {
	at        *side
	got, want *task.Consumer[int]
}

// twins are a task that was taken, in each queue.
type twins struct {
	got, want *task.Task[int]
	at        *side // that has taken got
}

// What tasks have that Compare puts.
var (
	Keys       = []string{"a", "b", "c", "d"}
	Groups     = []string{"g", "h"}
	UniqueKeys = []string{"addr0", "addr1", "addr2", "addr3", "addr4", "addr5"}
)

// compare does so with one seed.
func compare(t *testing.T, seed uint64, want task.Store, got Subject) {
	c := &comparison{
		T: t, Rand: rand.New(rand.NewPCG(seed, 1)), costs: rand.New(rand.NewPCG(seed, 2)),
		follows: rand.New(rand.NewPCG(seed, 3)), seed: seed,
		name:    fmt.Sprint("seed-", seed),
		subject: got, ctx: ctx, weights: map[string]int{}, kinds: []string{""}, groups: Groups,
		ids: map[task.ID]task.ID{}, names: map[string]string{"": ""},
	}
	if tx, ok := got.Store.(Transactor); ok && seed%3 == 0 && len(got.Others) == 0 {
		c.tx = tx
	}
	defer c.close()
	c.choose()
	c.want = c.openIn(want)
	for _, s := range append([]task.Store{got.Store}, got.Others...) {
		if c.got = append(c.got, c.openIn(s)); got.InTurn {
			break
		}
	}
	for range 3 {
		c.hire()
	}
	// The first step must not meet the work that a store begins when it is opened.
	time.Sleep(123456789)
	synctest.Wait()
	for range 250 {
		c.step()
		synctest.Wait()
		c.compare()
		if c.Failed() {
			c.Logf("the last calls:\n%s", strings.Join(c.calls[max(0, len(c.calls)-60):], "\n"))
			return
		}
	}
	c.end()
	if c.Failed() {
		c.Logf("the last calls:\n%s", strings.Join(c.calls[max(0, len(c.calls)-60):], "\n"))
	}
}

func (c *comparison) chance(n int) bool { return c.IntN(n) == 0 }

// choose chooses the Options and the calls.
func (c *comparison) choose() {
	c.keys = Keys[:1+c.IntN(len(Keys))]
	o, seldom := &c.options, 3
	if c.dearest = 1 + c.costs.Int64N(20); c.seed%4 >= 2 { // else costs are only kept
		o.Quantum = 1 + c.costs.Int64N(10)
	}
	if c.subject.Exact {
		seldom = 2 // nothing of it makes the comparison weaker
	}
	if c.chance(seldom) {
		for _, k := range Keys {
			c.weights[k] = 1 + c.IntN(3)
		}
		o.Weight = func(key string) int { return c.weights[key] }
	}
	if c.chance(2) {
		o.Capacity = 5 + c.IntN(20)
		o.WhenFull = fairq.WhenFull(c.IntN(2))
	}
	if c.chance(4) {
		o.KeyCapacity = 4 + c.IntN(5)
	}
	o.CountOnlyWaiting = c.chance(2)
	if c.chance(2) {
		o.Retention = time.Duration(1+c.IntN(100)) * second
	}
	if c.chance(2) {
		o.Grace = time.Duration(2+c.IntN(60)) * second
	}
	if c.chance(3) {
		c.kinds = []string{"", "x", "y"}
	}
	c.pauses, c.removes, o.KeepPlace = c.chance(2), c.chance(2), c.chance(seldom+1)
	if c.chance(seldom) {
		o.MaxInFlightPerKey = 1 + c.IntN(2)
	}
	for _, r := range []*task.Rate{&o.KeyRate, &o.Rate} {
		if seldom++; c.costs.IntN(seldom-1) == 0 {
			*r = task.Rate{
				Limit: []float64{0.01, 0.1, 0.3, 1, 1000}[c.costs.IntN(5)], Burst: c.costs.IntN(4),
			}
		}
	}
	if limits := rand.New(rand.NewPCG(c.seed, 3)); limits.IntN(2) == 0 {
		c.limits = limits
	}
	if c.subject.Exact {
		if o.Quantum > 0 && c.costs.IntN(2) == 0 {
			o.Quantum, o.ShareTime = 0, true
		}
		if o.Capacity > 0 && c.chance(2) {
			o.WhenFull = fairq.EvictHeaviest + fairq.WhenFull(c.IntN(2))
		}
		c.removes, c.groups = true, Groups
		c.kinds = strings.Split(",r,s,t,u,v,w,x,y", ",") // more than Memory keeps when they are not used
	}
}

func (c *comparison) openIn(store task.Store) *side {
	s, o := &side{}, c.options
	o.CountKeys = len(Keys)
	if o.WhenFull >= fairq.EvictHeaviest {
		o.OnEvict = func(t *task.Task[int]) { s.evicted = append(s.evicted, t) }
	}
	o.OnExpire = func(t *task.Task[int]) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.expired = append(s.expired, t)
	}
	q, err := task.Open(ctx, store, c.name, &o)
	c.ok("Open", err)
	s.Queue = q
	events := q.Events(c.Context())
	go func() {
		for e := range events {
			s.mu.Lock()
			s.events = append(s.events, e)
			s.mu.Unlock()
		}
	}()
	return s
}

func (c *comparison) close() {
	for _, s := range append(c.got, c.want) {
		if s != nil {
			c.ok("Close", s.Close(ctx))
		}
	}
}

// hire makes a consumer.
func (c *comparison) hire() {
	at := oneOf(c, c.got...)
	w := &worker{at, at.NewConsumer(task.Filter{}), c.want.NewConsumer(task.Filter{})}
	c.names[w.got.ID()] = w.want.ID()
	c.workers = append(c.workers, w)
}

func oneOf[T any](c *comparison, list ...T) T { return list[c.IntN(len(list))] }

// side returns one of the processes.
func (c *comparison) side() *side { return oneOf(c, c.got...) }

func (c *comparison) did(format string, args ...any) {
	c.calls = append(c.calls, time.Now().Format("04:05.000 ")+fmt.Sprintf(format, args...))
}

func (c *comparison) wrong(format string, args ...any) {
	c.Helper()
	o := c.options
	o.Weight, o.OnEvict = nil, nil
	c.Errorf("with %s=%d (%+v, weights %v, kinds %q, removes %v, pauses %v), after %s:\n%s",
		seedVariable, c.seed, o, c.weights, c.kinds, c.removes, c.pauses,
		c.calls[max(0, len(c.calls)-1):], fmt.Sprintf(format, args...))
}

func (c *comparison) ok(what string, err error) {
	c.Helper()
	if err != nil {
		c.Fatalf("with %s=%d: %s: %v", seedVariable, c.seed, what, err)
	}
}

// end lets all due changes happen, and takes the rest of the tasks.
func (c *comparison) end() {
	for _, w := range c.workers {
		c.ok("Close", w.got.Close(ctx))
		c.ok("Close", w.want.Close(ctx))
	}
	c.workers = nil
	time.Sleep(10 * time.Minute)
	synctest.Wait()
	c.compare()
	for _, s := range []*side{c.side(), c.want} {
		c.ok("Resume", s.Resume(ctx))
		for _, k := range Keys {
			c.ok("ResumeKey", s.ResumeKey(ctx, k))
		}
	}
	c.did("the end")
	for c.hire(); c.takeOne(c.workers[0], task.Filter{}) && !c.Failed(); {
		l := c.leases[len(c.leases)-1]
		c.ok("Ack", l.got.Ack(ctx))
		c.ok("Ack", l.want.Ack(ctx))
	}
	c.compare()
}

// all returns the tasks of a queue.
func (c *comparison) all(s *side) []*task.Task[int] {
	tasks, err := s.List(c.ctx, task.ListOptions{Limit: 10000})
	c.ok("List", err)
	return tasks
}

// sort sorts tasks by their IDs in the wanted queue. If one process has put all tasks, they should
// be in that order already.
func (c *comparison) sort(tasks []*task.Task[int]) {
	if c.subject.Exact {
		return
	}
	slices.SortFunc(tasks, func(a, b *task.Task[int]) int {
		return int(c.ids[a.ID]) - int(c.ids[b.ID])
	})
}

// some returns the ID of a task that may be there, in the queues that are compared with the wanted
// one.
func (c *comparison) some() task.ID {
	if c.failed != 0 && c.chance(3) {
		return c.failed
	}
	tasks := c.all(c.side())
	if len(tasks) == 0 || c.chance(10) {
		return task.ID(c.IntN(1000))
	}
	c.sort(tasks)
	return oneOf(c, tasks...).ID
}
