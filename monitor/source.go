package monitor

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/printable"
)

// Limits of the data of one read of a source, and of one response.
const (
	interval    = time.Second
	maxInterval = time.Minute
	lookTimeout = 5 * time.Second

	maxUpcoming     = 1000
	maxUpcomingRows = 200 // where a task queue is not in memory
	maxKeys         = 100 // in each order
	maxDescribed    = 100 // payloads

	pageUpcoming = 200
	pageKeys     = 25 // in each order
)

// Source is a queue, a pool or a limiter with a name. Any number of Monitors and package metrics
// can look at it. [FairQueue], [TaskQueue], [Pool] and [Limiter] make one.
type Source struct {
	name string
	kind string
	of   viewed
	turn chan struct{} // has room for one: its sender may read failures

	actions []string // that are possible; if there are any, of is an actor

	mu      sync.Mutex
	looking chan struct{} // is closed when the look that is going on has ended; nil if none is
	began   time.Time     // the last look
	next    time.Time     // when there can be another one
	// the begin of the first of the failed looks since the last good one; zero if there is none
	away  time.Time
	last  *sample // of the last look that has ended; it is away if none has
	past  past
	tasks atomic.Pointer[taskList] // that were read last
}

// viewed is what a Source looks at. Only one call of look is made at a time.
type viewed interface {
	look(ctx context.Context) (sample, error)

	stats(ctx context.Context) (any, error)
	keyStats(ctx context.Context, n int, by fairq.KeyOrder) ([]fairq.KeyStat[string], error)
}

type actor interface {
	// do does an action. It returns the number of items or tasks, and whether more are left because
	// the time was over.
	do(ctx context.Context, a Action, last *sample) (n int, more bool, err error)
}

// newSource panics if the name cannot be part of a path.
func newSource(name, kind string, of viewed, actions ...string) *Source {
	if err := printable.CheckName(name); err != nil {
		panic(fmt.Sprintf("monitor: the name of a source %v", err))
	}
	last := &sample{summary: summary{Name: name, Kind: kind, State: isAway}}
	return &Source{
		name: name, kind: kind, of: of, turn: make(chan struct{}, 1), actions: actions, last: last,
	}
}

// Name returns the name.
func (s *Source) Name() string { return s.name }

// Stats returns a [fairq.Stats], [task.Stats], [pool.Stats] or [admit.Stats] as of now. If it
// returns an error too, the value has only the counters of this process.
func (s *Source) Stats(ctx context.Context) (any, error) { return s.of.stats(ctx) }

// KeyStats returns n keys as [fairq.FairQueue.KeyStats], [task.Queue.KeyStats] or
// [admit.Limiter.KeyStats] does. Each key is the text that the package documentation describes. By
// backlog and age there are at most 100 keys, as of the last read. A task queue's OldestAge is
// that of ready tasks. A limiter's Backlog is the calls that wait. A pool has no keys: its queue
// has them.
func (s *Source) KeyStats(
	ctx context.Context, n int, by fairq.KeyOrder,
) (stats []fairq.KeyStat[string], err error) {
	if by >= fairq.ByServed || s.kind == "pool" {
		return s.of.keyStats(ctx, n, by)
	}
	l, _, err := s.sample(ctx)
	switch {
	case err != nil:
		return nil, err
	case l.Error != "":
		return nil, errors.New(l.Error)
	}
	for _, k := range first(inOrder(l.Keys, []string{"backlog", "oldest"}[by]), min(n, maxKeys)) {
		stats = append(stats, k.KeyStat)
	}
	return stats, nil
}

// sample is what a look at a source has brought to light. It does not change.
type sample struct {
	summary
	Keys     []keyRow      `json:"keys"`
	Upcoming []upcomingRow `json:"upcoming"`
	More     bool          `json:"more"` // there may be more behind Upcoming

	// Newcomer is for how many items the first one of a new key would wait now, at most; nil if
	// that is not known.
	Newcomer *int `json:"new_key_waits,omitempty"`

	keys  map[string]any // by text, the keys that their texts do not determine
	waits *quantiles     // of the queue of a pool

	// Why attempts of a pool fail, after a colon, of tasks that are tried again and of others; "" if
	// that is not known.
	reasons [2]string
	busy    string          // which task runs for too long, "" if none does
	taken   fairq.Histogram // how long the tasks taken had been ready
	event   []byte          // for the page
}

