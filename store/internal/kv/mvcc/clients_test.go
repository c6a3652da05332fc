package mvcc_test

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/kv/mvcc"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest/kvtest"
	"github.com/fairq/fairq/task"
)

// cluster returns a database with the times of a FoundationDB cluster.
func cluster() *mvcc.DB {
	return &mvcc.DB{
		BeginTime: time.Millisecond, ReadTime: 500 * time.Microsecond, CommitTime: 4 * time.Millisecond,
	}
}

// failing returns a cluster in which one commit in ten fails, has an unknown outcome, or happens
// later, while fails is true.
func failing(seed uint64) (db *mvcc.DB, fails *atomic.Bool) {
	db, fails = cluster(), new(atomic.Bool)
	fault := faults(seed, 3, mvcc.Late)
	db.Fault = func() mvcc.Fault {
		if !fails.Load() {
			return mvcc.None
		}
		return fault()
	}
	return db, fails
}

// client is a process with a queue.
type client struct {
	*task.Queue[int]
	db *kv.DB
}

// clients opens a queue in n processes.
func clients(t *testing.T, n int, engine func() kv.Engine, o kv.Options) []client {
	return clientsOf(t, n, 1, engine, o, task.Options[int]{})
}

// clientsOf opens n processes, and in each of them one of the queues, in turn.
func clientsOf(
	t *testing.T, n, queues int, engine func() kv.Engine, how kv.Options, o task.Options[int],
) (all []client) {
	o.Grace = time.Hour
	for i := range n {
		db, err := kv.Open(t.Context(), "mvcc", engine(), how)
		require.NoError(t, err)
		s := rows.New(db, rows.Options{
			MaxPayload: 1000, Poll: 10 * time.Millisecond, Timeout: time.Minute,
		})
		q, err := task.Open(t.Context(), s, fmt.Sprint("q", i%queues), &o)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, q.Close(context.Background())) })
		all = append(all, client{q, db})
	}
	return all
}

// conflicts returns the number of transactions that had to be tried again.
func conflicts(all []client) (n int64) {
	for _, c := range all {
		n += c.db.Conflicts()
	}
	return n
}

// each calls f for all clients at the same time.
func each(all []client, f func(i int, c client)) {
	var wg sync.WaitGroup
	for i, c := range all {
		wg.Go(func() { f(i, c) })
	}
	wg.Wait()
}

// guarded is an engine that guards all spans that it reads, as databases do by default.
type guarded struct{ *mvcc.Client }

func (g guarded) Begin(ctx context.Context) (kv.Txn, error) {
	t, err := g.Client.Begin(ctx)
	return guardedTxn{t}, err
}

type guardedTxn struct{ kv.Txn }

func (t guardedTxn) Scan(s kv.Span) iter.Seq2[kv.Entry, error] {
	t.Guard(s.From, s.To)
	return t.Txn.Scan(s)
}

// TestPut puts tasks of different keys in many processes at the same time. There must be no
// conflicts, unless the engine guards all reads.
func TestPut(t *testing.T) {
	for _, n := range []int{1, 4, 16} {
		_, count := putAll(t, n, 1, 30, plain)
		require.Zero(t, count, "%d clients", n)
	}
	_, count := putAll(t, 4, 1, 30, func(db *mvcc.DB) kv.Engine { return guarded{db.Client()} })
	require.NotZero(t, count)
}

// plain returns a client of the database as the engine of a process.
func plain(db *mvcc.DB) kv.Engine { return db.Client() }

// draining configures a run in which processes take and ack tasks until no task is left.
type draining struct {
	clients, queues int
	tasks           int // in each queue
	batch           int // tasks per call
	strict          bool
	slow            time.Duration // added to the time in which the first client begins a transaction
	options         task.Options[int]
}

// drained has the figures of a run.
type drained struct {
	perSecond float64 // tasks
	conflicts float64 // per task
	entries   int64   // read per task
	overtaken int     // the greatest number of later tasks that were taken before a task
}

