package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/admit"
	"github.com/fairq/fairq/metrics"
	"github.com/fairq/fairq/monitor"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

// values returns metrics by name and attribute.
func values(t *testing.T, found []metrics.Metric) map[string]string {
	t.Helper()
	known, all := map[string]metrics.Metric{}, map[string]string{}
	for _, m := range metrics.New(0).All() {
		require.NotContains(t, known, m.Name)
		require.NotEmpty(t, m.Help)
		m.Values, m.Histogram = nil, fairq.Histogram{}
		known[m.Name] = m
	}
	for _, m := range found {
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
	for _, stats := range []any{
		new(fairq.Stats), new(task.Stats), new(pool.Stats),
		new(admit.Stats),
	} {
		of := func() map[string]string {
			return values(t, metrics.Of(reflect.ValueOf(stats).Elem().Interface()))
		}
		before := of()
		for f, field := range reflect.ValueOf(stats).Elem().Fields() {
			switch x := field.Addr().Interface().(type) {
			case *int:
				*x = 7
			case *uint64:
				*x = 7
			case *float64:
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
			if after := of(); f.Name != "Workers" { // which is Idle + Running
				require.NotEqual(t, before, after, f.Name)
			}
			field.SetZero()
			require.Equal(t, before, of())
		}
	}
}

func TestValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := fairq.New(func(s string) string { return s[:1] }, &fairq.Options[string, string]{
			KeyCapacity: 2, TrackWait: true, CountKeys: 10,
		})
		for _, item := range []string{"a1", "a2", "b1", "a3"} {
			_ = q.Push(item)
		}
		time.Sleep(time.Second)
		q.Pop()
		tq, err := task.Open[string](t.Context(), new(memory.Store), "emails", nil)
		require.NoError(t, err)
		for i, key := range []string{"a", "b", "b"} {
			_, err = tq.Put(t.Context(), key, "", task.PutOptions{Delay: time.Duration(i) * time.Second})
			require.NoError(t, err)
		}
		time.Sleep(3 * time.Second)
		_, err = tq.Put(t.Context(), "c", "", task.PutOptions{Delay: time.Hour})
		require.NoError(t, err)
		set := metrics.New(1, monitor.FairQueue("jobs", q, nil), monitor.TaskQueue("emails", tq, nil))
		found := set.Look(t.Context())
		got := values(t, found["jobs"])
		for name, want := range map[string]string{
			"fairq.up": "1", "fairq.queue.items": "2", "fairq.queue.keys": "2",
			"fairq.queue.events push": "3", "fairq.queue.events pop": "1",
			"fairq.queue.oldest.age": "4", "fairq.key.served a": "1", "fairq.key.refused a": "1",
			"fairq.queue.wait": q.Stats().Wait.String(), "fairq.key.items a": "1",
			"fairq.key.oldest.age a": "4",
		} {
			require.Equal(t, want, got[name], name)
		}
		got = values(t, found["emails"])
		require.Equal(t, "1", got["fairq.taskqueue.tasks delayed"])
		require.Equal(t, "3", got["fairq.taskqueue.oldest.age"])
		require.Equal(t, []string{"2", "2"},
			[]string{got["fairq.key.items b"], got["fairq.key.oldest.age b"]}, "the key with most tasks")
		require.NotContains(t, got, "fairq.key.items a")
		require.NoError(t, tq.Close(t.Context()))
		require.Equal(t, map[string]string{"fairq.up": "0"}, values(t, set.Look(t.Context())["emails"]))
		emails := monitor.TaskQueue("emails", tq, nil)
		p := pool.New(tq, func(context.Context, *task.Task[string]) error { return nil }, nil)
		for _, sources := range [][]*monitor.Source{
			{monitor.Pool("workers", p, emails)}, {emails, monitor.Pool("workers", p, emails)},
		} {
			require.Len(t, metrics.New(0, sources...).Look(t.Context()), 2, "the queue of the pool too")
		}
		require.PanicsWithValue(t, `metrics: two sources have the name "a"`, func() {
			metrics.New(0, monitor.TaskQueue("a", tq, nil), monitor.FairQueue("b", q, nil),
				monitor.FairQueue("a", q, nil))
		})
		require.PanicsWithValue(t, `metrics: two sources have the name "emails"`, func() {
			metrics.New(0, monitor.Pool("emails", p, emails))
		})
	})
}

