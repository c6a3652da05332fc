package browsertest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/monitor"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

// The page shows the Stats of a FairQueue.
func TestFairQueue(t *testing.T) {
	t.Parallel()
	q := fair(fairq.Options[string, job]{
		Capacity: 1500, WhenFull: fairq.RejectOverShare,
		Cost: func(j job) int64 { return j.cost }, Quantum: 10,
	})
	for i := range 2400 {
		_ = q.Push(job{fmt.Sprint("user ", i%40), 1 + int64(i%3)})
		_ = q.Push(job{"mallory", 2})
	}
	for range 100 {
		q.Pop()
	}
	p := open(t, monitor.New(nil, monitor.FairQueue("jobs", q, nil)), "jobs")
	p.shows("#numbers", fmt.Sprint("Len1,", q.Stats().Len-1000))

	rows := p.rows("keys")
	require.Len(t, rows, 25)
	require.Equal(t, []string{"mallory", fmt.Sprint(q.KeyStat("mallory").Backlog)}, rows[0][:2])
	p.shows("#keys td:nth-child(5)", "0") // though none is served now

	// A click sorts.
	sort := func(column string) []string {
		p.run(chromedp.Click(fmt.Sprintf(`//*[@id="keys"]//button[contains(@class, `+
			`"sort") and text()=%q]`, column), chromedp.BySearch))
		return eval[[]string](p,
			`[...document.querySelectorAll("#keys tbody th")].map((h) => h.textContent)`)
	}
	require.IsIncreasing(t, sort("Key"))
	p.run(chromedp.Reload()) // the order has an address
	p.until(`document.querySelector("#keys th")?.getAttribute("aria-sort") === "ascending"`)

	for call, want := range map[string]string{
		"duration(90e9)": "1 min 30 s", "number(1234567)": "1.23M",
		`String([5e3, 60e3].map((time) => isGap({ time }, { time: 0 })))`: "false,true",
	} {
		require.Equal(t, want, eval[string](p, call), call)
	}
}

// A pool shows what its queue has in each state, retried attempts as failures, and without leave
// no payloads and buttons.
func TestPool(t *testing.T) {
	t.Parallel()
	q := opened(t, nil)
	gate := make(chan struct{})
	workers := pool.New(q, func(ctx context.Context, t *task.Task[string]) error {
		if t.Key == "hangs" {
			<-gate
		}
		return map[string]error{"fails": errors.New("upstream is <b>down</b>")}[t.Key]
	}, &pool.Options[string]{
		Workers: 2, Logger: quiet, Policy: pool.Policy{Backoff: pool.Backoff{Base: time.Hour}},
	})
	mails := monitor.TaskQueue("mails", q, nil)
	p := open(t, allowed(monitor.Pool("workers", workers, mails)), "")
	p.shows("#overview", "0 of 2")
	put(t, q, "hangs", task.PutOptions{})
	put(t, q, "fails", task.PutOptions{Kind: "news"})
	put(t, q, "later", task.PutOptions{Delay: time.Hour})
	p.shows("#wrong", "1 of 1 attempts failed in the last")
	p.shows("#wrong", "upstream is <b>down</b>")
	require.Equal(t, "1", p.rows("overview")[0][5])

	p.show(p.url + "?queue=workers")
	p.shows("#states [aria-current]", "Waiting for a retry")
	p.shows("#tasks tbody", "upstream is <b>down</b>")
	for state, want := range map[string]string{
		"Running 1": "hangs", "Delayed 2": "later", "Held 0": "", "Failed lately": "",
	} {
		p.state(state)
		p.shows("#tasks", want)
		p.until(`list.state === view.get("state")`)
		require.Equal(t, want != "", len(p.rows("tasks")) == 1, state)
	}
	p.show(p.url + "?queue=workers&state=retrying&by=none&kind=news")
	p.shows("#tasks tbody", "fails")
	p.run(chromedp.SetValue("#key", "hangs", chromedp.ByQuery),
		chromedp.Click("#filter button", chromedp.ByQuery))
	p.shows("#tasks-note", "0 tasks")
	require.NotContains(t, p.text("html"), "to fails")
	require.False(t, eval[bool](p, `document.querySelector("#tasks td button") !== null`))
	close(gate)
	require.NoError(t, workers.Shutdown(t.Context()))
}

