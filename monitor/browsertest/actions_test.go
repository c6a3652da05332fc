package browsertest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/monitor"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

// mails returns a queue with nine ready tasks of three users, and a buried one, task 1.
func mails(t *testing.T) *task.Queue[string] {
	q, err := task.Open[string](t.Context(), new(memory.Store), "mails", nil)
	require.NoError(t, err)
	for i := range 10 {
		_, err := q.Put(t.Context(), fmt.Sprint("user ", i%3), "", task.PutOptions{})
		require.NoError(t, err)
	}
	require.NoError(t, q.Bury(t.Context(), 1, errors.New("no")))
	return q
}

// is checks how many tasks are ready and buried.
func is(t *testing.T, q *task.Queue[string], ready, buried int) {
	t.Helper()
	s, err := q.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, [2]int{ready, buried}, [2]int{s.Ready, s.Buried})
}

// click clicks a button, by its accessible name.
func (p *tab) click(name string) {
	p.Helper()
	p.run(chromedp.Click(fmt.Sprintf(`button[aria-label=%q]`, name), chromedp.ByQuery))
}

// ready waits until the page shows n ready tasks.
func (p *tab) ready(n int) {
	p.Helper()
	p.until(fmt.Sprintf(`document.querySelector("#numbers dd")?.textContent === "%d"`, n))
}

// is waits until the page shows the outcome of an action.
func (p *tab) told(outcome string) {
	p.Helper()
	p.until(fmt.Sprintf(`document.getElementById("outcome").textContent === %q`, outcome))
}

// With permission each button works, one after the other.
func TestActions(t *testing.T) {
	t.Parallel()
	q := mails(t)
	p := open(t,
		monitor.New(&monitor.Options{Actions: everybody, Logger: quiet},
			monitor.TaskQueue("mails", q, nil)), "mails")
	p.until(`document.querySelector("#buried tbody tr") !== null`)
	p.click("Kick task 1")
	p.ready(10)
	p.until(`document.getElementById("failures").hidden`)
	p.run(chromedp.Click("summary", chromedp.ByQuery))
	p.click("Bury task 2")
	p.ready(9)
	p.until(`document.querySelector("#buried tbody tr") !== null`)
	require.Equal(t, "buried by hand", p.rows("buried")[0][5])
	p.click("Details of task 2")
	p.until(`document.querySelector("#task dl").innerText.includes("buried") && ` +
		`document.querySelector("#task pre").textContent === "buried by hand"`)
	p.click("Kick task 2")
	p.ready(10)
	p.click("Drop user 2")
	p.ready(7)
	_, dialogs := p.seen()
	require.Equal(t, []string{"Remove what is queued of user 2?"}, dialogs)

	// The page shows paused queues and keys, and can resume them, even after a reload.
	state := `[...document.querySelectorAll("#numbers div")].find((d) => ` +
		`d.innerText.includes("State")).querySelector("dd").textContent`
	p.click("Pause mails")
	p.until(state + ` === "paused"`)
	require.Contains(t, p.wrong(), "it is paused; 7 wait")
	p.run(chromedp.Reload())
	p.until(`document.querySelector('button[aria-label="Resume mails"]') !== null`)
	require.False(t,
		eval[bool](p, `document.querySelector('button[aria-label="Pause mails"]') !== null`))
	p.click("Resume mails")
	p.until(state + ` === "open"`)
	p.click("Pause user 1")
	p.told("pause-key: 1 done")
	p.until(`document.querySelector('button[aria-label="Resume user 1"]') !== null`)
	require.Contains(t, p.wrong(), "the key user 1 is paused")
	upcoming, err := q.Upcoming(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, upcoming, 4, "those of user 0")
	p.click("Drop user 1")
	p.ready(4)
	p.click("Resume user 1") // though it has nothing
	p.until(`!document.getElementById("wrong").innerText.includes("paused")`)
	is(t, q, 4, 0)
}

func (p *tab) wrong() []string {
	p.Helper()
	return eval[[]string](p, `[...document.querySelectorAll("#wrong li")].map((l) => l.textContent)`)
}

