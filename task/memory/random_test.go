package memory

import (
	"context"
	crand "crypto/rand"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
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
	runs = flag.Int("runs", 100, "how many runs TestMemoryAgainstModel makes, a fifth with -short")
)

// TestMemoryAgainstModel makes random calls to a queue in memory and to the model, and compares all
// answers, all tasks, all events and the stats after each. A failure names the seed; -seed repeats
// it.
func TestMemoryAgainstModel(t *testing.T) {
	if *seed != 0 {
		synctest.Test(t, func(t *testing.T) { newCaller(t, *seed).run(400) })
		return
	}
	n := *runs
	if testing.Short() {
		n /= 5
	}
	for s := range uint64(n) {
		synctest.Test(t, func(t *testing.T) { newCaller(t, s+1).run(400) })
		if t.Failed() {
			return
		}
	}
}

// caller makes calls to a queue and to a model.
type caller struct {
	*testing.T
	seed      uint64
	rand      *rand.Rand
	ctx       context.Context
	b         *backend
	m         *model
	ear       *ear
	weights   map[string]int
	consumers []driver.Handle
	left      []string        // ids of consumers that have disconnected
	resumed   []driver.Handle // others than these have resumed them
	leases    []driver.Lease
	last      string
}

// ear is a Notifier that remembers what it is told.
type ear struct {
	events  []modelEvent
	wants   bool
	expired []string
	due     time.Time
}

func (*ear) InMemory() reflect.Type { return reflect.TypeFor[int]() }
func (*ear) Ready(int, string)      {}
func (*ear) Look()                  {}
func (*ear) Room(string)            {}
func (*ear) Listens() bool          { return true }
func (*ear) Waits() bool            { return false }
func (*ear) Awaited() []driver.ID   { return nil }
func (*ear) Ended(driver.ID, error) {}
func (*ear) Dropped()               {}
func (e *ear) WantsExpired() bool   { return e.wants }

func (e *ear) Event(got driver.Event) {
	e.events = append(e.events, modelEvent{got.Type, got.Task.ID, got.Task.State, got.Lease, got.Time.UnixNano()})
}

func (e *ear) Expired(r driver.Record) {
	e.expired = append(e.expired, fmt.Sprint(r.ID, r.State, r.Attempts, r.Payload))
}

func (e *ear) Due(at time.Time) {
	if e.due.IsZero() || at.Before(e.due) {
		e.due = at
	}
}

var (
	modelKeys   = []string{"a", "b", "c", "d"}
	modelKinds  = []string{"", "r", "s", "t", "u", "v", "w", "x", "y"}
	modelGroups = []string{"g", "h"}
)

func newCaller(t *testing.T, seed uint64) *caller {
	d := &caller{T: t, seed: seed, rand: rand.New(rand.NewPCG(seed, 0)), ctx: t.Context(), ear: new(ear), weights: map[string]int{}}
	s := driver.Settings{
		Capacity: fairq.MaxLen, Newcomers: fairq.Newcomers(d.rand.IntN(2)), KeepPlace: d.rand.IntN(3) == 0,
		Retention: time.Minute, Grace: 30 * time.Second,
	}
	if d.rand.IntN(2) == 0 {
		s.MaxInFlightPerKey = 1 + d.rand.IntN(2)
	}
	if d.rand.IntN(2) == 0 {
		s.Capacity = 5 + d.rand.IntN(20)
		if d.rand.IntN(2) == 0 {
			s.WhenFull = fairq.RejectOverShare + fairq.WhenFull(d.rand.IntN(3))
		}
	}
	s.CountOnlyWaiting = d.rand.IntN(2) == 0
	d.ear.wants = d.rand.IntN(2) == 0
	s.KeyCapacity = s.Capacity
	if d.rand.IntN(3) == 0 {
		s.KeyCapacity = min(s.Capacity, 4+d.rand.IntN(5))
	}
	weighted := d.rand.IntN(2) == 0
	for _, k := range modelKeys {
		if d.weights[k] = 1; weighted {
			d.weights[k] = 1 + d.rand.IntN(3)
		}
	}
	b, err := new(Store).Open(d.ctx, "q", s, d.ear)
	require.NoError(t, err)
	d.b, d.m = b.(*backend), newModel(s)
	for range 3 {
		d.consumers = append(d.consumers, d.newConsumer())
	}
	return d
}

