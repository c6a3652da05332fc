package admit_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/admit"
)

func tenantOf(r *http.Request) string { return r.Header.Get("Tenant") }

func request(ctx context.Context, tenant string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
	r.Header.Set("Tenant", tenant)
	return r
}

func TestHandlerRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := admit.New(1, &admit.Options[string]{MaxWaiting: 3, Weight: func(tenant string) int {
			return len(tenant)
		}})
		next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			time.Sleep(5 * time.Second)
		})
		h := admit.Handler(l, tenantOf, next, &admit.HandlerOptions{MaxWait: 11 * time.Second})
		ask := func(ctx context.Context, tenant string) func() (int, string) {
			w := httptest.NewRecorder()
			go h.ServeHTTP(w, request(ctx, tenant))
			synctest.Wait()
			return func() (int, string) { return w.Code, w.Header().Get("Retry-After") }
		}
		gone, leave := context.WithCancel(t.Context())
		ok, waits, leaves := ask(t.Context(), "a"), ask(t.Context(), "b"), ask(gone, "c")
		leave()
		synctest.Wait()
		require.Equal(t, 1, l.Stats().Waiting, "a client that is gone leaves the line")
		code, _ := leaves()
		require.Equal(t, 503, code)

		ask(t.Context(), "a")
		code, after := ask(t.Context(), "a")()
		require.Equal(t, 429, code, "half of the places are for others")
		require.Equal(t, "1", after)
		late := ask(t.Context(), "d")
		code, after = ask(t.Context(), "e")()
		require.Equal(t, 503, code)
		require.Equal(t, "1", after)
		code, _ = ask(t.Context(), "")()
		require.Equal(t, 500, code, "a weight of 0")
		require.Equal(t, 3, l.Stats().Waiting)
		time.Sleep(12 * time.Second)
		code, _ = late()
		require.Equal(t, 200, code)
		time.Sleep(time.Minute)
		for _, answer := range []func() (int, string){ok, waits} {
			code, after = answer()
			require.Equal(t, 200, code)
			require.Empty(t, after)
		}
		for range 4 {
			ask(t.Context(), "e")
		}
		ask(t.Context(), "f")
		time.Sleep(20 * time.Second)
		l.Close()
		code, after = ask(t.Context(), "a")()
		require.Equal(t, 503, code)
		require.Empty(t, after, "another server may have a permit now, and this one never will")
		require.Zero(t, l.Stats().Held+l.Stats().Waiting)
	})
}

func TestHandlerMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := admit.New[string](1, nil)
		_, err := l.Acquire(t.Context(), "a")
		require.NoError(t, err)
		h := admit.Handler(l, tenantOf, http.NotFoundHandler(),
			&admit.HandlerOptions{MaxWait: 5 * time.Second})
		w := httptest.NewRecorder()
		start := time.Now()
		h.ServeHTTP(w, request(t.Context(), "b"))
		require.Equal(t, 5*time.Second, time.Since(start))
		require.Equal(t, 503, w.Code)
		require.Equal(t, "5", w.Header().Get("Retry-After"), "nobody was admitted for so long")
	})
}

// TestHandlerReleases checks that a permit is released after every end of a handler, and whatever
// the handler does with the connection.
func TestHandlerReleases(t *testing.T) {
	l := admit.New[string](1, nil)
	mux := http.NewServeMux()
	mux.HandleFunc("/panic", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	mux.HandleFunc("/goexit", func(http.ResponseWriter, *http.Request) { runtime.Goexit() })
	mux.HandleFunc("/flush", func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		_, _ = io.Copy(w, r.Body)
		if c.Flush() != nil || c.SetWriteDeadline(time.Now().Add(time.Minute)) != nil {
			panic("it cannot flush")
		}
	})
	mux.HandleFunc("/hijack", func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: " +
			"Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = rw.Flush()
		line, _ := rw.ReadString('\n')
		_, _ = fmt.Fprintf(conn, "%d %s", l.Stats().Held, line)
	})
	server := httptest.NewUnstartedServer(admit.Handler(l, tenantOf, mux, nil))
	server.Config.ErrorLog = nil
	server.Start()
	defer server.Close()

	// The client's transport has permits of its own.
	up := admit.New[string](1, nil)
	client := &http.Client{Transport: admit.Transport(up, tenantOf, nil)}
	defer client.CloseIdleConnections()
	free := func(l *admit.Limiter[string]) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		p, err := l.Acquire(ctx, "test")
		require.NoError(t, err)
		p.Release()
	}
	require.Error(t, get(t.Context(), client, server.URL+"/panic"))
	free(l)
	free(up)
	// The server does not notice that the goroutine has ended, so no answer comes.
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for l.Stats().Admitted < 3 {
			runtime.Gosched()
		}
		cancel()
	}()
	require.Error(t, get(ctx, client, server.URL+"/goexit"))
	free(l)
	free(up)

	resp, err := client.Post(server.URL+"/flush", "", strings.NewReader("hello"))
	require.NoError(t, err)
	_, err = up.TryAcquire("test")
	require.ErrorIs(t, err, admit.ErrFull, "the body was not read")
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "hello", string(text))
	free(up)
	require.NoError(t, resp.Body.Close())

	ctx, cancel = context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", server.URL+"/hijack", nil)
	require.NoError(t, err)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "echo")
	resp, err = client.Do(r)
	require.NoError(t, err)
	require.Equal(t, 101, resp.StatusCode)
	cancel()
	_, err = io.WriteString(resp.Body.(io.Writer), "hello\n")
	require.NoError(t, err)
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "1 hello\n", line, "the permit is held while the connection is")
	require.Equal(t, 1, up.Stats().Held)
	require.NoError(t, resp.Body.Close())
	free(l)
	free(up)
	require.Zero(t, up.Stats().Held)
}

