package mvcc_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/kv/mvcc"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest/kvtest"
	"github.com/fairq/fairq/task"
)

// counted is an engine that counts the entries that it reads, and the spans that Fetch reads.
type counted struct {
	*mvcc.Client
	entries *atomic.Int64
	spans   *atomic.Int64 // nil to count none
	slow    time.Duration // added to the time of Begin

	// If not nil, scans count the deleted keys that they pass over, like entries.
	tombstones *tombstones

	// If not nil, the first Put calls its function.
	beforePut *atomic.Pointer[func()]
}

// tombstones are deleted keys. Scans count them while count is true.
type tombstones struct {
	count bool
	keys  map[string]bool
}

func (c counted) Begin(ctx context.Context) (kv.Txn, error) {
	if err := rows.Pause(ctx, c.slow); err != nil {
		return nil, err
	}
	t, err := c.Client.Begin(ctx)
	return countedTxn{t, c}, err
}

type countedTxn struct {
	kv.Txn
	counted
}

func (t countedTxn) Fetch(keys [][]byte, spans ...kv.Span) error {
	t.entries.Add(int64(len(keys)))
	if t.spans != nil {
		t.spans.Add(int64(len(spans)))
	}
	return t.Txn.Fetch(keys, spans...)
}

func (t countedTxn) Scan(s kv.Span) iter.Seq2[kv.Entry, error] {
	return func(yield func(kv.Entry, error) bool) {
		from, to := s.From, s.To
		defer func() {
			if t.tombstones == nil || !t.tombstones.count {
				return
			}
			for key := range t.tombstones.keys {
				if key >= string(from) && key < string(to) {
					t.entries.Add(1)
				}
			}
		}()
		for e, err := range t.Txn.Scan(s) {
			if s.Desc {
				from = e.Key
			} else {
				to = e.Key
			}
			t.entries.Add(1)
			if !yield(e, err) {
				return
			}
		}
	}
}

func (t countedTxn) Put(key, value []byte) error {
	if t.beforePut != nil {
		if put := t.beforePut.Swap(nil); put != nil {
			(*put)()
		}
	}
	if t.tombstones != nil {
		delete(t.tombstones.keys, string(key))
	}
	return t.Txn.Put(key, value)
}

func (t countedTxn) Delete(key []byte) error {
	if t.tombstones != nil {
		t.tombstones.keys[string(key)] = true
	}
	return t.Txn.Delete(key)
}

func oneOf100(i int) string { return fmt.Sprint(i % 100) }

// ackAll acks all tasks at the same time.
func ackAll(t *testing.T, all []*task.Task[int]) {
	var wg sync.WaitGroup
	for _, one := range all {
		wg.Go(func() { require.NoError(t, one.Ack(t.Context())) })
	}
	wg.Wait()
}

// TestBacklog compares the cost of a Take with few tasks in the queue, with very many, and after
// very many were deleted.
func TestBacklog(t *testing.T) {
	const many = 50_000
	fullOnly(t)
	synctest.Test(t, func(t *testing.T) {
		db, entries := cluster(), new(atomic.Int64)
		tombstones := &tombstones{keys: map[string]bool{}}
		engine := counted{Client: db.Client(), entries: entries, tombstones: tombstones}
		c := clients(t, 1, func() kv.Engine { return engine }, kv.Options{MarkStep: 40})[0]
		type costs struct {
			entries int64
			time    time.Duration
		}
		cost := func(what string) (each costs) {
			const n = 10
			before, begun := entries.Load(), time.Now()
			tombstones.count = true
			for range n {
				one, err := c.Take(t.Context())
				require.NoError(t, err)
				require.NoError(t, one.Ack(t.Context()))
			}
			tombstones.count = false
			each = costs{(entries.Load() - before) / n, time.Since(begun) / n}
			t.Logf("%s: Take and Ack read %d entries in %v", what, each.entries, each.time)
			return each
		}
		kvtest.Fill(t, c.Queue, many/100, oneOf100)
		few := cost("few")
		kvtest.Fill(t, c.Queue, many, oneOf100)
		check := func(what string) {
			is := cost(what)
			require.LessOrEqual(t, is.entries, 5*few.entries)
			require.LessOrEqual(t, is.time, 5*few.time)
		}
		check("many")
		for left := many / 2; left > 0; {
			some, err := c.TakeBatch(t.Context(), 500)
			require.NoError(t, err)
			ackAll(t, some)
			left -= len(some)
		}
		check("after deletions")
	})
}

