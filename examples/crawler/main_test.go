package main

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

func TestCrawl(t *testing.T) {
	for _, seed := range []uint64{1, 2} {
		w := openWeb(seed)
		t.Cleanup(w.Close)
		r, err := crawl(t.Context(), w.client(), w.homes())
		require.NoError(t, err)
		require.Zero(t, r.unfinished)

		dead := map[string]int{} // and how often they were tried
		for _, d := range r.dead {
			dead[d.Payload.url] = d.Attempts
			require.NotEmpty(t, d.Payload.from)
			require.GreaterOrEqual(t, d.Info().Err.Code, http.StatusNotFound)
		}
		want := map[string]int{}
		most := w.mostAtOnce()
		for host, s := range w.sites {
			require.Equal(t, 1, most[host], "requests in flight at once, of %s", host)
			h := r.host(host)
			retries, fetched := 0, 0
			for i := range s.pages {
				f := s.fails[path(i)]
				if f.times == forever {
					want["http://"+host+path(i)] = maxAttempts
					retries += maxAttempts - 1
					require.Equal(t, maxAttempts, s.asked[path(i)])
					require.Zero(t, s.sent[path(i)])
					continue
				}
				fetched++
				retries += f.times
				require.Equal(t, f.times+1, s.asked[path(i)], "%s%s", host, path(i))
				require.Equal(t, 1, s.sent[path(i)], "%s%s", host, path(i))
			}
			want["http://"+host+"/moved"] = 1
			require.Equal(t, 1, s.asked["/moved"])
			require.Len(t, h.fetched, fetched)
			require.Equal(t, retries, h.retries)
		}
		require.Equal(t, want, dead)
		require.Greater(t, len(dead), len(w.sites), "no page failed for good")

		// What counts is the order, not the time.
		big := r.largest()
		require.Equal(t, "big.test", big.host)
		for _, host := range []string{"small.test", "tiny.test"} {
			require.Less(t, big.until(r.host(host).last()), len(big.fetched)/2, "%s had to wait", host)
		}
	}
}

func TestPrint(t *testing.T) {
	w := openWeb(1)
	t.Cleanup(w.Close)
	r, err := crawl(t.Context(), w.client(), []string{"http://nobody.test/", "http://tiny.test/1"})
	require.NoError(t, err)
	var out strings.Builder
	r.print(&out, w.mostAtOnce())
	require.Regexp(t, `big.test +300 +0 +1 +1 `, out.String())
	require.Contains(t, out.String(), "http://tiny.test/moved  Not Found (404)  tries: 1  in http://tiny.test/\n")
	require.Regexp(t, `nobody.test +0 +0 +1 +0 `, out.String())
}

func TestInterrupt(t *testing.T) {
	w := openWeb(1)
	t.Cleanup(w.Close)
	ctx, cancel := context.WithCancel(t.Context())
	client := w.client()
	real := client.Transport
	client.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Host == "slow.test" {
			cancel()
		}
		return real.RoundTrip(r)
	})
	_, err := crawl(ctx, client, w.homes())
	require.ErrorIs(t, err, context.Canceled)
}

// A page can be put once more after it was fetched: by who looked whether it was before it was.
func TestVisitedMeanwhile(t *testing.T) {
	ctx := t.Context()
	pages, err := task.Open[link](ctx, new(memory.Store), "pages", nil)
	require.NoError(t, err)
	c := &crawler{pages: pages, visited: map[string]bool{}} // without a client
	require.NoError(t, c.put(ctx, []string{"http://a.test/"}, ""))
	c.markVisited("http://a.test/")
	lease, err := pages.Take(ctx)
	require.NoError(t, err)
	require.NoError(t, c.visit(ctx, lease))
	s, err := pages.Stats(ctx)
	require.NoError(t, err)
	require.Zero(t, s.Len())
	require.Zero(t, s.Acks)
	require.NoError(t, c.put(ctx, []string{"http://a.test/"}, ""))
	s, err = pages.Stats(ctx)
	require.NoError(t, err)
	require.Zero(t, s.Len())
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestFindLinks(t *testing.T) {
	page, err := url.Parse("http://a.test/x/y")
	require.NoError(t, err)
	text := `<a href="z">, <a href="/#top">, <a href="http://b.test/1?q=2">, <a href="mailto:a@b">, <a href="%">`
	links := findLinks(page, []byte(text))
	require.Equal(t, []string{"http://a.test/x/z", "http://a.test/", "http://b.test/1?q=2"}, links)
}
