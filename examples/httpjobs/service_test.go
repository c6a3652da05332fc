package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairq/fairq"
	"github.com/stretchr/testify/require"
)

// rig is a service behind a real HTTP server and a network in memory, in a synctest bubble: time
// is virtual, and the bubble fails if a goroutine remains.
type rig struct {
	*service
	t      *testing.T
	client *http.Client
}

// bubble runs test in a bubble. When it returns the service must have been drained.
func bubble(t *testing.T, workers, capacity int, test func(*testing.T, *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{service: start(workers, capacity, sleep), t: t}
		network := &network{make(chan net.Conn), make(chan struct{})}
		server := newServer(r.handler())
		served := make(chan error)
		go func() { served <- server.Serve(network) }()
		r.client = &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(context.Context, string, string) (net.Conn, error) {
				return network.dial()
			},
		}}
		test(t, r)
		require.NoError(t, server.Shutdown(t.Context()))
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
}

// sleep is work that takes a second for each round, and whose digest is the text.
func sleep(ctx context.Context, text []byte, rounds int) (string, error) {
	if string(text) == "fail" {
		return "", errors.New("as asked for")
	}
	select {
	case <-time.After(time.Duration(rounds) * time.Second):
		return string(text), nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// network is a net.Listener whose connections are pipes.
type network struct {
	calls  chan net.Conn
	closed chan struct{}
}

func (n *network) dial() (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case n.calls <- server:
		return client, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.calls:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *network) Close() error   { close(n.closed); return nil }
func (n *network) Addr() net.Addr { return &net.UnixAddr{} }

// response is a request's outcome.
type response struct {
	err        error // of the connection; nil if there was an answer
	status     int
	retryAfter string
	result     result
	at         time.Time
}

// request is a pending request.
type request struct {
	response   chan response
	disconnect context.CancelFunc
}

// post sends a job, and returns when it is queued, running or answered.
func (r *rig) post(tenant, text string, rounds int) request {
	q := post(r.client, "http://service", tenant, text, rounds)
	synctest.Wait()
	return q
}

func post(client *http.Client, base, tenant, text string, rounds int) request {
	ctx, cancel := context.WithCancel(context.Background())
	q := request{make(chan response, 1), cancel}
	go func() {
		defer cancel()
		q.response <- send(ctx, client, base, tenant, text, rounds)
	}()
	return q
}

func send(ctx context.Context, client *http.Client, base, tenant, text string,
	rounds int,
) (a response) {
	url := fmt.Sprintf("%s/jobs?rounds=%d", base, rounds)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(text))
	if err != nil {
		return response{err: err}
	}
	r.Header.Set("X-Tenant", tenant)
	answer, err := client.Do(r)
	if err != nil {
		return response{err: err}
	}
	defer answer.Body.Close()
	a = response{
		status: answer.StatusCode, retryAfter: answer.Header.Get("Retry-After"),
		at: time.Now(),
	}
	if a.status == http.StatusOK {
		a.err = json.NewDecoder(answer.Body).Decode(&a.result)
	}
	return a
}

func (q request) status(t *testing.T) int {
	t.Helper()
	a := <-q.response
	require.NoError(t, a.err)
	return a.status
}

func TestTenantsTakeTurns(t *testing.T) {
	bubble(t, 1, 100, func(t *testing.T, r *rig) {
		var alice []request
		for i := range 10 {
			alice = append(alice, r.post("alice", fmt.Sprint("alice ", i), 1))
		}
		bob := <-r.post("bob", "bob 0", 1).response
		// after the running job and an earlier one
		require.Equal(t, result{"bob", "bob 0", 3}, bob.result)
		require.Equal(t, 7, r.stats().Queue.Len)
		for i, q := range alice {
			a := <-q.response
			require.Equal(t, http.StatusOK, a.status)
			require.Equal(t, fmt.Sprint("alice ", i), a.result.Digest)
		}
		require.Zero(t, r.drain(t.Context()))
	})
}

// One client disconnects while its job runs, and another one while its job is queued.
func TestDisconnect(t *testing.T) {
	bubble(t, 1, 100, func(t *testing.T, r *rig) {
		began := time.Now()
		first := r.post("alice", "first", 1_000_000)
		queued := r.post("bob", "queued", 1_000_000)
		second := r.post("alice", "second", 10)
		queued.disconnect()
		require.ErrorIs(t, (<-queued.response).err, context.Canceled)
		synctest.Wait()
		require.EqualValues(t, 1, r.stats().Queue.Removed)
		first.disconnect()
		a := <-second.response
		require.Equal(t, result{"alice", "second", 2}, a.result)
		require.Equal(t, 10*time.Second, a.at.Sub(began), "the first was cancelled at once")
		require.Zero(t, r.drain(t.Context()))
	})
}

func TestFullQueue(t *testing.T) {
	bubble(t, 2, 4, func(t *testing.T, r *rig) {
		require.Equal(t, http.StatusOK, r.post("alice", "measured", 3).status(t))
		var alice []request
		for i := range 4 {
			alice = append(alice, r.post("alice", fmt.Sprint(i), 3))
		}
		require.Equal(t, 2, r.stats().Queue.Len)

		// Two jobs of 3 s wait, and two workers are busy. Alice has as many places as are free.
		refused := <-r.post("alice", "one too many", 3).response
		require.Equal(t, http.StatusTooManyRequests, refused.status)
		require.Equal(t, "3", refused.retryAfter)

		others := []request{r.post("bob", "bob", 3), r.post("carol", "carol", 3)}
		refused = <-r.post("dave", "the queue is full", 3).response
		require.Equal(t, http.StatusTooManyRequests, refused.status)
		require.Equal(t, "6", refused.retryAfter)

		for _, q := range append(alice, others...) {
			require.Equal(t, http.StatusOK, q.status(t))
		}
		require.Zero(t, r.drain(t.Context()))
		all := r.stats()
		require.EqualValues(t, 2, all.Queue.Refused)
		require.Equal(t, "alice", all.Refused[0].Key)
		require.Equal(t, fairq.Counts{Served: 5, Refused: 1}, all.Refused[0].Total)
	})
}

func TestDrainBeyondGrace(t *testing.T) {
	bubble(t, 2, 100, func(t *testing.T, r *rig) {
		var all []request
		for i := range 7 {
			all = append(all, r.post("alice", fmt.Sprint(i), 10))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		require.Equal(t, 5, r.drain(ctx))
		for i, q := range all {
			if i < 2 {
				require.Equal(t, http.StatusOK, q.status(t))
			} else {
				require.Equal(t, http.StatusServiceUnavailable, q.status(t))
			}
		}
		require.EqualValues(t, 3, r.stats().Queue.Drained, "the other two were running")
	})
}

func TestFailedJob(t *testing.T) {
	bubble(t, 1, 100, func(t *testing.T, r *rig) {
		require.Equal(t, http.StatusInternalServerError, r.post("alice", "fail", 1).status(t))
		require.Zero(t, r.drain(t.Context()))
	})
}

func TestInvalidRequests(t *testing.T) {
	s := start(1, 1, sleep)
	defer s.drain(t.Context())
	tests := []struct {
		name, method, target, tenant, text string
		status                             int
		says                               string
	}{
		{"no tenant", "POST", "/jobs", "", "text", 400, "X-Tenant"},
		{"long tenant", "POST", "/jobs", strings.Repeat("a", maxTenant+1), "text", 400, "64 bytes"},
		{"no text", "POST", "/jobs", "alice", "", 400, "empty"},
		{"large text", "POST", "/jobs", "alice", strings.Repeat("a", maxText+1), 413, "65536 bytes"},
		{"no number", "POST", "/jobs?rounds=many", "alice", "text", 400, "rounds"},
		{"no rounds", "POST", "/jobs?rounds=0", "alice", "text", 400, "rounds"},
		{"many rounds", "POST", "/jobs?rounds=1000000001", "alice", "text", 400, "rounds"},
		{"method", "GET", "/jobs", "alice", "", 405, "not allowed"},
		{"method of stats", "POST", "/stats", "alice", "", 405, "not allowed"},
		{"path", "POST", "/job", "alice", "text", 404, "not found"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := httptest.NewRequest(test.method, test.target, strings.NewReader(test.text))
			r.Header.Set("X-Tenant", test.tenant)
			w := httptest.NewRecorder()
			s.handler().ServeHTTP(w, r)
			require.Equal(t, test.status, w.Code)
			require.Contains(t, strings.ToLower(w.Body.String()), strings.ToLower(test.says))
		})
	}
	require.Zero(t, s.stats().Queue.Pushed)
}

func TestStats(t *testing.T) {
	bubble(t, 1, 100, func(t *testing.T, r *rig) {
		var all []request
		for i := range topTenants + 5 {
			all = append(all, r.post(fmt.Sprint("tenant ", i), "text", 2))
		}
		all = append(all, r.post("alice", "text", 2), r.post("alice", "text", 2))
		time.Sleep(time.Second)
		answer, err := r.client.Get("http://service/stats")
		require.NoError(t, err)
		defer answer.Body.Close()
		require.Equal(t, "application/json", answer.Header.Get("Content-Type"))
		var got stats
		require.NoError(t, json.NewDecoder(answer.Body).Decode(&got))
		require.Equal(t, 16, got.Queue.Len)
		require.EqualValues(t, 17, got.Queue.Pushed)
		require.Equal(t, time.Second, got.Queue.OldestAge)
		require.Contains(t, got.Queue.Wait, "n=1, mean ")
		require.EqualValues(t, 1, got.Running)
		require.Len(t, got.Longest, topTenants)
		require.Equal(t, "alice", got.Longest[0].Key)
		require.Equal(t, "none", got.Longest[0].Wait)
		require.Equal(t, 2, got.Longest[0].Backlog)
		require.Zero(t, r.drain(t.Context()))
		for _, q := range all {
			require.Equal(t, http.StatusOK, q.status(t))
		}
	})
}
