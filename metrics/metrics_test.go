package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/metrics"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

// queue tells what it is made of. With a K of string and an S of task.Stats it tells it as a queue
// of tasks does.
type queue[S any, K comparable] struct {
	stats  S
	counts []fairq.KeyCount[K]
}

func (q *queue[S, K]) Stats() S { return q.stats }

func (q *queue[S, K]) KeyCounts(n int) []fairq.KeyCount[K] { return q.counts[:min(n, len(q.counts))] }

type tasks struct {
	queue[task.Stats, string]
	err error
}

func (q *tasks) Stats(context.Context) (task.Stats, error) { return q.stats, q.err }

// values returns what a source tells, by name and attribute.
func values(t *testing.T, s *metrics.Source) map[string]string {
	t.Helper()
	known, all := map[string]metrics.Metric{}, map[string]string{}
	for _, m := range s.Metrics() {
		require.NotContains(t, known, m.Name)
		require.NotEmpty(t, m.Help)
		m.Values, m.Histogram = nil, fairq.Histogram{}
		known[m.Name] = m
	}
	for _, m := range s.Look(t.Context()) {
		if m.Kind == metrics.Histogram {
			all[m.Name] = m.Histogram.String()
		}
		for of, value := range m.Values {
			name := m.Name
			if m.Attribute != "" {
				name += " " + of
			} else {
				require.Empty(t, of, name)
			}
			require.NotContains(t, all, name)
			all[name] = fmt.Sprint(value)
		}
		m.Values, m.Histogram = nil, fairq.Histogram{}
		require.Equal(t, known[m.Name], m)
	}
	return all
}

// TestAllOfStats changes one field of the Stats after the other.
func TestAllOfStats(t *testing.T) {
	var of queue[fairq.Stats, int]
	var ofTasks tasks
	var ofPool queue[pool.Stats, string]
	for _, c := range []struct {
		source *metrics.Source
		stats  any
		also   string // by which others this one is told
	}{
		{metrics.FairQueue("a", &of, 0), &of.stats, ""},
		{metrics.TaskQueue("b", &ofTasks, 0), &ofTasks.stats, ""},
		{metrics.Pool("c", &ofPool, 0), &ofPool.stats, "Workers"}, // is Idle + Running
	} {
		before := values(t, c.source)
		for f, field := range reflect.ValueOf(c.stats).Elem().Fields() {
			switch x := field.Addr().Interface().(type) {
			case *int:
				*x = 7
			case *uint64:
				*x = 7
			case *bool:
				*x = true
			case *string:
				*x = "08:00-12:00"
			case *time.Duration:
				*x = time.Second
			case *fairq.Histogram:
				x.Count, x.Sum, x.Buckets[20] = 7, 7, 7
			default:
				t.Fatalf("%s is a %T", f.Name, x)
			}
			if after := values(t, c.source); f.Name != c.also {
				require.NotEqual(t, before, after, f.Name)
			}
			field.SetZero()
			require.Equal(t, before, values(t, c.source))
		}
	}
}

func TestValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := fairq.New(func(s string) string { return s[:1] }, &fairq.Options[string, string]{TrackWait: true, CountKeys: 10})
		for _, item := range []string{"a1", "a2", "b1"} {
			require.NoError(t, q.Push(item))
		}
		time.Sleep(time.Second)
		q.Pop()
		got := values(t, metrics.FairQueue("jobs", q, 10))
		for name, want := range map[string]string{
			"fairq.up": "1", "fairq.queue.items": "2", "fairq.queue.keys": "2", "fairq.queue.events push": "3", "fairq.queue.events pop": "1",
			"fairq.queue.oldest.age": "1", "fairq.key.served a": "1", "fairq.queue.wait": q.Stats().Wait.String(),
		} {
			require.Equal(t, want, got[name], name)
		}

		tq, err := task.Open[string](t.Context(), new(memory.Store), "emails", nil)
		require.NoError(t, err)
		_, err = tq.Put(t.Context(), "a", "a1", task.PutOptions{Delay: time.Second})
		require.NoError(t, err)
		got = values(t, metrics.TaskQueue("emails", tq, 0))
		require.Equal(t, "1", got["fairq.taskqueue.tasks delayed"])
		require.NotContains(t, fmt.Sprint(got), "fairq.key")
		require.NoError(t, tq.Close(t.Context()))
		require.Equal(t, map[string]string{"fairq.up": "0"}, values(t, metrics.TaskQueue("emails", &tasks{err: errors.New("no")}, 5)))
	})
}

