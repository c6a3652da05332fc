package rows

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task/driver"
)

// Options say how a Store uses its database.
type Options struct {
	MaxPayload int           // bytes
	History    time.Duration // how long tasks that are gone are remembered; 0 means not at all
	Poll       time.Duration // how often somebody who waits looks for what others have done
	Timeout    time.Duration // how long a transaction may take; 0 means that the database sees to it
}

// Store is a [driver.Store] that keeps its queues in a database.
type Store struct {
	db        DB
	traits    Traits
	options   Options
	committer *committer // that of all queues, nil if each has its own

	mu     sync.Mutex // protects queues
	queues map[uint64]*queue
}

// New returns a Store.
func New(db DB, options Options) *Store {
	s := &Store{db: db, traits: db.Traits(), options: options, queues: map[uint64]*queue{}}
	if s.traits.Exclusive {
		s.committer = &committer{store: s}
	}
	return s
}

// rowsPerTask is how many rows are written where something happens to a task, if it is not at the
// front of a line: its own, those of its key and its group, the next one of its line, its outcome,
// and what the history keeps of it.
const rowsPerTask = 6

// step returns how many of n tasks one transaction works on.
func (s *Store) step(n int) int {
	if most := s.traits.MaxWrites; most > 0 {
		return min(n, max(1, most/rowsPerTask))
	}
	return n
}

// context returns one for a transaction. It does not end with that of a caller, for others' calls
// are in it too.
func (s *Store) context() (context.Context, context.CancelFunc) {
	if s.options.Timeout == 0 {
		return context.Background(), func() {}
	}
	return context.WithTimeout(context.Background(), s.options.Timeout)
}

// queue is a queue as this process knows it. All that have it open here share it.
//
// What its committer's transactions know of it is used by the one who leads alone.
type queue struct {
	store     *Store
	committer *committer
	number    uint64
	name      string
	settings  settings
	text      []byte // the settings as they are written down
	mode
	joined bool // it stands for the queue in a transaction of the caller's

	mu       sync.Mutex // protects backends, never held while something is done
	backends []*backend

	// What follows is used by the one who leads alone.

	members map[string]*member // consumers that live here
	names   map[uint64]string  // of consumers
	held    map[uint64]held    // by task: leases of members
	mark    string             // from where on outcomes have not been looked at yet, "" if nobody awaits any
	checked int64              // when all that is awaited was looked for last
	stats   driver.Stats       // counters
	due     int64              // when advance has something to do, 0 for never
	beat    int64              // when members must be renewed, 0 for never: no later than beatOf any of their deadlines
	outcome int64              // until when the next outcome is told that is to be forgotten
	spares  int64              // until then nobody is taken for dead
	unsure  map[uint64]uint64  // by task: leases that may have begun in transactions that have failed, of each the last one
	losable int                // how many held make it worth to look which are lost, if nobody wants to be told
	dropped bool
	kept    kept
	counted counted

	// These are times of this process, not of the database; 0 means never.
	next  atomic.Int64 // when there is something due
	poll  atomic.Int64 // when to ask whether others have changed something
	pause atomic.Int64 // between the last two such times, if it was shorter than usual

	others atomic.Bool // others have changed something, as far as is known
}

// settings are those of a queue as they are written down.
type settings struct {
	driver.Settings
	Kinds   bool // it has ever had a task of a kind
	Crowded bool // it is so full that a key may be over its share, or was not long ago; see crowd
}

// mode is what follows from the settings.
type mode struct {
	fronted  bool // only the fronts of keys can be taken
	limited  bool // MaxInFlightPerKey
	reserves bool // tasks have their turns from Put on
	thisTurn bool // newcomers join the round being served
	evicts   bool
	counts   bool // there is a row for each key that has tasks
	alone    bool // each transaction needs the queue for itself
}

func modeOf(s *settings) mode {
	m := mode{
		fronted:  s.Kinds || s.MaxInFlightPerKey > 0,
		limited:  s.MaxInFlightPerKey > 0,
		reserves: s.KeepPlace && !s.Kinds && s.MaxInFlightPerKey == 0,
		thisTurn: s.Newcomers == fairq.ThisRound,
		evicts:   s.WhenFull >= fairq.EvictHeaviest,
	}
	m.counts = m.limited || m.evicts || s.KeyCapacity < s.Capacity || s.Crowded
	m.alone = m.fronted || m.counts || m.thisTurn || s.Capacity < fairq.MaxLen
	return m
}

// byKey tells whether more is asked of each key than the last round of its lines.
func (m *mode) byKey() bool { return m.fronted || m.counts }

// member is a consumer that lives in this process, which renews it.
type member struct {
	number   uint64
	epoch    uint64
	deadline int64 // nobody else takes it for dead before
}

type held struct {
	lease     uint64
	key       string
	group     string
	cancelled bool // it was told that its group is
}

// openerPrefix begins the names of consumers that stand for those who have the queue open.
const openerPrefix = "\x00open "

