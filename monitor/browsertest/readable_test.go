package browsertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/monitor"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// The page stays readable for any number of keys: nothing is wider than the screen, and there are
// no more elements than fit.
func TestSizes(t *testing.T) {
	t.Parallel()
	for _, keys := range []int{0, 1, 100_000} {
		q := fair(fairq.Options[string, job]{Capacity: fairq.Unbounded})
		for i := range keys {
			require.NoError(t, q.Push(job{fmt.Sprint("user with a name ", i), 1}))
		}
		p := open(t, monitor.New(nil, monitor.FairQueue("jobs", q, nil)), "jobs")
		for _, width := range []int64{1280, 320} {
			p.run(chromedp.EmulateViewport(width, 800))
			require.LessOrEqual(t, eval[int64](p, "document.documentElement.scrollWidth"), width)
		}
		require.Less(t, eval[int](p, "document.querySelectorAll('*').length"), 2000)
	}
}

// On a phone tables scroll, and do not break after each letter; actions are seen at any width.
func TestTablesOnPhone(t *testing.T) {
	t.Parallel()
	q := opened(t, nil)
	for _, key := range []string{"alice", "a user with quite a long name at some.example.com"} {
		put(t, q, key, task.PutOptions{})
		id := put(t, q, key, task.PutOptions{Kind: "newsletter"})
		require.NoError(t, q.Bury(t.Context(), id,
			errors.New("550 5.1.1 no such mailbox: somebody@some.example.com does not exist there")))
	}
	p := open(t, allowed(monitor.TaskQueue("mails", q, func(mail string) string { return mail })),
		"mails&by=none")
	p.shows("#tasks tbody", "alice")
	for _, width := range []int64{320, 800, 1280} {
		p.run(chromedp.EmulateViewport(width, 800))
		require.LessOrEqual(t, eval[int64](p, "document.documentElement.scrollWidth"), width)
		for _, height := range eval[[]int](p,
			`[...document.querySelectorAll("tbody tr")].map((r) => r.offsetHeight)`) {
			require.Less(t, height, 9*21, "of a row with at most nine lines")
		}
		require.True(t, eval[bool](p, `[...document.querySelectorAll("td.action button")].every((b) =>
			b.getBoundingClientRect().right <= innerWidth && b.getBoundingClientRect().left >= 0)`), width)
	}
}

// The first link skips to the tasks. The focus stays when the page gets changes.
func TestFocusStays(t *testing.T) {
	t.Parallel()
	q := fair(fairq.Options[string, job]{})
	for i := range 9 {
		require.NoError(t, q.Push(job{fmt.Sprint("user ", i%3), 1}))
	}
	p := open(t, allowed(monitor.FairQueue("jobs", q, nil)), "jobs")
	p.run(chromedp.KeyEvent(kb.Tab+kb.Tab), chromedp.KeyEvent(kb.Enter))
	p.until(`document.activeElement.id === "tasks"`)
	eval[any](p, `$("find").focus()`)
	focused := `document.activeElement.getAttribute("aria-label")`
	for tabs := 0; eval[string](p, focused+` || ""`) != "Drop user 2"; tabs++ {
		require.Less(t, tabs, 30, "the buttons can be reached by the keyboard")
		p.run(chromedp.KeyEvent(kb.Tab))
	}
	require.NoError(t, q.Push(job{"user 2", 1}))
	p.until("previous.stats.len === 10")
	require.Equal(t, "Drop user 2", eval[string](p, focused))
	p.run(chromedp.KeyEvent(kb.Enter))
	p.until("previous.stats.len === 6")
	require.Zero(t, q.KeyStat("user 2").Backlog)
}

// axe returns the script of axe-core: the file that AXE_CORE names.
func axe(t *testing.T) string {
	name := os.Getenv("AXE_CORE")
	if name == "" && os.Getenv("CI") != "true" {
		t.Skip("AXE_CORE does not name the file axe.min.js of the npm package axe-core")
	}
	script, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(script)
}

// axe-core finds no barrier to reading or using the page.
func TestAccessible(t *testing.T) {
	t.Parallel()
	script := axe(t)
	jobs := fair(fairq.Options[string, job]{Capacity: 150, WhenFull: fairq.RejectOverShare})
	for i := range 300 {
		_ = jobs.Push(job{fmt.Sprint("user ", i%7), 1})
		_ = jobs.Push(job{"mallory", 1})
	}
	workers := pool.NewWorkers(fair(fairq.Options[string, job]{}),
		func(context.Context, job) error { return nil }, nil)
	m := allowed(monitor.FairQueue("jobs", jobs, nil), monitor.TaskQueue("mails", mails(t), nil),
		monitor.Pool("workers", workers, nil))
	for _, source := range []string{"", "jobs", "mails", "mails&task=1&by=none", "workers"} {
		p := open(t, m, source)
		p.run(chromedp.Evaluate(script, nil))
		for colours, width := range map[string]int64{"light": 1280, "dark": 320} {
			p.run(chromedp.EmulateViewport(width, 800),
				emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
					{Name: "prefers-color-scheme", Value: colours},
				}))
			require.Empty(t, p.violations(), "%s, %s, %d", source, colours, width)
		}
	}
	require.NoError(t, workers.Shutdown(t.Context()))
}

// violations returns the serious findings of axe.
func (p *tab) violations() []string {
	p.Helper()
	text := eval[string](p, `axe.run().then((r) => JSON.stringify(r.violations.
		filter((v) => v.impact === "serious" || v.impact === "critical").
		map((v) => v.id + ": " + v.help + ": " + v.nodes.slice(0, 3).map((n) => n.html).join(" "))))`)
	var found []string
	require.NoError(p, json.Unmarshal([]byte(text), &found))
	return found
}