func (*caller) newConsumer() driver.Handle { return driver.Handle{ID: crand.Text()} }

func (d *caller) run(steps int) {
	defer func() { d.no(d.b.Close()) }()
	for range steps {
		d.last = d.step()
		d.compare()
		if d.Failed() {
			return
		}
	}
}

// sleep lets time pass, and calls Tick when it is due.
func (d *caller) sleep(how time.Duration) {
	for end := time.Now().Add(how); ; {
		at := d.ear.due
		if at.IsZero() || at.After(end) {
			time.Sleep(time.Until(end))
			return
		}
		time.Sleep(time.Until(at))
		d.ear.due = time.Time{}
		next, err := d.b.Tick(d.ctx)
		d.no(err)
		if !next.IsZero() {
			d.ear.Due(next)
		}
	}
}

func (d *caller) step() string {
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
		o := driver.ListOptions{Limit: n}
		if d.rand.IntN(3) == 0 {
			o.Key = new(pick(d, modelKeys))
		}
		if d.rand.IntN(3) == 0 {
			o.Kind = new(pick(d, modelKinds))
		}
		got, err := d.b.Kick(d.ctx, o)
		d.no(err)
		buried := slices.DeleteFunc(d.m.buried(), func(t *modelTask) bool {
			return o.Key != nil && t.Key != *o.Key || o.Kind != nil && t.Kind != *o.Kind
		})
		d.equal(min(n, len(buried)), got)
		for _, t := range buried[:got] {
			d.m.kick(t, now)
		}
		return fmt.Sprintf("Kick(%d)", n)
	case op < 76:
		return d.change(now)
	case op < 77:
		return d.takeID(now)
	case op < 80:
		return d.pause()
	case op < 84:
		group, cancel := pick(d, modelGroups), d.rand.IntN(3) == 0
		d.is(d.m.group(now, group, cancel), d.b.Group(d.ctx, group, cancel))
		return fmt.Sprintf("group %s, cancel: %v", group, cancel)
	case op < 88:
		return d.consumer(now)
	case op < 91:
		uniqueKey := fmt.Sprint("addr", d.rand.IntN(6))
		want, wantErr := d.m.outcome(uniqueKey)
		got, err := d.b.Outcome(d.ctx, uniqueKey)
		d.is(wantErr, err)
		if err == nil {
			d.equal(want.ID, got.ID)
			d.equal(want.Done, got.Done)
			d.equal(fmt.Sprint(want.Err), fmt.Sprint(got.Err))
		}
		return "Outcome"
	case op == 91 && d.rand.IntN(5) == 0:
		n, err := d.b.Truncate(d.ctx)
		d.no(err)
		d.equal(d.m.truncate(now), n)
		return "Truncate"
	default:
		d.sleep(time.Duration(d.rand.Int64N(int64(40 * time.Second))))
		d.m.advance(time.Now())
		return "Sleep"
	}
}

func (d *caller) put(now time.Time) string {
	key := pick(d, modelKeys)
	if d.rand.IntN(3) == 0 {
		key = "a"
	}
	n := driver.New{Key: key, Weight: d.weights[key], Kind: pick(d, modelKinds), Priority: d.rand.IntN(2), MaxAttempts: d.rand.IntN(4)}
	if d.rand.IntN(4) == 0 {
		n.Delay = d.duration()
	}
	if d.rand.IntN(5) == 0 {
		n.TTL = 3 * d.duration()
	}
	if d.rand.IntN(5) == 0 {
		n.Deadline = now.Add(4*d.duration() - 40*time.Second)
	}
	if d.rand.IntN(3) == 0 {
		n.TTR = d.duration()
	}
	if d.rand.IntN(5) == 0 {
		n.UniqueKey = fmt.Sprint("addr", d.rand.IntN(6))
	}
	if d.rand.IntN(6) == 0 {
		n.Group, n.Role = pick(d, modelGroups), driver.Role(d.rand.IntN(5)%3)
	}
	payload := d.rand.Int()
	n.Payload = payload
	id, evicted, err := d.b.PutOne(d.ctx, n)
	wantID, victim, wantErr := d.m.put(now, &n, payload)
	d.is(wantErr, err)
	d.equal(wantID, id)
	if d.equal(victim != 0, evicted != nil) && evicted != nil {
		d.equal(victim, evicted.ID)
	}
	return fmt.Sprintf("Put(%+v)", n)
}

