package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairq/fairq"
)

const (
	maxTenant      = 64       // bytes
	maxText        = 64 << 10 // bytes
	maxRounds      = 1_000_000_000
	defaultRounds  = 100_000
	readTime       = 10 * time.Second // how long a client may take to send its request
	topTenants     = 10               // in /stats
	countedTenants = 1000
)

// statusDisconnected is the status that nginx logs if the client has disconnected. Only a client
// that has closed just its side of the connection reads it; an empty answer would look like
// success to it.
const statusDisconnected = 499

// service has handlers that put jobs into the queue and wait, and workers that take jobs out and
// answer.
type service struct {
	queue   *fairq.FairQueue[string, *job]
	work    work
	workers int

	group    sync.WaitGroup  // of the workers
	quit     context.Context // done when running jobs have to stop
	stop     context.CancelFunc
	draining atomic.Bool

	running    atomic.Int64
	started    atomic.Uint64 // jobs that a worker has begun
	unfinished atomic.Int64  // jobs that were accepted and answered with 503

	mu sync.Mutex
	// moving average of how long a job keeps a worker busy; 0 if none has finished yet
	meanRun time.Duration
}

// work does a job. If ctx is done, the result is of no use any more.
type work func(ctx context.Context, text []byte, rounds int) (digest string, err error)

// job is a request that waits for its result.
//
// A job leaves the queue once, and the goroutine that takes it out owns it. A worker that pops it,
// and drain, must answer it once. A handler that removes its own job needs no answer.
type job struct {
	ctx    context.Context // the request's: done when the client disconnects
	tenant string
	text   []byte
	rounds int
	answer chan answer // has room for the one answer, so workers never wait for a handler
}

type answer struct {
	status int
	result result // if the status is OK
}

type result struct {
	Tenant string `json:"tenant"`
	Digest string `json:"digest"`
	Order  uint64 `json:"order"` // 1 for the first job that the service began, and so on
}

// start returns a service whose workers are running. Its drain ends them.
func start(workers, capacity int, do work) *service {
	s := &service{work: do, workers: workers}
	s.quit, s.stop = context.WithCancel(context.Background())
	s.queue = fairq.New(func(j *job) string { return j.tenant }, &fairq.Options[string, *job]{
		Capacity: capacity,
		// With a plain limit a flood would fill the queue, and other tenants would be refused.
		// RejectOverShare keeps room for them, and evicts nothing.
		WhenFull:  fairq.RejectOverShare,
		TrackWait: true,
		CountKeys: countedTenants,
	})
	for range workers {
		s.group.Go(s.runJobs)
	}
	return s
}

// drain refuses new jobs, and returns when all accepted ones are answered and the workers have
// ended. When ctx is done it answers the remaining jobs with 503, and returns their number.
func (s *service) drain(ctx context.Context) (unfinished int) {
	s.draining.Store(true)
	s.queue.Close()
	idle := make(chan struct{})
	go func() {
		s.group.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-ctx.Done():
		// a worker that pops a job at the same moment answers it
		for _, j := range s.queue.Drain() {
			j.answer <- s.giveUp()
		}
		s.stop()
		<-idle
	}
	s.stop()
	return int(s.unfinished.Load())
}

// giveUp returns the answer to an accepted job that will not be done.
func (s *service) giveUp() answer {
	s.unfinished.Add(1)
	return answer{status: http.StatusServiceUnavailable}
}

// runJobs is a worker. It ends when the queue is closed and nothing is left.
func (s *service) runJobs() {
	for j := range s.queue.All(context.Background()) {
		j.answer <- s.run(j)
	}
}

func (s *service) run(j *job) answer {
	s.running.Add(1)
	defer s.running.Add(-1)
	ctx, cancel := context.WithCancel(j.ctx)
	defer cancel()
	defer context.AfterFunc(s.quit, cancel)()

	r := result{Tenant: j.tenant, Order: s.started.Add(1)}
	began := time.Now()
	err := ctx.Err()
	if err == nil {
		r.Digest, err = s.work(ctx, j.text, j.rounds)
	}
	s.measure(time.Since(began))
	switch {
	case err == nil:
		return answer{http.StatusOK, r}
	case s.quit.Err() != nil:
		return s.giveUp()
	case j.ctx.Err() != nil:
		return answer{status: statusDisconnected}
	default:
		return answer{status: http.StatusInternalServerError}
	}
}

func (s *service) measure(run time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.meanRun == 0 {
		s.meanRun = run
	}
	s.meanRun += (run - s.meanRun) / 16
}

func (s *service) mean() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.meanRun
}

// stretch is the work of this service: it hashes a text again and again.
func stretch(ctx context.Context, text []byte, rounds int) (string, error) {
	sum := sha256.Sum256(text)
	for i := 1; i < rounds; i++ {
		if i%1024 == 0 && ctx.Err() != nil {
			return "", ctx.Err()
		}
		sum = sha256.Sum256(sum[:])
	}
	return hex.EncodeToString(sum[:]), nil
}

