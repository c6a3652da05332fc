package rowstest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task"
)

// Model makes random calls to queues that are kept in a database, and the same to queues in a [task.Memory]. It compares what
// the calls return, all tasks, all events and the stats after each, and checks the rows (see walk). open opens an empty
// database, which must tell the time of package time, and is used in a bubble of testing/synctest.
//
// What order the contract leaves open is not compared: then the Memory is made to take the task that the other has taken.
// If it fails, it tells the seed; with that in the environment as ROWSTEST_SEED it makes the same calls again.
func Model(t *testing.T, seeds int, open func(t *testing.T) rows.DB) {
	first := uint64(1)
	if s := os.Getenv(seedEnv); s != "" {
		var err error
		if first, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedEnv, err)
		}
		seeds = 1
	}
	if s := os.Getenv("ROWSTEST_SEEDS"); s != "" {
		seeds, _ = strconv.Atoi(s)
	}
	for seed := first; seed < first+uint64(seeds); seed++ {
		synctest.Test(t, func(t *testing.T) { newModel(t, seed, open(t)).run(250) })
		if t.Failed() {
			return
		}
	}
}

// model drives a queue in a database, in up to two processes, and one in a Memory.
type model struct {
	*testing.T
	seed     uint64
	rnd      *rand.Rand
	options  task.Options[int]
	history  time.Duration
	weights  map[string]int
	exact    bool // the order must be the same
	look     rows.DB
	own      joiner          // nil if there are no transactions of the caller's own
	ctx      context.Context // that calls are made with which can be parts of them
	want     *side
	got      []*side
	ids      map[task.ID]task.ID // of the Memory, by ID in the database
	names    map[string]string   // of consumers
	workers  []*worker
	left     []*worker // that have disconnected
	leases   []*lease
	calls    []string
	payload  int
	evicted  int // how many the database has evicted; the Memory has deleted them
	features string

	keys, kinds, groups, addresses []string
}

// side is a queue as one process has it open, and what it was told.
type side struct {
	*task.Queue[int]
	store *rows.Store

	evicted []*task.Task[int]
	dead    bool

	mu      sync.Mutex // protects what other goroutines add to
	events  []task.Event
	expired []*task.Task[int]
}

// worker is a consumer.
type worker struct {
	at        *side
	got, want *task.Consumer[int]
}

type lease2 = task.Task[int]

// lease is a task that was taken.
type lease struct{ got, want *lease2 }

func newModel(t *testing.T, seed uint64, db rows.DB) *model {
	m := &model{
		T: t, seed: seed, rnd: rand.New(rand.NewPCG(seed, 1)), ids: map[task.ID]task.ID{}, names: map[string]string{"": ""},
		ctx: context.Background(), weights: map[string]int{}, keys: []string{"a", "b", "c", "d"}, kinds: []string{""}, groups: []string{"g", "h"},
	}
	for i := range 6 {
		m.addresses = append(m.addresses, fmt.Sprint("addr", i))
	}
	o := &m.options
	o.Newcomers, o.KeepPlace = fairq.Newcomers(m.rnd.IntN(3)/2), m.chance(4)
	if m.chance(3) {
		o.MaxInFlightPerKey = 1 + m.rnd.IntN(2)
	}
	if m.chance(3) {
		o.Capacity = 5 + m.rnd.IntN(20)
		if m.chance(2) {
			o.WhenFull = fairq.EvictHeaviest + fairq.WhenFull(m.rnd.IntN(2))
			m.groups = nil
		}
	}
	if m.chance(4) {
		o.KeyCapacity = 4 + m.rnd.IntN(5)
	}
	if m.chance(2) {
		o.Retention = time.Duration(1+m.rnd.IntN(100)) * time.Second
	}
	if m.chance(2) {
		o.Grace = time.Duration(2+m.rnd.IntN(60)) * time.Second
	}
	if m.chance(3) {
		for _, k := range m.keys {
			m.weights[k] = 1 + m.rnd.IntN(3)
		}
	}
	if m.chance(3) {
		m.kinds = []string{"", "x", "y"}
	}
	if m.chance(4) {
		m.history = time.Minute
	}
	m.exact = o.WhenFull == fairq.Reject && !o.KeepPlace && len(m.kinds) == 1 && o.MaxInFlightPerKey == 0
	if o.Newcomers == fairq.ThisRound {
		m.features += " ThisRound"
	}
	if o.KeepPlace {
		m.features += " KeepPlace"
	}
	m.features += fmt.Sprint(" inflight ", o.MaxInFlightPerKey, " weights ", m.weights, " kinds ", len(m.kinds), " exact ", m.exact)
	m.want = m.open(new(task.Memory), nil)
	handles := []rows.DB{db}
	if own, ok := db.(joiner); ok && db.Exclusive() && seed%3 == 0 {
		m.own = own
	}
	if f, ok := db.(faulty); ok && seed%3 == 1 {
		f.Faults(seed)
	}
	if r, ok := db.(reopener); ok {
		if m.look = r.Reopen(t); db.Exclusive() && m.chance(3) && m.own == nil { // else each process may give a key turns of its own
			handles = append(handles, r.Reopen(t))
		}
	}
	for _, h := range handles {
		s := rows.New(h, rows.Options{MaxPayload: 1 << 20, History: m.history, Poll: 10 * time.Second})
		m.got = append(m.got, m.open(s, s))
	}
	for range 3 {
		m.hire()
	}
	return m
}