// Open implements [driver.Store].
func (s *Store) Open(ctx context.Context, name string, wanted driver.Settings, n driver.Notifier) (driver.Backend, error) {
	for { // until it is not dropped in between
		number, err := s.find(ctx, name, settings{Settings: wanted})
		if err != nil {
			return nil, failed("Open", name, err)
		}
		b := &backend{queue: s.queue(number, name, settings{Settings: wanted}), notifier: n, opener: openerPrefix + newName()}
		err = b.call(ctx, "Open", call{alone: true, opens: true, run: func(u *unit) error { return u.open(b, wanted) }})
		if errors.Is(err, driver.ErrDropped) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return b, nil
	}
}

// Queues implements [driver.Store].
func (s *Store) Queues(ctx context.Context, from string, n int) (names []string, err error) {
	if n == 0 {
		n = math.MaxInt32
	}
	for try := 1; ; try++ {
		if names, err = s.tryQueues(ctx, from, n); err == nil {
			return names, nil
		}
		if try == mostTries || !s.again(ctx, err, try) {
			return nil, fmt.Errorf("task: Queues: %w", err)
		}
	}
}

func (s *Store) tryQueues(ctx context.Context, from string, n int) ([]string, error) {
	tx, err := s.db.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	return tx.Queues(from, n)
}

// find returns the number of the queue of that name, which it makes if there is none.
func (s *Store) find(ctx context.Context, name string, wanted settings) (number uint64, err error) {
	for try := 1; ; try++ {
		if number, err = s.tryFind(ctx, name, wanted); err == nil || try == mostTries || !s.again(ctx, err, try) {
			return number, err
		}
	}
}

func (s *Store) tryFind(ctx context.Context, name string, wanted settings) (uint64, error) {
	tx, err := s.db.Begin(ctx)
	if err != nil {
		return 0, err
	}
	row, err := tx.Queue(name, wanted.text())
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		tx.Rollback()
		return 0, err
	}
	return row.ID, nil
}

// queue returns the queue of that number as this process knows it.
func (s *Store) queue(number uint64, name string, wanted settings) *queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[number]
	if q == nil {
		q = newQueue(s, number, name, wanted)
		if q.committer = s.committer; q.committer == nil { // so that queues do not wait for each other
			q.committer = &committer{store: s}
		}
		s.queues[number] = q
	}
	return q
}

func newQueue(s *Store, number uint64, name string, known settings) *queue {
	q := &queue{
		store: s, number: number, name: name, members: map[string]*member{}, names: map[uint64]string{}, held: map[uint64]held{},
		unsure: map[uint64]uint64{}, due: 1,
	}
	q.set(known)
	return q
}

func (q *queue) set(known settings) {
	q.settings, q.text, q.mode = known, known.text(), modeOf(&known)
}

func (s settings) text() []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // there is nothing in it that cannot be written
	}
	return text
}

// learn reads the settings that the queue has, which others may have changed.
func (u *unit) learn() {
	if bytes.Equal(u.head.Settings, u.q.text) {
		return
	}
	var known settings
	check(json.Unmarshal(u.head.Settings, &known))
	u.q.set(known)
	if u.q.alone {
		u.needAlone()
	}
}

// open is the part of Open that needs the queue.
func (u *unit) open(b *backend, wanted driver.Settings) error {
	q := u.q
	if q.settings.Settings != wanted {
		if others := must(u.v.ConsumersNamed(openerPrefix, u.now)); len(others) > 0 {
			return wanted.Match(q.settings.Settings, fmt.Sprintf("as long as others have queue %q open", q.name))
		}
		if n := must(u.v.Counts())[0]; n > 0 && wanted.Format != q.settings.Format {
			return &driver.FieldError{
				Field: "Options.Format", Value: wanted.Format,
				Limit: fmt.Sprintf("%s, which is that of %d tasks in queue %q", q.settings.Format, n, q.name),
			}
		}
		u.change(settings{Settings: wanted, Kinds: q.settings.Kinds})
	}
	must(u.member(b.handle()))
	u.later(func() {
		b.wanted = wanted
		q.mu.Lock()
		defer q.mu.Unlock()
		q.backends = append(q.backends, b)
		q.due = 1 // b does not know yet when it is
	})
	return nil
}

// hasKind says that the queue has a task of a kind. From now on only the fronts of keys can be
// taken: otherwise one who takes only some kinds would have to pass over the others.
func (u *unit) hasKind() {
	if s := u.q.settings; !s.Kinds {
		u.needAlone()
		s.Kinds = true
		u.change(s)
	}
}

// change gives the queue other settings.
func (u *unit) change(to settings) {
	u.q.set(to)
	u.head.Settings, u.saves = u.q.text, true
	u.rebuild()
}

// agrees returns an error if the queue has other settings than it is used with here. It can only
// have if nothing was heard of this process for so long that others thought that it does not have
// it open any more.
func (b *backend) agrees(q *queue) error {
	if q.settings.Settings == b.wanted {
		return nil
	}
	return b.wanted.Match(q.settings.Settings, fmt.Sprintf("to which others have changed it for queue %q", q.name))
}
