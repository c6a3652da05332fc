package fairqotel

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/fairq/fairq/metrics"
	"github.com/fairq/fairq/monitor"
	"github.com/fairq/fairq/pool"
)

// Register exports the metrics of sources whenever a reader collects, until Unregister is called.
// A nil provider means that of [otel.GetMeterProvider].
//
// The metrics have the names, units and attributes of package metrics. One more attribute, name,
// is the name of the source. OpenTelemetry has no observable histogram. So two counters stand for
// the waiting times of a FairQueue: fairq.queue.wait.count and fairq.queue.wait.sum.
//
// Register names up to n keys of each source, see [metrics.New]. It panics if two sources have the
// same name. It returns the error of the provider, if any.
func Register(provider metric.MeterProvider, n int,
	sources ...*monitor.Source,
) (metric.Registration, error) {
	set := metrics.New(n, sources...)
	r := registry{meter: meterOf(provider), instruments: map[string]metric.Float64Observable{}}
	for _, m := range set.All() {
		if err := r.add(m); err != nil {
			return nil, fmt.Errorf("fairqotel: %w", err)
		}
	}
	look := func(ctx context.Context, to metric.Observer) error {
		for name, found := range set.Look(ctx) {
			for _, m := range found {
				r.observe(to, name, m)
			}
		}
		return nil
	}
	return r.meter.RegisterCallback(look, r.all...)
}

func meterOf(provider metric.MeterProvider) metric.Meter {
	if provider == nil {
		provider = otel.GetMeterProvider()
	}
	return provider.Meter(scope)
}

// registry has the instruments, by the names of their metrics.
type registry struct {
	meter       metric.Meter
	instruments map[string]metric.Float64Observable
	all         []metric.Observable
}

// split returns the two counters that stand for a histogram, and any other metric as it is.
func split(m metrics.Metric) []metrics.Metric {
	if m.Kind != metrics.Histogram {
		return []metrics.Metric{m}
	}
	count, sum := m, m
	count.Name, count.Unit, count.Kind, count.Values = m.Name+".count", "{item}", metrics.Counter,
		map[string]float64{"": float64(m.Histogram.Count)}
	sum.Name, sum.Kind, sum.Values = m.Name+".sum", metrics.Counter,
		map[string]float64{"": m.Histogram.Sum}
	return []metrics.Metric{count, sum}
}

func (r *registry) add(m metrics.Metric) (err error) {
	for _, m := range split(m) {
		var instrument metric.Float64Observable
		unit, about := metric.WithUnit(m.Unit), metric.WithDescription(m.Help)
		switch m.Kind {
		case metrics.Counter:
			instrument, err = r.meter.Float64ObservableCounter(m.Name, unit, about)
		case metrics.Sum:
			instrument, err = r.meter.Float64ObservableUpDownCounter(m.Name, unit, about)
		default:
			instrument, err = r.meter.Float64ObservableGauge(m.Name, unit, about)
		}
		if err != nil {
			return err
		}
		r.instruments[m.Name], r.all = instrument, append(r.all, instrument)
	}
	return nil
}

func (r *registry) observe(to metric.Observer, source string, m metrics.Metric) {
	for _, m := range split(m) {
		for of, value := range m.Values {
			attributes := []attribute.KeyValue{attribute.String("name", source)}
			if m.Attribute != "" {
				attributes = append(attributes, attribute.String(m.Attribute, of))
			}
			to.ObserveFloat64(r.instruments[m.Name], value, metric.WithAttributes(attributes...))
		}
	}
}

// Observe returns an Observer for the Options of a pool of that name. It records how long tasks
// wait and run, by class and outcome. An Observer of your own can call it. A nil provider means
// that of [otel.GetMeterProvider]. Observe returns the error of the provider, if any.
func Observe[V any](
	provider metric.MeterProvider, name string,
) (func(context.Context, pool.Event[V]), error) {
	meter := meterOf(provider)
	wait, failed := histogram(meter, &metrics.WaitTimes)
	run, err := histogram(meter, &metrics.RunTimes)
	if err = cmp.Or(failed, err); err != nil {
		return nil, err
	}
	return metrics.Observe[V](func(ctx context.Context, class, outcome string, took time.Duration) {
		h, attributes := wait, []attribute.KeyValue{
			attribute.String("name", name), attribute.String("class", class),
		}
		if outcome != "" {
			h, attributes = run, append(attributes, attribute.String("outcome", outcome))
		}
		h.Record(ctx, took.Seconds(), metric.WithAttributes(attributes...))
	}), nil
}

// histogram returns a histogram with bounds from a tenth of a millisecond to some five hours, each
// four times the one before.
func histogram(meter metric.Meter, m *metrics.Metric) (metric.Float64Histogram, error) {
	var bounds []float64
	for i := range 14 {
		bounds = append(bounds, float64(uint64(1)<<(2*i))/10_000)
	}
	h, err := meter.Float64Histogram(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Help),
		metric.WithExplicitBucketBoundaries(bounds...))
	if err != nil {
		return nil, fmt.Errorf("fairqotel: %w", err)
	}
	return h, nil
}