func (m *model) chance(n int) bool { return m.rnd.IntN(n) == 0 }

func (m *model) open(in task.Store, store *rows.Store) *side {
	s, o := &side{store: store}, m.options
	if o.WhenFull != fairq.Reject {
		o.OnEvict = func(t *task.Task[int]) { s.evicted = append(s.evicted, t) }
	}
	o.OnExpire = func(t *task.Task[int]) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.expired = append(s.expired, t)
	}
	if len(m.weights) > 0 {
		o.Weight = func(k string) int { return m.weights[k] }
	}
	q, err := task.Open(context.Background(), in, "q", &o)
	m.ok("Open", err)
	s.Queue = q
	events := q.Events(m.Context())
	go func() {
		for e := range events {
			s.mu.Lock()
			s.events = append(s.events, e)
			s.mu.Unlock()
		}
	}()
	m.Cleanup(func() {
		if err := q.Close(context.Background()); err != nil && !s.dead {
			m.Errorf("seed %d: Close: %v", m.seed, err)
		}
	})
	return s
}

// hire makes a consumer.
func (m *model) hire() {
	at := pick(m.rnd, m.got...)
	w := &worker{at, at.NewConsumer(task.Filter{}), m.want.NewConsumer(task.Filter{})}
	m.names[w.got.ID()] = w.want.ID()
	m.workers = append(m.workers, w)
}

func (m *model) run(steps int) {
	for range steps {
		m.step()
		synctest.Wait()
		m.compare()
		if m.Failed() {
			m.Logf("the last calls:\n%s", strings.Join(m.calls[max(0, len(m.calls)-60):], "\n"))
			return
		}
	}
	m.end()
}

func (m *model) say(format string, args ...any) {
	m.calls = append(m.calls, time.Now().Format("04:05.000000000 ")+fmt.Sprintf(format, args...))
}

func (m *model) wrong(format string, args ...any) {
	m.Helper()
	m.Errorf("seed %d%s, after %s:\n%s", m.seed, m.features, m.calls[max(0, len(m.calls)-1):], fmt.Sprintf(format, args...))
}

func (m *model) ok(what string, err error) {
	m.Helper()
	if err != nil {
		m.Fatalf("seed %d: %s: %v", m.seed, what, err)
	}
}

func (m *model) equal(what string, got, want any) bool {
	m.Helper()
	if !reflect.DeepEqual(got, want) {
		m.wrong("%s:\n got  %+v\n want %+v", what, got, want)
		return false
	}
	return true
}

// mayFail is what calls return if they do nothing.
var mayFail = []error{
	fairq.ErrFull, fairq.ErrKeyFull, task.ErrNotFound, task.ErrLeaseLost, task.ErrDuplicateAddress, task.ErrGroupCancelled,
	task.ErrClosed, task.ErrDropped, task.ErrInvalid, task.ErrDeleted, task.ErrExpired, context.DeadlineExceeded,
}

