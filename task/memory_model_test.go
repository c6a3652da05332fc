package task

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task/driver"
)

var (
	seed = flag.Uint64("seed", 0, "run TestMemoryAgainstModel with this seed only")
	runs = flag.Int("runs", 100, "how many runs TestMemoryAgainstModel makes")
)

// TestMemoryAgainstModel makes random calls to a queue in memory and to the model, and compares all answers, all tasks, all
// events and the stats after each. A failure names the seed; -seed repeats it.
func TestMemoryAgainstModel(t *testing.T) {
	if *seed != 0 {
		synctest.Test(t, func(t *testing.T) { newDriver(t, *seed).run(400) })
		return
	}
	for s := range uint64(*runs) {
		synctest.Test(t, func(t *testing.T) { newDriver(t, s+1).run(400) })
		if t.Failed() {
			return
		}
	}
}

// memoryDrive drives a queue and a model.
type memoryDrive struct {
	*testing.T
	seed      uint64
	rand      *rand.Rand
	ctx       context.Context
	q         *Queue[int]
	m         *model
	weights   map[string]int
	evicted   []ID
	expired   []string
	consumers []*Consumer[int]
	left      []string         // ids of consumers that have disconnected
	resumed   []*Consumer[int] // others than these have resumed them
	leases    []*Task[int]
	events    *reader
	stop      context.CancelFunc
	last      string
}

var (
	modelKeys   = []string{"a", "b", "c", "d"}
	modelKinds  = []string{"", "r", "s", "t", "u", "v", "w", "x", "y"}
	modelGroups = []string{"g", "h"}
)

func newDriver(t *testing.T, seed uint64) *memoryDrive {
	d := &memoryDrive{T: t, seed: seed, rand: rand.New(rand.NewPCG(seed, 0)), ctx: t.Context(), weights: map[string]int{}}
	o := &Options[int]{Newcomers: fairq.Newcomers(d.rand.IntN(2)), KeepPlace: d.rand.IntN(3) == 0}
	if d.rand.IntN(2) == 0 {
		o.MaxInFlightPerKey = 1 + d.rand.IntN(2)
	}
	if d.rand.IntN(2) == 0 {
		o.Capacity = 5 + d.rand.IntN(20)
		if d.rand.IntN(2) == 0 {
			o.WhenFull = fairq.EvictHeaviest + fairq.WhenFull(d.rand.IntN(2))
			o.OnEvict = func(t *Task[int]) { d.evicted = append(d.evicted, t.ID) }
		}
	}
	o.CountOnlyWaiting = d.rand.IntN(2) == 0
	if d.rand.IntN(2) == 0 {
		o.OnExpire = func(t *Task[int]) { d.expired = append(d.expired, fmt.Sprint(t.ID, t.State, t.Attempts, t.Payload)) }
	}
	if d.rand.IntN(3) == 0 {
		o.KeyCapacity = 4 + d.rand.IntN(5)
	}
	if d.rand.IntN(2) == 0 {
		for _, k := range modelKeys {
			d.weights[k] = 1 + d.rand.IntN(3)
		}
		o.Weight = func(key string) int { return d.weights[key] }
	}
	q, err := Open[int](d.ctx, new(Memory), "q", o)
	require.NoError(t, err)
	d.q, d.m = q, newModel(q.options.settings())
	for range 3 {
		d.consumers = append(d.consumers, q.NewConsumer(Filter{}))
	}
	ctx, stop := context.WithCancel(d.ctx)
	d.stop = stop
	q.Events(ctx)
	for r := range q.notifier.readers {
		d.events = r
	}
	return d
}

func (d *memoryDrive) run(steps int) {
	defer func() {
		d.stop()
		require.NoError(d, d.q.Close(d.ctx))
		synctest.Wait()
	}()
	for range steps {
		d.last = d.step()
		d.compare()
		if d.Failed() {
			return
		}
	}
}

