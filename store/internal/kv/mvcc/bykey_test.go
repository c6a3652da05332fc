package mvcc_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/storetest"
	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/kv/mvcc"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest"
	"github.com/fairq/fairq/store/internal/rows/rowstest/kvtest"
	"github.com/fairq/fairq/task"
)

// TestByKey lets many processes use tasks of different keys, and of different groups. There must
// be no conflicts, unless the keys or the groups are the same.
func TestByKey(t *testing.T) {
	for name, o := range map[string]task.Options[int]{
		"MaxInFlightPerKey": {MaxInFlightPerKey: 1},
		"KeyCapacity":       {KeyCapacity: 3},
		"both":              {MaxInFlightPerKey: 2, KeyCapacity: 3},
		"groups":            {},
	} {
		if testing.Short() && name != "both" && name != "groups" {
			continue // "both" has this limit too
		}
		for _, same := range []bool{false, true} {
			use := useKey
			if name == "groups" {
				use = useGroup
			}
			count := int64(0)
			synctest.Test(t, func(t *testing.T) {
				db := cluster()
				all := clientsOf(t, 8, 1, func() kv.Engine { return db.Client() }, kv.Options{}, o)
				if name != "groups" {
					// The first kind changes how the queue counts, which conflicts with all calls.
					_, err := all[0].Put(t.Context(), "key", 0, task.PutOptions{Kind: "the first of any"})
					require.NoError(t, err)
				}
				for _, c := range all { // each process learns that there are kinds
					_, err := c.Stats(t.Context())
					require.NoError(t, err)
				}
				before := conflicts(all)
				each(all, func(i int, c client) {
					if same {
						i = -1
					}
					use(t, c, i)
				})
				count = conflicts(all) - before
			})
			t.Logf("%s, the same one %v: %d conflicts", name, same, count)
			require.Equal(t, same, count > 0, name)
		}
	}
}

// useKey puts tasks of a key, takes them by their ids, hands them back and acks them. If other
// processes use the same key, it can be full, or at its limit.
func useKey(t *testing.T, c client, n int) {
	ctx, consumer := t.Context(), c.NewConsumer(task.Filter{})
	for i := range 12 {
		o := task.PutOptions{Kind: fmt.Sprint(i % 2), Priority: i % 3}
		id, err := c.Put(ctx, fmt.Sprint("key ", n), i, o)
		if errors.Is(err, fairq.ErrFull) {
			continue
		}
		require.NoError(t, err)
		for left := 2; left > 0; {
			one, err := consumer.TakeID(ctx, id)
			if errors.Is(err, task.ErrBlocked) {
				time.Sleep(time.Millisecond)
				continue
			}
			require.NoError(t, err)
			if left--; left > 0 {
				require.NoError(t, one.Release(ctx, 0))
			} else {
				require.NoError(t, one.Ack(ctx))
			}
		}
	}
}

// useGroup puts tasks into a group, starts it, acks its member, and then its AtEnd task. It
// cancels every third group. Into a group that all processes share (n < 0) it only puts tasks.
func useGroup(t *testing.T, c client, n int) {
	ctx, consumer := t.Context(), c.NewConsumer(task.Filter{})
	for i := range 6 {
		group, ids := fmt.Sprint(n, " ", i), [3]task.ID{}
		for role := range ids {
			var err error
			o := task.PutOptions{Group: group, Role: task.Role(role)}
			ids[role], err = c.Put(ctx, fmt.Sprint(rand.Int()), i, o)
			require.NoError(t, err)
		}
		if n < 0 {
			continue
		}
		begin, done := c.StartGroup, []int{0, 1}
		if i%3 == 2 {
			begin, done = c.CancelGroup, []int{2}
		}
		require.NoError(t, begin(ctx, group))
		for _, role := range done {
			one, err := consumer.TakeID(ctx, ids[role])
			require.NoError(t, err)
			require.NoError(t, one.Ack(ctx))
		}
	}
}