// same compares errors.
func (m *model) same(what string, got, want error) bool {
	m.Helper()
	for _, err := range mayFail {
		if errors.Is(got, err) != errors.Is(want, err) {
			want = fmt.Errorf("%w (it should be)", want)
			break
		}
	}
	if (got == nil) != (want == nil) || errors.Is(want, errNever) {
		m.wrong("%s: error %v; it should be %v", what, got, want)
		return false
	}
	var full, wantFull *fairq.FullError
	if errors.As(got, &full) && errors.As(want, &wantFull) {
		return m.equal(what+": the full error", *full, *wantFull)
	}
	var e, wantE *task.Error
	if errors.As(got, &e) && errors.As(want, &wantE) {
		return m.equal(what+": the recorded error", *e, *wantE)
	}
	return true
}

var errNever = errors.New("it should be another")

func (m *model) side() *side { return pick(m.rnd, m.got...) }

// id returns the ID in the Memory of a task in the database.
func (m *model) id(got task.ID) task.ID { return m.ids[got] }

// some returns the ID of a task that may be there.
func (m *model) some() task.ID {
	tasks := m.list(m.side())
	if len(tasks) == 0 || m.chance(10) {
		return task.ID(m.rnd.IntN(1000))
	}
	return pick(m.rnd, tasks...).ID
}

func (m *model) list(s *side) []*task.Task[int] {
	tasks, err := s.List(m.ctx, task.ListOptions{Limit: 10000})
	m.ok("List", err)
	return tasks
}

func (m *model) duration() time.Duration {
	return 1 + time.Duration(m.rnd.Int64N(int64(60*time.Second)))
}

func (m *model) step() {
	if m.own != nil && m.chance(5) {
		m.join()
		return
	}
	ctx := context.Background()
	switch op := m.rnd.IntN(100); {
	case op < 30:
		m.put()
	case op < 52:
		m.take()
	case op < 72:
		m.settle()
	case op < 76:
		m.change()
	case op < 78:
		m.kick()
	case op < 83:
		m.pause()
	case op < 86:
		m.group()
	case op < 90:
		m.consumer()
	case op < 92:
		m.outcome()
	case op == 92 && m.chance(6):
		m.say("Truncate")
		got, err := m.side().Truncate(ctx)
		m.ok("Truncate", err)
		want, err := m.want.Truncate(ctx)
		m.ok("Truncate of the Memory", err)
		m.equal("truncated", got, want)
	default:
		d := time.Duration(m.rnd.Int64N(int64(40 * time.Second)))
		m.say("Sleep(%v)", d)
		time.Sleep(d)
	}
}

func (m *model) kick() {
	n := m.rnd.IntN(3)
	m.say("Kick(%d)", n)
	got, err := m.side().Kick(m.ctx, n)
	m.ok("Kick", err)
	want, err := m.want.Kick(m.ctx, n)
	m.ok("Kick of the Memory", err)
	m.equal("kicked", got, want)
}

func (m *model) task() task.Batch[int] {
	m.payload++
	b := task.Batch[int]{Key: pick(m.rnd, m.keys...), Payload: m.payload}
	if m.chance(3) {
		b.Key = m.keys[0]
	}
	o := &b.Options
	o.Kind, o.Priority, o.MaxAttempts = pick(m.rnd, m.kinds...), m.rnd.IntN(2), m.rnd.IntN(4)
	if m.chance(4) {
		o.Delay = m.duration()
	}
	if m.chance(5) && !m.exact {
		o.TTL = 3 * m.duration()
	}
	if m.chance(5) && !m.exact {
		o.Deadline = time.Now().Add(4*m.duration() - 40*time.Second)
	}
	if m.chance(3) {
		o.TTR = m.duration()
	}
	if m.chance(5) {
		o.Address = pick(m.rnd, m.addresses...)
	}
	if m.groups != nil && m.chance(6) {
		o.Group, o.Role = pick(m.rnd, m.groups...), task.Role(m.rnd.IntN(5)%3)
	}
	return b
}