// run takes each task once. A client that takes one task at a time acks it with the next Take. A
// client that takes several acks them while it takes the next.
func (c draining) run(t *testing.T) (d drained) {
	synctest.Test(t, func(t *testing.T) {
		db, entries := cluster(), new(atomic.Int64)
		slow := c.slow
		engine := func() kv.Engine {
			defer func() { slow = 0 }()
			return counted{Client: db.Client(), entries: entries, slow: slow}
		}
		all := clientsOf(t, c.clients, c.queues, engine, kv.Options{Strict: c.strict}, c.options)
		for _, one := range all[:c.queues] {
			kvtest.Fill(t, one.Queue, c.tasks, oneOf100)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		log := takeLog{draining: c, seen: make([]map[int]bool, c.queues), end: cancel}
		before, begun := conflicts(all), time.Now()
		entries.Store(0)
		each(all, func(i int, one client) {
			taker := taker{one.NewConsumer(task.Filter{}), func(all ...*task.Task[int]) {
				log.add(t, i%c.queues, all)
			}}
			if c.batch == 1 {
				taker.takeOne(ctx, t)
			} else {
				taker.takeSome(ctx, t, c.batch)
			}
		})
		n := float64(c.tasks * c.queues)
		d.perSecond = n / log.ended.Sub(begun).Seconds()
		d.conflicts = float64(conflicts(all)-before) / n
		d.entries, d.overtaken = entries.Load()/int64(n), log.overtaken
		for _, one := range all[:c.queues] {
			stats, err := one.Stats(t.Context())
			require.NoError(t, err)
			require.Zero(t, stats.Ready+stats.Taken)
		}
	})
	return d
}

// takeLog records the taken tasks.
type takeLog struct {
	draining
	mu        sync.Mutex     // protects the fields below
	seen      []map[int]bool // by queue
	taken     int
	overtaken int
	ended     time.Time
	end       func() // is called when all tasks are taken
}

func (l *takeLog) add(t *testing.T, queue int, all []*task.Task[int]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := l.seen[queue]
	if seen == nil {
		seen = map[int]bool{}
		l.seen[queue] = seen
	}
	for _, one := range all {
		require.False(t, seen[one.Payload])
		l.overtaken = max(l.overtaken, len(seen)-one.Payload)
		seen[one.Payload] = true
	}
	if l.taken += len(all); l.taken == l.tasks*l.queues {
		l.ended = time.Now()
		l.end()
	}
}

// taker takes tasks until a context is done.
type taker struct {
	*task.Consumer[int]
	took func(...*task.Task[int])
}

func (c taker) takeOne(ctx context.Context, t *testing.T) {
	for {
		one, err := c.Take(ctx)
		if err != nil {
			require.ErrorIs(t, ctx.Err(), context.Canceled)
			return
		}
		for ok := true; ok; {
			c.took(one)
			next := new(task.Task[int])
			ok, err = c.AckAndTake(t.Context(), one, next)
			require.NoError(t, err)
			one = next
		}
	}
}

func (c taker) takeSome(ctx context.Context, t *testing.T, batch int) {
	var acks sync.WaitGroup
	defer acks.Wait()
	for {
		some, err := c.TakeBatch(ctx, batch)
		if err != nil {
			require.ErrorIs(t, ctx.Err(), context.Canceled)
			return
		}
		c.took(some...)
		for _, one := range some {
			acks.Go(func() { require.NoError(t, one.Ack(t.Context())) })
		}
	}
}

// TestLate puts, takes and acks tasks in many processes, while one commit in ten fails, has an
// unknown outcome, or happens later. Each call must take effect once.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tasks = 40
		db, fails := failing(rand.Uint64())
		all := clients(t, 8, func() kv.Engine { return db.Client() }, kv.Options{MarkStep: 1})
		fails.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var mu sync.Mutex // protects seen
		seen := map[int]bool{}
		each(all, func(i int, c client) {
			for j := range tasks {
				_, err := c.Put(ctx, fmt.Sprint("key ", j%3), i*tasks+j, task.PutOptions{})
				require.NoError(t, err)
			}
			for ctx.Err() == nil {
				one, err := c.Take(ctx)
				if err != nil {
					require.ErrorIs(t, ctx.Err(), context.Canceled)
					return
				}
				require.NoError(t, one.Ack(t.Context()))
				mu.Lock()
				twice := seen[one.Payload]
				if seen[one.Payload] = true; len(seen) == len(all)*tasks {
					cancel()
				}
				mu.Unlock()
				require.False(t, twice)
			}
		})
		stats, err := all[0].Stats(t.Context())
		require.NoError(t, err)
		require.Zero(t, stats.Ready+stats.Taken)
		fails.Store(false)
	})
}

