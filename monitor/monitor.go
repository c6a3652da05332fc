package monitor

import (
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// Options configure a Monitor. The zero value of each field is its default.
type Options struct {
	// Actions allows things to be done, and not only shown. It is called for each request that
	// would do something, by the goroutine of that request, and tells whether it may: whether who
	// has sent it is known and has the right to. nil means that nothing is done for anybody.
	//
	// An action is a POST to /v1/queues/{name}/actions/{action}, with a form of 64 KiB at most: id
	// is that of a task, key is a key as it is shown. The answer is {"done": n}.
	//
	//	kick        id   a buried task is made ready
	//	kick-all         1,000 buried tasks are, those first that were buried first
	//	bury        id   a task is buried, unless somebody has it
	//	delete      id   a task is deleted, unless somebody has it
	//	drop-key    key  the items of a key are removed, of tasks 1,000 that nobody has
	//	pause            nothing is taken any more; what runs goes on
	//	resume           this ends
	//	pause-key   key  no task of a key is taken any more
	//	resume-key  key  this ends
	//
	// All are there for task queues, pause and resume for pools, and drop-key for FairQueues: what
	// it removes is gone, and the program is not told. A FairQueue cannot be paused, for it hands
	// out to whoever asks; the pool.Workers that drain it can.
	//
	// Requests that a browser sends for a page of another origin are refused, whatever Actions
	// would say, see [net/http.CrossOriginProtection]. It does not see through a foreign name that
	// points to this address, so an Actions that trusts everybody looks at least at r.Host.
	Actions func(r *http.Request, a Action) bool

	// Logger is told of each action: at level Info if it was done, at level Warn if it was refused
	// or has failed. nil means [slog.Default].
	Logger *slog.Logger
}

// Monitor shows sources. All methods may be called at any time by any goroutine.
type Monitor struct {
	sources []*Source
	options Options
	mux     http.ServeMux
	origin  http.CrossOriginProtection
	viewers atomic.Int64
}

// Limits of requests: of pages that are open at a time, of how long one may take to read an event,
// and of the bytes of a key in a query or a form.
const (
	maxViewers   = 100
	writeTimeout = 10 * time.Second
	maxQuery     = 1 << 10
	defaultLimit = 50
)

//go:embed page
var page embed.FS

// New returns a Monitor of some sources, in the order in which they are to be shown. nil options
// are the defaults. It panics if two sources have the same name.
func New(options *Options, sources ...*Source) *Monitor {
	m := &Monitor{sources: sources}
	if options != nil {
		m.options = *options
	}
	for i, s := range sources {
		for _, other := range sources[:i] {
			if other.name == s.name {
				panic(fmt.Sprintf("monitor: New: two sources have the name %q", s.name))
			}
		}
	}
	m.mux.HandleFunc("/{$}", get(file("index.html")))
	m.mux.HandleFunc("/style.css", get(file("style.css")))
	m.mux.HandleFunc("/page.js", get(file("page.js")))
	m.mux.HandleFunc("/v1/queues", get(m.list))
	m.mux.HandleFunc("/v1/queues/{name}", get(m.ofSource(summaryOf)))
	m.mux.HandleFunc("/v1/queues/{name}/keys", get(m.ofSource(keysOf)))
	m.mux.HandleFunc("/v1/queues/{name}/snapshot", get(m.ofSource(upcomingOf)))
	m.mux.HandleFunc("/v1/queues/{name}/buried", get(m.ofSource(buriedOf)))
	m.mux.HandleFunc("/v1/queues/{name}/search", get(m.ofSource(search)))
	m.mux.HandleFunc("/v1/queues/{name}/events", get(m.events))
	m.mux.HandleFunc("/v1/queues/{name}/actions/{action}", m.act)
	m.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, "there is nothing at %s", shown(r.URL.Path))
	})
	return m
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

// source returns the source that a request is about. If there is none, it has answered.
func (m *Monitor) source(w http.ResponseWriter, r *http.Request) *Source {
	name := r.PathValue("name")
	for _, s := range m.sources {
		if s.name == name {
			return s
		}
	}
	fail(w, http.StatusNotFound, "there is no queue %s", shown(name))
	return nil
}

func (m *Monitor) list(w http.ResponseWriter, r *http.Request) {
	type listed struct {
		summary
		Actions []string `json:"actions"` // that can be allowed
	}
	all := make([]listed, len(m.sources))
	for i, s := range m.sources {
		l, _, err := s.sample(r.Context())
		if err != nil {
			return // nobody is there any more
		}
		all[i] = listed{l.summary, []string{}}
		if m.options.Actions != nil {
			all[i].Actions = s.of.actions()
		}
	}
	answer(w, http.StatusOK, map[string]any{"queues": all})
}

// ofSource returns a handler that answers with a part of what is known of a source.
func (m *Monitor) ofSource(part func(s *Source, l *sample, r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s := m.source(w, r)
		if s == nil {
			return
		}
		l, _, err := s.sample(r.Context())
		if err != nil {
			return // nobody is there any more
		}
		if l.Error != "" {
			fail(w, http.StatusServiceUnavailable, "%s", l.Error)
			return
		}
		v, err := part(s, l, r)
		if err != nil {
			fail(w, http.StatusBadRequest, "%v", err)
			return
		}
		answer(w, http.StatusOK, v)
	}
}

// limit returns the limit that a request names.
func limit(r *http.Request, most int) (int, error) {
	text := r.URL.Query().Get("limit")
	if text == "" {
		return defaultLimit, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("limit is %s; it must be a whole number from 1 to %d", shown(text), most)
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
	return map[string]any{"name": l.Name, "at": l.At, "keys": first(l.Keys, n)}, err
}

func upcomingOf(_ *Source, l *sample, r *http.Request) (any, error) {
	n, err := limit(r, maxUpcoming)
	more := l.More || n < len(l.Upcoming)
	return map[string]any{"name": l.Name, "at": l.At, "upcoming": first(l.Upcoming, n), "more": more}, err
}

func buriedOf(_ *Source, l *sample, r *http.Request) (any, error) {
	n, err := limit(r, maxBuried)
	return map[string]any{"name": l.Name, "at": l.At, "buried": first(l.Buried, n)}, err
}

// events sends all that is known of a source, and again whenever there is news.
func (m *Monitor) events(w http.ResponseWriter, r *http.Request) {
	s := m.source(w, r)
	if s == nil {
		return
	}
	defer m.viewers.Add(-1)
	if m.viewers.Add(1) > maxViewers {
		fail(w, http.StatusServiceUnavailable, "%d pages are open, which is the limit", maxViewers)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	c := http.NewResponseController(w)
	for r.Method == http.MethodGet {
		l, next, err := s.sample(r.Context())
		if err != nil {
			return
		}
		// A ResponseWriter without deadlines is one that the program has chosen.
		err = c.SetWriteDeadline(time.Now().Add(writeTimeout))
		if err != nil && !errors.Is(err, http.ErrNotSupported) {
			return
		}
		if _, err := fmt.Fprintf(w, "data: %s\n\n", l.event); err != nil || c.Flush() != nil {
			return
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-timer.C:
		case <-r.Context().Done():
			timer.Stop()
			return
		}
	}
}
