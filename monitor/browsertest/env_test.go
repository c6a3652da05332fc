// Package browsertest tests the page of package monitor in Chromium. It is a module of its own,
// because of the library that drives the browser.
package browsertest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/monitor"
)

// browser is shared by all tests.
var browser context.Context

func TestMain(m *testing.M) {
	// It shows pages of our own only, and as root, as in CI, it has no sandbox.
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox)
	if path := os.Getenv("CHROME_BIN"); path != "" {
		options = append(options, chromedp.ExecPath(path))
	}
	ctx, end := chromedp.NewExecAllocator(context.Background(), options...)
	browser, _ = chromedp.NewContext(ctx)
	switch err := chromedp.Run(browser); {
	case err == nil:
		flag.Parse()
		_ = flag.Set("test.parallel", "6") // most of the time they wait for the next look
		status := m.Run()
		end()
		os.Exit(status)
	case errors.Is(err, exec.ErrNotFound) && os.Getenv("CI") != "true":
		fmt.Println("skipped:", err)
	default:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// timeout is long enough for a second of work on a very busy machine.
const timeout = 30 * time.Second

// tab is a page of a Monitor in the browser.
type tab struct {
	*testing.T
	ctx context.Context
	url string // of the Monitor

	mu      sync.Mutex
	dialogs []string // that were shown, and accepted
	errors  []string // on the console
}

// open opens the page of a source, or without a name the overview. At the end of the test the
// console must have no errors.
func open(t *testing.T, m http.Handler, source string) *tab {
	server := httptest.NewServer(m)
	ctx, cancel := chromedp.NewContext(browser)
	p := &tab{T: t, ctx: ctx, url: server.URL + "/"}
	chromedp.ListenTarget(ctx, p.listen)
	t.Cleanup(func() {
		cancel()
		server.CloseClientConnections()
		server.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		require.Empty(t, p.errors, "on the console")
	})
	// the context of the first call is that of the tab
	require.NoError(t, chromedp.Run(ctx, log.Enable()))
	if source != "" {
		source = "?queue=" + source
	}
	p.show(p.url + source)
	p.until(`document.getElementById("status").textContent === "Live" && ` +
		`(document.getElementById("numbers").children.length > 0 || name === null)`)
	return p
}

func (p *tab) listen(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		p.errors = append(p.errors, e.ExceptionDetails.Error())
	case *runtime.EventConsoleAPICalled:
		p.errors = append(p.errors, fmt.Sprint("console.", e.Type))
	case *log.EventEntryAdded:
		p.errors = append(p.errors, e.Entry.Text+" "+e.Entry.URL)
	case *page.EventJavascriptDialogOpening:
		p.dialogs = append(p.dialogs, e.Message)
		go func() { _ = chromedp.Run(p.ctx, page.HandleJavaScriptDialog(true)) }()
	}
}

func (p *tab) run(actions ...chromedp.Action) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, timeout)
	defer cancel()
	require.NoError(p, chromedp.Run(ctx, actions...))
}

func (p *tab) show(url string) {
	p.Helper()
	p.run(chromedp.Navigate(url))
}

// eval returns the value of an expression, which may be a promise.
func eval[T any](p *tab, expression string) (value T) {
	p.Helper()
	await := func(e *runtime.EvaluateParams) *runtime.EvaluateParams {
		return e.WithAwaitPromise(true)
	}
	p.run(chromedp.Evaluate(expression, &value, await))
	return value
}

// until waits until an expression is true, and runs a function while it waits.
func (p *tab) until(expression string, meanwhile ...func()) {
	p.Helper()
	for end := time.Now().Add(timeout); !eval[bool](p, expression); {
		for _, do := range meanwhile {
			do()
		}
		if time.Now().After(end) {
			p.Fatalf("it does not come true: %s\nthe page: %s", expression,
				eval[string](p, "document.body.innerText"))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// text returns the text of an element.
func (p *tab) text(selector string) string {
	p.Helper()
	return eval[string](p, fmt.Sprintf("document.querySelector(%q).textContent", selector))
}

// shows waits until an element has that text among its own.
func (p *tab) shows(selector, text string, meanwhile ...func()) {
	p.Helper()
	p.until(fmt.Sprintf("[...document.querySelectorAll(%q)].some((e) => e.checkVisibility() && "+
		"e.textContent.includes(%q))", selector, text), meanwhile...)
}

// rows returns the texts of the cells of a table.
func (p *tab) rows(section string) [][]string {
	p.Helper()
	return eval[[][]string](p,
		`[...document.querySelectorAll("#`+section+
			` tbody tr")].map((r) => [...r.cells].map((c) => c.textContent))`)
}

// seen forgets the errors since the last call, and returns the dialogs.
func (p *tab) seen() (dialogs []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	dialogs = p.dialogs
	p.errors, p.dialogs = nil, nil
	return dialogs
}

// job is an item of a queue.
type job struct {
	user string
	cost int64
}

// fair returns a queue with all counters on.
func fair(o fairq.Options[string, job]) *fairq.FairQueue[string, job] {
	o.TrackWait, o.CountKeys = true, 100
	return fairq.New(func(j job) string { return j.user }, &o)
}

// quiet logs nothing.
var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// everybody may do everything.
func everybody(_ *http.Request, asked []monitor.Action) []monitor.Action { return asked }

// allowed shows sources, and lets everybody act.
func allowed(sources ...*monitor.Source) *monitor.Monitor {
	return monitor.New(&monitor.Options{Actions: everybody, Logger: quiet}, sources...)
}