// In a database with many tasks the page says how far it has counted. What this process has not
// counted is not 0, and a failed read is reported, and tried again.
func TestDatabase(t *testing.T) {
	t.Parallel()
	s := &database{Store: new(memory.Store)}
	q, err := task.Open[string](t.Context(), s, "mails", nil)
	require.NoError(t, err)
	for i := range 2500 {
		put(t, q, []string{"mallory", fmt.Sprint("user ", i)}[i%2], task.PutOptions{Priority: i % 2})
	}
	s.slow.Store(true)
	p := open(t, monitor.New(nil, monitor.TaskQueue("mails", q, nil)), "mails&state=buried")
	p.shows("#keys-note", "Queued is of the first 1,000 of 2,500 tasks")
	require.Equal(t, []string{"mallory", "500"}, p.rows("keys")[0][:2])
	p.show(p.url)
	p.shows("#overview tbody", "open")
	require.Equal(t, "–", p.rows("overview")[0][3])
	s.slow.Store(false)
	s.broken.Store(true)
	p.show(p.url + "?queue=mails&state=held")
	p.shows("#tasks-note", "The tasks cannot be shown: disk is full")
	s.broken.Store(false)
	p.shows("#tasks-note", "0 tasks")
	p.seen() // the browser complains of the answer
}

// database is a store that looks like one, and can be slow or broken.
type database struct {
	task.Store
	slow, broken atomic.Bool
}

func (s *database) Open(
	ctx context.Context, name string, o driver.Settings, n driver.Notifier,
) (driver.Backend, error) {
	b, err := s.Store.Open(ctx, name, o, elsewhere{n})
	return &backend{b, s}, err
}

type elsewhere struct{ driver.Notifier }

func (elsewhere) InMemory() reflect.Type { return reflect.TypeFor[[]byte]() }

type backend struct {
	driver.Backend
	*database
}

func (b *backend) List(ctx context.Context, o driver.ListOptions) ([]driver.Record, error) {
	switch {
	case b.slow.Load():
		time.Sleep(250 * time.Millisecond)
	case b.broken.Load() && o.State == task.Held:
		return nil, errors.New("disk is full")
	}
	return b.Backend.List(ctx, o)
}

// The page gets each read, and the chart moves.
func TestLive(t *testing.T) {
	t.Parallel()
	q := fair(fairq.Options[string, job]{})
	m := monitor.New(nil, monitor.FairQueue("jobs", q, nil))
	var asking atomic.Int32
	p := open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/live") {
			asking.Add(1)
			defer asking.Add(-1)
		}
		m.ServeHTTP(w, r)
	}), "jobs")
	chart := func() string {
		return eval[string](p,
			`[...document.querySelectorAll(".chart path")].map((l) => l.getAttribute("d")).join()`)
	}
	before := chart()
	require.NoError(t, q.Push(job{"alice", 1}))
	p.until("previous.stats.len === 1")
	require.NotEqual(t, before, chart())
	// A state shown for only a second may be missed, so it is repeated until it is seen.
	p.until(`document.querySelectorAll(".legend b")[1].textContent > 0`, func() {
		require.NoError(t, q.Push(job{"alice", 1}))
		q.Pop()
	})

	// A hidden page causes no looks.
	for _, hidden := range []bool{true, false} {
		eval[any](p, fmt.Sprintf(`
			Object.defineProperty(document, "hidden", { value: %v, configurable: true }) &&
			document.dispatchEvent(new Event("visibilitychange"))`, hidden))
		require.Eventually(t, func() bool { return asking.Load() == 0 == hidden }, timeout, 1e6)
	}
	q.Close()
	p.shows("#numbers", "closed")
}

// Searching is done by keyboard, the outcome is in a live region, and it has an address.
func TestSearch(t *testing.T) {
	t.Parallel()
	q := fair(fairq.Options[string, job]{Capacity: fairq.Unbounded})
	for i := range 1500 {
		require.NoError(t, q.Push(job{fmt.Sprint("user ", i), 1}))
	}
	p := open(t, monitor.New(nil, monitor.FairQueue("jobs", q, nil)), "jobs")
	for key, want := range map[string]string{
		"er 17":     "user 17: 17 before it, 1 queued",
		"user 1400": "user 1400: more than 1,000 before it, 1 queued",
	} {
		p.find(key)
		p.shows("#found", want)
	}
	p.find("user 7")
	p.shows("#found", "user 7: 7")
	p.run(chromedp.Reload())
	p.shows("#found", "user 7: 7 before it")
}