func showTask(b *task.Batch[int]) string {
	s, o := fmt.Sprintf("%s %d", b.Key, b.Options.Priority), b.Options
	for _, f := range []struct {
		name  string
		value any
	}{
		{"kind", o.Kind},
		{"delay", o.Delay},
		{"TTL", o.TTL},
		{"deadline", o.Deadline},
		{"TTR", o.TTR},
		{"address", o.Address},
		{"group", o.Group},
		{"attempts", o.MaxAttempts},
	} {
		if !reflect.ValueOf(f.value).IsZero() {
			s += fmt.Sprintf(" %s %v", f.name, f.value)
		}
	}
	return s
}

func showPriority(f task.Filter) string {
	if f.MaxPriority == nil {
		return "-"
	}
	return fmt.Sprint("<= ", *f.MaxPriority)
}

func (m *model) put() {
	var batch []task.Batch[int]
	for range pick(m.rnd, 1, 1, 1, 2, 5) {
		batch = append(batch, m.task())
	}
	if m.options.WhenFull != fairq.Reject {
		batch = batch[:1]
		m.makeRoom(&batch[0])
		return
	}
	got, gotErr := m.side().PutBatch(m.ctx, batch)
	want, wantErr := m.want.PutBatch(m.ctx, batch)
	var tasks []string
	for i := range batch {
		tasks = append(tasks, showTask(&batch[i]))
	}
	m.say("PutBatch(%s) = %d, %v", strings.Join(tasks, ", "), want, wantErr)
	if m.same("PutBatch", gotErr, wantErr) && m.equal("tasks put", len(got), len(want)) {
		for i := range got {
			m.ids[got[i]] = want[i]
		}
	}
}

// makeRoom puts a task into a queue that evicts.
func (m *model) makeRoom(b *task.Batch[int]) {
	s := m.side()
	s.evicted = nil
	before := m.list(s)
	got, gotErr := s.Put(m.ctx, b.Key, b.Payload, b.Options)
	m.say("Put(%+v) = %d, %v, evicts %v", showTask(b), got, gotErr, s.evicted)
	if len(s.evicted) == 1 {
		victim := s.evicted[0]
		m.checkVictim(before, b.Key, victim.ID)
		m.ok("Delete of the Memory", m.want.Delete(m.ctx, m.id(victim.ID)))
		m.evicted++
	}
	want, wantErr := m.want.Put(m.ctx, b.Key, b.Payload, b.Options)
	if m.same("Put", gotErr, wantErr); gotErr == nil {
		m.ids[got] = want
	}
}

// checkVictim checks that a task that was evicted was of a key with the most tasks that wait, and not without need.
func (m *model) checkVictim(before []*task.Task[int], key string, victim task.ID) {
	load, of := map[string]int{}, ""
	for _, t := range before {
		if t.State == task.Ready || t.State == task.Delayed {
			load[t.Key]++
		}
		if t.ID == victim {
			of = t.Key
			if t.State != task.Ready && t.State != task.Delayed {
				m.wrong("a task was evicted that is %v", t.State)
			}
		}
	}
	most := 0
	for k, n := range load {
		w := max(1, m.weights[k])
		load[k] = (n + w - 1) / w
		most = max(most, load[k])
	}
	switch {
	case load[of] != most:
		m.wrong("a task was evicted of key %s; the loads are %v", of, load)
	case load[key] == most && (m.options.WhenFull == fairq.EvictHeaviest || of != key):
		m.wrong("a task was evicted of key %s for one of key %s; the loads are %v", of, key, load)
	case len(before) < m.options.Capacity:
		m.wrong("a task was evicted though there was room")
	}
}

func (m *model) take() {
	w := pick(m.rnd, m.workers...)
	var f task.Filter
	if m.chance(4) {
		f.MaxPriority = new(m.rnd.IntN(3) - 1)
	}
	if m.chance(4) {
		f.Kinds = []string{pick(m.rnd, m.kinds...), pick(m.rnd, m.kinds...)}
	}
	w.got.SetFilter(f)
	w.want.SetFilter(f)
	n := pick(m.rnd, 1, 1, 3)
	if !m.exact {
		n = 1
	}
	for range n {
		t, ok, err := w.got.TryTake(context.Background())
		m.ok("TryTake", err)
		m.say("TryTake(%s %s, %q) = %v", w.want.ID()[:4], showPriority(f), f.Kinds, ok)
		if ok {
			m.say("... task %d of %s, priority %d, kind %q", m.id(t.ID), t.Key, t.Priority, t.Kind)
		}
		if ok && !m.exact {
			m.only(t.Key, true)
		}
		t2, ok2, err := w.want.TryTake(context.Background())
		m.ok("TryTake of the Memory", err)
		if ok && !m.exact {
			m.only(t.Key, false)
		}
		if !m.equal("whether a task was taken", ok, ok2) || !ok {
			if ok2 {
				m.say("the Memory has taken %d", t2.ID)
			}
			return
		}
		m.equal("the task that was taken", m.id(t.ID), t2.ID)
		m.equal("its payload", t.Payload, t2.Payload)
		m.leases = append(m.leases, &lease{t, t2})
	}
}