func (d *caller) duration() time.Duration {
	return 1 + time.Duration(d.rand.Int64N(int64(60*time.Second)))
}

func (d *caller) take(now time.Time) string {
	c := pick(d, d.consumers)
	var f driver.Filter
	if d.rand.IntN(4) == 0 {
		f.MaxPriority = new(d.rand.IntN(3) - 1)
	}
	if d.rand.IntN(3) == 0 {
		for f.Kinds = []string{}; len(f.Kinds) < 1+d.rand.IntN(len(modelKinds)); {
			f.Kinds = append(f.Kinds, pick(d, modelKinds))
		}
	}
	slices.Sort(f.Kinds)
	f.Kinds = slices.Compact(f.Kinds)
	var got driver.Info
	lease, payload, err := d.b.TakeOne(d.ctx, c, f, &got)
	d.no(err)
	want := d.m.take(now, c.ID, f)
	if d.equal(want != nil, lease != 0) && want != nil {
		d.equal(want.Info, got)
		d.equal(want.payload, payload)
		d.equal(want.lease, lease)
		d.leases = append(d.leases, driver.Lease{ID: got.ID, Number: lease})
	}
	return fmt.Sprintf("Take(%v, %q)", f.MaxPriority, f.Kinds)
}

func (d *caller) settle(now time.Time) string {
	if len(d.leases) == 0 {
		return "nothing"
	}
	l := d.leases[len(d.leases)-1-min(d.rand.IntN(8), d.rand.IntN(len(d.leases)), len(d.leases)-1)]
	reason := &driver.Error{Message: "reason"}
	var how driver.Settlement
	switch op := d.rand.IntN(12); {
	case op < 4:
	case op < 5:
		how.Release = true
	case op == 11:
		how = driver.Settlement{Discard: true, Err: reason}
	case op == 10:
		how = driver.Settlement{Release: true, Uncounted: true, Delay: time.Duration(d.rand.IntN(2)) * d.duration()}
	case op < 7:
		how = driver.Settlement{Release: true, Err: reason}
		if d.rand.IntN(2) == 0 {
			how.Delay = d.duration()
		}
	case op < 8:
		how = driver.Settlement{Bury: true, Err: reason}
	default:
		extend := time.Duration(d.rand.IntN(2)) * d.duration()
		until, wantErr := d.m.touch(now, l.ID, l.Number, extend)
		got, err := d.b.Touch(d.ctx, l, extend)
		d.is(wantErr, err)
		if wantErr == nil {
			d.equal(until, got)
		}
		return fmt.Sprintf("Touch(%d, %v)", l.ID, extend)
	}
	if t := d.m.find(l.ID); t != nil {
		how.Priority = t.Priority
	}
	if d.rand.IntN(4) == 0 {
		how.Priority = d.rand.IntN(3)
	}
	want, wantErr := d.m.settle(now, l.ID, l.Number, how)
	got, err := d.b.Settle(d.ctx, l, how)
	d.is(wantErr, err)
	d.equal(want, got)
	return fmt.Sprintf("settle(%d, %+v)", l.ID, how)
}

func (d *caller) pause() string {
	on := d.rand.IntN(3) == 0
	if d.rand.IntN(4) == 0 {
		d.no(d.b.Pause(d.ctx, nil, on))
		d.m.paused = on
		return fmt.Sprintf("pause: %v", on)
	}
	key := pick(d, modelKeys)
	d.no(d.b.Pause(d.ctx, &key, on))
	if on {
		d.m.keys[key] = true
	} else {
		delete(d.m.keys, key)
	}
	return fmt.Sprintf("pause %s: %v", key, on)
}

