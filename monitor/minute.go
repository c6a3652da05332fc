package monitor

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/admit"
	"github.com/fairq/fairq/internal/totals"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// A Monitor keeps counts of the last minute, and a few numbers of the last hour.
const (
	momentStep = 10 * time.Second
	maxMoment  = 3 * time.Minute // for a source that is looked at once a minute
	pointStep  = 5 * time.Second
	maxPoints  = 720
)

// counts are the events of a source or a key, since the process began.
type counts struct {
	// Served has items delivered, tasks taken, attempts started, permits given.
	Served  uint64 `json:"served"`
	Refused uint64 `json:"refused"`           // pushes for which there was no room
	Evicted uint64 `json:"evicted"`           // dropped to make room
	Done    uint64 `json:"done,omitempty"`    // tasks acknowledged, attempts that succeeded
	Failed  uint64 `json:"failed,omitempty"`  // tasks buried, attempts that failed for good
	Retried uint64 `json:"retried,omitempty"` // attempts that failed, of tasks that are tried again
	Lost    uint64 `json:"lost,omitempty"`    // leases
	Cost    uint64 `json:"cost,omitempty"`    // of the served items
}

func countsOf(c fairq.Counts) counts {
	return counts{Served: c.Served, Refused: c.Refused, Evicted: c.Evicted, Cost: c.Cost}
}

// each returns the fields.
func (c *counts) each() [8]*uint64 {
	return [...]*uint64{
		&c.Served, &c.Refused, &c.Evicted, &c.Done, &c.Failed, &c.Retried, &c.Lost, &c.Cost,
	}
}

// minute has the events of the last minute.
type minute struct {
	Span time.Duration `json:"span_ns"` // a minute, or less if it was not known before
	counts
	Wait *quantiles `json:"wait,omitempty"` // of the served items, if it is known
}

// quantiles has upper bounds of the waits of items, each a microsecond times a power of two.
type quantiles struct {
	Half time.Duration `json:"p50_ns"`
	P90  time.Duration `json:"p90_ns"`
	P99  time.Duration `json:"p99_ns"`
}

// moment has the counts up to a time.
type moment struct {
	at     time.Time
	counts counts
	wait   fairq.Histogram
}

// since returns the events between two moments.
func (m *moment) since(base *moment) *minute {
	d := &minute{Span: m.at.Sub(base.at), counts: m.counts}
	before := base.counts
	for i, n := range d.each() {
		if b := *before.each()[i]; b <= *n { // or the count began again
			*n -= b
		}
	}
	h := m.wait
	for i := range h.Buckets {
		if h.Buckets[i] < base.wait.Buckets[i] { // a key's begins again when it has no items
			h = m.wait
			break
		}
		h.Buckets[i] -= base.wait.Buckets[i]
		h.Count -= base.wait.Buckets[i]
	}
	if h.Count > 0 {
		d.Wait = &quantiles{h.Quantile(0.5), h.Quantile(0.9), h.Quantile(0.99)}
	}
	return d
}

// moments are those of the last minute, the oldest first.
type moments []moment

// add returns the events of the last minute, nil if they are unknown.
func (m *moments) add(now moment) (lately *minute) {
	*m = slices.DeleteFunc(*m, func(b moment) bool { return now.at.Sub(b.at) > maxMoment })
	for len(*m) > 1 && now.at.Sub((*m)[1].at) >= time.Minute {
		*m = slices.Delete(*m, 0, 1)
	}
	if n := len(*m); n > 0 {
		lately = now.since(&(*m)[0])
		if now.at.Sub((*m)[n-1].at) < momentStep {
			return lately
		}
	}
	*m = append(*m, now)
	return lately
}

// point is a moment of the chart. Its counts are since the process began.
type point struct {
	At      time.Time `json:"at"`
	Backlog int       `json:"backlog"`
	Busy    int       `json:"busy"` // tasks taken, handlers that run, permits held
	Buried  int       `json:"buried"`
	counts
}

// past has the results of earlier reads.
type past struct {
	source moments
	keys   map[string]moments
	points []point
	all    time.Time // when all keys were in the last look that there were; zero if they were not
}

// add fills in the events of the last minute.
func (p *past) add(l *sample) {
	now, at := moment{at: l.At, counts: countsOf(totals.Of(l.Stats))},
		point{At: l.At, Backlog: l.Backlog}
	l.State = isOpen
	is := func(state string, yes bool) {
		if yes {
			l.State = state
		}
	}
	switch s := l.Stats.(type) {
	case fairq.Stats:
		now.wait = s.Wait
		is(isClosed, s.Closed)
	case task.Stats:
		now.counts.Done, now.counts.Failed, now.counts.Lost = s.Acks, s.Buries, s.Losses
		now.wait, at.Busy, at.Buried = l.taken, s.Taken, s.Buried
		is(isPaused, s.Paused)
	case pool.Stats:
		now.counts.Done, now.counts.Failed, now.counts.Lost = s.Succeeded, s.Failed, s.Lost
		now.counts.Retried = s.Retried
		at.Busy = s.Running
		is(isPaused, s.Paused)
		is(isClosed, s.Closed)
	case admit.Stats:
		at.Busy = s.Held
		is(isClosed, s.Closed)
	}
	at.counts = now.counts
	l.Point = &at
	if n := len(p.points); n == 0 || l.At.Sub(p.points[n-1].At) >= pointStep {
		p.points = append(p.points[max(0, n+1-maxPoints):], at)
	}
	if l.Minute = p.source.add(now); l.Minute != nil && l.Minute.Wait == nil {
		l.Minute.Wait = l.waits
	}
	keys := make(map[string]moments, len(l.Keys))
	for i := range l.Keys {
		k := &l.Keys[i]
		l.Oldest = max(l.Oldest, k.OldestAge)
		if l.Kind == "pool" { // the source of the queue has counted them
			continue
		}
		m := p.keys[k.Key]
		if m == nil && !p.all.IsZero() { // the key had no counts at the earlier looks
			m = moments{{at: p.all}}
		}
		k.Minute = m.add(moment{l.At, countsOf(k.Total), k.Wait})
		keys[k.Key] = m
		if k.Minute == nil || l.Minute == nil {
			continue
		}
		part, whole := k.Minute.Served, l.Minute.Served
		if l.Minute.Cost > 0 {
			part, whole = k.Minute.Cost, l.Minute.Cost
		}
		if whole > 0 {
			k.Share = min(1, float64(part)/float64(whole))
		}
	}
	p.keys, p.all = keys, time.Time{}
	if len(l.Keys) < maxKeys && l.KeysAt == nil {
		p.all = l.At
	}
}

