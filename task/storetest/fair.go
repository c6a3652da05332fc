package storetest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// seedVariable names the environment variable that says which single seed the random cases run with.
const seedVariable = "STORETEST_SEED"

// runs is how many seeds each random case is run with, if the tests are not to be short.
const runs = 10

// seeds calls f with one seed after the other, each time with a new queue.
func (e *env) seeds(o options, f func(*run)) {
	first, last := uint64(1), uint64(runs)
	if testing.Short() {
		last = 2
	}
	if s := os.Getenv(seedVariable); s != "" {
		var err error
		first, err = strconv.ParseUint(s, 10, 64)
		e.ok(err)
		last = first
	}
	for seed := first; seed <= last; seed++ {
		q := e.openIn(e.store, fmt.Sprintf("seed-%d", seed), o)
		f(&run{
			Rand: rand.New(rand.NewPCG(seed, 0)), e: e, q: q, seed: seed, options: o, models: map[int]*model{}, dues: map[time.Time]bool{},
		})
		q.addsUp()
		q.close()
	}
}

// run is a run of random calls.
type run struct {
	*rand.Rand
	e       *env
	q       *queue
	seed    uint64
	options options
	models  map[int]*model // by priority
	log     []string

	taken   []runTask
	delayed []runTask
	buried  []runTask
	dues    map[time.Time]bool
}

// runTask is a task that is not ready.
type runTask struct {
	modelTask
	priority int
	lease    *task.Task[string]
	due      time.Time
}

func (r *run) did(format string, args ...any) { r.log = append(r.log, fmt.Sprintf(format, args...)) }

// fail ends the run.
func (r *run) fail(format string, args ...any) {
	r.e.Helper()
	for _, line := range r.log[max(0, len(r.log)-100):] {
		r.e.Log(line)
	}
	r.e.Fatalf("with %s=%d, call %d: %s", seedVariable, r.seed, len(r.log), fmt.Sprintf(format, args...))
}

func (r *run) ok(err error) {
	r.e.Helper()
	if err != nil {
		r.fail("error: %v", err)
	}
}

func (r *run) model(priority int) *model {
	m := r.models[priority]
	if m == nil {
		m = newModel(&r.options)
		r.models[priority] = m
	}
	return m
}

// key returns a random key, some more often than others.
func (r *run) key() string { return string(rune('a' + min(r.IntN(7), r.IntN(7)))) }

// put puts a task, perhaps with a delay.
func (r *run) put(delay time.Duration) {
	key, priority := r.key(), r.IntN(5)/2
	id, err := r.q.Put(ctx, key, key, task.PutOptions{Priority: priority, Delay: delay})
	r.ok(err)
	r.did("put task %d of key %s, priority %d, delay %v", id, key, priority, delay)
	t := runTask{modelTask: modelTask{id: id, key: key}, priority: priority, due: time.Now().Add(delay)}
	if delay > 0 {
		r.delayed = append(r.delayed, t)
	} else {
		r.model(priority).push(key, id)
	}
}

// take takes a task and compares it with that of the model. It returns false if there is none.
func (r *run) take() bool {
	var want runTask
	for p := range 3 {
		if want.id == 0 {
			want = runTask{modelTask: r.model(p).pop(), priority: p}
		}
	}
	t, ok, err := r.q.TryTake(ctx)
	r.ok(err)
	if !ok {
		r.did("take: none")
		if want.id != 0 {
			r.fail("no task was taken; it should be task %d", want.id)
		}
		return false
	}
	r.did("take: task %d of key %s, priority %d", t.ID, t.Key, t.Priority)
	if t.ID != want.id {
		r.fail("task %d of key %s was taken; it should be task %d of key %q", t.ID, t.Key, want.id, want.key)
	}
	want.lease = t
	r.taken = append(r.taken, want)
	return true
}

// pick takes one out of the list, at random.
func (r *run) pick(list *[]runTask) runTask {
	i := r.IntN(len(*list))
	t := (*list)[i]
	*list = slices.Delete(*list, i, i+1)
	return t
}

// delay returns a delay that ends when no other one does.
func (r *run) delay() time.Duration {
	for {
		d := time.Duration(1+r.IntN(500)) * time.Millisecond
		if at := time.Now().Add(d); !r.dues[at] {
			r.dues[at] = true
			return d
		}
	}
}

