package browsertest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
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
		Weight: func(user string) int { return map[string]int{"mallory": 2}[user] + 1 },
	})
	for i := range 2400 {
		_ = q.Push(job{fmt.Sprint("user ", i%40), 1 + int64(i%3)})
		_ = q.Push(job{"mallory", 2})
	}
	for range 100 {
		q.Pop()
	}
	p := open(t, monitor.New(nil, monitor.FairQueue("jobs", q, nil)), "jobs")
	stats, numbers := q.Stats(), p.numbers()
	for label, n := range map[string]int{
		"Queued": stats.Len, "Keys": stats.Keys, "Capacity": stats.Capacity,
		"Refused": int(stats.Refused),
	} {
		require.Equal(t, n, number(t, numbers[label]), label)
	}
	require.Positive(t, stats.Refused)
	require.Equal(t, "open", numbers["State"])

	rows := p.rows("keys")
	require.Len(t, rows, 25)
	for _, row := range rows {
		require.Equal(t, q.KeyStat(row[0]).Backlog, number(t, row[1]), row[0])
	}
	require.Equal(t, "mallory", rows[0][0])
	for range 10 {
		_ = q.Push(job{"mallory", 2})
	}
	p.until(`document.getElementById("wrong").innerText.includes("10 pushes of ` +
		`mallory were refused")`)

	// A click sorts, another click reverses, and the first key of an order is always there.
	sort := func(column string) []string {
		p.run(chromedp.Click(fmt.Sprintf(`//*[@id="keys"]//button[contains(@class, `+
			`"sort") and text()=%q]`, column), chromedp.BySearch))
		return eval[[]string](p,
			`[...document.querySelectorAll("#keys tbody th")].map((h) => h.textContent)`)
	}
	require.Equal(t, "mallory", sort("Refused lately")[0])
	require.NotEqual(t, "mallory", sort("Refused lately")[0])
	require.IsIncreasing(t, sort("Key"))
	require.Equal(t, "ascending",
		eval[string](p, `document.querySelector("#keys th").getAttribute("aria-sort")`))

	// The strip has the next items, consecutive items of a key as one block.
	var order []string
	upcoming := q.Upcoming(200)
	for i, u := range upcoming {
		if i > 0 && u.Key == upcoming[i-1].Key {
			continue
		}
		order = append(order, u.Key)
	}
	blocks := eval[[]string](p,
		`[...document.querySelectorAll(".block")].map((b) => `+
			`b.title.split("\n")[0].replace(/^mallory \d+$/, "mallory"))`)
	require.Equal(t, order, blocks)
	for call, want := range map[string]string{
		"duration(128e3)": "130 µs", "duration(4e6)": "4 ms", "duration(1.5e9)": "1.5 s",
		"duration(90e9)":   "1 min 30 s",
		"duration(7260e9)": "2 h 1 min", "number(1234)": "1,234", "number(1234567)": "1.23M",
		"percent(0.5)": "50 %",
		`String([5e3, 60e3].map((time) => isGap({ time }, { time: 0 })))`: "false,true",
		`(point(0), /^At \d/.test($("pointer").textContent) + String(point(null)) + ` +
			`$("pointer").textContent)`: "trueundefined",
	} {
		require.Equal(t, want, eval[string](p, call), call)
	}
}

// number reads a number as the page shows it.
func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.ReplaceAll(text, ",", ""))
	require.NoError(t, err)
	return n
}