// only makes the Memory take no tasks but those of a key, or not any more.
func (m *model) only(key string, on bool) {
	stats, err := m.got[0].KeyStats(context.Background(), 100)
	m.ok("KeyStats", err)
	for _, k := range m.keys {
		paused := slices.ContainsFunc(stats, func(s task.KeyStat) bool { return s.Key == k && s.Paused })
		switch {
		case k == key || paused:
		case on:
			m.ok("PauseKey", m.want.PauseKey(context.Background(), k))
		default:
			m.ok("ResumeKey", m.want.ResumeKey(context.Background(), k))
		}
	}
}

func (m *model) settle() {
	if len(m.leases) == 0 {
		return
	}
	l := m.leases[len(m.leases)-1-min(m.rnd.IntN(8), m.rnd.IntN(len(m.leases)))]
	op, d, touch := m.rnd.IntN(12), m.duration(), time.Duration(m.rnd.IntN(2))*m.duration()
	reason := errors.New("reason")
	do := func(t *lease2) error {
		ctx := m.ctx
		switch {
		case op < 4:
			return t.Ack(ctx)
		case op == 4:
			return t.Release(ctx, 0)
		case op == 5:
			return t.Release(ctx, d)
		case op == 6:
			return t.Fail(ctx, reason, 0)
		case op == 7:
			return t.Fail(ctx, reason, d)
		case op == 8:
			return t.Bury(ctx, reason)
		case op == 9:
			return t.Snooze(ctx, touch)
		case op == 10:
			return t.Discard(ctx, reason)
		}
		return t.Touch(ctx, touch)
	}
	got, want := do(l.got), do(l.want)
	m.say("settle(%d, %d, %v, %v) = %v", l.want.ID, op, d, touch, want)
	m.same("settle", got, want)
	m.equal("until", at(l.got.Until), at(l.want.Until))
}

func (m *model) change() {
	id, op := m.some(), m.rnd.IntN(3)
	if m.exact && op > 0 { // only those whose turn nobody else gets
		if t, err := m.got[0].Peek(m.ctx, id); err == nil && t.State == task.Ready {
			return
		}
		if m.options.KeepPlace {
			return
		}
	}
	do := func(s *side, id task.ID) error {
		switch op {
		case 0:
			return s.KickID(m.ctx, id)
		case 1:
			return s.Bury(m.ctx, id, errors.New("by hand"))
		}
		return s.Delete(m.ctx, id)
	}
	want := do(m.want, m.id(id))
	m.say("change(%d, %d) = %v", m.id(id), op, want)
	m.same("change", do(m.side(), id), want)
}

func (m *model) pause() {
	on := m.chance(3)
	key := pick(m.rnd, m.keys...)
	whole := m.chance(4) || m.exact
	do := func(s *side) error {
		ctx := context.Background()
		switch {
		case whole && on:
			return s.Pause(ctx)
		case whole:
			return s.Resume(ctx)
		case on:
			return s.PauseKey(ctx, key)
		}
		return s.ResumeKey(ctx, key)
	}
	m.say("Pause(%s, whole %v, %v)", key, whole, on)
	m.ok("Pause", do(m.side()))
	m.ok("Pause of the Memory", do(m.want))
}

func (m *model) group() {
	if m.groups == nil {
		return
	}
	name, cancel := pick(m.rnd, m.groups...), m.chance(3) && !m.exact
	do := func(s *side) error {
		if cancel {
			return s.CancelGroup(m.ctx, name)
		}
		return s.StartGroup(m.ctx, name)
	}
	want := do(m.want)
	m.say("Group(%s, cancel %v) = %v", name, cancel, want)
	m.same("Group", do(m.side()), want)
}

