package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"
)

// web is some made-up sites, all served by one server, which tells them apart by the Host header.
type web struct {
	*httptest.Server
	sites map[string]*site
}

// site is one host. Its pages are "/", "/1", "/2" and so on.
type site struct {
	host  string
	pages int
	slow  time.Duration // how long it takes to answer
	fails map[string]failure
	next  string // another host, which all pages have a link to

	mu      sync.Mutex
	asked   map[string]int // how often, by path
	sent    map[string]int // the same, but only if the answer was the page
	current int            // requests in flight
	most    int
}

// failure is how a page fails, and how often: the first times, or for ever.
type failure struct{ status, times int }

const forever = 1 << 30

// openWeb makes the web. The seed decides which pages fail.
func openWeb(seed uint64) *web {
	sites := []*site{
		{host: "big.test", pages: 300, slow: 2 * time.Millisecond},
		{host: "slow.test", pages: 12, slow: 40 * time.Millisecond},
		{host: "flaky.test", pages: 40, slow: 2 * time.Millisecond},
		{host: "small.test", pages: 12, slow: 2 * time.Millisecond},
		{host: "tiny.test", pages: 3, slow: 2 * time.Millisecond},
	}
	w := &web{sites: map[string]*site{}}
	for i, s := range sites {
		s.next = sites[(i+1)%len(sites)].host
		s.asked, s.sent, s.fails = map[string]int{}, map[string]int{}, map[string]failure{}
		w.sites[s.host] = s
	}
	w.sites["flaky.test"].fail(rand.New(rand.NewPCG(seed, 0)))
	w.Server = httptest.NewServer(w)
	return w
}

// fail makes some pages fail now and then, and some always. The first page has all the links, and
// never fails.
func (s *site) fail(random *rand.Rand) {
	for i := 1; i < s.pages; i++ {
		f := failure{status: http.StatusInternalServerError}
		if random.IntN(2) == 0 {
			f.status = http.StatusServiceUnavailable
		}
		switch dice := random.IntN(10); {
		case dice == 0:
			f.times = forever
		case dice <= 4:
			f.times = 1 + random.IntN(maxAttempts-1)
		default:
			continue
		}
		s.fails[path(i)] = f
	}
}

func path(i int) string {
	if i == 0 {
		return "/"
	}
	return "/" + strconv.Itoa(i)
}

// client returns one that knows no other server, whatever the host.
func (w *web) client() *http.Client {
	address := w.Listener.Addr().String()
	transport := w.Server.Client().Transport.(*http.Transport).Clone()
	transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	return &http.Client{Transport: transport}
}

// homes returns where the crawl begins: the large site comes first, so that the others would have
// to wait for it.
func (w *web) homes() (urls []string) {
	for _, host := range []string{"big.test", "slow.test", "flaky.test", "small.test", "tiny.test"} {
		urls = append(urls, "http://"+host+"/")
	}
	return urls
}

// mostAtOnce tells for each host how many requests were in flight at once.
func (w *web) mostAtOnce() map[string]int {
	most := map[string]int{}
	for host, s := range w.sites {
		s.mu.Lock()
		most[host] = s.most
		s.mu.Unlock()
	}
	return most
}

func (w *web) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	s := w.sites[r.Host]
	if s == nil {
		http.NotFound(out, r)
		return
	}
	s.enter()
	wait := time.NewTimer(s.slow)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-r.Context().Done():
	}
	// before the answer: with that in hand, the client may send the next request
	status := s.leave(r.URL.Path)
	if status != http.StatusOK {
		http.Error(out, http.StatusText(status), status)
		return
	}
	fmt.Fprint(out, s.text(r.URL.Path))
}

func (s *site) enter() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current++
	s.most = max(s.most, s.current)
}

// leave ends a request for a page, and returns the status of the answer.
func (s *site) leave(path string) (status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current--
	s.asked[path]++
	f := s.fails[path]
	switch {
	case !s.has(path):
		return http.StatusNotFound
	case s.asked[path] <= f.times:
		return f.status
	}
	s.sent[path]++
	return http.StatusOK
}

func (s *site) has(path string) bool {
	i, err := strconv.Atoi(path[1:])
	return path == "/" || err == nil && i > 0 && i < s.pages
}

// text returns a page. The first one has links to all others; each has links to the first, to the
// next and to another host.
func (s *site) text(at string) string {
	var text strings.Builder
	text.WriteString("<!doctype html>\n")
	add := func(to string) { fmt.Fprintf(&text, "<a href=\"%s\">%s</a>\n", to, to) }
	i := 0
	if at == "/" {
		for i := 1; i < s.pages; i++ {
			add(path(i))
		}
		add("/moved") // there is no such page
	} else {
		i, _ = strconv.Atoi(at[1:])
	}
	add("/#top")
	add(path((i + 1) % s.pages))
	add("http://" + s.next + "/")
	return text.String()
}
