package fairqprom_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/driver"
	fairqprom "github.com/fairq/fairq/metrics/prometheus"
	"github.com/fairq/fairq/monitor"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

func ExampleNewCollector() {
	queue := fairq.New(func(job string) string { return job[:1] },
		&fairq.Options[string, string]{CountKeys: 1000})
	for _, job := range []string{"a1", "a2", "b1"} {
		_ = queue.Push(job)
	}
	queue.Pop()

	c := fairqprom.NewCollector(10, monitor.FairQueue("jobs", queue, nil))
	prometheus.MustRegister(c)
	defer prometheus.Unregister(c)

	text, _ := testutil.CollectAndFormat(c, expfmt.TypeTextPlain, "fairq_queue_items",
		"fairq_queue_events_total", "fairq_key_served_total")
	fmt.Print(string(text))
	// Output:
	// # HELP fairq_key_served_total Items of a key that were delivered, or tasks that were taken.
	// # TYPE fairq_key_served_total counter
	// fairq_key_served_total{key="a",name="jobs"} 1
	// fairq_key_served_total{key="other",name="jobs"} 0
	// # HELP fairq_queue_events_total Items to which something has happened.
	// # TYPE fairq_queue_events_total counter
	// fairq_queue_events_total{event="evict",name="jobs"} 0
	// fairq_queue_events_total{event="pop",name="jobs"} 1
	// fairq_queue_events_total{event="push",name="jobs"} 3
	// fairq_queue_events_total{event="refuse",name="jobs"} 0
	// fairq_queue_events_total{event="remove",name="jobs"} 0
	// # HELP fairq_queue_items Items queued.
	// # TYPE fairq_queue_items gauge
	// fairq_queue_items{name="jobs"} 2
}

// A program without a pool calls the Observer itself.
func ExampleObserve() {
	ctx := context.Background()
	mails, _ := task.Open[string](ctx, new(memory.Store), "mails", nil)
	c := fairqprom.NewCollector(0, monitor.TaskQueue("mails", mails, nil))
	o := fairqprom.Observe[string](c, "mails")
	_, _ = mails.Put(ctx, "alice", "hello", task.PutOptions{})

	mail, _ := mails.Take(ctx)
	start := time.Now()
	o(ctx, pool.Event[string]{
		Kind: pool.EventStarted, Task: mail, Took: start.Sub(mail.Info().ReadyAt),
	})
	// Here it is sent.
	if err := mail.Ack(ctx); err == nil {
		o(ctx, pool.Event[string]{Kind: pool.EventSucceeded, Task: mail, Took: time.Since(start)})
	}

	fmt.Println(testutil.CollectAndCount(c, "fairq_pool_wait_seconds", "fairq_pool_run_seconds"),
		"histograms")
	// Output: 2 histograms
}

// work has one of each kind of source, in which each metric has a value.
func work(t *testing.T) *fairqprom.Collector {
	ctx := t.Context()
	q := fairq.New(func(s string) string { return s },
		&fairq.Options[string, string]{TrackWait: true, CountKeys: 10})
	for _, key := range []string{"a", "a", "\xff\n", strings.Repeat("x", 1<<20)} {
		require.NoError(t, q.Push(key))
	}
	time.Sleep(time.Second)
	for range 3 {
		q.Pop()
	}
	tasks, err := task.Open[string](ctx, new(memory.Store), "emails",
		&task.Options[string]{CountKeys: 10})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tasks.Close(context.Background())) })
	c := fairqprom.NewCollector(5)
	workers := pool.New(tasks, func(context.Context, *task.Task[string]) error {
		time.Sleep(time.Minute)
		return pool.Permanent(errors.New("no"))
	}, &pool.Options[string]{
		Workers:  1,
		Observer: fairqprom.Observe[string](c, "workers"),
		Schedule: []pool.Range{{Time: "00:00-24:00", Scale: pool.Scale{Min: 1, Max: 1}}},
	})
	t.Cleanup(func() { require.NoError(t, workers.Shutdown(context.Background())) })
	c.Show(monitor.FairQueue("jobs", q, nil), monitor.TaskQueue("emails", tasks, nil),
		monitor.Pool("workers", workers, nil))
	for range 2 {
		_, err := tasks.Put(ctx, "a", "payload", task.PutOptions{})
		require.NoError(t, err)
	}
	time.Sleep(time.Hour)
	return c
}

func families(t *testing.T, c prometheus.Collector) map[string]*dto.MetricFamily {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	list, err := r.Gather()
	require.NoError(t, err)
	all := map[string]*dto.MetricFamily{}
	for _, f := range list {
		all[f.GetName()] = f
	}
	return all
}

func TestCollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := work(t)
		problems, err := testutil.CollectAndLint(c)
		require.NoError(t, err)
		require.Empty(t, problems)
		require.NoError(t, testutil.CollectAndCompare(c, strings.NewReader(`
# HELP fairq_pool_attempts_total Attempts that have ended.
# TYPE fairq_pool_attempts_total counter
fairq_pool_attempts_total{name="workers",outcome="cancelled"} 0
fairq_pool_attempts_total{name="workers",outcome="failed"} 2
fairq_pool_attempts_total{name="workers",outcome="lost"} 0
fairq_pool_attempts_total{name="workers",outcome="retried"} 0
fairq_pool_attempts_total{name="workers",outcome="returned"} 0
fairq_pool_attempts_total{name="workers",outcome="snoozed"} 0
fairq_pool_attempts_total{name="workers",outcome="succeeded"} 0
# HELP fairq_pool_schedule Is 1 for the range of the schedule that is in force.
# TYPE fairq_pool_schedule gauge
fairq_pool_schedule{name="workers",range="00:00-24:00"} 1
# HELP fairq_taskqueue_tasks Tasks by state.
# TYPE fairq_taskqueue_tasks gauge
fairq_taskqueue_tasks{name="emails",state="buried"} 2
fairq_taskqueue_tasks{name="emails",state="delayed"} 0
fairq_taskqueue_tasks{name="emails",state="held"} 0
fairq_taskqueue_tasks{name="emails",state="ready"} 0
fairq_taskqueue_tasks{name="emails",state="taken"} 0
# HELP fairq_up Whether the source has answered.
# TYPE fairq_up gauge
fairq_up{name="emails"} 1
fairq_up{name="jobs"} 1
fairq_up{name="workers"} 1
`), "fairq_pool_attempts_total", "fairq_pool_schedule", "fairq_taskqueue_tasks", "fairq_up"))

		all := families(t, c)
		run := all["fairq_pool_run_seconds"].GetMetric()
		require.Len(t, run, 1)
		require.Equal(t, uint64(2), run[0].GetHistogram().GetSampleCount())
		require.InDelta(t, 120, run[0].GetHistogram().GetSampleSum(), 1e-6)
		wait := all["fairq_pool_wait_seconds"].GetMetric()
		require.InDelta(t, 60, wait[0].GetHistogram().GetSampleSum(), 1e-6)
		wait = all["fairq_queue_wait_seconds"].GetMetric()
		h := wait[0].GetHistogram()
		require.Equal(t, uint64(3), h.GetSampleCount())
		require.InDelta(t, 3, h.GetSampleSum(), 1e-6)
		require.Len(t, h.GetBucket(), 18)
		for _, b := range h.GetBucket() {
			within := uint64(0)
			if b.GetUpperBound() >= 1 {
				within = 3
			}
			require.Equal(t, within, b.GetCumulativeCount(), b.GetUpperBound())
		}
		for i, b := range run[0].GetHistogram().GetBucket() { // so that they can be shown together
			require.InDelta(t, math.Pow(4, float64(i))/1e6, b.GetUpperBound(), 1e-9)
			require.InDelta(t, h.GetBucket()[i].GetUpperBound(), b.GetUpperBound(), 1e-9)
		}
	})
}

// slow is a store whose queues do not answer.
type slow struct{ memory.Store }

func (s *slow) Open(ctx context.Context, name string, o driver.Settings,
	n driver.Notifier,
) (driver.Backend, error) {
	b, err := s.Store.Open(ctx, name, o, n)
	return slowQueue{b}, err
}

type slowQueue struct{ driver.Backend }

func (slowQueue) Stats(ctx context.Context) (driver.Stats, error) {
	<-ctx.Done()
	return driver.Stats{Puts: 7}, ctx.Err()
}

func TestSlowSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		q := fairq.New(func(s string) string { return s }, nil)
		tasks, err := task.Open[int](t.Context(), new(slow), "tasks", nil)
		require.NoError(t, err)
		defer tasks.Close(t.Context())
		all := families(t, fairqprom.NewCollector(0, monitor.TaskQueue("a", tasks, nil),
			monitor.TaskQueue("b", tasks, nil), monitor.FairQueue("c", q, nil)))
		require.Equal(t, 3*time.Second, time.Since(start))
		up := all["fairq_up"].GetMetric()
		require.Len(t, up, 3)
		for i, want := range []float64{0, 0, 1} {
			require.InDelta(t, want, up[i].GetGauge().GetValue(), 0)
		}
		require.NotContains(t, all, "fairq_taskqueue_tasks")
		require.Contains(t, all["fairq_taskqueue_events_total"].String(), "value:7")
		require.Contains(t, all, "fairq_queue_items")
	})
}