// get makes a request, and does not read the body.
func get(ctx context.Context, c *http.Client, url string) error {
	r, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(r)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTransport(t *testing.T) {
	l := admit.New[string](1, nil)
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		switch r.URL.Path {
		case "/fails":
			return nil, io.ErrUnexpectedEOF
		case "/panics":
			panic("mine")
		case "/empty":
			return &http.Response{Body: http.NoBody}, nil
		}
		return &http.Response{Body: io.NopCloser(strings.NewReader("hello"))}, nil
	})
	c := &http.Client{Transport: admit.Transport(l, tenantOf, base)}
	require.ErrorIs(t, get(t.Context(), c, "http://x/fails"), io.ErrUnexpectedEOF)
	require.Panics(t, func() { _ = get(t.Context(), c, "http://x/panics") })
	require.NoError(t, get(t.Context(), c, "http://x/empty"))
	require.Zero(t, l.Stats().Held)
	resp, err := c.Get("http://x/")
	require.NoError(t, err)
	require.Equal(t, 1, l.Stats().Held)
	require.NoError(t, resp.Body.Close())
	require.NoError(t, resp.Body.Close())
	require.Zero(t, l.Stats().Held)

	// The base ends a response when the context ends, so the permit ends too.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	requested, end := context.WithCancel(ctx)
	n := 0
	for range 2 {
		require.NoError(t, resp.Body.Close())
		require.Zero(t, n, "nothing is left behind in the context")
		resp, err = c.Transport.RoundTrip(request(watches{requested, &n}, ""))
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
	end()
	p, err := l.Acquire(ctx, "test")
	require.NoError(t, err)
	p.Release()
	cancel()
	require.NoError(t, resp.Body.Close())

	l.Close()
	closed := false
	resp, err = c.Post("http://x/", "", closer{strings.NewReader("hello"), &closed})
	if err == nil {
		_ = resp.Body.Close()
	}
	require.ErrorIs(t, err, admit.ErrClosed)
	require.True(t, closed, "the body of the request")
	c.CloseIdleConnections() // the base has no such method
}

// watches counts the functions that wait for the end of a context.
type watches struct {
	context.Context
	n *int
}

func (watches) Value(any) any { return nil } // so that package context calls AfterFunc

func (w watches) AfterFunc(f func()) (stop func() bool) {
	*w.n++
	ends := context.AfterFunc(w.Context, f)
	return func() bool {
		*w.n--
		return ends()
	}
}

type closer struct {
	io.Reader
	closed *bool
}

func (c closer) Close() error {
	*c.closed = true
	return nil
}

func TestHandlerNil(t *testing.T) {
	l, next := admit.New[string](1, nil), http.NotFoundHandler()
	for want, f := range map[string]func(){
		"admit: Handler: the Limiter is nil":        func() { admit.Handler(nil, tenantOf, next, nil) },
		"admit: Handler: the key function is nil":   func() { admit.Handler(l, nil, next, nil) },
		"admit: Handler: the next handler is nil":   func() { admit.Handler(l, tenantOf, nil, nil) },
		"admit: Transport: the Limiter is nil":      func() { admit.Transport(nil, tenantOf, nil) },
		"admit: Transport: the key function is nil": func() { admit.Transport(l, nil, nil) },
		"admit: HandlerOptions.MaxWait is -1ns; the least is 0, which means no limit": func() {
			admit.Handler(l, tenantOf, next, &admit.HandlerOptions{MaxWait: -1})
		},
	} {
		require.PanicsWithValue(t, want, f)
	}
}
