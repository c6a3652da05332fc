package monitor

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairq/fairq/task"
)

// Options configure a Monitor. The zero value of each field is its default.
type Options struct {
	// Actions permits actions: it returns those of the asked actions that the request may do. So
	// it must check that the sender is known and has the right. Each request for an action calls
	// it, in the goroutine of the request. Each list of sources calls it once too, with all
	// possible actions, without Key, ID, Kind and Reason. The page has a button for each action
	// that it then permits. nil permits none.
	//
	// An action is a POST to /v1/queues/{name}/actions/{action}, with a form of at most 64 KiB: id is
	// the id of a task; key, kind and reason are in the form of the page. The response is
	// {"done": n}, or {"done": n, "more": true} if 30 seconds were too short for all.
	//
	//	kick        id   makes a buried task ready
	//	kick-all         makes all buried tasks ready, or those of a key, kind and reason
	//	bury        id   buries a task that is not taken
	//	delete      id   deletes a task that is not taken
	//	delete-all       deletes all buried tasks, or those of a key, kind and reason
	//	drop-key    key  removes the items of a key, or its tasks that are not taken
	//	pause            stops the taking of tasks; running ones go on
	//	resume           undoes pause
	//	pause-key   key  stops the taking of a key's tasks
	//	resume-key  key  undoes pause-key
	//	limit-key   key  sets the limits of a key, see [task.Queue.SetKey]: weight, max_in_flight,
	//	                 rate and burst, each a number or empty; none removes them
	//
	// Task queues have all actions, pools pause and resume, and FairQueues drop-key, which removes
	// items without a notice to the program. A FairQueue cannot be paused, because it gives an item
	// to every caller; but the pool.Workers that drain it can.
	//
	// Whatever Actions returns, a Monitor refuses requests that a browser sends for a page of
	// another origin: see [net/http.CrossOriginProtection]. That check does not detect a foreign
	// name that points to this address. So an Actions that trusts everybody must at least check
	// r.Host.
	Actions func(r *http.Request, asked []Action) (permitted []Action)

	// TrustedOrigins are origins whose pages may send actions, such as "https://ops.example.com".
	// They are for proxies that change the Host of requests: see docs/operating.md. New panics if
	// one is invalid.
	TrustedOrigins []string

	// Logger logs each action: at level Info if it was done, at level Warn if it was refused or has
	// failed. nil means [slog.Default].
	Logger *slog.Logger
}

// Monitor shows sources. All methods are safe for concurrent use.
type Monitor struct {
	sources atomic.Pointer[[]*Source]
	options Options
	mux     http.ServeMux
	origin  http.CrossOriginProtection
}

// Limits of requests: of the bytes of a key in a query or a form, and of how long a list waits for
// looks.
const (
	maxQuery     = 1 << 10
	defaultLimit = 50
	listTimeout  = 200 * time.Millisecond
)

//go:embed page
var page embed.FS

// part answers to a path of a source. rest is what follows the part's name in the path.
type part func(m *Monitor, w http.ResponseWriter, r *http.Request, s *Source, rest string)

// parts has the parts of a source that can be requested, by their names in the path.
var parts = map[string]part{
	"":         ofSample(summaryOf),
	"keys":     ofSample(keysOf),
	"snapshot": ofSample(upcomingOf),
	"search":   ofSample(search),
	"history":  ofSample(historyOf),
	"tasks":    (*Monitor).tasks,
	"live":     (*Monitor).live,
	"actions":  (*Monitor).act,
}

// New returns a Monitor that shows the sources in this order. nil options mean the defaults. New
// panics if two sources have the same name.
func New(options *Options, sources ...*Source) *Monitor {
	m := &Monitor{}
	if options != nil {
		m.options = *options
	}
	for _, origin := range m.options.TrustedOrigins {
		if err := m.origin.AddTrustedOrigin(origin); err != nil {
			panic(fmt.Sprintf("monitor: New: Options.TrustedOrigins: %v", err))
		}
	}
	m.Show(sources...)
	m.mux.HandleFunc("/{$}", get(file("index.html")))
	m.mux.HandleFunc("/style.css", get(file("style.css")))
	m.mux.HandleFunc("/page.js", get(file("page.js")))
	m.mux.HandleFunc("/v1/queues", get(m.list))
	m.mux.HandleFunc("/v1/queues/{path...}", m.ofSource)
	m.mux.HandleFunc("/", answerNotFound)
	return m
}