// TestCancelInterrupted cancels a group while another process hands back its task, and the other
// way round. Either way the task is deleted with its group.
func TestCancelInterrupted(t *testing.T) {
	for _, first := range []string{"release", "cancel"} {
		ctx, db := t.Context(), new(mvcc.DB)
		var by atomic.Pointer[func()]
		all := clients(t, 2, func() kv.Engine { return interrupted{db.Client(), &by} }, kv.Options{})
		_, err := all[0].Put(ctx, "key", 0, task.PutOptions{Group: "g"})
		require.NoError(t, err)
		require.NoError(t, all[0].StartGroup(ctx, "g"))
		one, ok, err := all[0].TryTake(ctx)
		require.NoError(t, err)
		require.True(t, ok)
		release := func() { require.NoError(t, one.Release(ctx, 0)) }
		cancel := func() { require.NoError(t, all[1].CancelGroup(ctx, "g")) }
		if first == "release" {
			by.Store(&cancel)
			release()
		} else {
			by.Store(&release)
			cancel()
		}
		require.Nil(t, by.Load())
		stats, err := all[0].Stats(ctx)
		require.NoError(t, err)
		require.Zero(t, stats.Len(), "a %s was interrupted", first)
		require.Empty(t, rowstest.Walk(t, openDB(t, db), "q0"))
	}
}

// TestLimitsByKey lets many processes use tasks of few keys and groups in all ways, while one
// commit in ten fails, has an unknown outcome, or happens later. No limit is ever exceeded, and
// the rows keep their invariants.
func TestLimitsByKey(t *testing.T) {
	for _, o := range []task.Options[int]{
		{MaxInFlightPerKey: 1},
		{KeyCapacity: 6},
		{MaxInFlightPerKey: 2, KeyCapacity: 8, KeepPlace: true},
	} {
		if testing.Short() && !o.KeepPlace {
			continue // the last options have both limits
		}
		synctest.Test(t, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("%d in flight, capacity %d: seed %d", o.MaxInFlightPerKey, o.KeyCapacity, seed)
			o.Weight = func(key string) int { return 1 + int(key[0]-'a')%3 }
			db, fails := failing(seed)
			all := clientsOf(t, 6, 1, func() kv.Engine { return db.Client() }, kv.Options{MarkStep: 10}, o)
			l := limits{o: o, there: map[string]int{}, taken: map[string]int{}}
			fails.Store(true)
			each(all, func(i int, c client) {
				l.use(t, c, rand.New(rand.NewPCG(seed, uint64(i))))
			})
			fails.Store(false)
			time.Sleep(time.Second) // until the late commits have happened
			require.Empty(t, rowstest.Walk(t, openDB(t, db), "q0"))
			if testing.Verbose() {
				stats, err := all[0].Stats(t.Context())
				require.NoError(t, err)
				t.Logf("%+v; %d conflicts", stats, conflicts(all))
			}
		})
	}
}

// limits counts the tasks of each key. At any time its counts are at most those of the queue.
type limits struct {
	o            task.Options[int]
	mu           sync.Mutex // protects the fields below
	there, taken map[string]int
}

func (l *limits) count(t *testing.T, key string, there, taken int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.there[key] += there
	l.taken[key] += taken
	if limit := l.o.KeyCapacity; limit > 0 {
		require.LessOrEqual(t, l.there[key], limit)
	}
	if limit := l.o.MaxInFlightPerKey; limit > 0 {
		require.LessOrEqual(t, l.taken[key], limit)
	}
}