func TestTaskQueueAndPool(t *testing.T) {
	t.Parallel()
	tasks, err := task.Open[string](t.Context(), new(memory.Store), "mails", nil)
	require.NoError(t, err)
	for i := range 30 {
		_, err := tasks.Put(t.Context(), fmt.Sprint("user ", i%3), "private",
			task.PutOptions{Delay: time.Hour * time.Duration(i/20)})
		require.NoError(t, err)
	}
	for range 4 {
		taken, err := tasks.Take(t.Context())
		require.NoError(t, err)
		if taken.ID%2 == 0 {
			require.NoError(t, taken.Bury(t.Context(), errors.New("no <b>mailbox</b>")))
		} else if taken.ID == 1 {
			require.NoError(t, taken.Fail(t.Context(), errors.New("upstream is down"), time.Hour))
		}
	}
	gate := make(chan struct{})
	workers := pool.Func(func(context.Context, *task.Task[int]) error { <-gate; return nil },
		&pool.Options[int]{Workers: 3})
	for i, key := range strings.Fields("a a a b a b") {
		require.NoError(t, workers.Submit(t.Context(), key, i))
		require.Eventually(t,
			func() bool { return workers.Stats().Running == min(i+1, 3) }, timeout, 1e6)
	}
	waiting := monitor.TaskQueue("waiting", workers.Queue(""), nil)
	m := monitor.New(&monitor.Options{Actions: everybody, Logger: quiet},
		monitor.TaskQueue("mails", tasks, nil), monitor.Pool("workers", workers, waiting),
		monitor.Pool("alone", workers, nil))

	p := open(t, m, "mails")
	stats, err := tasks.Stats(t.Context())
	require.NoError(t, err)
	numbers := p.numbers()
	for label, n := range map[string]int{
		"Ready": stats.Ready, "Delayed": stats.Delayed, "Taken": stats.Taken, "Put": int(stats.Puts),
	} {
		require.Equal(t, n, number(t, numbers[label]), label)
	}
	require.Equal(t, 2, stats.Buried)
	p.until(`document.querySelectorAll("#buried tbody tr").length === 2`)
	rows := p.rows("buried")
	require.Equal(t, "no <b>mailbox</b>", rows[0][5])
	require.Equal(t, []string{"upstream is down", "any", "any", "0", "1", ""}, p.rows("groups")[1])
	require.Contains(t, eval[string](p, `$("failures-note").textContent`), "1 waits for a retry.")
	require.NotContains(t, eval[string](p, "document.documentElement.outerHTML"), "private")

	p = open(t, m, "workers")
	numbers = p.numbers()
	require.Equal(t, "3", numbers["Busy"])
	require.Equal(t, "Next to leave the queue waiting",
		eval[string](p, `document.getElementById("next-title").textContent`))
	require.Equal(t, "b, a, b", p.strip())
	require.Equal(t, [][]string{{"b", "2"}, {"a", "1"}},
		[][]string{p.rows("keys")[0][:2], p.rows("keys")[1][:2]})
	require.Equal(t, []string{"Pause", "Find"},
		eval[[]string](p,
			`[...document.querySelectorAll("button:not(.sort, [hidden])")].map((b) => b.textContent)`))
	require.Equal(t, "none",
		eval[string](p, `getComputedStyle(document.querySelector("#keys th.action")).display`),
		"nothing is done to a queue that is no source")

	p = open(t, m, "alone")
	require.True(t, eval[bool](p, `document.getElementById("next").hidden`))
	close(gate)
	require.NoError(t, workers.StopAndWait(t.Context()))
}

// Tasks are in order of priority, and rates appear only if known.
func TestTasks(t *testing.T) {
	t.Parallel()
	var s memory.Store
	q, err := task.Open[string](t.Context(), &s, "mails", nil)
	require.NoError(t, err)
	for i, key := range strings.Fields("a b a c a b") {
		_, err := q.Put(t.Context(), key, "", task.PutOptions{Priority: i / 3})
		require.NoError(t, err)
	}
	_, err = q.Take(t.Context())
	require.NoError(t, err)
	looker, err := task.Open[string](t.Context(), &s, "mails", &task.Options[string]{AsIs: true})
	require.NoError(t, err)
	p := open(t, monitor.New(nil, monitor.TaskQueue("mails", looker, nil)), "mails")
	require.Equal(t, "b, a, c, a, b", p.strip())
	legend := eval[string](p, `document.getElementById("panels").innerText`)
	require.NotContains(t, legend, "a second")
	require.Contains(t, legend, "buried")
	require.NotContains(t, p.numbers(), "Put")
	require.Equal(t, "5", p.numbers()["Ready"])
	require.Contains(t, eval[string](p, `document.getElementById("scope").innerText`), "only looks")
}