// Few keys have labels, however many come and go, and the sums are right.
func TestKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := fairq.New(func(key string) string { return key },
			&fairq.Options[string, string]{Capacity: 1000, CountKeys: 200})
		set := metrics.New(3, monitor.FairQueue("jobs", q, nil))
		seen := map[string]bool{}
		sums := map[string]float64{} // of what each label has grown by
		last := map[string]float64{}
		look := func() {
			for _, m := range set.Look(t.Context())["jobs"] {
				if m.Name != "fairq.key.served" {
					continue
				}
				for key, value := range m.Values {
					require.GreaterOrEqual(t, value, last[key], "a counter")
					sums[key] += value - last[key]
					last[key], seen[key] = value, true
				}
			}
		}
		serve := func(key string, n int) {
			for range n {
				require.NoError(t, q.Push(key))
				q.Pop()
			}
		}
		for i := range 240 {
			serve("always", 20)
			for j := range 100 {
				serve(fmt.Sprint("rare ", i*100+j), 1)
			}
			serve(fmt.Sprint("often ", i/60), 10)
			time.Sleep(time.Minute)
			look()
		}
		require.Contains(t, seen, "always")
		require.LessOrEqual(t, len(seen), 1+1+2*4, "in four hours")
		total := 0.0
		for _, n := range sums {
			total += n
		}
		require.InDelta(t, q.Stats().Popped, total, 0.5)
		require.InDelta(t, 240*20, sums["always"], 20)

		// A source that does not answer does not delay the others.
		begin := time.Now()
		slow := metrics.New(0, monitor.Pool("slow", sleeper{}, nil), monitor.FairQueue("jobs", q, nil))
		for range 2 {
			found := slow.Look(t.Context())
			require.Len(t, found["slow"], 1)
			require.Greater(t, len(found["jobs"]), 5)
		}
		require.LessOrEqual(t, time.Since(begin), 8*time.Second)
		time.Sleep(time.Hour)
	})
}

// A key that floods has a label even before one of its items is served.
func TestRefusedKey(t *testing.T) {
	q := fairq.New(func(key string) string { return key },
		&fairq.Options[string, string]{Capacity: 20, KeyCapacity: 10, CountKeys: 10})
	for range 200 {
		_ = q.Push("mallory")
	}
	found := values(t, metrics.New(1, monitor.FairQueue("jobs", q, nil)).Look(t.Context())["jobs"])
	require.Equal(t, "190", found["fairq.key.refused mallory"])
	require.Equal(t, "0", found["fairq.key.refused other"])
}

// sleeper is a pool that does not answer.
type sleeper struct{}

func (sleeper) Stats() pool.Stats {
	time.Sleep(time.Minute)
	return pool.Stats{}
}
func (sleeper) Failures() []pool.Failure { return nil }
func (sleeper) Pause()                   {}
func (sleeper) Resume()                  {}

func TestObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var lines []string
		record := func(_ context.Context, class, outcome string, took time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, fmt.Sprint(class, outcome, took))
		}
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
		p = pool.Func(handle, &pool.Options[string]{
			Workers: 1, Observer: metrics.Observe[string](record),
			Classes: []pool.Class[string]{{Name: "bulk\xff"}},
		})
		for _, payload := range []string{"works", "fails", "again", "later", "lost", "deleted"} {
			require.NoError(t, p.Submit(t.Context(), "a", payload))
		}
		time.Sleep(3 * time.Hour)
		require.NoError(t, p.Shutdown(t.Context()))
		require.ElementsMatch(t, []string{
			"bulk\uFFFD0s", "bulk\uFFFDsucceeded1m0s",
			"bulk\uFFFD1m0s", "bulk\uFFFDfailed1m0s",
			"bulk\uFFFD2m0s", "bulk\uFFFDretried1m0s", "bulk\uFFFD0s",
			"bulk\uFFFDsucceeded1m0s",
			"bulk\uFFFD3m0s", "bulk\uFFFDsnoozed1m0s", "bulk\uFFFD0s",
			"bulk\uFFFDsucceeded1m0s",
			"bulk\uFFFD4m0s", "bulk\uFFFDlost1m0s",
			"bulk\uFFFD5m0s", "bulk\uFFFDcancelled1m0s",
		}, lines)
		lines = nil

		items := fairq.New(func(s string) string { return s }, nil)
		w := pool.NewWorkers(items, func(context.Context, string) error { return nil },
			&pool.WorkersOptions[string]{Observer: metrics.Observe[string](record)})
		require.NoError(t, items.Push("a"))
		synctest.Wait()
		require.NoError(t, w.Shutdown(t.Context()))
		require.Equal(t, []string{"succeeded0s"}, lines,
			"nobody knows how long an item has waited")
	})
}