// use makes random calls for random tasks.
func (l *limits) use(t *testing.T, c client, rnd *rand.Rand) {
	ctx, consumer := t.Context(), c.NewConsumer(task.Filter{})
	oneOf := func(names []string) string { return names[rnd.IntN(len(names))] }
	var held []*task.Task[int]
	for i := range 120 {
		switch n := rnd.IntN(20); {
		case n < 8:
			o := task.PutOptions{Kind: []string{"", "", "kind"}[rnd.IntN(3)], Priority: rnd.IntN(2)}
			if rnd.IntN(3) == 0 {
				o.Group, o.Role = oneOf(storetest.Groups), task.Role(rnd.IntN(3))
			}
			key := oneOf(storetest.Keys)
			_, err := c.Put(ctx, key, i, o)
			switch {
			case err == nil && o.Group == "": // a task in a group may be deleted with it at any time
				l.count(t, key, 1, 0)
			case err != nil && !errors.Is(err, task.ErrGroupCancelled):
				require.ErrorIs(t, err, fairq.ErrFull)
			}
		case n < 13:
			some := make([]*task.Task[int], 1+rnd.IntN(3))
			for i := range some {
				one, ok, err := consumer.TryTake(ctx)
				require.NoError(t, err)
				if ok {
					some[i] = one
				}
			}
			for _, one := range some {
				if one != nil {
					l.count(t, one.Key, 0, 1)
					held = append(held, one)
				}
			}
		case n < 18:
			for _, one := range held {
				l.settle(t, one, rnd.IntN(6))
			}
			held = nil
		case n < 19:
			begin := c.StartGroup
			if rnd.IntN(2) == 0 {
				begin = c.CancelGroup
			}
			err := begin(ctx, oneOf(storetest.Groups))
			if !errors.Is(err, task.ErrNotFound) && !errors.Is(err, task.ErrGroupCancelled) {
				require.NoError(t, err)
			}
		default:
			_, err := c.Kick(ctx, task.ListOptions{Limit: 1 + rnd.IntN(3)})
			require.NoError(t, err)
		}
	}
	for _, one := range held {
		l.settle(t, one, 5)
	}
}

func (l *limits) settle(t *testing.T, one *task.Task[int], how int) {
	ctx := t.Context()
	leaves := 0
	if how > 2 && one.Info().Group == "" {
		leaves = 1
	}
	l.count(t, one.Key, -leaves, -1)
	switch how {
	case 0:
		require.NoError(t, one.Release(ctx, 0))
	case 1:
		require.NoError(t, one.Release(ctx, time.Duration(1+one.Payload)*time.Millisecond))
	case 2:
		require.NoError(t, one.Bury(ctx, errors.New("reason")))
	default:
		require.NoError(t, one.Ack(ctx))
	}
}

// TestFewKeys lets many processes put and take tasks of few keys with a low MaxInFlightPerKey. Few
// transactions conflict: each process that takes tasks has a lane, with keys of its own, and a put
// behind others of its line writes no row that others write.
func TestFewKeys(t *testing.T) {
	const n, puts = 16, 40
	o := task.Options[int]{MaxInFlightPerKey: 2}
	for keys, limit := range map[int]float64{8: 0.1, 1: 0.2} {
		synctest.Test(t, func(t *testing.T) {
			db := cluster()
			all := clientsOf(t, 2*n, 1, func() kv.Engine { return db.Client() }, kv.Options{}, o)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			var taken atomic.Int64
			before, begun, ended := conflicts(all), time.Now(), time.Time{}
			each(all, func(i int, c client) {
				for j := range puts {
					if i < n {
						_, err := c.Put(ctx, fmt.Sprint("key ", (i+j)%keys), j, task.PutOptions{})
						require.NoError(t, err)
					}
				}
				for i >= n {
					one, err := c.Take(ctx)
					if err != nil {
						return
					}
					require.NoError(t, one.Ack(t.Context()))
					if taken.Add(1) == n*puts {
						ended = time.Now()
						cancel()
					}
				}
			})
			require.EqualValues(t, n*puts, taken.Load())
			count := float64(conflicts(all)-before) / (n * puts)
			t.Logf("%d keys: %.3f conflicts per task, %.0f tasks/s",
				keys, count, n*puts/ended.Sub(begun).Seconds())
			require.Less(t, count, limit)
			require.Empty(t, rowstest.Walk(t, openDB(t, db), "q0"))
		})
	}
}