// strip returns the text alternative of the picture.
func (p *tab) strip() string {
	p.Helper()
	return eval[string](p, `document.getElementById("strip").getAttribute("aria-label")`)
}

// The page gets events, and the chart moves.
func TestLive(t *testing.T) {
	t.Parallel()
	q := fair(fairq.Options[string, job]{})
	m := monitor.New(nil, monitor.FairQueue("jobs", q, nil))
	var streams atomic.Int32
	p := open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/events") {
			streams.Add(1)
			defer streams.Add(-1)
		}
		m.ServeHTTP(w, r)
	}), "jobs")
	require.Equal(t, "0", p.numbers()["Queued"])
	chart := func() string {
		return eval[string](p,
			`[...document.querySelectorAll(".chart path")].map((l) => l.getAttribute("d")).join()`)
	}
	for n := 1; n <= 3; n++ {
		before := chart()
		for range 10 {
			require.NoError(t, q.Push(job{"alice", 1}))
		}
		p.until(`document.querySelector("#numbers dd").textContent === "` + strconv.Itoa(10*n) + `"`)
		require.NotEqual(t, before, chart())
	}
	// A state shown for only a second may be missed, so it is repeated until it is seen.
	p.until(`document.querySelectorAll(".legend b")[1].textContent > 0`, func() {
		require.NoError(t, q.Push(job{"alice", 1}))
		q.Pop()
	})
	require.Equal(t, 4, eval[int](p, `document.querySelectorAll(".chart path").length`))

	// A hidden page causes no looks.
	for _, hidden := range []bool{true, false} {
		eval[any](p, fmt.Sprintf(`
			Object.defineProperty(document, "hidden", { value: %v, configurable: true }) &&
			document.dispatchEvent(new Event("visibilitychange"))`, hidden))
		require.Eventually(t, func() bool { return streams.Load() == 0 == hidden }, timeout, 1e6)
	}
	q.Close()
	p.until(`[...document.querySelectorAll("#numbers dd")].some((d) => d.textContent === "closed")`)
}

// Searching is done by keyboard, and the outcome is in a live region.
func TestSearch(t *testing.T) {
	t.Parallel()
	q := fair(fairq.Options[string, job]{Capacity: fairq.Unbounded})
	for i := range 1500 {
		require.NoError(t, q.Push(job{fmt.Sprint("user ", i), 1}))
	}
	p := open(t, monitor.New(nil, monitor.FairQueue("jobs", q, nil)), "jobs")
	for key, want := range map[string]string{
		"user 0":    "user 0: is next, 1 queued",
		"user 7":    "user 7: 7 before it, 1 queued",
		"er 17":     "user 17: 17 before it, 1 queued",
		"user 1400": "user 1400: more than 1,000 before it, 1 queued",
		"nobody":    "nobody: nothing of it leaves soon, 0 queued",
	} {
		p.find(key)
		p.until(fmt.Sprintf(`document.getElementById("found").value === %q`, want))
	}
	p.find("user 7")
	p.until(`document.querySelectorAll(".block.here").length === 1`)
}

// find searches for a key, by the keyboard alone.
func (p *tab) find(key string) {
	p.Helper()
	eval[any](p, `(document.getElementById("key").select(), document.getElementById("key").focus())`)
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
	p := open(t, monitor.New(&monitor.Options{Actions: everybody, Logger: quiet},
		monitor.FairQueue(name, q, func(j job) string { return "of " + j.user })), url.QueryEscape(name))
	rows := p.rows("keys")
	require.Len(t, rows, len(hostile))
	var texts []string
	for _, row := range rows {
		texts = append(texts, row[0])
	}
	for _, text := range []string{
		hostile[0], hostile[1], `"\"><svg onload=alert(3)>"`, `"a\x00b\x1b[2J"`, `"\xff\xfe"`,
		`"\u202egnp.exe"`, `""`,
	} {
		require.Contains(t, texts, text)
	}
	require.Equal(t, name, eval[string](p, `document.querySelectorAll("#sources a")[1].textContent`))
	require.Equal(t, 1, eval[int](p, `document.scripts.length`))
	require.Zero(t,
		eval[int](p, `document.querySelectorAll("img, main b:not(.legend b), svg:not(.chart)").length`))
	for _, key := range hostile {
		stat := q.KeyStat(key)
		require.Equal(t, 3, stat.Backlog)
	}
	// Search and drop act on exactly the given key.
	p.find(hostile[0])
	p.until(`document.getElementById("found").value === ` +
		`"<script>alert(1)</script>: is next, 3 queued"`)
	p.run(chromedp.Click(`//button[contains(@aria-label, "Drop <script>")]`, chromedp.BySearch))
	p.until(`document.querySelectorAll("#keys tbody tr").length > 0 && ` +
		`document.getElementById("outcome").textContent === "drop-key: 3 done"`)
	require.Zero(t, q.KeyLen(hostile[0]))
	_, dialogs := p.seen()
	require.Equal(t, []string{"Remove what is queued of <script>alert(1)</script>?"}, dialogs,
		"nobody else has opened one")
}

