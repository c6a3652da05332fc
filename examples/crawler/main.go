// Crawler fetches all pages of some web sites, following their links, with at most one request in
// flight for each host. The sites are made up and served by the program itself: nothing leaves
// this machine.
//
//	go run ./examples/crawler
//
// The pages to be fetched are a task queue. Their key is the host, so a site with many pages does
// not make the others wait, and a host is asked for one page at a time however many workers there
// are. A page that fails is tried again later, and is buried when that has not helped.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"regexp"
	"sync"
	"time"

	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

const (
	workers     = 4
	maxAttempts = 4
	// before a page is tried again; each later one is twice as long
	firstPause = 10 * time.Millisecond
	pageTime   = 10 * time.Second // what one request may take
	maxPage    = 1 << 20          // bytes that are read of a page
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	w := openWeb(1)
	defer w.Close()
	r, err := crawl(ctx, w.client(), w.homes())
	if err != nil {
		log.Fatal("crawler: ", err)
	}
	r.print(os.Stdout, w.mostAtOnce())
}

// link is a page to be fetched.
type link struct {
	url  string
	from string // a page that has this link; empty if it is where the crawl begins
}

type crawler struct {
	client *http.Client
	pages  *task.Queue[link]

	mu      sync.Mutex
	visited map[string]bool // pages that have been fetched
}

// crawl fetches the pages of the given URLs, and all that they lead to.
func crawl(ctx context.Context, client *http.Client, urls []string) (*report, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	pages, err := task.Open[link](ctx, new(memory.Store), "pages", &task.Options[link]{
		MaxInFlightPerKey: 1,
		MaxAttempts:       maxAttempts,
		TTR:               pageTime,
	})
	if err != nil {
		return nil, err
	}
	defer pages.Close(ctx)
	c := &crawler{client: client, pages: pages, visited: map[string]bool{}}

	events := pages.Events(ctx) // from now on, so that the first Put is among them
	if err := c.put(ctx, urls, ""); err != nil {
		return nil, err
	}
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			if err := c.work(ctx); err != nil {
				stop(err)
			}
		})
	}
	r := newReport(time.Now())
	for e := range events {
		if r.add(e); r.unfinished == 0 {
			break
		}
	}
	err = context.Cause(ctx)
	stop(nil)
	group.Wait()
	if err != nil {
		return nil, err
	}
	r.dead, err = pages.List(ctx, task.ListOptions{State: task.Buried, Limit: r.buried()})
	return r, err
}

// work fetches one page after the other until ctx is done.
func (c *crawler) work(ctx context.Context) error {
	for ctx.Err() == nil {
		t, err := c.pages.Take(ctx)
		if err == nil {
			err = c.visit(ctx, t)
		}
		// If the lease was lost, the page took too long and is somebody else's now.
		if err != nil && ctx.Err() == nil && !errors.Is(err, task.ErrLeaseLost) {
			return err
		}
	}
	return nil
}

func (c *crawler) visit(ctx context.Context, t *task.Task[link]) error {
	// somebody looked before it was marked, and put it when its unique key was free again
	if c.wasVisited(t.Payload.url) {
		return c.pages.Delete(ctx, t.ID)
	}
	lease, cancel := t.Context(ctx)
	defer cancel()
	links, err := c.fetch(lease, t.Payload.url)
	var status *task.Error
	switch {
	case ctx.Err() != nil:
		return ctx.Err() // closing the queue hands the page back
	case errors.As(err, &status) && status.Code < 500:
		return t.Bury(ctx, err) // asking again does not help
	case err != nil:
		return t.Fail(ctx, err, firstPause<<(t.Attempts-1))
	}
	// The links are put before this page is acked. So there is always an unfinished page until all
	// are fetched.
	if err := c.put(ctx, links, t.Payload.url); err != nil {
		return err
	}
	c.markVisited(t.Payload.url)
	return t.Ack(ctx)
}

// put queues pages. The queue refuses those that it has already, buried ones too: their unique key
// is their address.
func (c *crawler) put(ctx context.Context, urls []string, from string) error {
	for _, address := range urls {
		if c.wasVisited(address) {
			continue
		}
		u, err := url.Parse(address)
		if err != nil {
			return err
		}
		_, err = c.pages.Put(ctx, u.Host, link{address, from}, task.PutOptions{UniqueKey: address})
		if err != nil && !errors.Is(err, task.ErrDuplicate) {
			return err
		}
	}
	return nil
}

func (c *crawler) wasVisited(url string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.visited[url]
}

func (c *crawler) markVisited(url string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.visited[url] = true
}

// fetch returns the links of a page. If the server answers with something else, the error is a
// *task.Error with the status.
func (c *crawler) fetch(ctx context.Context, url string) ([]string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := c.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, &task.Error{Code: response.StatusCode, Message: http.StatusText(response.StatusCode)}
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxPage))
	if err != nil {
		return nil, fmt.Errorf("reading the page: %w", err)
	}
	return findLinks(request.URL, text), nil
}

var href = regexp.MustCompile(`<a href="([^"]*)"`)

// findLinks returns where the links of a page lead. It knows just enough of HTML for pages as
// simple as ours.
func findLinks(page *url.URL, text []byte) (links []string) {
	for _, match := range href.FindAllSubmatch(text, -1) {
		u, err := page.Parse(string(match[1]))
		if err != nil || u.Scheme != "http" || u.Host == "" {
			continue
		}
		u.Fragment = "" // another place on the same page
		links = append(links, u.String())
	}
	return links
}