func (m *model) outcome() {
	address := pick(m.rnd, m.addresses...)
	do := func(s *side) error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
		defer cancel()
		return s.Wait(ctx, address)
	}
	want := do(m.want)
	m.say("Wait(%s) = %v", address, want)
	m.same("Wait", do(m.side()), want)
}

// consumer has a consumer come or go.
func (m *model) consumer() {
	ctx := context.Background()
	if len(m.left) > 0 && m.chance(2) {
		i := m.rnd.IntN(len(m.left))
		w := m.left[i]
		m.left = slices.Delete(m.left, i, i+1)
		at := m.side()
		got, held, gotErr := at.ResumeConsumer(ctx, w.got.ID(), task.Filter{})
		want, wantHeld, wantErr := m.want.ResumeConsumer(ctx, w.want.ID(), task.Filter{})
		m.say("Resume(%s) = %v", w.want.ID()[:4], wantErr)
		if m.same("ResumeConsumer", gotErr, wantErr); wantErr == nil && gotErr == nil && m.equal("tasks held", len(held), len(wantHeld)) {
			m.workers = append(m.workers, &worker{at, got, want})
			for i := range held {
				m.equal("a task that is held", m.id(held[i].ID), wantHeld[i].ID)
				m.leases = append(m.leases, &lease{held[i], wantHeld[i]})
			}
		}
		return
	}
	i := m.rnd.IntN(len(m.workers))
	w := m.workers[i]
	m.workers = slices.Delete(m.workers, i, i+1)
	if m.chance(2) {
		m.say("Disconnect(%s)", w.want.ID()[:4])
		m.ok("Disconnect", w.got.Disconnect(ctx))
		m.ok("Disconnect of the Memory", w.want.Disconnect(ctx))
		m.left = append(m.left, w)
	} else {
		m.say("Close(%s)", w.want.ID()[:4])
		m.ok("Close", w.got.Close(ctx))
		m.ok("Close of the Memory", w.want.Close(ctx))
	}
	if len(m.workers) < 2 {
		m.hire()
	}
}

// at makes times comparable.
func at(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format("15:04:05.000000000")
}

// info returns what is known of a task as it is in the Memory, with times that can be compared.
func (m *model) info(s *side, i task.Info) any {
	type comparable struct {
		task.Info
		Created, ReadyAt, Until, Deadline, Expires, Err string
	}
	if i.State == task.Taken && s != m.want {
		i.Consumer = m.names[i.Consumer]
	}
	c := comparable{i, at(i.Created), at(i.ReadyAt), at(i.Until), at(i.Deadline), at(i.Expires), fmt.Sprint(i.Err)}
	c.Info.Created, c.Info.ReadyAt, c.Info.Until, c.Info.Deadline, c.Info.Expires, c.Info.Err = time.Time{}, time.Time{}, time.Time{}, time.Time{}, time.Time{}, nil
	if s != m.want {
		c.ID = m.id(i.ID)
	}
	return c
}

// compare compares all that there is.
func (m *model) compare() {
	m.Helper()
	want := m.list(m.want)
	for _, s := range m.got {
		got := m.list(s)
		if !m.equal("the number of tasks", len(got), len(want)) {
			return
		}
		slices.SortFunc(got, func(a, b *task.Task[int]) int { return int(m.id(a.ID)) - int(m.id(b.ID)) })
		for i := range want {
			if !m.equal("a task", m.info(s, got[i].Info), m.info(m.want, want[i].Info)) || !m.equal("a payload", got[i].Payload, want[i].Payload) {
				return
			}
		}
	}
	m.compareStats()
	synctest.Wait()
	m.compareEvents()
	m.compareExpired()
	if m.look != nil {
		if wrong := m.walk(); wrong != "" {
			m.wrong("the rows: %s", wrong)
		}
	}
}

