package browsertest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
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

// What the page shows of a FairQueue is what its Stats tell.
func TestFairQueue(t *testing.T) {
	q := fair(fairq.Options[string, job]{Capacity: 1500, WhenFull: fairq.RejectOverShare})
	for i := range 2400 {
		_ = q.Push(job{fmt.Sprint("user ", i%40), 1})
		_ = q.Push(job{"mallory", 1})
	}
	for range 100 {
		q.Pop()
	}
	p := open(t, monitor.New(nil, monitor.FairQueue("jobs", q, nil)), "jobs")
	stats, numbers := q.Stats(), p.numbers()
	for label, n := range map[string]int{
		"Queued": stats.Len, "Keys": stats.Keys, "Capacity": stats.Capacity, "Pushed": int(stats.Pushed),
		"Popped": int(stats.Popped), "Refused": int(stats.Refused), "Evicted": int(stats.Evicted),
		"Producers waiting": stats.WaitingPush, "Consumers waiting": stats.WaitingPop,
	} {
		require.Equal(t, n, number(t, numbers[label]), label)
	}
	require.Positive(t, stats.Refused)
	require.Equal(t, "open", numbers["State"])

	rows := p.rows("keys")
	require.Len(t, rows, 41)
	for _, row := range rows {
		stat := q.KeyStat(row[0])
		require.Equal(t, stat.Len, number(t, row[1]), row[0])
		for _, c := range q.KeyCounts(100) {
			if c.Key == row[0] {
				require.Equal(t, int(c.Total.Served), number(t, row[5]), row[0])
				require.Equal(t, int(c.Total.Refused), number(t, row[6]), row[0])
			}
		}
	}
	order := eval[[]string](p, `[...document.querySelectorAll(".turn")].map((t) => t.textContent)`)
	require.Greater(t, len(order), 40)
	for i, u := range q.Upcoming(len(order)) {
		require.Equal(t, u.Key, order[i], i)
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
	tasks, err := task.Open[string](t.Context(), new(memory.Store), "mails", nil)
	require.NoError(t, err)
	for i := range 30 {
		_, err := tasks.Put(t.Context(), fmt.Sprint("user ", i%3), "private", task.PutOptions{Delay: time.Hour * time.Duration(i/20)})
		require.NoError(t, err)
	}
	for range 4 {
		taken, err := tasks.Take(t.Context())
		require.NoError(t, err)
		if taken.ID%2 == 0 {
			require.NoError(t, taken.Bury(t.Context(), errors.New("no <b>mailbox</b>")))
		}
	}
	gate := make(chan struct{})
	workers := pool.Func(func(context.Context, *task.Task[int]) error { <-gate; return nil }, &pool.Options[int]{Workers: 7})
	for range 3 {
		require.NoError(t, workers.Submit(t.Context(), "a", 1))
	}
	require.Eventually(t, func() bool { return workers.Stats().Running == 3 }, timeout, 1e6)
	m := monitor.New(nil, monitor.TaskQueue("mails", tasks, nil), monitor.Pool("workers", workers))

	p := open(t, m, "mails")
	stats, err := tasks.Stats(t.Context())
	require.NoError(t, err)
	numbers := p.numbers()
	for label, n := range map[string]int{
		"Ready": stats.Ready, "Delayed": stats.Delayed, "Taken": stats.Taken, "Buried": stats.Buried, "Held": stats.Held,
		"Keys": stats.Keys, "Put": int(stats.Puts), "Acked": int(stats.Acks),
	} {
		require.Equal(t, n, number(t, numbers[label]), label)
	}
	require.Equal(t, 2, stats.Buried)
	rows := p.rows("buried")
	require.Len(t, rows, 2)
	require.Equal(t, "no <b>mailbox</b>", rows[0][5])
	require.NotContains(t, eval[string](p, "document.documentElement.outerHTML"), "private")

	p = open(t, m, "workers")
	numbers = p.numbers()
	require.Equal(t, "3", numbers["Busy"])
	require.Equal(t, strconv.Itoa(workers.Stats().Idle), numbers["Idle"])
	require.Equal(t, "7", numbers["At most"])
	require.Equal(t, "none in force", numbers["Schedule"])
	close(gate)
	require.NoError(t, workers.Shutdown(t.Context()))
}

// The page is told of what happens, and the chart moves.
func TestLive(t *testing.T) {
	q := fair(fairq.Options[string, job]{})
	p := open(t, monitor.New(nil, monitor.FairQueue("jobs", q, nil)), "jobs")
	require.Equal(t, "0", p.numbers()["Queued"])
	chart := func() string {
		return eval[string](p, `[...document.querySelectorAll("#chart path")].map((l) => l.getAttribute("d")).join()`)
	}
	for n := 1; n <= 3; n++ {
		before := chart()
		require.NoError(t, q.Push(job{"alice", 1}))
		p.until(fmt.Sprintf(`document.querySelector("#legend b").textContent === "%d" && document.querySelector("#numbers dd").textContent === "%[1]d"`, n))
		require.NotEqual(t, before, chart())
	}
	require.Equal(t, 3, eval[int](p, `document.querySelectorAll("#chart path").length`))
	q.Close()
	p.until(`[...document.querySelectorAll("#numbers dd")].some((d) => d.textContent === "closed")`)
}

// Searching is done by keyboard, and the outcome is in a live region.
func TestSearch(t *testing.T) {
	q := fair(fairq.Options[string, job]{Capacity: fairq.Unbounded})
	for i := range 1500 {
		require.NoError(t, q.Push(job{fmt.Sprint("user ", i), 1}))
	}
	p := open(t, monitor.New(nil, monitor.FairQueue("jobs", q, nil)), "jobs")
	for key, want := range map[string]string{
		"user 0":    "user 0: is next, 1 queued",
		"user 7":    "user 7: 7 before it, 1 queued",
		"er 17":     "user 17: 17 before it, 1 queued",
		"user 1400": "user 1400: not among the next 1,000, 1 queued",
		"nobody":    "nobody: nothing of it leaves soon, 0 queued",
	} {
		p.find(key)
		p.until(fmt.Sprintf(`document.getElementById("found").value === %q`, want))
	}
	p.find("user 7")
	p.until(`document.querySelectorAll(".turn.here").length === 1`)
}

// find searches for a key, by the keyboard alone.
func (p *tab) find(key string) {
	p.Helper()
	eval[any](p, `(document.getElementById("key").select(), document.getElementById("key").focus())`)
	p.run(chromedp.KeyEvent(key), chromedp.KeyEvent(kb.Enter))
}

// Hostile keys and reasons stay texts.
func TestHostile(t *testing.T) {
	q := fair(fairq.Options[string, job]{})
	hostile := []string{
		`<script>alert(1)</script>`, `<img src=x onerror=alert(2)>`, `"><svg onload=alert(3)>`, "a\x00b\x1b[2J", "\xff\xfe",
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
	for _, text := range []string{hostile[0], hostile[1], `"\"><svg onload=alert(3)>"`, `"a\x00b\x1b[2J"`, `"\xff\xfe"`, `"\u202egnp.exe"`, `""`} {
		require.Contains(t, texts, text)
	}
	require.Equal(t, name, eval[string](p, `document.querySelector("#sources a").textContent`))
	require.Equal(t, 1, eval[int](p, `document.scripts.length`))
	require.Zero(t, eval[int](p, `document.querySelectorAll("img, main b:not(#legend b), svg:not(#chart)").length`))
	for _, key := range hostile {
		stat := q.KeyStat(key)
		require.Equal(t, 3, stat.Len)
	}
	// What is found and dropped is the very key.
	p.find(hostile[0])
	p.until(`document.getElementById("found").value === "<script>alert(1)</script>: is next, 3 queued"`)
	p.run(chromedp.Click(`//button[contains(@aria-label, "Drop <script>")]`, chromedp.BySearch))
	p.until(`document.querySelectorAll("#keys tbody tr").length > 0 && document.getElementById("status").textContent === "drop-key: done"`)
	require.Zero(t, q.KeyLen(hostile[0]))
	_, dialogs := p.seen()
	require.Equal(t, []string{"Remove what is queued of <script>alert(1)</script>?"}, dialogs, "nobody else has opened one")
}