// find searches for a key, by the keyboard alone.
func (p *tab) find(key string) {
	p.Helper()
	eval[any](p, `($("find").select(), $("find").focus())`)
	p.run(chromedp.KeyEvent(key), chromedp.KeyEvent(kb.Enter))
}

// Hostile keys and reasons stay texts.
func TestHostile(t *testing.T) {
	t.Parallel()
	q := fair(fairq.Options[string, job]{})
	hostile := []string{
		`<script>alert(1)</script>`, `<img src=x onerror=alert(2)>`, `"><svg onload=alert(3)>`,
		"a\x00b\x1b[2J", "\xff\xfe",
		"\u202egnp.exe", `javascript:alert(4)`, strings.Repeat("<b>", 100_000), "",
	}
	for range 3 {
		for _, key := range hostile {
			require.NoError(t, q.Push(job{key, 1}))
		}
	}
	name := `<script>alert(5)</script>`
	p := open(t, allowed(monitor.FairQueue(name, q, func(j job) string { return "of " + j.user })),
		url.QueryEscape(name))
	rows := p.rows("keys")
	require.Len(t, rows, len(hostile))
	for _, text := range []string{
		hostile[0], `"\"><svg onload=alert(3)>"`, `"a\x00b\x1b[2J"`, `"\u202egnp.exe"`, `""`,
	} {
		require.Contains(t, fmt.Sprint(rows), text)
	}
	require.Equal(t, name, eval[string](p, `document.querySelectorAll("#sources a")[1].textContent`))
	require.Zero(t, eval[int](p, `document.querySelectorAll(
		"script:not([defer]), img, main b:not(.legend b), svg:not(.chart)").length`))
	// Search and drop act on exactly the given key.
	p.find(hostile[0])
	p.shows("#found", "<script>alert(1)</script>: is next, 3 queued")
	p.run(chromedp.Click(`//button[contains(@aria-label, "Drop <script>")]`, chromedp.BySearch))
	p.shows("#outcome", "drop-key: 3 done")
	require.Zero(t, q.KeyStat(hostile[0]).Backlog)
	dialogs := p.seen()
	require.Equal(t, []string{"Remove what is queued of <script>alert(1)</script>?"}, dialogs,
		"nobody else has opened one")
}

// The overview has all sources and their problems, and follows sources that come and go. While a
// source is away, its page says so, and how old the numbers are, by the clock of the server.
func TestOverview(t *testing.T) {
	t.Parallel()
	q := mails(t)
	s := &switched{Workers: pool.NewWorkers(fair(fairq.Options[string, job]{}),
		func(context.Context, job) error { return nil }, nil)}
	workers := monitor.Pool("workers", s, nil)
	m := monitor.New(nil, monitor.TaskQueue("mails", q, nil))
	p := open(t, m, "")
	p.shows("#overview tbody", "mails")
	require.Equal(t, []string{"mails", "9"}, p.rows("overview")[0][:2])
	require.Equal(t, "mails: 1 task is buried", p.text("#wrong li"))
	m.Show(workers, monitor.TaskQueue("mails", q, nil))
	p.shows("#overview tbody", "workers")
	require.NoError(t, q.KickID(t.Context(), 1))
	p.until(`$("wrong").hidden`)

	p.show(p.url + "?queue=mails")
	p.shows("#status", "Live")
	m.Show(workers)
	p.shows("#away", "There is no queue mails here.")
	require.False(t, eval[bool](p, `document.querySelector("section:not([hidden])") !== null`))

	p.show(p.url + "?queue=workers")
	p.shows("#age", "as of now")
	s.away.Store(true)
	p.shows("#away", "s: it panicked: away")
	p.until(`/as of [3-9] s ago/.test($("age").textContent)`)
	s.away.Store(false)
	p.shows("#age", "as of now")
	require.True(t, eval[bool](p, `$("away").hidden`))
	eval[any](p, `show({ ...previous, at: new Date(Date.parse(previous.at) - 36e3).toISOString() })`)
	require.Regexp(t, `as of 3\d s ago`, p.text("#age"), "the answer was slow")
	p.seen() // the browser complains of the source that is gone
	require.NoError(t, s.Shutdown(t.Context()))
}

// switched is a pool that can be away.
type switched struct {
	*pool.Workers
	away atomic.Bool
}

func (s *switched) Stats() pool.Stats {
	if s.away.Load() {
		panic("away")
	}
	return s.Workers.Stats()
}