// TestDashboard looks for unknown metrics and labels in the expressions of the dashboard.
func TestDashboard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		labels := map[string]map[string]bool{} // by metric
		for name, f := range families(t, work(t)) {
			of := map[string]bool{}
			for _, l := range f.GetMetric()[0].GetLabel() {
				of[l.GetName()] = true
			}
			labels[name] = of
			if f.GetType() == dto.MetricType_HISTOGRAM {
				of["le"] = true
				labels[name+"_bucket"] = of
			}
		}
		var expressions []string
		legends, queries := map[string]string{}, 0 // by expression; of variables
		var find func(v any)
		find = func(v any) {
			switch v := v.(type) {
			case map[string]any:
				if e, ok := v["expr"].(string); ok {
					expressions = append(expressions, e)
					legends[e] = fmt.Sprint(v["legendFormat"])
				}
				if q, ok := v["query"].(string); ok && q != "prometheus" {
					of := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(q)
					require.Len(t, of, 3, q)
					require.True(t, labels[of[1]][of[2]], q)
					queries++
				}
				for _, v := range v {
					find(v)
				}
			case []any:
				for _, v := range v {
					find(v)
				}
			}
		}
		var d any
		dashboard, err := os.ReadFile("../../docs/grafana.json")
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(dashboard, &d))
		find(d)
		require.Greater(t, len(expressions), 20)
		require.Equal(t, 1, queries)
		shown := map[string]bool{}
		for _, e := range expressions {
			metric := regexp.MustCompile(`fairq_\w+`).FindAllString(e, -1)
			require.Len(t, metric, 1, e)
			of := labels[metric[0]]
			require.NotNil(t, of, e)
			shown[strings.TrimSuffix(metric[0], "_bucket")] = true
			require.Contains(t, e, `{name=~"$name"`)
			for _, in := range regexp.MustCompile(`by \(([^)]*)\)|\{([^}]*)\}`).FindAllStringSubmatch(e,
				-1) {
				for _, l := range regexp.MustCompile(`(\w+)(=|,|$)`).FindAllStringSubmatch(in[1]+in[2], -1) {
					require.True(t, of[l[1]], "%s: label %q", e, l[1])
				}
			}
			for _, l := range regexp.MustCompile(`\{\{(\w+)}}`).FindAllStringSubmatch(legends[e], -1) {
				if left := regexp.MustCompile(`by \(([^)]*)\)`).FindStringSubmatch(e); left != nil {
					require.Contains(t, strings.Split(left[1], ", "), l[1], "%s: the legend", e)
				}
				require.True(t, of[l[1]], "%s: label %q of the legend", e, l[1])
			}
			require.Equal(t, strings.HasSuffix(metric[0], "_total") ||
				strings.HasSuffix(metric[0], "_bucket"), strings.Contains(e, "rate("), e)
			require.Equal(t, strings.Count(e, "("), strings.Count(e, ")"), e)
		}
		rules, err := os.ReadFile("../../docs/alerts.yaml")
		require.NoError(t, err)
		alerts := regexp.MustCompile(`(?m)^        expr: (.*)$`).FindAllStringSubmatch(string(rules), -1)
		require.Len(t, alerts, strings.Count(string(rules), "- alert: "))
		for _, e := range alerts {
			metric := regexp.MustCompile(`(fairq_\w+)(?:\{(\w+)(?:=|!=)"(\w+)"\})?`)
			for _, m := range metric.FindAllStringSubmatch(e[1], -1) {
				require.NotNil(t, labels[m[1]], e[1])
				require.True(t, m[2] == "" || labels[m[1]][m[2]], e[1])
			}
			require.Equal(t, strings.Count(e[1], "("), strings.Count(e[1], ")"), e[1])
		}
		notShown := regexp.MustCompile(
			`_bucket|capacity|counted|waiting|_keys|cost_|closed|schedule|started|pool_tasks`)
		for name := range labels {
			if !notShown.MatchString(name) {
				require.True(t, shown[name], "%s is not on the dashboard", name)
			}
		}
	})
}

// Each alert fires on the numbers that it is for.
func TestAlerts(t *testing.T) {
	rules, err := os.ReadFile("../../docs/alerts.yaml")
	require.NoError(t, err)
	tests, err := os.ReadFile("testdata/alerts.yaml")
	require.NoError(t, err)
	alert := regexp.MustCompile(`- alert: (\w+)`)
	for _, name := range alert.FindAllStringSubmatch(string(rules), -1) {
		require.Contains(t, string(tests), "alertname: "+name[1]+"\n")
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil && os.Getenv("CI") != "true" {
		t.Skip("there is no promtool, which is in Debian's package prometheus")
	}
	out, err := exec.CommandContext(t.Context(), promtool, "test", "rules",
		"testdata/alerts.yaml").CombinedOutput()
	require.NoError(t, err, "%s", out)
}