type summary struct {
	Name  string    `json:"name"`
	Kind  string    `json:"kind"` // "queue", "tasks", "pool" or "limiter"
	At    time.Time `json:"at"`
	State string    `json:"state"`           // "open", "paused", "closed" or "away"
	Error string    `json:"error,omitempty"` // why there is nothing else
	Stats any       `json:"stats"`           // a fairq.Stats, task.Stats, pool.Stats or admit.Stats
	Queue string    `json:"queue,omitempty"` // of a pool: the source of what waits for it

	Backlog int           `json:"backlog"`
	Oldest  time.Duration `json:"oldest_age_ns"` // 0 if it is not known
	Minute  *minute       `json:"minute,omitempty"`
	Alerts  []string      `json:"alerts"` // what is wrong, in words

	// Counts says what the counters among the Stats of tasks tell of, if not of all that happens.
	Counts string `json:"counts,omitempty"`

	// KeysAt is when the tasks of the keys were counted, unless that was At. KeysTook is the time
	// from the first page of that count to the last. If there was never a full count, KeysOf of
	// KeysAll tasks are counted so far.
	KeysAt   *time.Time    `json:"keys_at,omitempty"`
	KeysTook time.Duration `json:"keys_ns,omitempty"`
	KeysOf   int           `json:"keys_of,omitempty"`
	KeysAll  int           `json:"keys_all,omitempty"`

	Point *point `json:"point,omitempty"` // of the chart

	// QueueStats are the Stats of the queue of a pool.
	QueueStats any `json:"queue_stats,omitempty"`
}

// The states of a source.
const (
	isOpen   = "open"
	isPaused = "paused"
	isClosed = "closed"
	isAway   = "away"
)

// What the counters tell of.
const (
	countsOwn     = "process" // what this process has done; others share the store
	countsNothing = "nothing" // this process only looks: see task.Options.AsIs
)

// upcomingRow is an item that leaves soon. Of an item of a FairQueue there is no ID.
type upcomingRow struct {
	Key string `json:"key"`
	// Round 0 is the current one. Tasks of each priority have rounds of their own.
	Round int           `json:"round"`
	Cost  uint64        `json:"cost,omitempty"` // 1 if there is none
	Age   time.Duration `json:"age_ns,omitempty"`
	ID    uint64        `json:"id,omitempty,string"`

	Priority int    `json:"priority,omitempty"` // of a task; 0 is the most urgent
	Payload  string `json:"payload,omitempty"`  // of the first 100, as described
}

// newcomer returns for how many items a new key would wait. The first item of a new key is the
// last one of the next round, and later items of others cannot join that round. With several
// priorities nothing is known, because the priority of the item decides.
func newcomer(upcoming []upcomingRow, more bool) *int {
	for i, u := range upcoming {
		if u.Priority != upcoming[0].Priority {
			return nil
		}
		if u.Round > 1 {
			return &i
		}
	}
	if more {
		return nil
	}
	return new(len(upcoming))
}

// begin begins a look if it is time for one. It returns nil if no look is going on, otherwise a
// channel that is closed at the end of the look.
func (s *Source) begin() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.looking == nil && !now.Before(s.next) {
		s.looking, s.began = make(chan struct{}), now
		go s.look()
	}
	return s.looking
}

// sample returns the data of the last read, and the time of the next read. It waits for a read
// that is going on, until ctx is done. Reads begin at least an interval apart, take at most a
// twentieth of the time, and never overlap.
func (s *Source) sample(ctx context.Context) (*sample, time.Time, error) {
	if looking := s.begin(); looking != nil {
		select {
		case <-looking:
		case <-ctx.Done():
			return nil, time.Time{}, context.Cause(ctx)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, s.next, nil
}

// look reads for all waiting clients, so it goes on if the first one has left.
func (s *Source) look() {
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	at := time.Now()
	l, err := s.try(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("a look takes longer than %v", lookTimeout)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		l = sample{summary: summary{State: isAway, Error: shown(err.Error())}}
	}
	l.Name, l.Kind, l.At = s.name, s.kind, at
	if err == nil {
		s.away, s.next = time.Time{}, at.Add(min(max(interval, 20*time.Since(at)), maxInterval))
		s.past.add(&l)
		l.Alerts = l.alerts()
	} else {
		if s.away.IsZero() {
			s.away = at
		}
		l.Alerts, s.next = []string{noAnswer(time.Since(s.away), l.Error)}, time.Now().Add(interval)
	}
	l.event = event(l)
	s.last = &l
	close(s.looking)
	s.looking = nil
}

// try looks. Functions of the user's may be called, such as Options.Weight.
func (s *Source) try(ctx context.Context) (l sample, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it panicked: %v", p)
		}
	}()
	return s.of.look(ctx)
}

// lastSample returns the last sample, without waiting for another one.
func (s *Source) lastSample() *sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// summary returns the known data without waiting.
func (s *Source) summary() summary {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, since, now := s.last.summary, s.away, time.Now()
	if since.IsZero() {
		since = s.began
	}
	if s.looking != nil && now.Sub(s.began) > interval || l.State == isAway {
		l.State, l.Alerts = isAway, []string{noAnswer(now.Sub(since), l.Error)}
	}
	return l
}

// event returns what the page is sent, packed with gzip.
func event(l sample) []byte {
	l.More = l.More || len(l.Upcoming) > pageUpcoming
	l.Upcoming = l.Upcoming[:min(len(l.Upcoming), pageUpcoming)]
	keys := l.Keys
	l.Keys = []keyRow{}
	for _, k := range keys {
		if k.first || k.Paused || k.Limits != "" {
			l.Keys = append(l.Keys, k)
		}
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write(encode(l))
	_ = w.Close()
	return packed.Bytes()
}

// encode returns JSON of a type of this package, which has nothing in it that could fail.
func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("monitor: " + err.Error())
	}
	return text
}