// interrupted is an engine that calls a function once, just before the next commit that has
// written something.
type interrupted struct {
	*mvcc.Client
	by *atomic.Pointer[func()]
}

func (e interrupted) Begin(ctx context.Context) (kv.Txn, error) {
	t, err := e.Client.Begin(ctx)
	return &interruptedTxn{t, e.by, false}, err
}

type interruptedTxn struct {
	kv.Txn
	by    *atomic.Pointer[func()]
	wrote bool
}

func (t *interruptedTxn) Put(key, value []byte) error {
	t.wrote = true
	return t.Txn.Put(key, value)
}

func (t *interruptedTxn) Commit() error {
	if t.wrote {
		if by := t.by.Swap(nil); by != nil {
			(*by)()
		}
	}
	return t.Txn.Commit()
}

// TestMark puts or hands back a task while another process moves the mark past it, and the other
// way round. Either way the task is found.
func TestMark(t *testing.T) {
	for i, what := range slices.Repeat([]string{
		"a put is interrupted", "a release is interrupted",
		"a take is interrupted", "the next take is interrupted",
	}, 2) {
		o := task.Options[int]{MaxInFlightPerKey: i / 4 * 99} // first without lines
		ctx, db := t.Context(), new(mvcc.DB)
		var by atomic.Pointer[func()]
		engine := func() kv.Engine { return interrupted{db.Client(), &by} }
		all := clientsOf(t, 2, 1, engine, kv.Options{Strict: true, MarkStep: 1}, o)
		kvtest.Fill(t, all[0].Queue, 20, func(int) string { return "heavy" })
		first, ok, err := all[0].TryTake(ctx)
		require.NoError(t, err)
		require.True(t, ok)
		left := 19
		take := func() {
			one, ok, err := all[1].TryTake(ctx)
			require.NoError(t, err)
			require.True(t, ok, "%s: %d tasks are left", what, left)
			require.NoError(t, one.Ack(ctx))
			left--
		}
		takeFive := func() {
			for range 5 {
				take()
			}
		}
		if what != "the next take is interrupted" { // now the mark is at the first task
			take()
		}
		switch what {
		case "a put is interrupted":
			by.Store(&takeFive)
			_, err := all[0].Put(ctx, "light", 0, task.PutOptions{})
			require.NoError(t, err)
			left++
		case "a release is interrupted":
			by.Store(&takeFive)
			require.NoError(t, first.Release(ctx, 0))
			left++
		default:
			release := func() {
				require.NoError(t, first.Release(ctx, 0))
				left++
			}
			by.Store(&release)
			take()
		}
		for left > 0 {
			take()
		}
	}
}

// TestNothingLeft puts and acks tasks in processes that come and go. The database does not grow:
// it keeps the rows of the queue and of the last processes.
func TestNothingLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, left := cluster(), 0
		for round := range 4 {
			before := left
			for range 3 { // each with four processes
				runProcesses(t, db)
				time.Sleep(time.Hour)
			}
			left = count(t, db)
			t.Logf("after %d processes there are %d entries", 12*(round+1), left)
			require.True(t, round == 0 || left <= before)
		}
	})
}

// runProcesses lets processes put and take all tasks. Then one of them dies, and the others close.
func runProcesses(t *testing.T, db *mvcc.DB) {
	const n, tasks = 4, 40
	var taken atomic.Int64
	var wg sync.WaitGroup
	for i := range n {
		client := db.Client()
		h, err := kv.Open(t.Context(), "mvcc", client, kv.Options{})
		require.NoError(t, err)
		s := rows.New(h, rows.Options{MaxPayload: 1000, Poll: 10 * time.Millisecond})
		q, err := task.Open(t.Context(), s, "q", &task.Options[int]{Grace: 5 * time.Second})
		require.NoError(t, err)
		wg.Go(func() {
			for j := range tasks / n {
				_, err := q.Put(t.Context(), fmt.Sprint(j%7), j, task.PutOptions{})
				require.NoError(t, err)
			}
			for taken.Add(1) <= tasks {
				one, err := q.Take(t.Context())
				require.NoError(t, err)
				require.NoError(t, one.Ack(t.Context()))
			}
			if i == 0 {
				client.Kill()
			}
			require.Equal(t, i == 0, q.Close(context.Background()) != nil)
			h.Close()
		})
	}
	wg.Wait()
}