func (m *model) compareStats() {
	want, err := m.want.Stats(context.Background())
	m.ok("Stats of the Memory", err)
	var sum task.Stats
	for _, s := range m.got {
		got, err := s.Stats(context.Background())
		m.ok("Stats", err)
		got.Puts += sum.Puts
		got.Takes += sum.Takes
		got.Acks += sum.Acks
		got.Releases += sum.Releases
		got.Losses += sum.Losses
		got.Buries += sum.Buries
		got.Kicks += sum.Kicks
		got.Touches += sum.Touches
		got.Deletes += sum.Deletes
		got.Expiries += sum.Expiries
		got.Evicted += sum.Evicted
		got.Refused += sum.Refused
		sum = got
	}
	sum.Deletes += uint64(m.evicted)
	want.Evicted += uint64(m.evicted)
	if m.own != nil { // they do not count
		sum, want = now(sum), now(want)
	}
	m.equal("stats", sum, want)
	byKey := func(s *side) []task.KeyStat {
		list, err := s.KeyStats(context.Background(), 100)
		m.ok("KeyStats", err)
		slices.SortFunc(list, func(a, b task.KeyStat) int { return strings.Compare(a.Key, b.Key) })
		return append([]task.KeyStat{}, list...)
	}
	m.equal("stats by key", byKey(m.side()), byKey(m.want))
}

// compareEvents compares the events of each task. Those of a process that has learned of a loss by looking do not count, for
// another one has told about it.
func (m *model) compareEvents() {
	lives := func(s *side) map[task.ID][]string {
		all := map[task.ID][]string{}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, e := range s.events {
			id, what := e.Task.ID, e.Type
			if s != m.want {
				if id = m.id(id); what == task.EventEvict {
					what = task.EventDelete
				}
			}
			if !e.Task.Created.IsZero() {
				e.Task.Consumer = ""
				if e.Type != task.EventTake && e.Type != task.EventTouch && e.Task.State == task.Taken {
					e.Task.Until = time.Time{} // of a lease that is over
				}
				all[id] = append(all[id], fmt.Sprint(what, " ", at(e.Time), " ", e.Lease != 0, " ", m.info(s, e.Task)))
			}
		}
		s.events = nil
		return all
	}
	want, got := lives(m.want), map[task.ID][]string{}
	if m.own != nil { // nobody is told of what happens in a transaction of the caller's
		return
	}
	for _, s := range m.got {
		for id, events := range lives(s) {
			got[id] = append(got[id], events...)
		}
	}
	for id := range want {
		if len(m.got) > 1 { // which of two processes was first is not known
			slices.Sort(got[id])
			slices.Sort(want[id])
		}
		m.equal(fmt.Sprintf("events of task %d", id), strings.Join(got[id], "\n"), strings.Join(want[id], "\n"))
	}
	m.equal("the number of tasks with events", len(got), len(want))
}

func (m *model) compareExpired() {
	all := func(s *side) (list []string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, t := range s.expired {
			t.Consumer = "" // who held it last
			list = append(list, fmt.Sprint(m.info(s, t.Info), t.Payload))
		}
		s.expired = nil
		return list
	}
	var got []string
	for _, s := range m.got {
		got = append(got, all(s)...)
	}
	want := all(m.want)
	slices.Sort(got)
	slices.Sort(want)
	if m.own != nil {
		return
	}
	m.equal("tasks that have expired", got, want)
}

// end lets all that is due happen, and takes what is left.
func (m *model) end() {
	m.say("the end")
	ctx := context.Background()
	for _, w := range m.workers {
		m.ok("Close", w.got.Close(ctx))
		m.ok("Close of the Memory", w.want.Close(ctx))
	}
	m.workers = nil
	time.Sleep(time.Hour)
	synctest.Wait()
	m.compare()
	m.ok("Resume", m.side().Resume(ctx))
	m.ok("Resume of the Memory", m.want.Resume(ctx))
	for _, k := range m.keys {
		m.ok("ResumeKey", m.side().ResumeKey(ctx, k))
		m.ok("ResumeKey of the Memory", m.want.ResumeKey(ctx, k))
	}
	m.hire()
	for range 1000 {
		n := len(m.leases)
		if m.take(); m.Failed() {
			return
		}
		if len(m.leases) > n {
			l := m.leases[len(m.leases)-1]
			m.ok("Ack", l.got.Ack(ctx))
			m.ok("Ack of the Memory", l.want.Ack(ctx))
		}
	}
	m.compare()
}