// More than a page of failures can be kicked and deleted together, or by group; the page shows the
// number before, and the outcome.
func TestFailures(t *testing.T) {
	t.Parallel()
	q, err := task.Open[string](t.Context(), new(memory.Store), "mails", nil)
	require.NoError(t, err)
	for i := range 1900 {
		id, err := q.Put(t.Context(), fmt.Sprint("user ", i%3), "to somebody",
			task.PutOptions{Metadata: map[string]string{"trace": "abc"}})
		require.NoError(t, err)
		reason := fmt.Errorf("no mailbox %d", i)
		if i < 400 {
			reason = errors.New("timed out")
		}
		require.NoError(t, q.Bury(t.Context(), id, reason))
	}
	mails := monitor.TaskQueue("mails", q, func(mail string) string { return mail })
	p := open(t, monitor.New(&monitor.Options{Actions: everybody, Logger: quiet}, mails), "mails")
	p.until(`document.querySelectorAll("#buried tbody tr").length === 25`)
	require.Equal(t,
		[][]string{{"no mailbox #", "any", "any", "1,500"}, {"timed out", "any", "any", "400"}},
		[][]string{p.rows("groups")[0][:4], p.rows("groups")[1][:4]})
	p.run(chromedp.Click("#more", chromedp.ByQuery))
	p.until(`document.querySelectorAll("#buried tbody tr").length === 50`)
	p.click("Show no mailbox #")
	p.until(`document.querySelectorAll("#buried tbody tr").length === 25 && ` +
		`document.querySelector("#buried tbody th").textContent === "401"`)
	p.click("Details of task 401")
	p.until(`document.querySelector("#task dl").innerText.includes("abc") && ` +
		`document.querySelector("#task pre").textContent.includes("to somebody")`)
	p.click("Delete timed out")
	p.told("delete-all: 400 done")
	p.until(`document.querySelectorAll("#groups tbody tr").length === 1`)
	is(t, q, 0, 1500)
	p.click("Kick all 1,500 buried")
	p.told("kick-all: 1,500 done")
	is(t, q, 1500, 0)
	p.until(`document.getElementById("failures").hidden`)
	_, dialogs := p.seen()
	require.Equal(t,
		[]string{"Delete 400 buried tasks of timed out?", "Kick 1,500 buried tasks?"}, dialogs)

	// The page shows failures of a pool that are buried nowhere, without actions.
	line := fair(fairq.Options[string, job]{})
	workers := pool.NewWorkers(line,
		func(context.Context, job) error { return errors.New("timed out") },
		&pool.WorkersOptions[job]{Logger: quiet})
	for range 3 {
		require.NoError(t, line.Push(job{user: "a"}))
	}
	line.Close()
	require.NoError(t, workers.Wait(t.Context()))
	p = open(t,
		monitor.New(&monitor.Options{Actions: everybody, Logger: quiet},
			monitor.Pool("workers", workers, nil)), "workers")
	p.until(`document.querySelectorAll("#groups tbody tr").length === 1`)
	require.Equal(t, []string{"timed out", "any", "any", "3"}, p.rows("groups")[0][:4])
	require.False(t,
		eval[bool](p,
			`[...document.querySelectorAll("#work, #groups td button, #failures-actions `+
				`button")].some((e) => e.checkVisibility())`))
}

// Without permission there are no buttons, and requests are refused.
func TestActionsNotAllowed(t *testing.T) {
	t.Parallel()
	q := mails(t)
	p := open(t,
		monitor.New(&monitor.Options{Logger: quiet}, monitor.TaskQueue("mails", q, nil)), "mails")
	p.until(`document.querySelector("#buried tbody tr") !== null`)
	buttons := `[...document.querySelectorAll("button:not(.sort, ` +
		`[hidden])")].map((b) => b.textContent)`
	require.Equal(t, []string{"Find", "Show", "Details"}, eval[[]string](p, buttons))
	require.Equal(t, "403 actions are not allowed here", eval[string](p, `
		fetch("v1/queues/mails/actions/kick-all", { method: "POST" }).
			then(async (r) => r.status + " " + (await r.json()).error)`))

	// A viewer with some permissions has the buttons for these, and gets an error for other tasks.
	p2 := open(t, monitor.New(&monitor.Options{
		Actions: func(_ *http.Request, a monitor.Action) bool {
			return a.Name == "pause" || a.Name == "kick" && a.ID == 0
		}, Logger: quiet,
	}, monitor.TaskQueue("mails", q, nil)), "mails")
	p2.until(`document.querySelector("#buried tbody tr") !== null`)
	require.Equal(t, []string{"Pause", "Find", "Show", "Details", "Kick"},
		eval[[]string](p2, buttons))
	p2.click("Kick task 1")
	p2.told("kick: this is not allowed")
	is(t, q, 9, 1)
	for _, p := range []*tab{p, p2} {
		complaints, _ := p.seen()
		require.Len(t, complaints, 1)
		require.Contains(t, complaints[0], "403")
	}
}

// Another site's page can do nothing, although its requests come from the same browser.
func TestOtherOrigin(t *testing.T) {
	t.Parallel()
	q := mails(t)
	var asked, refused atomic.Int32
	m := monitor.New(&monitor.Options{
		Actions: func(r *http.Request, _ monitor.Action) bool {
			if r.Method == http.MethodPost {
				asked.Add(1)
			}
			return true
		}, Logger: quiet,
	}, monitor.TaskQueue("mails", q, nil))
	p := open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := &status{ResponseWriter: w}
		m.ServeHTTP(s, r)
		if s.code == http.StatusForbidden {
			refused.Add(1)
		}
	}), "mails")
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w,
			`<!DOCTYPE html><form method="post" action="%sv1/queues/mails/actions/kick-all"></form>`, p.url)
	}))
	defer evil.Close()
	p.show(evil.URL)
	target := p.url + "v1/queues/mails/actions/drop-key"
	require.Equal(t, "sent", eval[string](p, fmt.Sprintf(`
		fetch(%q, { method: "POST", mode: "no-cors", body: new URLSearchParams("key=user 1") }).
			then(() => "sent", (e) => "not sent: " + e)`, target)))
	require.True(t,
		eval[bool](p,
			fmt.Sprintf(`navigator.sendBeacon(%q, new URLSearchParams("key=user 1"))`, target)))
	require.Contains(t,
		eval[string](p,
			fmt.Sprintf(`fetch(%q).then((r) => r.text(), (e) => String(e))`, p.url+"v1/queues")),
		"Failed to fetch", "it cannot read either")
	p.run(chromedp.Submit("form", chromedp.ByQuery))
	p.until(`document.body.innerText.includes("another origin")`)
	require.Eventually(t, func() bool { return refused.Load() == 3 }, timeout, 1e6)
	require.Zero(t, asked.Load())
	is(t, q, 9, 1)
	p.seen() // the browser complains
}

// status records the status of an answer.
type status struct {
	http.ResponseWriter
	code int
}

func (s *status) WriteHeader(code int) {
	s.code = code
	s.ResponseWriter.WriteHeader(code)
}

func (s *status) Unwrap() http.ResponseWriter { return s.ResponseWriter }