// TestOneKey puts tasks of one key in batches. Each batch reads the last round of the key once,
// however many tasks it has: on etcd that reads all queued tasks of the key.
func TestOneKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans := new(atomic.Int64)
		engine := counted{Client: cluster().Client(), entries: new(atomic.Int64), spans: spans}
		c := clients(t, 1, func() kv.Engine { return engine }, kv.Options{})[0]
		count := func(n int) int64 { // the least, because other reads happen in some calls only
			least := int64(math.MaxInt64)
			for i := range 5 {
				before := spans.Load()
				kvtest.Fill(t, c.Queue, n, func(int) string { return fmt.Sprint(n, i) })
				least = min(least, spans.Load()-before)
			}
			return least
		}
		require.Equal(t, count(1), count(100))
	})
}

// TestLight bounds the wait of a light key's task beside a key with very many tasks. It waits for
// the other keys of its round, and with several consumers for the tasks that overtake it.
func TestLight(t *testing.T) {
	const heavy, puts, others = 100_000, 50, 20
	fullOnly(t)
	synctest.Test(t, func(t *testing.T) {
		db := cluster()
		all := clients(t, 17, func() kv.Engine { return db.Client() }, kv.Options{})
		putter, takers := all[0], all[1:]
		kvtest.Fill(t, putter.Queue, heavy, func(int) string { return "heavy" })
		kvtest.Fill(t, putter.Queue, heavy/20,
			func(i int) string { return fmt.Sprint("other ", i%others) })
		for n, limit := range map[int]int{
			// The rest of the round being served, the next round, and a task that is being taken.
			1: 2*(1+others) + 1,
			// The same with the tasks that overtake it.
			16: 2*(1+others) + maxOvertaken(1),
		} {
			longest, sum := 0, 0
			for _, passed := range passLight(t, putter, takers[:n], puts) {
				longest, sum = max(longest, passed), sum+passed
			}
			t.Logf("%d consumers: a light key's task is taken after at most %d others, %d on average",
				n, longest, sum/puts)
			require.LessOrEqual(t, longest, limit)
			time.Sleep(10 * time.Second) // until no process has a lane
		}
	})
}

// passLight puts tasks of a light key while consumers take tasks. It returns for each of these how
// many other tasks are taken between its put and its take.
func passLight(t *testing.T, putter client, takers []client, puts int) (passed []int) {
	ctx, cancel := context.WithCancel(t.Context())
	var taken atomic.Int64
	arrived := make(chan int64)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer cancel()
		for range puts {
			time.Sleep(50 * time.Millisecond)
			_, err := putter.Put(t.Context(), "light", 0, task.PutOptions{})
			before := taken.Load()
			require.NoError(t, err)
			passed = append(passed, int(<-arrived-before))
		}
	})
	each(takers, func(_ int, c client) {
		for {
			one, err := c.Take(ctx)
			if err != nil {
				require.Error(t, ctx.Err())
				return
			}
			if at := taken.Add(1); one.Key == "light" {
				arrived <- at - 1
			}
			require.NoError(t, one.Ack(t.Context()))
		}
	})
	wg.Wait()
	return passed
}

// TestCapacity lets many processes put tasks into a queue with a limit. The queue never exceeds
// it. With a Capacity their transactions conflict, so together they are as fast as one process.
func TestCapacity(t *testing.T) {
	const n, puts = 16, 10
	for name, o := range map[string]task.Options[int]{
		"no limit":          {},
		"Capacity":          {Capacity: n * puts / 2},
		"KeyCapacity":       {KeyCapacity: puts / 2},
		"MaxInFlightPerKey": {MaxInFlightPerKey: 1},
		"RejectOverShare":   {Capacity: n * puts / 2, WhenFull: fairq.RejectOverShare},
	} {
		synctest.Test(t, func(t *testing.T) {
			db := cluster()
			all := clientsOf(t, n, 1, func() kv.Engine { return db.Client() }, kv.Options{}, o)
			begun := time.Now()
			var accepted, full atomic.Int64
			each(all, func(i int, c client) {
				for j := range puts {
					_, err := c.Put(t.Context(), fmt.Sprint("key ", i), j, task.PutOptions{})
					if errors.Is(err, fairq.ErrFull) {
						full.Add(1)
						continue
					}
					require.NoError(t, err)
					accepted.Add(1)
				}
			})
			t.Logf("%s: %d clients: %.0f puts/s, %d accepted, %d refused", name, n,
				float64(n*puts)/time.Since(begun).Seconds(), accepted.Load(), full.Load())
			stats, err := all[0].Stats(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, accepted.Load(), stats.Ready)
			if o.Capacity > 0 {
				require.LessOrEqual(t, stats.Ready, o.Capacity)
				require.NotZero(t, full.Load())
			}
		})
	}
}

// limited is an engine whose traits keep transactions within the limits of the database.
type limited struct{ *mvcc.Client }