// count returns the number of entries in the database.
func count(t *testing.T, db *mvcc.DB) (n int) {
	tx, err := db.Client().Begin(t.Context())
	require.NoError(t, err)
	for _, err := range tx.Scan(kv.Span{To: []byte{0xff}}) {
		require.NoError(t, err)
		n++
	}
	return n
}

// TestFull commits when the database has no room. The commit may have happened anyway. If not, the
// call returns ErrFull, and has changed nothing.
func TestFull(t *testing.T) {
	for _, fault := range []mvcc.Fault{mvcc.Full, mvcc.FullDone} {
		synctest.Test(t, func(t *testing.T) {
			db := cluster()
			var fails atomic.Bool // the next commit fails
			db.Fault = func() mvcc.Fault {
				if fails.Swap(false) {
					return fault
				}
				return mvcc.None
			}
			q := clients(t, 1, func() kv.Engine { return db.Client() }, kv.Options{})[0]
			fails.Store(true)
			_, err := q.Put(t.Context(), "key", 1, task.PutOptions{})
			stats, failed := q.Stats(t.Context())
			require.NoError(t, failed)
			if fault == mvcc.FullDone {
				require.NoError(t, err)
				require.Equal(t, 1, stats.Ready)
				return
			}
			require.ErrorIs(t, err, kv.ErrFull)
			require.Zero(t, stats.Len())
			fails.Store(true)
			_, err = kv.Open(t.Context(), "mvcc", db.Client(), kv.Options{})
			require.ErrorIs(t, err, kv.ErrFull)
		})
	}
}

// TestExchanges counts the exchanges of a call: one for all reads, and the commit. The first Take
// of a process needs more, because it cannot predict its tasks, and so does the first call of a
// Consumer, which looks it up. With MaxInFlightPerKey, a Take and an Ack read the next tasks of
// their keys in two more exchanges, for any number of keys. A Put behind others of its line needs
// one more, which reads only the row of the last one.
func TestExchanges(t *testing.T) {
	for limit, reads := range map[int]struct{ put, take, ack int }{0: {1, 1, 1}, 4: {2, 3, 2}} {
		synctest.Test(t, func(t *testing.T) {
			db := cluster()
			o := task.Options[int]{MaxInFlightPerKey: limit}
			q := clientsOf(t, 2, 1, func() kv.Engine { return db.Client() }, kv.Options{}, o)[0]
			ctx := t.Context()
			count := func(call func()) int {
				begun := time.Now()
				call()
				return int((time.Since(begun) - db.BeginTime - db.CommitTime) / db.ReadTime)
			}
			i := 0
			put := func() {
				i++
				_, err := q.Put(ctx, fmt.Sprint(i%7), 0, task.PutOptions{})
				require.NoError(t, err)
			}
			for range 14 { // keys without tasks have more to read
				put()
			}
			for range 14 {
				require.Equal(t, reads.put, count(put))
			}
			c := q.NewConsumer(task.Filter{})
			var taken []*task.Task[int]
			take := func(n int) func() {
				return func() {
					some, err := c.TakeBatch(ctx, n)
					require.NoError(t, err)
					require.Len(t, some, n)
					taken = append(taken, some...)
				}
			}
			ack := func() {
				require.NoError(t, taken[0].Ack(ctx))
				taken = taken[1:]
			}
			take(1)() // of a new consumer
			for range 5 {
				require.Equal(t, reads.take, count(take(1)))
			}
			require.LessOrEqual(t, count(take(5)), reads.take+1)
			require.Equal(t, reads.ack, count(ack))
			take(1)()
			ackAndTake := func() {
				next := new(task.Task[int])
				ok, err := c.AckAndTake(ctx, taken[0], next)
				require.NoError(t, err)
				require.True(t, ok)
			}
			require.Equal(t, reads.take, count(ackAndTake))
		})
	}
}