func answerNotFound(w http.ResponseWriter, r *http.Request) {
	fail(w, http.StatusNotFound, "there is nothing at %s", shown(r.URL.Path))
}

// Show replaces the sources. Open pages follow. Show panics if two sources have the same name.
func (m *Monitor) Show(sources ...*Source) {
	for i, s := range sources {
		if slices.ContainsFunc(sources[:i], func(other *Source) bool { return other.name == s.name }) {
			panic(fmt.Sprintf("monitor: two sources have the name %q", s.name))
		}
	}
	sources = slices.Clone(sources)
	m.sources.Store(&sources)
}

// Run reads all sources every ten seconds until ctx is done. So a page that is opened later shows
// the last hour. Without Run a Monitor has only the reads that its clients have caused.
func (m *Monitor) Run(ctx context.Context) {
	for ctx.Err() == nil {
		for _, s := range *m.sources.Load() {
			s.begin() // without waiting, so a source that is away makes no gaps in others' charts
		}
		select {
		case <-time.After(momentStep):
		case <-ctx.Done():
		}
	}
}

// ServeHTTP serves the page and the paths that the package documentation lists.
func (m *Monitor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; "+
		"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	m.mux.ServeHTTP(w, r)
}

// file returns a handler for a part of the page.
func file(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, page, "page/"+name) }
}

// get returns a handler for GET and HEAD only.
func get(f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			fail(w, http.StatusMethodNotAllowed, "the method is %s; it must be GET", shown(r.Method))
			return
		}
		f(w, r)
	}
}

// answer sends a value as JSON.
func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(append(encode(v), '\n'))
}

func fail(w http.ResponseWriter, status int, format string, args ...any) {
	answer(w, status, map[string]string{"error": fmt.Sprintf(format, args...)})
}

// list looks at all sources whose turn it is, and waits for that, but no longer than listTimeout.
func (m *Monitor) list(w http.ResponseWriter, r *http.Request) {
	type listed struct {
		summary
		Actions []string `json:"actions"` // that the client may do
	}
	ctx, cancel := context.WithTimeout(r.Context(), listTimeout)
	defer cancel()
	all, asked, sources := []listed{}, []Action{}, *m.sources.Load()
	var looks sync.WaitGroup
	for _, s := range sources {
		looks.Go(func() { _, _, _ = s.sample(ctx) })
		for _, name := range s.actions {
			asked = append(asked, Action{Source: s.name, Name: name})
		}
	}
	looks.Wait()
	permitted := m.permitted(r, asked)
	for _, s := range sources {
		l := listed{s.summary(), []string{}}
		for _, a := range permitted {
			if a.Source == s.name {
				l.Actions = append(l.Actions, a.Name)
			}
		}
		all = append(all, l)
	}
	answer(w, http.StatusOK, map[string]any{"queues": all})
}

// permitted returns those of the actions that a request may do.
func (m *Monitor) permitted(r *http.Request, asked []Action) []Action {
	if m.options.Actions == nil {
		return nil
	}
	return m.options.Actions(r, asked)
}

// ofSource handles the requests for a source.
func (m *Monitor) ofSource(w http.ResponseWriter, r *http.Request) {
	name, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/v1/queues/"), "/")
	if plain, err := url.PathUnescape(name); err == nil {
		name = plain
	}
	if s := m.source(name); s != nil && m.servePart(w, r, s, rest) {
		return
	}
	// Some proxies unescape a slash in the path. So a name may have several segments.
	path := r.PathValue("path")
	for i := len(path); i > 0; i = strings.LastIndexByte(path[:i], '/') {
		if s := m.source(path[:i]); s != nil && m.servePart(w, r, s, strings.TrimPrefix(path[i:], "/")) {
			return
		}
	}
	if m.source(name) == nil {
		fail(w, http.StatusNotFound, "there is no queue %s", shown(name))
		return
	}
	answerNotFound(w, r)
}

func (m *Monitor) source(name string) *Source {
	for _, s := range *m.sources.Load() {
		if s.name == name {
			return s
		}
	}
	return nil
}

// servePart lets the part of a source that the path names answer a request, if there is such a
// part.
func (m *Monitor) servePart(
	w http.ResponseWriter, r *http.Request, s *Source, path string,
) (ok bool) {
	name, rest, deeper := strings.Cut(path, "/")
	f := parts[name]
	if f == nil || deeper != (name == "actions") && name != "tasks" {
		return false
	}
	answers := func(w http.ResponseWriter, r *http.Request) { f(m, w, r, s, rest) }
	if name != "actions" {
		answers = get(answers)
	}
	answers(w, r)
	return true
}

