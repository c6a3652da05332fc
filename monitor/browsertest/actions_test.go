package browsertest

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/monitor"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

func opened(t *testing.T, o *task.Options[string]) *task.Queue[string] {
	q, err := task.Open[string](t.Context(), new(memory.Store), "mails", o)
	require.NoError(t, err)
	return q
}

func put(t *testing.T, q *task.Queue[string], key string, o task.PutOptions) task.ID {
	id, err := q.Put(t.Context(), key, "to "+key, o)
	require.NoError(t, err)
	return id
}

// mails returns a queue with nine ready tasks of three users, and a buried one, task 1.
func mails(t *testing.T) *task.Queue[string] {
	q := opened(t, &task.Options[string]{MaxInFlightPerKey: 2})
	for i := range 10 {
		put(t, q, fmt.Sprint("user ", i%3), task.PutOptions{})
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
	p.shows("#states", fmt.Sprintf("Ready %dRunning", n))
}

// state shows the tasks of a state.
func (p *tab) state(text string) {
	p.Helper()
	p.run(chromedp.Click(fmt.Sprintf(`//*[@id="states"]//a[text()=%q]`, text), chromedp.BySearch))
	p.shows("#states [aria-current]", text)
}

// With permission each button works, one after the other, and the focus stays near.
func TestActions(t *testing.T) {
	t.Parallel()
	q := mails(t)
	p := open(t, allowed(monitor.TaskQueue("mails", q, nil)), "mails&by=none")
	p.click("Kick task 1")
	p.ready(10)
	p.until(`document.activeElement.closest("#tasks") !== null`)
	p.click("Bury task 2")
	p.state("Buried 1")
	p.shows("#tasks tbody", "buried by hand")
	p.click("Kick task 2")
	p.ready(10)
	p.click("Drop user 2")
	p.ready(7)
	dialogs := p.seen()
	require.Equal(t, []string{"Remove what is queued of user 2?"}, dialogs)

	// The page shows paused queues and keys, and can resume them, even after a reload.
	p.click("Pause mails")
	p.shows("#wrong", "it is paused by Queue.Pause; 7 wait")
	p.run(chromedp.Reload())
	p.click("Resume mails")
	p.shows("#outcome", "resume: 1 done") // or its answer may come after the next one
	p.click("Pause user 1")
	p.shows("#outcome", "pause-key: 1 done")
	p.shows("#wrong", "the key user 1 is paused by PauseKey")
	p.click("Drop user 1")
	p.ready(4)
	p.click("Resume user 1") // though it has nothing
	p.until(`!$("wrong").textContent.includes("paused")`)

	// A key says why nothing of it is taken, and gets limits.
	for range 2 {
		_, err := q.Take(t.Context())
		require.NoError(t, err)
	}
	p.shows("#keys tbody", "at its limit of 2")
	require.NoError(t, q.SetKey(t.Context(), "user 0", &task.KeyLimits{Weight: 2}))
	p.click("Limits user 0")
	p.until(`document.activeElement.id === "limited"`)
	p.run(chromedp.KeyEvent("\t3\t0.5\r")) // the form has the weight, which stays
	p.shows("#keys tbody", "weight 2, 3 at a time, 0.5 a second, up to 1 at once")
	p.shows("#keys tbody tr", "out of its rate until", func() { _, _, _ = q.TryTake(t.Context()) })
}

// What differs in a status code is another group. The question before a deletion has the range,
// the address has the group, and a colleague sees the same.
func TestGroups(t *testing.T) {
	t.Parallel()
	q := opened(t, nil)
	for i := range 190 {
		id := put(t, q, fmt.Sprint("user ", i%3), task.PutOptions{})
		reason := fmt.Errorf("mail %d: HTTP 503", i)
		if i < 40 {
			reason = fmt.Errorf("mail %d: HTTP 404", i)
		}
		require.NoError(t, q.Bury(t.Context(), id, reason))
	}
	p := open(t, allowed(monitor.TaskQueue("mails", q, func(mail string) string { return mail })),
		"mails")
	p.shows("#tasks-note", "190 tasks")
	require.Equal(t, [][]string{
		{"mail #: HTTP 503", "any", "any", "150", "ShowKickDelete"},
		{"mail #: HTTP 404", "any", "any", "40", "ShowKickDelete"},
	}, p.rows("tasks"))
	p.click("Show mail #: HTTP 503")
	p.shows("#tasks-note", "150 tasks")
	rows := `document.querySelectorAll("#tasks tbody tr").length === `
	p.run(chromedp.Click("#more", chromedp.ByQuery))
	p.until(rows + "50")
	put(t, q, "somebody", task.PutOptions{})
	p.ready(1)
	p.until(rows + "50")
	p.run(chromedp.Click("#tasks tbody a", chromedp.ByQuery))
	p.shows("#task", "mail 40: HTTP 503")
	p.show(eval[string](p, "location.href"))
	p.shows("#task", "to user 1")
	p.shows("#tasks-note", "150 tasks")
	p.run(chromedp.NavigateBack(), chromedp.NavigateBack())
	p.click("Delete mail #: HTTP 404")
	p.shows("#outcome", "delete-all: 40 done")
	p.click("Kick all 150 buried")
	p.shows("#outcome", "kick-all: 150 done")
	dialogs := p.seen()
	require.Equal(t, []string{
		"Delete 40 buried tasks of mail #: HTTP 404: task 1 to 40?", "Kick 150 buried tasks?",
	}, dialogs)
	is(t, q, 151, 0)
}

// Of more tasks than the page reads it says "at least".
func TestManyFailures(t *testing.T) {
	t.Parallel()
	q := opened(t, nil)
	for range 10_001 {
		require.NoError(t, q.Bury(t.Context(), put(t, q, "a", task.PutOptions{}), errors.New("no")))
	}
	p := open(t, allowed(monitor.TaskQueue("mails", q, nil)), "mails")
	p.shows("#tasks-note", "10,000 of the first 10,000 tasks")
	p.click("Kick no")
	p.shows("#outcome", "kick-all: 10,001 done")
	dialogs := p.seen()
	require.Equal(t, []string{"Kick at least 10,000 buried tasks of no?"}, dialogs)
}

// Without permission there are no buttons, and requests are refused.
func TestActionsNotAllowed(t *testing.T) {
	t.Parallel()
	q := mails(t)
	some := func(_ *http.Request, asked []monitor.Action) (permitted []monitor.Action) {
		for _, a := range asked {
			if a.Name == "pause" || a.Name == "kick" && a.ID == 0 {
				permitted = append(permitted, a)
			}
		}
		return permitted
	}
	for refusal, o := range map[string]*monitor.Options{
		"kick: this is not allowed": {Actions: some, Logger: quiet}, "": {Logger: quiet},
	} {
		p := open(t, monitor.New(o, monitor.TaskQueue("mails", q, nil)), "mails&by=none")
		p.shows("#tasks tbody", "no")
		want := []string{"Find", "Filter"}
		if refusal != "" {
			want = []string{"Pause", "Find", "Filter", "Kick"}
			p.click("Kick task 1")
			p.shows("#outcome", refusal)
		}
		require.Equal(t, want, eval[[]string](p, `[...document.querySelectorAll("button:not(.sort)")].`+
			`filter((b) => b.checkVisibility()).map((b) => b.textContent)`))
		is(t, q, 9, 1)
		p.seen()
	}
}

// Another site's page can do nothing, although its requests come from the same browser.
func TestOtherOrigin(t *testing.T) {
	t.Parallel()
	q := mails(t)
	p := open(t, allowed(monitor.TaskQueue("mails", q, nil)), "mails")
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w,
			`<!DOCTYPE html><form method="post" action="%sv1/queues/mails/actions/kick-all"></form>`, p.url)
	}))
	defer evil.Close()
	p.show(evil.URL)
	for call, want := range map[string]string{
		`fetch(%q, { method: "POST", mode: "no-cors", body: new URLSearchParams("key=user 1") }).` +
			`then(() => "sent")`: "sent",
		`String(navigator.sendBeacon(%q, new URLSearchParams("key=user 1")))`: "true",
		`fetch(%q).then((r) => r.text(), (e) => e.message)`:                   "Failed to fetch",
	} {
		require.Equal(t, want,
			eval[string](p, fmt.Sprintf(call, p.url+"v1/queues/mails/actions/drop-key")))
	}
	p.run(chromedp.Submit("form", chromedp.ByQuery))
	p.shows("body", "another origin")
	is(t, q, 9, 1)
	p.seen() // the browser complains
}