func (limited) Traits() rows.Traits {
	return rows.Traits{MaxWrites: 2000, MaxBytes: mvcc.MaxBytes / 2}
}

// TestBytes makes many calls with large payloads at the same time. They share a transaction only
// while it stays within the limits. So does a transaction for due tasks, or a call for many tasks.
func TestBytes(t *testing.T) {
	const n = 300
	fullOnly(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, db := t.Context(), cluster()
		h, err := kv.Open(ctx, "mvcc", limited{db.Client()}, kv.Options{})
		require.NoError(t, err)
		s := rows.New(h, rows.Options{
			MaxPayload: 90_000, History: time.Hour, Poll: 10 * time.Millisecond,
		})
		q, err := task.Open(ctx, s, "q", &task.Options[string]{Codec: text{}})
		require.NoError(t, err)
		defer func() { require.NoError(t, q.Close(context.Background())) }()
		payload, total := strings.Repeat("x", 90_000), 0
		putAll := func(o task.PutOptions) {
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() {
					_, err := q.Put(ctx, fmt.Sprint("key ", i%7), payload, o)
					require.NoError(t, err)
				})
			}
			wg.Wait()
		}
		check := func(what string) {
			total += n
			stats, err := q.Stats(ctx)
			require.NoError(t, err)
			require.Zero(t, stats.Len(), what)
			ended, err := s.History(ctx, "q", 0, 10_000)
			require.NoError(t, err)
			require.Len(t, ended, total, what)
		}
		putAll(task.PutOptions{})
		for left := n; left > 0; {
			some, err := q.TakeBatch(ctx, left)
			require.NoError(t, err)
			var wg sync.WaitGroup
			for _, one := range some {
				wg.Go(func() { require.NoError(t, one.Ack(ctx)) })
			}
			wg.Wait()
			left -= len(some)
		}
		check("acked")
		putAll(task.PutOptions{TTL: time.Minute})
		time.Sleep(2 * time.Minute)
		check("expired")
		putAll(task.PutOptions{Group: "g"})
		require.NoError(t, q.CancelGroup(ctx, "g"))
		check("cancelled")
		putAll(task.PutOptions{})
		_, err = q.Truncate(ctx)
		require.NoError(t, err)
		check("truncated")

		batch := slices.Repeat([]task.Entry[string]{{Key: "key", Payload: payload}}, 56)
		_, err = q.PutBatch(ctx, batch)
		require.ErrorIs(t, err, task.ErrInvalid)
		require.ErrorContains(t, err,
			"is 5040672; it must be 5000000 bytes at most, for more than one task")
		total -= n
		check("nothing was put")
		_, err = q.PutBatch(ctx, batch[:55])
		require.NoError(t, err)
	})
}

// small is an engine whose traits keep transactions within the limits of etcd.
type small struct{ *mvcc.Client }

func (small) Traits() rows.Traits { return rows.Traits{MaxWrites: 2048, MaxBytes: 448 << 10} }

// TestLongNames makes calls for many tasks with the longest metadata and names. A name of zero
// bytes takes twice its length in a key. All transactions stay within the limit: a call resumes a
// consumer that holds the tasks, a call deletes the first task of a line, and an Open with other
// limits counts the keys again.
func TestLongNames(t *testing.T) {
	const n = 300
	fullOnly(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, db := t.Context(), cluster()
		db.MaxBytes, db.MaxValue = 3<<19, 3<<19
		h, err := kv.Open(ctx, "mvcc", small{db.Client()}, kv.Options{})
		require.NoError(t, err)
		s := rows.New(h, rows.Options{MaxPayload: 1000, Poll: 10 * time.Millisecond})
		open := func(o task.Options[int]) *task.Queue[int] {
			o.Weight, o.Grace = func(string) int { return n }, time.Hour
			q, err := task.Open(ctx, s, "q", &o)
			require.NoError(t, err)
			return q
		}
		o := task.Options[int]{MaxInFlightPerKey: n, Capacity: 2 * n}
		q := open(o)
		name := func(i int) string {
			return strings.Repeat("\x00", task.MaxName-3) + fmt.Sprintf("%03d", i)
		}
		put := func(key func(i int) string) {
			for i := 0; i < n; {
				var batch []task.Entry[int]
				for range 20 {
					batch = append(batch, task.Entry[int]{Key: key(i), Payload: i, Options: task.PutOptions{
						UniqueKey: name(i), Metadata: map[string]string{"": strings.Repeat("x", task.MaxMetadata)},
					}})
					i++
				}
				_, err := q.PutBatch(ctx, batch)
				require.NoError(t, err)
			}
		}
		put(func(int) string { return name(0) })
		all, err := q.List(ctx, task.ListOptions{Limit: 1})
		require.NoError(t, err)
		require.NoError(t, q.Delete(ctx, all[0].ID))

		c := q.NewConsumer(task.Filter{})
		for taken := 1; taken < n; {
			some, err := c.TakeBatch(ctx, n)
			require.NoError(t, err)
			taken += len(some)
		}
		id := c.ID()
		require.NoError(t, c.Disconnect(ctx))
		_, held, err := q.ResumeConsumer(ctx, id, task.Filter{})
		require.NoError(t, err)
		require.Len(t, held, n-1)
		ackAll(t, held)

		put(name)
		for limit, capacity := range map[int]int{n - 1: 0, 0: n} {
			require.NoError(t, q.Close(ctx))
			o.MaxInFlightPerKey, o.KeyCapacity = limit, capacity
			q = open(o)
			stats, err := q.Stats(ctx)
			require.NoError(t, err)
			require.Equal(t, n, stats.Ready)
		}
		require.NoError(t, q.Close(ctx))
	})
}