func (d *memoryDrive) step() string {
	now := time.Now()
	switch op := d.rand.IntN(100); {
	case op < 30:
		return d.put(now)
	case op < 52:
		return d.take(now)
	case op < 70:
		return d.settle(now)
	case op < 73:
		n := d.rand.IntN(3)
		got, err := d.q.Kick(d.ctx, n)
		d.no(err)
		buried := d.m.buried()
		d.equal(min(n, len(buried)), got)
		for _, t := range buried[:got] {
			d.m.kick(t, now)
		}
		return fmt.Sprintf("Kick(%d)", n)
	case op < 77:
		return d.change(now)
	case op < 80:
		return d.pause()
	case op < 84:
		group, cancel := pick(d, modelGroups), d.rand.IntN(3) == 0
		call := d.q.StartGroup
		if cancel {
			call = d.q.CancelGroup
		}
		d.is(d.m.group(now, group, cancel), call(d.ctx, group))
		return fmt.Sprintf("group %s, cancel: %v", group, cancel)
	case op < 88:
		return d.consumer(now)
	case op < 91:
		uniqueKey := fmt.Sprint("addr", d.rand.IntN(6))
		want, wantErr := d.m.outcome(uniqueKey)
		got, err := d.q.backend.Outcome(d.ctx, uniqueKey)
		d.is(wantErr, err)
		if err == nil {
			d.equal(want.ID, got.ID)
			d.equal(want.Done, got.Done)
			d.equal(fmt.Sprint(want.Err), fmt.Sprint(got.Err))
		}
		return "Outcome"
	case op == 91 && d.rand.IntN(5) == 0:
		n, err := d.q.Truncate(d.ctx)
		d.no(err)
		d.equal(d.m.truncate(now), n)
		return "Truncate"
	default:
		time.Sleep(time.Duration(d.rand.Int64N(int64(40 * time.Second))))
		synctest.Wait()
		d.m.advance(time.Now())
		return "Sleep"
	}
}

func (d *memoryDrive) put(now time.Time) string {
	key := pick(d, modelKeys)
	if d.rand.IntN(3) == 0 {
		key = "a"
	}
	o := PutOptions{Kind: pick(d, modelKinds), Priority: d.rand.IntN(2), MaxAttempts: d.rand.IntN(4)}
	if d.rand.IntN(4) == 0 {
		o.Delay = d.duration()
	}
	if d.rand.IntN(5) == 0 {
		o.TTL = 3 * d.duration()
	}
	if d.rand.IntN(5) == 0 {
		o.Deadline = now.Add(4*d.duration() - 40*time.Second)
	}
	if d.rand.IntN(3) == 0 {
		o.TTR = d.duration()
	}
	if d.rand.IntN(5) == 0 {
		o.UniqueKey = fmt.Sprint("addr", d.rand.IntN(6))
	}
	if d.rand.IntN(6) == 0 {
		o.Group, o.Role = pick(d, modelGroups), Role(d.rand.IntN(5)%3)
	}
	var n driver.New
	d.no(d.q.options.fill(&n, key, &o))
	d.evicted = nil
	payload := d.rand.Int()
	id, err := d.q.Put(d.ctx, key, payload, o)
	wantID, victim, wantErr := d.m.put(now, &n, payload)
	d.is(wantErr, err)
	d.equal(wantID, id)
	if victim != 0 {
		d.equal([]ID{victim}, d.evicted)
	} else {
		d.equal(0, len(d.evicted))
	}
	return fmt.Sprintf("Put(%s, %+v)", key, o)
}

func (d *memoryDrive) duration() time.Duration {
	return 1 + time.Duration(d.rand.Int64N(int64(60*time.Second)))
}

func (d *memoryDrive) take(now time.Time) string {
	c := pick(d, d.consumers)
	var f Filter
	if d.rand.IntN(4) == 0 {
		f.MaxPriority = new(d.rand.IntN(3) - 1)
	}
	if d.rand.IntN(3) == 0 {
		for f.Kinds = []string{}; len(f.Kinds) < 1+d.rand.IntN(len(modelKinds)); {
			f.Kinds = append(f.Kinds, pick(d, modelKinds))
		}
	}
	c.SetFilter(f)
	t, ok, err := c.TryTake(d.ctx)
	d.no(err)
	want := d.m.take(now, c.ID(), f)
	if d.equal(want != nil, ok) && ok {
		d.equal(want.Info, t.Info)
		d.equal(want.payload, t.Payload)
		d.equal(want.lease, t.lease.Number)
		d.leases = append(d.leases, t)
	}
	return fmt.Sprintf("Take(%v, %q)", f.MaxPriority, f.Kinds)
}