// settle does something to a task that is taken.
func (r *run) settle() {
	if len(r.taken) == 0 {
		return
	}
	t := r.pick(&r.taken)
	switch r.IntN(5) {
	case 0, 1:
		r.did("ack task %d", t.id)
		r.ok(t.lease.Ack(ctx))
	case 2:
		r.did("release task %d", t.id)
		r.ok(t.lease.Release(ctx, 0))
		m := r.model(t.priority)
		m.back = append(m.back, t.modelTask)
	case 3:
		d := r.delay()
		r.did("release task %d with a delay of %v", t.id, d)
		r.ok(t.lease.Release(ctx, d))
		t.due = time.Now().Add(d)
		r.delayed = append(r.delayed, t)
	default:
		r.did("bury task %d", t.id)
		r.ok(t.lease.Bury(ctx, errOops))
		r.buried = append(r.buried, t)
	}
}

// ready tells the model of tasks that have become ready.
func (r *run) ready(tasks []runTask) {
	for _, t := range tasks {
		r.model(t.priority).push(t.key, t.id)
	}
}

func (r *run) kick() {
	n := r.IntN(3)
	kicked, err := r.q.Kick(ctx, n)
	r.ok(err)
	r.did("kick: %d of %d", kicked, n)
	if kicked != min(n, len(r.buried)) {
		r.fail("%d tasks kicked, of %d that are buried", kicked, len(r.buried))
	}
	r.ready(r.buried[:kicked])
	r.buried = r.buried[kicked:]
}

func (r *run) sleep() {
	d := time.Duration(r.IntN(200)) * time.Millisecond
	time.Sleep(d)
	r.did("sleep for %v", d)
	slices.SortFunc(r.delayed, func(a, b runTask) int { return a.due.Compare(b.due) })
	n := 0
	for n < len(r.delayed) && !r.delayed[n].due.After(time.Now()) {
		n++
	}
	r.ready(r.delayed[:n])
	r.delayed = r.delayed[n:]
}

// simple puts tasks, and takes and acks them.
func simple(r *run) {
	for range 300 {
		if r.IntN(20) < 11 {
			r.put(0)
		} else if r.take() {
			r.ok(r.taken[0].lease.Ack(ctx))
			r.taken = r.taken[1:]
		}
	}
	for r.take() {
	}
}

// full also hands tasks back in all ways.
func full(r *run) {
	for range 400 {
		switch n := r.IntN(100); {
		case n < 25:
			r.put(0)
		case n < 30:
			r.put(r.delay())
		case n < 65:
			r.take()
		case n < 92:
			r.settle()
		case n < 95:
			r.kick()
		default:
			r.sleep()
		}
	}
	time.Sleep(second)
	r.sleep()
	for r.take() {
	}
}

func weightOf(key string) int { return 1 + int(key[0])%3 }

// limited checks that keys are served one after the other, that none has to wait without need, and that none is passed
// over again and again.
func limited(r *run) {
	waiting, busy := map[string][]task.ID{}, map[string]int{}
	since := map[string]map[string]int{} // since when a key could be served, how often the others were
	available := func(key string) bool { return len(waiting[key]) > 0 && busy[key] < r.options.MaxInFlightPerKey }
	for range 600 {
		switch n := r.IntN(20); {
		case n < 8:
			key := r.key()
			id, err := r.q.Put(ctx, key, key, task.PutOptions{})
			r.ok(err)
			r.did("put task %d of key %s", id, key)
			waiting[key] = append(waiting[key], id)
		case n < 14:
			t, ok, err := r.q.TryTake(ctx)
			r.ok(err)
			if !ok {
				r.did("take: none")
				for key := range waiting {
					if available(key) {
						r.fail("no task was taken; key %s is not busy", key)
					}
				}
				continue
			}
			r.did("take: task %d of key %s", t.ID, t.Key)
			if !available(t.Key) || t.ID != waiting[t.Key][0] {
				r.fail("task %d of key %s was taken; %v are waiting, %d are taken", t.ID, t.Key, waiting[t.Key], busy[t.Key])
			}
			for key := range waiting {
				if key != t.Key && available(key) && t.Attempts == 1 { // else it keeps the turn that it had
					if since[key] == nil {
						since[key] = map[string]int{}
					}
					if since[key][t.Key]++; since[key][t.Key] > 3 {
						r.fail("key %s was passed over for key %s %d times", key, t.Key, since[key][t.Key])
					}
				}
			}
			waiting[t.Key] = waiting[t.Key][1:]
			busy[t.Key]++
			delete(since, t.Key)
			r.taken = append(r.taken, runTask{modelTask: modelTask{id: t.ID, key: t.Key}, lease: t})
		case len(r.taken) > 0:
			t := r.pick(&r.taken)
			busy[t.key]--
			if r.IntN(4) > 0 {
				r.did("ack task %d", t.id)
				r.ok(t.lease.Ack(ctx))
				continue
			}
			r.did("release task %d", t.id)
			r.ok(t.lease.Release(ctx, 0))
			waiting[t.key] = append(waiting[t.key], t.id)
			slices.Sort(waiting[t.key])
		}
		for key := range since {
			if !available(key) {
				delete(since, key)
			}
		}
	}
}