// maxOvertaken returns the greatest number of tasks that 16 processes, which take batch tasks at a
// time, may take before an earlier one. Each skips it twelve times, and may have begun one more
// take before the take of the earlier task has ended.
func maxOvertaken(batch int) int { return (12 + 1) * 16 * batch }

// TestSlow makes a process slow, or stops it for a while: others take the tasks of its lane.
func TestSlow(t *testing.T) {
	for _, slow := range []time.Duration{100 * time.Millisecond, 2 * time.Second} {
		for _, batch := range []int{1, 10} {
			if testing.Short() && batch > 1 {
				continue // it takes many seconds with the race detector
			}
			d := draining{clients: 16, queues: 1, tasks: 1000 * batch, batch: batch, slow: slow}.run(t)
			t.Logf("%v slow, %d at a time: %.0f tasks/s, %.3f conflicts per task, overtaken by %d",
				slow, batch, d.perSecond, d.conflicts, d.overtaken)
			require.LessOrEqual(t, d.overtaken, maxOvertaken(batch))
			require.Less(t, d.conflicts, 0.3)
		}
	}
}

func TestDrain(t *testing.T) {
	fullOnly(t)
	t.Log("clients  batch  strict   tasks/s  conflicts/task  overtaken by")
	for _, n := range []int{1, 4, 16} {
		for _, batch := range []int{1, 10} {
			var lanes, strict drained
			for _, all := range []*drained{&lanes, &strict} {
				c := draining{clients: n, queues: 1, tasks: 100 * n * batch, batch: batch}
				switch c.strict = all == &strict; {
				case c.strict && n > 1:
					c.tasks /= 5
				case n > 1 && batch == 1:
					c.tasks *= 3 // there are conflicts until each process has a lane
				}
				*all = c.run(t)
				t.Logf("%7d %6d  %6v %9.0f %15.3f %8d", n, batch, c.strict, all.perSecond, all.conflicts,
					all.overtaken)
			}
			switch n {
			case 1:
				require.Zero(t, max(lanes.overtaken, strict.overtaken))
				require.Zero(t, max(lanes.conflicts, strict.conflicts))
			case 16:
				require.Less(t, lanes.conflicts, 0.05)
				require.Greater(t, lanes.perSecond, 10*strict.perSecond)
				require.LessOrEqual(t, lanes.overtaken, maxOvertaken(batch))
			}
		}
	}
}

// TestBegin lets processes take their first tasks at the same time. No process knows of the others
// yet, so all but one fail, but each only once.
func TestBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 16
		db := cluster()
		all := clients(t, n, func() kv.Engine { return db.Client() }, kv.Options{})
		kvtest.Fill(t, all[0].Queue, 100, oneOf100)
		each(all, func(_ int, c client) {
			one, err := c.Take(t.Context())
			require.NoError(t, err)
			require.NoError(t, one.Ack(t.Context()))
		})
		t.Logf("%d conflicts", conflicts(all))
		require.Less(t, conflicts(all), int64(n))
	})
}

// TestDrainByKey is TestDrain for a queue that counts by key, one task at a time. Its bound allows
// for few keys at their limit, whose tasks wait longer; of 100 keys few are.
func TestDrainByKey(t *testing.T) {
	fullOnly(t)
	var all [2]drained
	for i := range all {
		all[i] = draining{
			clients: 16, queues: 1, tasks: 800 / (1 + 4*i), batch: 1, strict: i == 1,
			options: task.Options[int]{MaxInFlightPerKey: 4},
		}.run(t)
		t.Logf("strict %v: %.0f tasks/s, %.3f conflicts per task, overtaken by %d",
			i == 1, all[i].perSecond, all[i].conflicts, all[i].overtaken)
	}
	require.LessOrEqual(t, all[0].overtaken, maxOvertaken(1))
	require.Less(t, all[0].conflicts, 0.15)
	require.Greater(t, all[0].perSecond, 8*all[1].perSecond)
}