func (d *memoryDrive) settle(now time.Time) string {
	if len(d.leases) == 0 {
		return "nothing"
	}
	t := d.leases[len(d.leases)-1-min(d.rand.IntN(8), d.rand.IntN(len(d.leases)), len(d.leases)-1)]
	reason := errors.New("reason")
	var how driver.Settlement
	var err error
	switch op := d.rand.IntN(12); {
	case op < 4:
		err = t.Ack(d.ctx)
	case op < 5:
		how.Release = true
		err = t.Release(d.ctx, 0)
	case op == 11:
		how = driver.Settlement{Discard: true, Err: newError(reason)}
		err = t.Discard(d.ctx, reason)
	case op == 10:
		how = driver.Settlement{Release: true, Uncounted: true, Delay: time.Duration(d.rand.IntN(2)) * d.duration()}
		err = t.Snooze(d.ctx, how.Delay)
	case op < 7:
		how = driver.Settlement{Release: true, Err: newError(reason)}
		if d.rand.IntN(2) == 0 {
			how.Delay = d.duration()
		}
		err = t.Fail(d.ctx, reason, how.Delay)
	case op < 8:
		how = driver.Settlement{Bury: true, Err: newError(reason)}
		err = t.Bury(d.ctx, reason)
	default:
		extend := time.Duration(d.rand.IntN(2)) * d.duration()
		until, wantErr := d.m.touch(now, t.ID, t.lease.Number, extend)
		d.is(wantErr, t.Touch(d.ctx, extend))
		if wantErr == nil {
			d.equal(until, t.Until)
		}
		return fmt.Sprintf("Touch(%d, %v)", t.ID, extend)
	}
	d.is(d.m.settle(now, t.ID, t.lease.Number, how), err)
	return fmt.Sprintf("settle(%d, %+v)", t.ID, how)
}

func (d *memoryDrive) change(now time.Time) string {
	id := ID(1 + d.rand.Uint64N(uint64(d.m.ids)+2))
	if n := len(d.m.tasks); n > 0 && d.rand.IntN(5) > 0 {
		id = d.m.tasks[d.rand.IntN(n)].ID
	}
	what := driver.Change(d.rand.IntN(3))
	reason := errors.New("by hand")
	err := [...]func() error{
		driver.KickOne: func() error { return d.q.KickID(d.ctx, id) },
		driver.BuryOne: func() error { return d.q.Bury(d.ctx, id, reason) },
		driver.Delete:  func() error { return d.q.Delete(d.ctx, id) },
	}[what]()
	d.is(d.m.change(now, id, what, newError(reason)), err)
	return fmt.Sprintf("change(%d, %d)", id, what)
}

func (d *memoryDrive) pause() string {
	on := d.rand.IntN(3) == 0
	if d.rand.IntN(4) == 0 {
		d.no(d.q.pause(d.ctx, nil, on))
		d.m.paused = on
		return fmt.Sprintf("pause: %v", on)
	}
	key := pick(d, modelKeys)
	d.no(d.q.pause(d.ctx, &key, on))
	if on {
		d.m.keys[key] = true
	} else {
		delete(d.m.keys, key)
	}
	return fmt.Sprintf("pause %s: %v", key, on)
}

func (d *memoryDrive) consumer(now time.Time) string {
	if len(d.resumed) > 0 && d.rand.IntN(3) == 0 {
		return d.resumedConsumer()
	}
	i := d.rand.IntN(len(d.consumers))
	c := d.consumers[i]
	if n := len(d.left); n > 0 && d.rand.IntN(2) == 0 {
		if back := d.resume(now, d.left[n-1]); back != nil {
			d.consumers = append(d.consumers, back)
		}
		d.left = d.left[:n-1]
		return "Resume"
	}
	if d.rand.IntN(4) == 0 {
		if back := d.resume(now, c.ID()); back != nil {
			d.consumers[i], d.resumed = back, append(d.resumed, c)
		}
		return "Resume one that has not left"
	}
	after := time.Duration(0)
	if d.rand.IntN(2) == 0 {
		after = d.q.options.Grace
		d.no(c.Disconnect(d.ctx))
		d.left = append(d.left, c.ID())
	} else {
		d.no(c.Close(d.ctx))
	}
	d.m.leaveConsumer(now, c.ID(), after)
	d.consumers[i] = d.q.NewConsumer(Filter{})
	return fmt.Sprintf("consumer leaves for %v", after)
}