// The overview has all sources and their problems, and follows sources that come and go.
func TestOverview(t *testing.T) {
	t.Parallel()
	q := mails(t)
	jobs := monitor.FairQueue("jobs", fair(fairq.Options[string, job]{}), nil)
	m := monitor.New(nil, monitor.TaskQueue("mails", q, nil))
	p := open(t, m, "")
	p.until(`document.querySelectorAll("#overview tbody tr").length === 1`)
	require.Equal(t, []string{"mails", "9"}, p.rows("overview")[0][:2])
	require.Equal(t, []string{"mails: 1 task is buried"}, p.wrong())
	m.Show(jobs, monitor.TaskQueue("mails", q, nil))
	p.until(`document.querySelectorAll("#overview tbody tr").length === 2`)
	require.NoError(t, q.KickID(t.Context(), 1))
	p.until(`document.getElementById("wrong").hidden`)

	// A missing source does not show another one.
	p.show(p.url + "?queue=nothing")
	p.until(`document.getElementById("away").textContent === "There is no queue nothing here."`)
	require.Empty(t,
		eval[[]string](p, `[...document.querySelectorAll("section:not([hidden])")].map((s) => s.id)`))
	p.show(p.url + "?queue=mails")
	p.until(`document.querySelector("#numbers dd") !== null`)
	m.Show(jobs)
	p.until(`document.getElementById("away").textContent === "There is no queue mails here."`)
	p.seen() // the browser complains of the stream that is gone
}

// While a store is away, 100 open pages say so.
func TestAway(t *testing.T) {
	t.Parallel()
	q := mails(t)
	s := &switched{
		Workers: pool.NewWorkers(fair(fairq.Options[string, job]{}),
			func(context.Context, job) error { return nil }, nil),
	}
	m := monitor.New(nil, monitor.Pool("workers", s, monitor.TaskQueue("mails", q, nil)))
	p := open(t, m, "workers")
	for range 2 {
		s.away.Store(true)
		p.until(`/^no answer for \d+ s: it panicked: ` +
			`away$/.test(document.getElementById("away").textContent)`)
		p.until(`/as of [3-9] s ago/.test(document.getElementById("age").textContent)`)
		s.away.Store(false)
		p.until(`document.getElementById("away").hidden && ` +
			`document.getElementById("age").textContent === "· as of now"`)
	}
	// A reloaded page has the chart of before.
	points := eval[int](p, `points.length`)
	require.Greater(t, points, 1)
	p.run(chromedp.Reload())
	p.until(fmt.Sprintf(`typeof points !== "undefined" && points.length >= %d`, points))

	p.show("about:blank")
	time.Sleep(100 * time.Millisecond)
	for range 100 {
		go func() {
			r := httptest.NewRequestWithContext(p.ctx, http.MethodGet, "/v1/queues/workers/events", nil)
			m.ServeHTTP(httptest.NewRecorder(), r)
		}()
	}
	time.Sleep(100 * time.Millisecond)
	p.show(p.url + "?queue=workers")
	p.until(`document.getElementById("away").textContent === "100 pages are ` +
		`open, which is the limit"`)
	p.seen() // the browser complains
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