// An alert needs a key with one item in leastShare of a backlog of at least leastBacklog, or one
// failed attempt in leastFailed.
const (
	leastShare   = 2
	leastBacklog = 100
	leastFailed  = 10
)

// alerts tells in words what is wrong. The keys with the longest backlog come first.
func (l *sample) alerts() []string {
	all := []string{}
	alert := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	lately := minute{}
	if l.Minute != nil {
		lately = *l.Minute
	}
	in := "in the last " + span(lately.Span)
	var refused *keyRow
	var paused []string
	for i := range l.Keys {
		k := &l.Keys[i]
		if n := k.refused(); n > 0 && (refused == nil || n > refused.refused()) {
			refused = k
		}
		if k.Paused {
			paused = append(paused, k.Key)
		}
	}
	what := map[string][3]string{
		"queue": {"push", "pushes"}, "limiter": {"call", "calls"},
		"tasks": {"task", "tasks", "Queue.Pause"}, "pool": {2: "Pool.Pause"},
	}[l.Kind]
	if l.State == isPaused {
		alert("it is paused by %s; %s", what[2], count(l.Backlog, "waits", "wait"))
	}
	if q, ok := l.QueueStats.(task.Stats); ok && q.Paused {
		alert("its queue is paused by Queue.Pause")
	}
	if n := len(paused); n == 1 {
		alert("the key %s is paused by PauseKey", paused[0])
	} else if n > 1 {
		alert("%s keys are paused by PauseKey, such as %s", number(n), paused[0])
	}
	several := len(l.Keys) > 1 && l.Keys[1].Backlog > 0
	if l.Kind == "pool" { // its queue has alerts for the rest
		several, refused = false, nil
	}
	counted, of := l.Backlog, "backlog"
	if l.KeysOf > 0 {
		counted, of = l.KeysOf,
			fmt.Sprintf("first %s of %s tasks", number(l.KeysOf), number(l.KeysAll))
	}
	if several && counted >= leastBacklog && l.Keys[0].Backlog*leastShare >= counted {
		longest := &l.Keys[0]
		text := fmt.Sprintf("%s has %d %% of the %s", longest.Key,
			min(99, 100*longest.Backlog/counted), of)
		if n := longest.refused(); n > 0 {
			text += fmt.Sprintf("; %s of its %s %s refused %s", number(n), what[1],
				one(n, "was", "were"), in)
		}
		if alert("%s", text); refused == longest {
			lately.Refused, refused = 0, nil
		}
	}
	if refused != nil {
		n := refused.refused()
		alert("%s of %s %s refused %s", count(n, what[0], what[1]), refused.Key,
			one(n, "was", "were"), in)
	} else if n := lately.Refused; n > 0 {
		alert("%s refused %s", count(n, what[0]+" was", what[1]+" were"), in)
	}
	if n := lately.Evicted; n > 0 {
		alert("%s evicted to make room %s", count(n, "was", "were"), in)
	}
	n := lately.Failed + lately.Retried
	if ended := n + lately.Done; l.Kind == "pool" {
		if n > 0 && (lately.Failed > 0 || n*leastFailed >= ended) {
			if lately.Failed > lately.Retried {
				l.reasons[0] = l.reasons[1]
			}
			alert("%s of %s attempts failed %s%s", number(n), number(ended), in,
				cmp.Or(l.reasons[0], l.reasons[1]))
		}
	} else if n > 0 {
		alert("%s failed for good %s", count(n, "task", "tasks"), in)
	}
	if l.busy != "" {
		alert("%s", l.busy)
	}
	if n := lately.Lost; n > 0 {
		alert("%s lost %s", count(n, "lease was", "leases were"), in)
	}
	if s, ok := l.Stats.(task.Stats); ok && s.Buried > 0 {
		alert("%s buried", count(s.Buried, "task is", "tasks are"))
	}
	return all
}

func (k *keyRow) refused() uint64 {
	if k.Minute == nil {
		return 0
	}
	return k.Minute.Refused
}

func noAnswer(d time.Duration, err string) string {
	text := "no answer for " + span(d)
	if err != "" {
		text += ": " + err
	}
	return text
}

// span returns a duration in seconds or minutes.
func span(d time.Duration) string {
	if d < 2*time.Minute {
		return fmt.Sprintf("%.0f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f min", d.Minutes())
}

// one returns the word for one, or for several.
func one(n uint64, word, words string) string {
	if n == 1 {
		return word
	}
	return words
}

// count returns a number with its word.
func count[N int | uint64](n N, word, words string) string {
	return number(n) + " " + one(uint64(n), word, words)
}

// number returns a number with commas.
func number[N int | uint64](n N) string {
	text := strconv.FormatUint(uint64(n), 10)
	var b strings.Builder
	for i, digit := range text {
		if i > 0 && (len(text)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(digit)
	}
	return b.String()
}
