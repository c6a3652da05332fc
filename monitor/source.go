package monitor

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/printable"
)

// Limits of what a look at a source brings to light, and of what is sent at once.
const (
	interval    = time.Second
	maxInterval = time.Minute
	lookTimeout = 5 * time.Second

	maxUpcoming     = 1000
	maxUpcomingRows = 200 // where a task queue is not in memory
	maxKeys         = 100
	maxBuried       = 50
	maxDescribed    = 100 // payloads

	pageUpcoming = 200
	pageKeys     = 50
	pageBuried   = 20
)

// Source is a queue, a pool or a limiter with a name. Any number of Monitors, [Var] and package metrics can
// look at it. [FairQueue], [TaskQueue], [Pool] and
// [Limiter] make one.
type Source struct {
	name string
	kind string
	of   viewed

	turn chan struct{} // has room for one: who has sent may use the rest
	last *sample
	next time.Time // when there can be another look
}

// viewed is what a Source looks at. Only one call of look is made at a time.
type viewed interface {
	look(ctx context.Context) (sample, error)

	stats(ctx context.Context) (any, error)
	keyStats(ctx context.Context, n int, by fairq.KeyOrder) ([]fairq.KeyStat[string], error)

	// actions are those that there are, and do does one of them. It returns to how many items or
	// tasks it was done.
	actions() []string
	do(ctx context.Context, a Action, last *sample) (n int, err error)
}

// newSource panics if the name cannot be part of a path.
func newSource(name, kind string, of viewed) *Source {
	if err := printable.CheckName(name); err != nil {
		panic(fmt.Sprintf("monitor: the name of a source %v", err))
	}
	return &Source{name: name, kind: kind, of: of, turn: make(chan struct{}, 1)}
}

// Name returns the name.
func (s *Source) Name() string { return s.name }

// Stats returns a [fairq.Stats], [task.Stats], [pool.Stats] or [admit.Stats] as of now. Beside an error, the
// counters of this process are there.
func (s *Source) Stats(ctx context.Context) (any, error) { return s.of.stats(ctx) }

// KeyStats returns n keys as [fairq.FairQueue.KeyStats], [task.Queue.KeyStats] or
// [admit.Limiter.KeyStats] does, each as the text that the package documentation describes. Of a
// pool there are none: its queue has them. Of a limiter the Backlog is the calls that wait.
func (s *Source) KeyStats(ctx context.Context, n int, by fairq.KeyOrder) ([]fairq.KeyStat[string], error) {
	return s.of.keyStats(ctx, n, by)
}

// sample is what a look at a source has brought to light. It does not change.
type sample struct {
	summary
	Keys     []keyRow      `json:"keys"`
	Upcoming []upcomingRow `json:"upcoming"`
	Buried   []buriedRow   `json:"buried"`
	More     bool          `json:"more"` // there may be more behind Upcoming

	keys  map[string]any // by text, those that cannot be told from it
	event []byte         // for the page
}

type summary struct {
	Name  string     `json:"name"`
	Kind  string     `json:"kind"` // "queue", "tasks", "pool" or "limiter"
	At    time.Time  `json:"at"`
	Error string     `json:"error,omitempty"` // why there is nothing else
	Stats any        `json:"stats"`           // a fairq.Stats, task.Stats, pool.Stats or admit.Stats
	Wait  *quantiles `json:"wait,omitempty"`
	Queue string     `json:"queue,omitempty"` // of a pool: the source of what waits for it

	// Counts says what the counters among the Stats of tasks tell of, if not of all that happens.
	Counts string `json:"counts,omitempty"`
}

// What the counters tell of.
const (
	countsOwn     = "process" // what this process has done; others share the store
	countsNothing = "nothing" // this process only looks: see task.Options.AsIs
)

// upcomingRow is an item that leaves soon. Of an item of a FairQueue there is no ID.
type upcomingRow struct {
	Key   string        `json:"key"`
	Round int           `json:"round"`          // 0 is the current one; tasks of each priority have their own
	Cost  uint64        `json:"cost,omitempty"` // 1 if there is none
	Age   time.Duration `json:"age_ns,omitempty"`
	ID    uint64        `json:"id,omitempty,string"`

	Priority int    `json:"priority,omitempty"` // of a task; 0 is the most urgent
	Payload  string `json:"payload,omitempty"`  // of the first 100, as described
}

// buriedRow is a buried task.
type buriedRow struct {
	ID       uint64    `json:"id,string"`
	Key      string    `json:"key"`
	Kind     string    `json:"kind,omitempty"`
	Attempts int       `json:"attempts"`
	Created  time.Time `json:"created"`
	Reason   string    `json:"reason"`
	Payload  string    `json:"payload,omitempty"`
}

// sample returns what the last look has brought to light, and when there can be the next one. There
// is no more than one in an interval, they take a twentieth of the time at most, and there are never
// two at the same time.
func (s *Source) sample(ctx context.Context) (*sample, time.Time, error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, time.Time{}, context.Cause(ctx)
	}
	defer func() { <-s.turn }()
	if begin := time.Now(); !begin.Before(s.next) {
		s.last = s.look(ctx)
		s.next = begin.Add(min(max(interval, 20*time.Since(begin)), maxInterval))
	}
	return s.last, s.next, nil
}

// look looks for all who wait, so it goes on if the one who began has gone.
func (s *Source) look(ctx context.Context) *sample {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
	defer cancel()
	at := time.Now()
	l, err := s.of.look(ctx)
	if err != nil {
		l = sample{}
		l.Error = shown(err.Error())
	}
	l.Name, l.Kind, l.At = s.name, s.kind, at
	l.event = event(l)
	return &l
}

// event returns what the page is sent.
func event(l sample) []byte {
	l.More = l.More || len(l.Upcoming) > pageUpcoming
	l.Keys = l.Keys[:min(len(l.Keys), pageKeys)]
	l.Upcoming = l.Upcoming[:min(len(l.Upcoming), pageUpcoming)]
	l.Buried = l.Buried[:min(len(l.Buried), pageBuried)]
	return encode(l)
}

// encode returns JSON of a type of this package, which has nothing in it that could fail.
func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("monitor: " + err.Error())
	}
	return text
}

// Var returns a value for [expvar.Publish], whose String is the same as what the path
// /v1/queues/{name} answers.
func Var(s *Source) fmt.Stringer { return variable{s} }

type variable struct{ source *Source }

func (v variable) String() string {
	l, _, _ := v.source.sample(context.Background())
	return string(encode(l.summary))
}
