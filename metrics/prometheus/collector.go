// Package fairqprom exports the metrics of queues and pools to Prometheus.
//
//	c := fairqprom.NewCollector(10,
//		monitor.FairQueue("jobs", queue, nil),
//		monitor.Pool("workers", workers, nil))
//	prometheus.MustRegister(c)
//
// A metric has its name of package metrics, with underscores, then its unit, then _total if it is
// a counter: fairq.queue.events is fairq_queue_events_total. The label name is the name of the
// source. One more label may be a state, an event, an outcome or a key. So a source has some 25
// time series, 21 more for each histogram, 4 for each key with a label and for the others
// together, and 2 for each of the keys with most items. The page docs/operating.md lists them, and
// docs/grafana.json is a dashboard.
//
// A scrape reads all sources at the same time, and takes at most 4 seconds. A source that has not
// answered by then, for instance because its database is down, has fairq_up 0. Its other metrics
// are only the ones that the process has counted itself.
package fairqprom

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/metrics"
	"github.com/fairq/fairq/monitor"
	"github.com/fairq/fairq/pool"
)

// Collector is a [prometheus.Collector] of some sources. All methods may be called at any time by
// any goroutine.
type Collector struct {
	keys         int
	set          atomic.Pointer[metrics.Set]
	descriptions map[string]*prometheus.Desc // by the name of the metric
	wait, run    *prometheus.HistogramVec
}

// NewCollector returns a Collector that has up to n keys of each source by name, see
// [metrics.New]. It panics if two sources have the same name. A registry takes one Collector only,
// so give it all sources, or call Show.
func NewCollector(n int, sources ...*monitor.Source) *Collector {
	c := &Collector{
		keys: n, descriptions: map[string]*prometheus.Desc{},
		wait: newHistogram(&metrics.WaitTimes, "name", "class"),
		run:  newHistogram(&metrics.RunTimes, "name", "class", "outcome"),
	}
	c.Show(sources...)
	for _, m := range c.set.Load().All() {
		labels := []string{"name"}
		if m.Attribute != "" {
			labels = append(labels, m.Attribute)
		}
		c.descriptions[m.Name] = prometheus.NewDesc(nameOf(&m), m.Help, labels, nil)
	}
	return c
}

// Show replaces the sources. A pool needs it, because the pool gets its Observer before there is a
// source of the pool: see [Observe]. Show panics if two sources have the same name.
func (c *Collector) Show(sources ...*monitor.Source) {
	c.set.Store(metrics.New(c.keys, sources...))
}

// nameOf returns the name of a metric by the rules for OpenTelemetry's metrics.
func nameOf(m *metrics.Metric) string {
	name := strings.ReplaceAll(m.Name, ".", "_")
	if m.Unit == "s" {
		name += "_seconds"
	}
	if m.Kind == metrics.Counter {
		name += "_total"
	}
	return name
}

func newHistogram(m *metrics.Metric, labels ...string) *prometheus.HistogramVec {
	bounds, _ := buckets(&fairq.Histogram{})
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: nameOf(m), Help: m.Help, Buckets: bounds,
	}, labels)
}

// buckets returns bounds in seconds, and how many durations are within each bound. The bounds go
// from a microsecond to some five hours. Each is four times the one before it.
func buckets(h *fairq.Histogram) (bounds []float64, within map[float64]uint64) {
	within = map[float64]uint64{}
	var sum uint64
	for i, n := range h.Buckets[:len(h.Buckets)-2] {
		if sum += n; i%2 == 0 {
			bound := h.Bound(i).Seconds()
			bounds, within[bound] = append(bounds, bound), sum
		}
	}
	return bounds, within
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.descriptions {
		to <- d
	}
	c.wait.Describe(to)
	c.run.Describe(to)
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	for name, found := range c.set.Load().Look(context.Background()) {
		for _, m := range found {
			c.send(to, name, &m)
		}
	}
	c.wait.Collect(to)
	c.run.Collect(to)
}

func (c *Collector) send(to chan<- prometheus.Metric, source string, m *metrics.Metric) {
	desc, kind := c.descriptions[m.Name], prometheus.GaugeValue
	switch m.Kind {
	case metrics.Histogram:
		_, within := buckets(&m.Histogram)
		to <- prometheus.MustNewConstHistogram(desc, m.Histogram.Count, m.Histogram.Sum, within, source)
		return
	case metrics.Counter:
		kind = prometheus.CounterValue
	}
	for of, value := range m.Values {
		labels := []string{source}
		if m.Attribute != "" {
			labels = append(labels, of)
		}
		to <- prometheus.MustNewConstMetric(desc, kind, value, labels...)
	}
}

// Observe returns an Observer for the Options of a pool of that name. The Collector learns from it
// how long tasks wait and run, by class and outcome. An Observer of your own can call it.
//
//	c := fairqprom.NewCollector(10)
//	workers := pool.Func(send, &pool.Options[Mail]{
//		Observer: fairqprom.Observe[Mail](c, "workers"),
//	})
//	c.Show(monitor.Pool("workers", workers, monitor.TaskQueue("mails", workers.Queue(""), nil)))
func Observe[V any](c *Collector, name string) func(context.Context, pool.Event[V]) {
	return metrics.Observe[V](func(_ context.Context, class, outcome string, took time.Duration) {
		h, labels := c.wait, []string{name, class}
		if outcome != "" {
			h, labels = c.run, append(labels, outcome)
		}
		h.WithLabelValues(labels...).Observe(took.Seconds())
	})
}
