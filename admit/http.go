package admit

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"
)

// HandlerOptions configure a [Handler]. The zero value of each field is its default.
type HandlerOptions struct {
	// MaxWait limits how long a request waits for a permit; 0 means no limit but that of its
	// context.
	MaxWait time.Duration
}

// Handler returns a handler that calls next with a permit for the key of the request. It holds the
// permit until next returns, panics or ends its goroutine, even if next has hijacked the
// connection. next gets the original ResponseWriter, so Flush, Hijack and so on work.
//
// Handler refuses a request with status
//
//   - 429, Too Many Requests, if its key has its share of the waiting requests;
//   - 503, Service Unavailable, if all places are taken, the request has waited for MaxWait, or
//     the Limiter is closed;
//   - 500 if the weight of the key is out of range.
//
// The first two have a header Retry-After, unless the Limiter is closed: see [Limiter.RetryAfter].
// A request whose client goes away leaves the line; the server notices that if the request has no
// body, or its body has been read.
//
// An empty key is a key like any other: all requests without a tenant share the share of one
// tenant. Take keys from authenticated data, because a client that can choose keys can choose
// many. Handler panics if the Limiter, the key function or next is nil, or MaxWait is below 0.
func Handler[K comparable](l *Limiter[K],
	key func(*http.Request) K, next http.Handler, options *HandlerOptions,
) http.Handler {
	var o HandlerOptions
	if options != nil {
		o = *options
	}
	switch {
	case l == nil:
		panic("admit: Handler: the Limiter is nil")
	case key == nil:
		panic("admit: Handler: the key function is nil")
	case next == nil:
		panic("admit: Handler: the next handler is nil")
	case o.MaxWait < 0:
		panic("admit: HandlerOptions.MaxWait is " + o.MaxWait.String() +
			"; the least is 0, which means no limit")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k, ctx, cancel := key(r), r.Context(), func() {}
		if o.MaxWait > 0 {
			ctx, cancel = context.WithTimeout(ctx, o.MaxWait)
		}
		p, err := l.Acquire(ctx, k)
		cancel()
		if err != nil {
			l.refuse(w, err)
			return
		}
		defer p.Release()
		next.ServeHTTP(w, r)
	})
}

// refuse answers a request that gets no permit.
func (l *Limiter[K]) refuse(w http.ResponseWriter, err error) {
	status := http.StatusServiceUnavailable
	switch {
	case errors.Is(err, ErrWeight):
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return
	case errors.Is(err, ErrKeyFull):
		status = http.StatusTooManyRequests
	}
	if !errors.Is(err, ErrClosed) {
		seconds := (l.RetryAfter(err) + time.Second - 1) / time.Second
		w.Header().Set("Retry-After", strconv.Itoa(int(seconds)))
	}
	http.Error(w, http.StatusText(status), status)
}

// Transport returns a RoundTripper for calls of an upstream service. Each request waits for a
// permit for its key, and is then made by base; nil means [http.DefaultTransport]. A request that
// gets no permit fails with the error of [Limiter.Acquire].
//
// The permit is held until the request fails, its context ends, or the body of the response is
// closed, or read to its end or to an error. After 101, Switching Protocols, the context does not
// matter. Transport panics if the Limiter or the key function is nil.
func Transport[K comparable](l *Limiter[K],
	key func(*http.Request) K, base http.RoundTripper,
) http.RoundTripper {
	switch {
	case l == nil:
		panic("admit: Transport: the Limiter is nil")
	case key == nil:
		panic("admit: Transport: the key function is nil")
	}
	if base == nil {
		base = http.DefaultTransport
	}
	return &transport[K]{l, key, base}
}

type transport[K comparable] struct {
	limiter *Limiter[K]
	key     func(*http.Request) K
	base    http.RoundTripper
}

func (t *transport[K]) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := false
	defer func() {
		if !sent && r.Body != nil { // a RoundTripper closes it in any case
			_ = r.Body.Close()
		}
	}()
	p, err := t.limiter.Acquire(r.Context(), t.key(r))
	if err != nil {
		return nil, err
	}
	kept := false
	defer func() {
		if !kept {
			p.Release()
		}
	}()
	sent = true
	resp, err := t.base.RoundTrip(r)
	if err != nil || resp.Body == nil || resp.Body == http.NoBody {
		return resp, err
	}
	kept = true
	b := &body{ReadCloser: resp.Body, release: p.Release}
	if w, ok := resp.Body.(io.Writer); ok { // the connection, which outlives the context
		resp.Body = &connection{b, w}
		return resp, nil
	}
	stop := context.AfterFunc(r.Context(), p.Release)
	b.release = func() {
		stop()
		p.Release()
	}
	resp.Body = b
	return resp, nil
}

// CloseIdleConnections calls that of the base, for [http.Client.CloseIdleConnections].
func (t *transport[K]) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// body releases the permit of a response at its end.
type body struct {
	io.ReadCloser
	release func()
}

func (b *body) Read(p []byte) (n int, err error) {
	n, err = b.ReadCloser.Read(p)
	if err != nil {
		b.release()
	}
	return n, err
}

func (b *body) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

type connection struct {
	*body
	io.Writer
}
