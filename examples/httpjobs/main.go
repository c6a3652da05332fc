// Httpjobs is a small HTTP service with a fair queue between its handlers and its workers: a
// tenant that floods it waits for itself, and the others are served in time.
//
//	go run ./examples/httpjobs
//	curl -H 'X-Tenant: alice' -d 'some text' localhost:8081/jobs
//
// POST /jobs hashes a text a million times, and answers with the digest when that is done. 429
// means that the tenant has its share of the queue, or that the queue is full; Retry-After says
// when to come back. If a client disconnects, its job leaves the queue, or is cancelled if it is
// running. SIGTERM or an interrupt ends the service as soon as all accepted jobs are done. Jobs
// that exceed the grace period get a 503. A second signal ends the service immediately.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/pool"
)

const (
	capacity = 256      // jobs that may wait
	maxText  = 64 << 10 // bytes
	rounds   = 1_000_000
	readTime = 10 * time.Second // how long a client may take to send its request
	grace    = 20 * time.Second // how long accepted jobs may take at the end
	handOver = 5 * time.Second  // how long clients may take after that to fetch their answers
)

func main() {
	addr := flag.String("addr", "localhost:8081", "`address` to listen on")
	workers := flag.Int("workers", 2, "how many jobs run at the same time")
	flag.Parse()
	if err := (pool.Options[*job]{Workers: *workers}).Validate(); err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal is not caught
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("listening on http://%s", listener.Addr())
	if err := newService(*workers, capacity, hash).serve(ctx, listener, grace); err != nil {
		log.Fatal(err)
	}
}

// service has handlers that put jobs into the queue and wait, and workers that take jobs out and
// set their outcome.
type service struct {
	queue   *fairq.FairQueue[string, *job]
	workers int
	work    func(ctx context.Context, text []byte) (digest string, err error)
	meanRun atomic.Int64 // nanoseconds for which recent jobs kept a worker busy; 0 before the first
}

// job is a request that waits for its outcome. It leaves the queue once: either a worker takes it,
// and closes done, or its own handler removes it.
type job struct {
	ctx    context.Context // the request's: done when the client disconnects, or grace is over
	tenant string
	text   []byte
	done   chan struct{} // closed when digest and err are set
	digest string
	err    error
}

func newService(workers, capacity int,
	work func(ctx context.Context, text []byte) (string, error),
) *service {
	queue := fairq.New(func(j *job) string { return j.tenant }, &fairq.Options[string, *job]{
		Capacity: capacity,
		// With a plain limit a flood would fill the queue, and other tenants would be refused.
		// RejectOverShare keeps room for them, and evicts nothing.
		WhenFull: fairq.RejectOverShare,
	})
	return &service{queue: queue, workers: workers, work: work}
}

// serve runs the service until ctx is done and all accepted jobs are answered.
func (s *service) serve(ctx context.Context, listener net.Listener, grace time.Duration) error {
	workers := pool.NewWorkers(s.queue, s.run, &pool.WorkersOptions[*job]{Workers: s.workers})
	requests, giveUp := context.WithCancel(context.Background())
	defer giveUp()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /jobs", s.post)
	server := &http.Server{
		Handler: mux,
		// No WriteTimeout, because that would include the wait of a job.
		ReadTimeout: readTime, IdleTimeout: time.Minute,
		BaseContext: func(net.Listener) context.Context { return requests },
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()

	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	s.queue.Close() // a request that is being sent gets a 503
	graceful, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if server.Shutdown(graceful) != nil { // it waits for the handlers, and they for their jobs
		giveUp()
		last, cancel := context.WithTimeout(context.Background(), handOver)
		defer cancel()
		_ = server.Shutdown(last)
		server.Close() // only clients that do not read are left
	}
	return errors.Join(err, workers.Shutdown(context.Background()))
}

// run is called by a worker. It returns no error, because the handler of the request reports it.
func (s *service) run(_ context.Context, j *job) error {
	defer close(j.done)
	j.err = errors.New("the job panicked") // unless work returns
	began := time.Now()
	j.digest, j.err = s.work(j.ctx, j.text)
	run, mean := int64(time.Since(began)), s.meanRun.Load()
	if mean == 0 {
		mean = run
	}
	s.meanRun.Store(mean + (run-mean)/16) // if two jobs end at once, one may not count
	return nil
}

// hash is the work of this service.
func hash(ctx context.Context, text []byte) (string, error) {
	sum := sha256.Sum256(text)
	for i := range rounds - 1 {
		if i%1024 == 0 && ctx.Err() != nil {
			return "", ctx.Err()
		}
		sum = sha256.Sum256(sum[:])
	}
	return fmt.Sprintf("%x", sum), nil
}

func (s *service) post(w http.ResponseWriter, r *http.Request) {
	j := &job{ctx: r.Context(), done: make(chan struct{})}
	if j.tenant = r.Header.Get("X-Tenant"); j.tenant == "" { // behind a login, its user
		http.Error(w, "the header X-Tenant is empty", http.StatusBadRequest)
		return
	}
	var err error
	if j.text, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxText)); err != nil {
		http.Error(w, "the text: "+err.Error(), http.StatusBadRequest)
		return
	}
	ticket, err := s.queue.Add(j)
	switch {
	case errors.Is(err, fairq.ErrFull):
		w.Header().Set("Retry-After", s.retryAfter())
		http.Error(w, err.Error(), http.StatusTooManyRequests)
		return
	case err != nil: // closed
		http.Error(w, "the service is ending", http.StatusServiceUnavailable)
		return
	}
	select {
	case <-j.done:
	case <-r.Context().Done():
		if _, queued := s.queue.Remove(ticket); queued {
			j.err = r.Context().Err()
		} else {
			<-j.done // soon: a worker has the job, which ends with the context
		}
	}
	switch {
	case j.err == nil:
		fmt.Fprintln(w, j.digest)
	case r.Context().Err() != nil: // the grace period is over, or nobody reads this
		http.Error(w, "the job was given up", http.StatusServiceUnavailable)
	default:
		http.Error(w, j.err.Error(), http.StatusInternalServerError)
	}
}

// retryAfter returns in how many seconds a refused tenant should come back: when all queued jobs
// are done, estimated from recent jobs.
func (s *service) retryAfter() string {
	left := time.Duration(s.queue.Len()) * time.Duration(s.meanRun.Load()) / time.Duration(s.workers)
	return strconv.Itoa(max(1, int((left+time.Second-1)/time.Second)))
}
