package fairqotel_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/metrics"
	fairqotel "github.com/fairq/fairq/metrics/otel"
	"github.com/fairq/fairq/monitor"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

// read returns all metrics by name.
func read(t *testing.T, reader sdkmetric.Reader) map[string]metricdata.Metrics {
	t.Helper()
	var data metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &data))
	all := map[string]metricdata.Metrics{}
	for _, s := range data.ScopeMetrics {
		require.Equal(t, "github.com/fairq/fairq/metrics/otel", s.Scope.Name)
		for _, m := range s.Metrics {
			require.NotContains(t, all, m.Name)
			all[m.Name] = m
		}
	}
	return all
}

// points returns the values of a metric, by all attributes.
func points(t *testing.T, m metricdata.Metrics) map[string]float64 {
	t.Helper()
	var points []metricdata.DataPoint[float64]
	switch data := m.Data.(type) {
	case metricdata.Sum[float64]:
		points = data.DataPoints
	case metricdata.Gauge[float64]:
		points = data.DataPoints
	default:
		t.Fatalf("%s is a %T", m.Name, data)
	}
	all := map[string]float64{}
	for _, p := range points {
		all[p.Attributes.Encoded(attribute.DefaultEncoder())] = p.Value
	}
	return all
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		reader := sdkmetric.NewManualReader()
		provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
		q := fairq.New(func(s string) string { return s },
			&fairq.Options[string, string]{TrackWait: true, CountKeys: 10})
		require.NoError(t, q.Push("a"))
		require.NoError(t, q.Push("b"))
		time.Sleep(2 * time.Second)
		q.Pop()
		tasks, err := task.Open[string](ctx, new(memory.Store), "emails", nil)
		require.NoError(t, err)
		observer, err := fairqotel.Observe[string](provider, "workers")
		require.NoError(t, err)
		p := pool.New(tasks, func(context.Context, *task.Task[string]) error {
			time.Sleep(time.Minute)
			return nil
		}, &pool.Options[string]{Workers: 1, Observer: observer})
		r, err := fairqotel.Register(provider, 5, monitor.FairQueue("jobs", q, nil),
			monitor.TaskQueue("emails", tasks, nil), monitor.Pool("workers", p, nil))
		require.NoError(t, err)
		for range 2 {
			_, err := tasks.Put(ctx, "a", "payload", task.PutOptions{})
			require.NoError(t, err)
		}
		time.Sleep(time.Hour)

		all := read(t, reader)
		for name, want := range map[string]map[string]float64{
			"fairq.up":               {"name=jobs": 1, "name=emails": 1, "name=workers": 1},
			"fairq.queue.items":      {"name=jobs": 1},
			"fairq.queue.wait.count": {"name=jobs": 1},
			"fairq.queue.wait.sum":   {"name=jobs": 2},
			"fairq.key.served":       {"key=a,name=jobs": 1, "key=other,name=jobs": 0},
			"fairq.taskqueue.tasks": {
				"name=emails,state=ready": 0, "name=emails,state=delayed": 0, "name=emails,state=taken": 0,
				"name=emails,state=buried": 0, "name=emails,state=held": 0,
			},
			"fairq.pool.workers": {
				"name=workers,state=idle": 1, "name=workers,state=running": 0,
				"name=workers,state=nested": 0,
			},
		} {
			require.Equal(t, want, points(t, all[name]), name)
		}
		for name, grows := range map[string]bool{
			"fairq.queue.items": false, "fairq.queue.events": true, "fairq.pool.workers": false,
		} {
			require.Equal(t, grows, all[name].Data.(metricdata.Sum[float64]).IsMonotonic, name)
		}
		require.IsType(t, metricdata.Gauge[float64]{}, all["fairq.up"].Data)
		require.Equal(t, "s", all["fairq.queue.oldest.age"].Unit)
		require.Equal(t, "Items queued.", all["fairq.queue.items"].Description)
		for name, sum := range map[string]float64{"fairq.pool.wait": 60, "fairq.pool.run": 120} {
			h, ok := all[name].Data.(metricdata.Histogram[float64])
			require.True(t, ok, name)
			require.Equal(t, uint64(2), h.DataPoints[0].Count)
			require.InDelta(t, sum, h.DataPoints[0].Sum, 1e-6)
			require.Len(t, h.DataPoints[0].Bounds, 14)
		}
		require.NoError(t, r.Unregister())
		require.NotContains(t, read(t, reader), "fairq.up")
		require.NoError(t, p.Shutdown(context.Background()))
		require.NoError(t, tasks.Close(context.Background()))
		require.NoError(t, provider.Shutdown(context.Background()))
	})
}

// failing makes no instrument of some name.
type failing struct {
	noop.MeterProvider
	name string
}

func (f failing) Meter(string,
	...metric.MeterOption,
) metric.Meter {
	return failingMeter{name: f.name}
}

type failingMeter struct {
	noop.Meter
	name string
}

var errNo = errors.New("no")

func (m failingMeter) Float64Histogram(name string,
	_ ...metric.Float64HistogramOption,
) (metric.Float64Histogram, error) {
	if name == m.name {
		return nil, errNo
	}
	return noop.Float64Histogram{}, nil
}

func (m failingMeter) Float64ObservableGauge(name string,
	_ ...metric.Float64ObservableGaugeOption,
) (metric.Float64ObservableGauge, error) {
	if name == m.name {
		return nil, errNo
	}
	return noop.Float64ObservableGauge{}, nil
}

func TestErrors(t *testing.T) {
	q := monitor.FairQueue("a", fairq.New(func(s string) string { return s }, nil), nil)
	for _, name := range []string{metrics.WaitTimes.Name, metrics.RunTimes.Name} {
		_, err := fairqotel.Observe[string](failing{name: name}, "a")
		require.ErrorIs(t, err, errNo)
	}
	_, err := fairqotel.Register(failing{name: "fairq.up"}, 0, q)
	require.ErrorIs(t, err, errNo)
	require.Panics(t, func() { _, _ = fairqotel.Register(nil, 0, q, q) })
	r, err := fairqotel.Register(nil, 0, q)
	require.NoError(t, err, "the provider of the program")
	require.NoError(t, r.Unregister())
	_, err = fairqotel.Observe[string](nil, "a")
	require.NoError(t, err)
}