func (d *caller) consumer(now time.Time) string {
	if len(d.resumed) > 0 && d.rand.IntN(3) == 0 {
		return d.resumedConsumer()
	}
	i := d.rand.IntN(len(d.consumers))
	c := d.consumers[i]
	if n := len(d.left); n > 0 && d.rand.IntN(2) == 0 {
		if back, ok := d.resume(now, d.left[n-1]); ok {
			d.consumers = append(d.consumers, back)
		}
		d.left = d.left[:n-1]
		return "Rejoin"
	}
	if d.rand.IntN(4) == 0 {
		if back, ok := d.resume(now, c.ID); ok {
			d.consumers[i], d.resumed = back, append(d.resumed, c)
		}
		return "Rejoin one that has not left"
	}
	if d.rand.IntN(4) == 0 {
		d.no(d.b.Return(d.ctx, c))
		d.m.handBackAll(now, c.ID)
		return "ReleaseAll"
	}
	after := time.Duration(0)
	if d.rand.IntN(2) == 0 {
		after = d.m.s.Grace
		d.left = append(d.left, c.ID)
	}
	d.no(d.b.Leave(d.ctx, c, after))
	d.m.leaveConsumer(now, c.ID, after)
	d.consumers[i] = d.newConsumer()
	return fmt.Sprintf("consumer leaves for %v", after)
}

// resume returns false if there is no consumer of that id.
func (d *caller) resume(now time.Time, id string) (back driver.Handle, ok bool) {
	epoch, held, err := d.b.Rejoin(d.ctx, id)
	if _, ok := d.m.consumers[id]; !ok {
		d.is(driver.ErrNotFound, err)
		return back, false
	}
	d.no(err)
	want := d.m.resume(now, id)
	d.equal(len(want), len(held))
	for i := range want {
		d.equal(want[i].lease, held[i].Lease.Number)
		d.equal(want[i].Info, held[i].Info)
		d.leases = append(d.leases, held[i].Lease)
	}
	return driver.Handle{ID: id, Epoch: epoch}, true
}

// resumedConsumer calls a consumer that others have resumed, so that nothing happens.
func (d *caller) resumedConsumer() string {
	c := pick(d, d.resumed)
	if _, known := d.m.consumers[c.ID]; !known {
		return "nothing"
	}
	_, _, err := d.b.TakeOne(d.ctx, c, driver.Filter{}, new(driver.Info))
	d.is(driver.ErrResumed, err)
	d.is(driver.ErrResumed, d.b.Leave(d.ctx, c, d.m.s.Grace))
	d.is(driver.ErrResumed, d.b.Leave(d.ctx, c, 0))
	d.is(driver.ErrResumed, d.b.Return(d.ctx, c))
	return "calls of a consumer that was resumed"
}

// compare compares all that there is.
func (d *caller) compare() {
	tasks, err := d.b.List(d.ctx, driver.ListOptions{Limit: 1000})
	d.no(err)
	if d.equal(len(d.m.tasks), len(tasks)) {
		for i, want := range d.m.tasks {
			d.equal(want.Info, tasks[i].Info)
			if want.payload != tasks[i].Payload {
				d.equal(want.payload, tasks[i].Payload)
			}
		}
	}
	stats, err := d.b.Stats(d.ctx)
	d.no(err)
	d.equal(d.m.numbers(), stats)
	if d.ear.wants {
		d.equal(d.m.expiries, d.ear.expired)
	}
	if !slices.Equal(d.m.events, d.ear.events) {
		d.equal(d.m.events, d.ear.events)
	}
	d.m.events, d.ear.events = nil, nil
	if d.rand.IntN(5) == 0 {
		d.b.check(d)
	}
}

func (d *caller) equal(want, got any) bool {
	d.Helper()
	if !equal(want, got) {
		d.Errorf("seed %d, after %s:\n want %+v\n got  %+v", d.seed, d.last, want, got)
		return false
	}
	return true
}

func equal(want, got any) bool {
	a, ok := want.(driver.Info)
	if !ok {
		return fmt.Sprint(want) == fmt.Sprint(got)
	}
	b := got.(driver.Info)
	times := func(i *driver.Info) []*time.Time {
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

func (d *caller) no(err error) {
	d.Helper()
	if err != nil {
		d.Errorf("seed %d, after %s: %v", d.seed, d.last, err)
	}
}

func (d *caller) is(want, got error) {
	d.Helper()
	if !errors.Is(got, want) {
		d.Errorf("seed %d, after %s:\n want %v\n got  %v", d.seed, d.last, want, got)
	}
}

func pick[T any](d *caller, from []T) T { return from[d.rand.IntN(len(from))] }
