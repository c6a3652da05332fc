package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// rig is a service whose jobs begin and end when the test says so.
type rig struct {
	*service
	t         *testing.T
	url       string
	terminate func()
	began     chan string // the text of a job that has begun
	finish    chan error  // the outcome of the running job
	ended     chan error
}

func newRig(t *testing.T, grace time.Duration) *rig {
	r := &rig{
		t: t, began: make(chan string, 10), finish: make(chan error), ended: make(chan error, 1),
	}
	r.service = newService(1, 4, func(ctx context.Context, text []byte) (string, error) {
		r.began <- string(text)
		if string(text) == "panic" {
			panic("as asked for")
		}
		select {
		case err := <-r.finish:
			return "done: " + string(text), err
		case <-ctx.Done():
			return "", ctx.Err()
		}
	})
	listener, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	r.url = "http://" + listener.Addr().String() + "/jobs"
	ctx, terminate := context.WithCancel(t.Context())
	r.terminate = terminate
	go func() { r.ended <- r.serve(ctx, listener, grace) }()
	return r
}

// response is the outcome of a request; its status is 0 if the client has disconnected.
type response struct {
	status     int
	retryAfter string
	body       string
}

type request struct {
	answer     chan response
	disconnect func()
}

func (r *rig) post(tenant, text string) request {
	ctx, cancel := context.WithCancel(r.t.Context())
	sent := request{make(chan response, 1), cancel}
	go func() {
		post, err := http.NewRequestWithContext(ctx, "POST", r.url, strings.NewReader(text))
		if err != nil {
			panic(err)
		}
		post.Header.Set("X-Tenant", tenant)
		answer, err := http.DefaultClient.Do(post)
		if err != nil {
			sent.answer <- response{}
			return
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		sent.answer <- response{answer.StatusCode, answer.Header.Get("Retry-After"), string(body)}
	}()
	return sent
}

// queued posts a job, and waits until n are queued.
func (r *rig) queued(n int, tenant, text string) request {
	sent := r.post(tenant, text)
	r.await(n)
	return sent
}

// await waits until n jobs are queued.
func (r *rig) await(n int) {
	r.t.Helper()
	require.Eventually(r.t, func() bool { return r.service.queue.Len() == n }, time.Minute,
		time.Millisecond)
}

func TestService(t *testing.T) {
	r := newRig(t, time.Minute)
	alice1 := r.post("alice", "alice 1")
	require.Equal(t, "alice 1", <-r.began)
	alice2, alice3 := r.queued(1, "alice", "alice 2"), r.queued(2, "alice", "alice 3")

	// Alice has half of the queue, and other tenants find room.
	refused := <-r.post("alice", "alice 4").answer
	require.Equal(t, http.StatusTooManyRequests, refused.status)
	require.Equal(t, "1", refused.retryAfter)
	bob, carol := r.queued(3, "bob", "bob 1"), r.queued(4, "carol", "carol 1")
	refused = <-r.post("dave", "the queue is full").answer
	require.Equal(t, http.StatusTooManyRequests, refused.status)

	// A queued job leaves with its client, and a running one ends.
	carol.disconnect()
	r.await(3)
	alice1.disconnect()

	// Tenants take turns. Then a signal ends the service, which finishes the accepted jobs.
	require.Equal(t, "alice 2", <-r.began)
	r.terminate()
	r.finish <- nil
	require.Equal(t, "bob 1", <-r.began)
	r.finish <- errors.New("no paper")
	require.Equal(t, "alice 3", <-r.began)
	r.finish <- nil
	require.Equal(t, response{http.StatusOK, "", "done: alice 2\n"}, <-alice2.answer)
	require.Equal(t, response{http.StatusInternalServerError, "", "no paper\n"}, <-bob.answer)
	require.Equal(t, response{http.StatusOK, "", "done: alice 3\n"}, <-alice3.answer)
	require.NoError(t, <-r.ended)
}

// Jobs that exceed the grace period are answered, whether they run or not.
func TestGrace(t *testing.T) {
	r := newRig(t, time.Millisecond)
	running := r.post("alice", "endless")
	<-r.began
	queued := r.queued(1, "bob", "never begun")
	r.terminate()
	require.Equal(t, http.StatusServiceUnavailable, (<-running.answer).status)
	require.Equal(t, http.StatusServiceUnavailable, (<-queued.answer).status)
	require.NoError(t, <-r.ended)
}

func TestBadRequests(t *testing.T) {
	r := newRig(t, time.Minute)
	require.Equal(t, response{http.StatusInternalServerError, "", "the job panicked\n"},
		<-r.post("alice", "panic").answer)
	require.Equal(t, response{http.StatusBadRequest, "", "the header X-Tenant is empty\n"},
		<-r.post("", "text").answer)
	require.Equal(t, response{http.StatusBadRequest, "", "the text: http: request body too large\n"},
		<-r.post("alice", strings.Repeat("a", maxText+1)).answer)
	r.terminate()
	require.NoError(t, <-r.ended)
}

func TestHashEnds(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := hash(ended, nil)
	require.ErrorIs(t, err, context.Canceled)
}