func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /jobs", s.postJob)
	mux.HandleFunc("GET /stats", s.getStats)
	return mux
}

func (s *service) postJob(w http.ResponseWriter, r *http.Request) {
	if s.draining.Load() {
		// before the text is sent, which is sooner than the queue
		s.reply(w, answer{status: http.StatusServiceUnavailable})
		return
	}
	j, status, err := readJob(w, r)
	if err != nil {
		http.Error(w, err.Error(), status)
		return
	}
	ticket, err := s.queue.Add(j)
	switch {
	case errors.Is(err, fairq.ErrFull):
		s.reply(w, answer{status: http.StatusTooManyRequests})
		return
	case err != nil: // closed
		s.reply(w, answer{status: http.StatusServiceUnavailable})
		return
	}
	select {
	case a := <-j.answer:
		s.reply(w, a)
	case <-r.Context().Done():
		if _, queued := s.queue.Remove(ticket); queued {
			s.reply(w, answer{status: statusDisconnected})
			return
		}
		// The answer is there, or a worker has the job and stops soon, because of the context.
		s.reply(w, <-j.answer)
	}
}

// readJob returns the status to answer with if there is an error.
func readJob(w http.ResponseWriter, r *http.Request) (j *job, status int, err error) {
	j = &job{ctx: r.Context(), rounds: defaultRounds, answer: make(chan answer, 1)}
	j.tenant = r.Header.Get("X-Tenant") // from authentication, if this were not an example
	if j.tenant == "" || len(j.tenant) > maxTenant {
		return nil, http.StatusBadRequest,
			fmt.Errorf("the header X-Tenant must have 1 to %d bytes", maxTenant)
	}
	if text := r.URL.Query().Get("rounds"); text != "" {
		if j.rounds, err = strconv.Atoi(text); err != nil || j.rounds < 1 || j.rounds > maxRounds {
			return nil, http.StatusBadRequest, fmt.Errorf("rounds must be a number, 1 to %d", maxRounds)
		}
	}

	j.text, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxText))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, http.StatusRequestEntityTooLarge,
			fmt.Errorf("the text must not have more than %d bytes", maxText)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, http.StatusRequestTimeout, fmt.Errorf("the text must be sent within %v", readTime)
	case err != nil:
		return nil, http.StatusBadRequest, fmt.Errorf("the text cannot be read: %w", err)
	case len(j.text) == 0:
		return nil, http.StatusBadRequest, errors.New("the body, the text to be hashed, is empty")
	}
	return j, 0, nil
}

func (s *service) reply(w http.ResponseWriter, a answer) {
	switch a.status {
	case http.StatusOK:
		writeJSON(w, a.result)
	case http.StatusTooManyRequests:
		w.Header().Set("Retry-After", strconv.Itoa(s.retryAfter()))
		http.Error(w, "too many jobs are waiting", a.status)
	case http.StatusServiceUnavailable:
		w.Header().Set("Connection", "close") // the next attempt may reach another instance
		http.Error(w, "the service is shutting down", a.status)
	case statusDisconnected:
		http.Error(w, "the client has closed the connection", a.status)
	default:
		http.Error(w, "the job failed", a.status)
	}
}

// retryAfter returns in how many seconds a refused tenant should come back: when all queued jobs
// are done, estimated from recent jobs.
func (s *service) retryAfter() int {
	left := time.Duration(s.queue.Len()) * s.mean() / time.Duration(s.workers)
	return int(max(1, (left+time.Second-1)/time.Second))
}

// stats is the answer of GET /stats.
type stats struct {
	Queue    queueStats    `json:"queue"`
	Longest  []tenantStats `json:"longest"` // the tenants with the longest backlogs
	Refused  []tenantStats `json:"refused"` // the most refused ones lately
	Workers  int           `json:"workers"`
	Running  int64         `json:"running"`
	MeanRun  float64       `json:"mean_run_seconds"`
	Draining bool          `json:"draining"`
}

// Waiting times are in words, because buckets of a histogram mean nothing without their bounds.
type (
	queueStats struct {
		fairq.Stats
		Wait string `json:"wait"`
	}
	tenantStats struct {
		fairq.KeyStat[string]
		Wait string `json:"wait"`
	}
)

func (s *service) stats() stats {
	q := s.queue.Stats()
	tenants := func(by fairq.KeyOrder) (all []tenantStats) {
		for _, t := range s.queue.KeyStats(topTenants, by) {
			all = append(all, tenantStats{t, t.Wait.String()})
		}
		return all
	}
	return stats{
		Queue:    queueStats{q, q.Wait.String()},
		Longest:  tenants(fairq.ByBacklog),
		Refused:  tenants(fairq.ByRefused),
		Workers:  s.workers,
		Running:  s.running.Load(),
		MeanRun:  s.mean().Seconds(),
		Draining: s.draining.Load(),
	}
}

func (s *service) getStats(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.stats()) }

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // if it fails, the client is gone
}