func TestNames(t *testing.T) {
	for _, name := range []string{"", "a\xff"} {
		require.Panics(t, func() { metrics.Pool(name, new(queue[pool.Stats, string]), 0) })
	}
	require.Equal(t, "ä b", metrics.Pool("ä b", new(queue[pool.Stats, string]), 0).Name())
}

// counted returns the counts of keys, the heaviest first.
func counted[K comparable](keys ...K) (counts []fairq.KeyCount[K]) {
	for i, k := range keys {
		counts = append(counts, fairq.KeyCount[K]{Key: k, Total: fairq.Counts{Served: uint64(1000 - i), Refused: 1, Evicted: 2, Cost: 3}})
	}
	return counts
}

// keys returns the keys that a source tells of.
func keys(t *testing.T, s *metrics.Source) map[string]string {
	t.Helper()
	all := map[string]string{}
	for name, value := range values(t, s) {
		if key, ok := strings.CutPrefix(name, "fairq.key.served "); ok {
			all[key] = value
		}
	}
	return all
}

func TestKeysDoNotComeAndGo(t *testing.T) {
	var q queue[fairq.Stats, string]
	s := metrics.FairQueue("a", &q, 2)
	for _, c := range []struct{ counted, want string }{
		{"", ""},
		{"a", "a"},
		{"b a", "a b"},
		{"c d b a", "a b"},
		{"c d a b", "a b"},
		{"c d e a b", "a c"}, // b is too light
		{"b c a", "a c"},
		{"e f", "e f"},
	} {
		q.counts = counted(strings.Fields(c.counted)...)
		want := map[string]string{}
		for i, k := range q.counts {
			if strings.Contains(c.want, k.Key) {
				want[k.Key] = fmt.Sprint(1000 - i)
			}
		}
		require.Equal(t, want, keys(t, s), c.counted)
	}
	require.Equal(t, map[string]string{"e": "1000", "f": "999"}, keys(t, metrics.Pool("p", &queue[pool.Stats, string]{counts: q.counts}, 5)))
	require.Empty(t, keys(t, metrics.Pool("p", statsOnly{}, 5)))
}

type statsOnly struct{}

func (statsOnly) Stats() pool.Stats { return pool.Stats{} }

type stringer struct{ s string }

func (s *stringer) String() string { return s.s }

// TestHostileKeys has keys of all kinds, each with a text of its own that is valid and short.
func TestHostileKeys(t *testing.T) {
	long := strings.Repeat("\u00e9", 1<<19)
	odd := []any{
		"", " ", "a\xff", "a\x00", "\n", "<script>", long, long + "x", 7, math.NaN(), math.NaN(), nil,
		[2]string{"a", "b"},
		&stringer{"text"}, new(int),
		struct{ a, b any }{1, new(int)},
	}
	q := queue[fairq.Stats, any]{counts: counted(odd...)}
	s := metrics.FairQueue("a", &q, 100)
	for range 2 {
		got := keys(t, s)
		require.Len(t, got, len(odd)-1, "all but one NaN")
		require.Contains(t, got, "text")
		for text := range got {
			require.LessOrEqual(t, len(text), 130)
			require.Equal(t, strings.ToValidUTF8(text, ""), text)
		}
	}
}

// log is a Times that remembers what it is told.
type log struct {
	mu    sync.Mutex
	lines []string
}

func (l *log) Waited(_ context.Context, class string, d time.Duration) { l.add("waited", class, d) }

func (l *log) Ran(_ context.Context, class, outcome string, d time.Duration) {
	l.add("ran", class, outcome, d)
}