// inPlace checks that of each key the task is taken that was put first.
func inPlace(r *run) {
	ready := map[string][]task.ID{}
	for range 400 {
		switch n := r.IntN(20); {
		case n < 7:
			key := r.key()
			id, err := r.q.Put(ctx, key, key, task.PutOptions{})
			r.ok(err)
			r.did("put task %d of key %s", id, key)
			ready[key] = append(ready[key], id)
		case n < 13:
			t, ok, err := r.q.TryTake(ctx)
			r.ok(err)
			if !ok {
				continue
			}
			r.did("take: task %d of key %s", t.ID, t.Key)
			if len(ready[t.Key]) == 0 || t.ID != ready[t.Key][0] {
				r.fail("task %d of key %s was taken; %v are ready", t.ID, t.Key, ready[t.Key])
			}
			ready[t.Key] = ready[t.Key][1:]
			r.taken = append(r.taken, runTask{modelTask: modelTask{id: t.ID, key: t.Key}, lease: t})
		case n < 18 && len(r.taken) > 0:
			t := r.pick(&r.taken)
			d := time.Duration(r.IntN(3)) * 100 * time.Millisecond
			if r.IntN(2) == 0 {
				r.did("ack task %d", t.id)
				r.ok(t.lease.Ack(ctx))
				continue
			}
			r.did("release task %d with a delay of %v", t.id, d)
			r.ok(t.lease.Release(ctx, d))
			t.due = time.Now().Add(d)
			r.delayed = append(r.delayed, t)
		default:
			time.Sleep(100 * time.Millisecond)
			r.did("sleep")
		}
		r.delayed = slices.DeleteFunc(r.delayed, func(t runTask) bool {
			due := !t.due.After(time.Now())
			if due {
				ready[t.key] = append(ready[t.key], t.id)
				slices.Sort(ready[t.key])
			}
			return due
		})
	}
}

var fairCases = []testCase{
	{"Simple", "keys are served in rounds, as by a [fairq.Queue]", func(e *env) { e.seeds(options{}, simple) }},
	{"SimpleThisRound", "says which round a key joins that has no task ready", func(e *env) {
		e.seeds(options{Newcomers: fairq.ThisRound}, simple)
	}},
	{"SimpleWeights", "tells how many tasks of a key a round takes", func(e *env) {
		e.seeds(options{Weight: weightOf}, simple)
	}},
	{"Full", "A task takes its turn when it becomes ready", func(e *env) { e.seeds(options{}, full) }},
	{"FullThisRound", "A task takes its turn when it becomes ready", func(e *env) {
		e.seeds(options{Newcomers: fairq.ThisRound, Weight: weightOf}, full)
	}},
	{"Limited", "is passed over, at no cost for the others", func(e *env) {
		e.seeds(options{MaxInFlightPerKey: 2}, limited)
	}},
	{"Serial", "it never gets back more than one", func(e *env) { e.seeds(serial, limited) }},
	{"KeepPlace", "Options.KeepPlace makes all of them return to the place of their Put.", func(e *env) {
		e.seeds(options{KeepPlace: true}, inPlace)
	}},
}