// TestKeyRate lets many processes take tasks of keys with a rate: of keys that never reach it, new
// ones among them, and of keys that wait for it all the time. Few transactions conflict, because
// each key is in a lane, whose process ends its wait, and forgets it when its bucket is full. An
// idle queue keeps no key.
func TestKeyRate(t *testing.T) {
	const n, tasks = 16, 20
	for limit, most := range map[float64]float64{1000: 0.2, 0.5: 1} {
		o := task.Options[int]{KeyRate: task.Rate{Limit: limit, Burst: int(limit / 10)}}
		if limit > 1 {
			d := draining{clients: n, queues: 1, tasks: 25 * n, batch: 1, options: o}.run(t)
			require.Less(t, d.conflicts, 0.2)
		}
		synctest.Test(t, func(t *testing.T) {
			db := cluster()
			all := clientsOf(t, n, 1, func() kv.Engine { return db.Client() }, kv.Options{}, o)
			before := conflicts(all)
			each(all, func(i int, c client) {
				rnd := rand.New(rand.NewPCG(1, uint64(i)))
				for j := range tasks {
					key := fmt.Sprint("key ", rnd.IntN(4*n))
					if j%3 == 0 && limit > 1 {
						key = fmt.Sprint("new key ", i, j)
					}
					_, err := c.Put(t.Context(), key, j, task.PutOptions{})
					require.NoError(t, err)
					one, err := c.Take(t.Context())
					require.NoError(t, err)
					require.NoError(t, one.Ack(t.Context()))
					time.Sleep(time.Duration(rnd.IntN(int(2 * time.Second))))
				}
			})
			count := float64(conflicts(all)-before) / (n * tasks)
			t.Logf("%v a second: %.3f conflicts per task", limit, count)
			require.Less(t, count, most)
			time.Sleep(30 * time.Second)
			look, err := openDB(t, db).Begin(t.Context())
			require.NoError(t, err)
			defer look.Rollback()
			q, err := look.Queue("q0", nil)
			require.NoError(t, err)
			v, err := look.Enter(q.ID, &rows.Plan{})
			require.NoError(t, err)
			kept, err := v.Keys().Scan(rows.Range{Index: rows.KeyName})
			require.NoError(t, err)
			require.Empty(t, kept)
		})
	}
}

// TestPutBehindInterrupted puts a task behind others of its line while another process takes
// these, and the other way round. Either way the task comes next. The line also has a task of
// another kind.
func TestPutBehindInterrupted(t *testing.T) {
	for _, first := range []string{"put", "take"} {
		for weight := 1; weight <= 2; weight++ {
			ctx, db := t.Context(), new(mvcc.DB)
			var by atomic.Pointer[func()]
			engine := func() kv.Engine { return interrupted{db.Client(), &by} }
			all := clientsOf(t, 2, 1, engine, kv.Options{}, task.Options[int]{
				MaxInFlightPerKey: 9, Weight: func(string) int { return weight },
			})
			kvtest.Fill(t, all[0].Queue, weight+1, func(int) string { return "key" })
			_, err := all[0].Put(ctx, "key", 0, task.PutOptions{Kind: "another"})
			require.NoError(t, err)
			put := func() {
				_, err := all[0].Put(ctx, "key", weight+1, task.PutOptions{})
				require.NoError(t, err)
			}
			consumer := all[1].NewConsumer(task.Filter{Kinds: []string{""}})
			take := func(n int) {
				some, err := consumer.TakeBatch(ctx, n)
				require.NoError(t, err)
				require.Len(t, some, n)
			}
			takeAll := func() { take(weight + 1) }
			if first == "put" {
				by.Store(&takeAll)
				put()
			} else {
				by.Store(&put)
				takeAll()
			}
			require.Nil(t, by.Load())
			require.Empty(t, rowstest.Walk(t, openDB(t, db), "q0"))
			take(1)
		}
	}
}