func (l *log) add(what ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, strings.TrimSpace(fmt.Sprintln(what...)))
}

func TestObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l log
		observer := func(next pool.Observer[string]) pool.Observer[string] { return metrics.Observe(next, &l) }
		var p *pool.Pool[string]
		handle := func(ctx context.Context, tk *task.Task[string]) error {
			switch time.Sleep(time.Minute); tk.Payload {
			case "fails":
				return pool.Permanent(errors.New("no"))
			case "again":
				if tk.Attempts == 1 {
					return pool.RetryAfter(time.Hour)
				}
			case "later":
				if time.Since(tk.Info().Created) < time.Hour {
					return pool.Snooze(time.Hour)
				}
			case "deleted":
				require.NoError(t, p.Queue("").Delete(ctx, tk.ID))
				<-ctx.Done()
			case "lost":
				return tk.Ack(t.Context())
			}
			return nil
		}
		told := map[string]int{}
		tells := func(what string) func(context.Context, string, *task.Task[string], time.Duration) {
			return func(_ context.Context, _ string, tk *task.Task[string], _ time.Duration) { told[what+" "+tk.Payload]++ }
		}
		tellsError := func(what string) func(context.Context, string, *task.Task[string], time.Duration, error) {
			return func(ctx context.Context, class string, tk *task.Task[string], ran time.Duration, err error) {
				require.Error(t, err)
				tells(what)(ctx, class, tk, ran)
			}
		}
		all := pool.Observer[string]{
			Started: tells("started"), Succeeded: tells("succeeded"), Failed: tellsError("failed"), Cancelled: tellsError("cancelled"), Lost: tellsError("lost"),
			Retried: func(ctx context.Context, class string, tk *task.Task[string], ran, _ time.Duration, err error) {
				tellsError("retried")(ctx, class, tk, ran, err)
			},
		}
		for _, next := range []pool.Observer[string]{{}, all} {
			p = pool.Func(handle, &pool.Options[string]{
				Workers: 1, Observer: observer(next), Classes: []pool.Class[string]{{Name: "bulk\xff"}},
			})
			for _, payload := range []string{"works", "fails", "again", "later", "lost", "deleted"} {
				require.NoError(t, p.Submit(t.Context(), "a", payload))
			}
			time.Sleep(3 * time.Hour)
			require.NoError(t, p.Shutdown(t.Context()))
			require.ElementsMatch(t, []string{
				"waited bulk\uFFFD 0s", "ran bulk\uFFFD succeeded 1m0s",
				"waited bulk\uFFFD 1m0s", "ran bulk\uFFFD failed 1m0s",
				"waited bulk\uFFFD 2m0s", "ran bulk\uFFFD retried 1m0s", "waited bulk\uFFFD 0s", "ran bulk\uFFFD succeeded 1m0s",
				"waited bulk\uFFFD 3m0s", "ran bulk\uFFFD snoozed 1m0s", "waited bulk\uFFFD 0s", "ran bulk\uFFFD succeeded 1m0s",
				"waited bulk\uFFFD 4m0s", "ran bulk\uFFFD lost 1m0s",
				"waited bulk\uFFFD 5m0s", "ran bulk\uFFFD cancelled 1m0s",
			}, l.lines)
			l.lines = nil
		}
		require.Equal(t, map[string]int{
			"started works": 1, "succeeded works": 1, "started fails": 1, "failed fails": 1, "started again": 2, "retried again": 1, "succeeded again": 1,
			"started later": 2, "retried later": 1, "succeeded later": 1, "started lost": 1, "lost lost": 1,
			"started deleted": 1, "cancelled deleted": 1,
		}, told)

		items := fairq.New(func(s string) string { return s }, nil)
		w := pool.NewWorkers(items, func(context.Context, string) error { return nil }, &pool.Options[string]{Observer: observer(pool.Observer[string]{})})
		require.NoError(t, items.Push("a"))
		synctest.Wait()
		require.NoError(t, w.Shutdown(t.Context()))
		require.Equal(t, []string{"ran  succeeded 0s"}, l.lines, "nobody knows how long an item has waited")
	})
}