// resume returns nil if there is no consumer of that id.
func (d *memoryDrive) resume(now time.Time, id string) *Consumer[int] {
	back, held, err := d.q.ResumeConsumer(d.ctx, id, Filter{})
	if _, ok := d.m.consumers[id]; !ok {
		d.is(ErrNotFound, err)
		return nil
	}
	d.no(err)
	want := d.m.resume(now, id)
	d.equal(len(want), len(held))
	for i := range want {
		d.equal(want[i].lease, held[i].lease.Number)
		d.equal(want[i].Info, held[i].Info)
		d.leases = append(d.leases, held[i])
	}
	return back
}

// resumedConsumer calls a consumer that others have resumed, so that nothing happens.
func (d *memoryDrive) resumedConsumer() string {
	c := pick(d, d.resumed)
	_, _, err := c.TryTake(d.ctx)
	d.is(ErrResumed, err)
	_, err = c.Take(d.ctx)
	d.is(ErrResumed, err)
	d.is(ErrResumed, c.Disconnect(d.ctx))
	d.is(ErrResumed, c.Close(d.ctx))
	return "calls of a consumer that was resumed"
}

// compare compares all that there is.
func (d *memoryDrive) compare() {
	tasks, err := d.q.List(d.ctx, ListOptions{Limit: 1000})
	d.no(err)
	if d.equal(len(d.m.tasks), len(tasks)) {
		for i, want := range d.m.tasks {
			d.equal(want.Info, tasks[i].Info)
			if want.payload != tasks[i].Payload {
				d.equal(want.payload, tasks[i].Payload)
			}
		}
	}
	stats, err := d.q.Stats(d.ctx)
	d.no(err)
	d.equal(d.m.numbers(), stats)
	synctest.Wait()
	if d.q.options.OnExpire != nil {
		d.equal(d.m.expiries, d.expired)
	}
	d.q.notifier.mu.Lock()
	defer d.q.notifier.mu.Unlock()
	var events []modelEvent
	for {
		e, ok := d.events.next()
		if !ok {
			break
		}
		events = append(events, modelEvent{e.Type, e.Task.ID, e.Task.State, e.Lease, e.Time.UnixNano()})
	}
	if !slices.Equal(d.m.events, events) {
		d.equal(d.m.events, events)
	}
	d.m.events = nil
	if d.rand.IntN(5) == 0 {
		d.q.memory.check(d)
	}
}

func (d *memoryDrive) equal(want, got any) bool {
	d.Helper()
	if !equal(want, got) {
		d.Errorf("seed %d, after %s:\n want %+v\n got  %+v", d.seed, d.last, want, got)
		return false
	}
	return true
}

func equal(want, got any) bool {
	a, ok := want.(Info)
	if !ok {
		return fmt.Sprint(want) == fmt.Sprint(got)
	}
	b := got.(Info)
	times := func(i *Info) []*time.Time {
		return []*time.Time{&i.Until, &i.Created, &i.ReadyAt, &i.Expires, &i.Deadline}
	}
	for n, at := range times(&b) {
		if !at.Equal(*times(&a)[n]) {
			return false
		}
		*times(&a)[n] = *at
	}
	if fmt.Sprint(a.Err) != fmt.Sprint(b.Err) {
		return false
	}
	a.Err = b.Err
	return a == b
}

func (d *memoryDrive) no(err error) {
	d.Helper()
	if err != nil {
		d.Errorf("seed %d, after %s: %v", d.seed, d.last, err)
	}
}

func (d *memoryDrive) is(want, got error) {
	d.Helper()
	if !errors.Is(got, want) {
		d.Errorf("seed %d, after %s:\n want %v\n got  %v", d.seed, d.last, want, got)
	}
}

func pick[T any](d *memoryDrive, from []T) T { return from[d.rand.IntN(len(from))] }