// text is a codec for strings, which it stores as they are.
type text struct{}

func (text) Encode(s string) ([]byte, error) { return []byte(s), nil }
func (text) Decode(b []byte) (string, error) { return string(b), nil }

var maxClients = flag.Int("clients", 64, "limit of the number of simulated clients")

// TestClients simulates many processes that put and take tasks, in one queue and in several
// queues.
func TestClients(t *testing.T) {
	fullOnly(t)
	t.Log("clients  queues   puts/s  tasks/s  conflicts/task    overtaken by  entries read/task")
	for _, n := range []int{1, 4, 16, 64, 256, 1000} {
		for _, queues := range slices.Compact([]int{1, max(1, n/16)}) {
			if n > *maxClients {
				continue
			}
			t.Run(fmt.Sprint(n, "/", queues), func(t *testing.T) {
				each := min(50, max(20, 5000/n)) // with very many clients more tasks would take very long
				if queues == 1 && n > 256 {
					each = 5 // each transaction reads the tallies of all
				}
				puts, count := putAll(t, n, queues, 10, plain)
				require.Zero(t, count)
				d := draining{clients: n, queues: queues, tasks: each * n / queues, batch: 1}.run(t)
				t.Logf("%7d %7d %8.0f %8.0f %15.3f %15d %20d",
					n, queues, puts, d.perSecond, d.conflicts, d.overtaken, d.entries)
			})
		}
	}
}

// putAll lets processes put tasks of different keys at the same time. It returns the number of
// puts per second, and of conflicts.
func putAll(
	t *testing.T, n, queues, puts int, engine func(*mvcc.DB) kv.Engine,
) (perSecond float64, count int64) {
	synctest.Test(t, func(t *testing.T) {
		db := cluster()
		open := func() kv.Engine { return engine(db) }
		all := clientsOf(t, n, queues, open, kv.Options{}, task.Options[int]{})
		before, begun := conflicts(all), time.Now()
		each(all, func(i int, c client) {
			for j := range puts {
				_, err := c.Put(t.Context(), fmt.Sprint("key ", i, " ", j%3), j, task.PutOptions{})
				require.NoError(t, err)
			}
		})
		perSecond = float64(n*puts) / time.Since(begun).Seconds()
		count = conflicts(all) - before
		ready := 0
		for _, c := range all[:queues] {
			stats, err := c.Stats(t.Context())
			require.NoError(t, err)
			ready += stats.Ready
		}
		require.Equal(t, n*puts, ready)
	})
	return perSecond, count
}

// TestStatsOfManyKeys calls Stats with very many keys, which it reads in few exchanges. A Put at
// the same time waits for at most one page of keys.
func TestStatsOfManyKeys(t *testing.T) {
	const keys = 20_000
	synctest.Test(t, func(t *testing.T) {
		db := cluster()
		q := clients(t, 1, func() kv.Engine { return db.Client() }, kv.Options{})[0]
		kvtest.Fill(t, q.Queue, keys, func(i int) string { return fmt.Sprint(i) })
		begun, done := time.Now(), make(chan time.Duration)
		go func() {
			s, err := q.Stats(t.Context())
			assert.NoError(t, err)
			assert.Equal(t, keys, s.Keys)
			done <- time.Since(begun)
		}()
		for slowest := time.Duration(0); ; {
			select {
			case took := <-done:
				t.Logf("Stats %v, the slowest Put %v", took, slowest)
				require.Less(t, took, 500*time.Millisecond)
				require.Positive(t, slowest)
				require.Less(t, slowest, 20*time.Millisecond)
				return
			default:
			}
			put := time.Now()
			_, err := q.Put(t.Context(), "1", 0, task.PutOptions{})
			require.NoError(t, err)
			slowest = max(slowest, time.Since(put))
		}
	})
}