// ofSample returns a part that returns data of the last read of a source.
func ofSample(of func(s *Source, l *sample, r *http.Request) (any, error)) part {
	return func(_ *Monitor, w http.ResponseWriter, r *http.Request, s *Source, _ string) {
		l, _, err := s.sample(r.Context())
		if err != nil {
			return // nobody is there any more
		}
		v, err := any(nil), errors.New(l.Error)
		if l.Error == "" {
			v, err = of(s, l, r)
		}
		reply(w, v, err)
	}
}

// reply sends a value, or an error with its status.
func reply(w http.ResponseWriter, v any, err error) {
	if err != nil {
		fail(w, statusOf(err), "%v", err)
		return
	}
	answer(w, http.StatusOK, v)
}

// statusOf returns the status of an answer.
func statusOf(err error) int {
	if refused, ok := errors.AsType[*refusal](err); ok {
		return refused.status
	}
	switch {
	case err == nil:
		return http.StatusOK
	case errors.Is(err, task.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, task.ErrInvalid):
		return http.StatusBadRequest
	case errors.Is(err, task.ErrTaken):
		return http.StatusConflict
	}
	return http.StatusServiceUnavailable
}

// refusal is an error with the status of its answer.
type refusal struct {
	error
	status int
}

func refuse(status int, format string, args ...any) error {
	return &refusal{fmt.Errorf(format, args...), status}
}

func badRequest(format string, args ...any) error {
	return refuse(http.StatusBadRequest, format, args...)
}

// limit returns the limit that a request names.
func limit(r *http.Request, most int) (int, error) {
	text := r.URL.Query().Get("limit")
	if text == "" {
		return defaultLimit, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, badRequest("limit is %s; it must be a whole number from 1 to %d", shown(text), most)
	}
	return n, nil
}

func first[T any](rows []T, n int) []T {
	if rows == nil {
		return []T{} // which JSON does not call null
	}
	return rows[:min(n, len(rows))]
}

func summaryOf(_ *Source, l *sample, _ *http.Request) (any, error) { return l.summary, nil }

func keysOf(_ *Source, l *sample, r *http.Request) (any, error) {
	n, err := limit(r, maxKeys)
	by := cmp.Or(r.URL.Query().Get("by"), "backlog")
	if err == nil && keyOrders[by] == nil {
		err = badRequest("by is %s; it must be backlog, oldest, served, refused or paused", shown(by))
	}
	if err != nil {
		return nil, err
	}
	return map[string]any{"name": l.Name, "at": l.At, "keys": first(inOrder(l.Keys, by), n)}, nil
}

func upcomingOf(_ *Source, l *sample, r *http.Request) (any, error) {
	n, err := limit(r, maxUpcoming)
	return map[string]any{
		"name": l.Name, "at": l.At, "upcoming": first(l.Upcoming, n),
		"more": l.More || n < len(l.Upcoming), "new_key_waits": l.Newcomer,
	}, err
}

func historyOf(s *Source, l *sample, _ *http.Request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return map[string]any{
		"name": l.Name, "at": l.At, "points": first(slices.Clone(s.past.points), maxPoints),
	}, nil
}

// live waits until there is a later read of the source than the client has, and answers with all
// its data. A client asks again only after it has read an answer. So even on a slow line it gets
// no outdated answers.
func (m *Monitor) live(w http.ResponseWriter, r *http.Request, s *Source, _ string) {
	for m.source(s.name) == s {
		l, next, err := s.sample(r.Context())
		if err != nil {
			return
		}
		if l.At.Format(time.RFC3339Nano) != r.URL.Query().Get("after") {
			h := w.Header()
			h.Set("Content-Type", "application/json; charset=utf-8")
			if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
				h.Set("Content-Encoding", "gzip")
				_, _ = w.Write(l.event)
			} else if plain, err := gzip.NewReader(bytes.NewReader(l.event)); err == nil {
				_, _ = io.Copy(w, plain)
			}
			return
		}
		select {
		case <-time.After(time.Until(next)):
		case <-r.Context().Done():
			return
		}
	}
	fail(w, http.StatusNotFound, "there is no queue %s", shown(s.name)) // any more
}
