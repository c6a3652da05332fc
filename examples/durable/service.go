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
	"strconv"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

const (
	maxName       = 64       // bytes, of tenants and of jobs
	maxText       = 64 << 10 // bytes
	maxRounds     = 1_000_000_000
	defaultRounds = 100_000
	maxWait       = time.Minute
	topTenants    = 10 // in /stats
)

// name is the name of a job. Its task holds nothing else: the rest is in the table of orders.
type name struct{ Tenant, Job string }

// uniqueKey returns the unique key of a job's task, by which clients wait. No tenant has a slash
// in its name.
func (n name) uniqueKey() string { return n.Tenant + "/" + n.Job }

// order is an order of a tenant.
type order struct {
	Text     []byte `json:"-"`
	Rounds   int
	Ordered  time.Time
	Finished time.Time // zero as long as it is not
	Digest   string
}

// orders is a table of orders in the database of the tasks. In a real program it is the business.
type orders interface {
	// place adds an order, and calls put with a context that carries the transaction: there is an
	// order if, and only if, there is a task for it. It returns false if there is such an order
	// already.
	place(ctx context.Context, n name, o order, put func(context.Context) error) (bool, error)

	// find returns an order, nil if there is none.
	find(ctx context.Context, n name) (*order, error)

	// finish stores the outcome. It may be called again for the same order.
	finish(ctx context.Context, n name, digest string) error

	store() task.Store
	close() error
}

// service accepts jobs and does them.
type service struct {
	orders orders
	tasks  *task.Queue[name]
	ending context.Context // done when clients must stop waiting
}

// work does a job. If the process is killed during it, or between finish and the ack, the job is
// done again, so work is idempotent.
func (s *service) work(ctx context.Context, t *task.Task[name]) error {
	o, err := s.orders.find(ctx, t.Payload)
	switch {
	case err != nil:
		return err
	case o == nil: // somebody has deleted it
		return nil
	case !o.Finished.IsZero():
		return nil
	}
	digest, err := stretch(ctx, o.Text, o.Rounds)
	if err != nil {
		return err
	}
	return s.orders.finish(ctx, t.Payload, digest)
}

// stretch hashes a text again and again.
func stretch(ctx context.Context, text []byte, rounds int) (string, error) {
	sum := sha256.Sum256(text)
	for i := 1; i < rounds; i++ {
		if i%1024 == 0 && ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		sum = sha256.Sum256(sum[:])
	}
	return hex.EncodeToString(sum[:]), nil
}

func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /jobs/{name}", s.putJob)
	mux.HandleFunc("GET /jobs/{name}", s.getJob)
	mux.HandleFunc("GET /stats", s.getStats)
	return mux
}

func (s *service) putJob(w http.ResponseWriter, r *http.Request) {
	n, err := nameOf(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	o := order{Rounds: defaultRounds, Ordered: time.Now()}
	if text := r.URL.Query().Get("rounds"); text != "" {
		if o.Rounds, err = strconv.Atoi(text); err != nil || o.Rounds < 1 || o.Rounds > maxRounds {
			http.Error(w, fmt.Sprintf("rounds must be a number, 1 to %d", maxRounds), http.StatusBadRequest)
			return
		}
	}
	if o.Text, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxText)); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	added, err := s.orders.place(r.Context(), n, o, func(ctx context.Context) error {
		_, err := s.tasks.Put(ctx, n.Tenant, n, task.PutOptions{UniqueKey: n.uniqueKey()})
		return err
	})
	switch {
	case err != nil:
		unavailable(w, err)
	case added:
		w.WriteHeader(http.StatusCreated)
	default:
		w.WriteHeader(http.StatusOK)
	}
}

// getJob waits for a job, whichever process does it.
func (s *service) getJob(w http.ResponseWriter, r *http.Request) {
	n, err := nameOf(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	wait, err := time.ParseDuration(r.URL.Query().Get("wait"))
	if r.URL.Query().Has("wait") && (err != nil || wait < 0 || wait > maxWait) {
		http.Error(w, fmt.Sprintf("wait must be a duration such as 10s, %v at most", maxWait),
			http.StatusBadRequest)
		return
	}
	o, err := s.orders.find(r.Context(), n)
	if err == nil && o != nil && o.Finished.IsZero() && wait > 0 {
		o, err = s.await(r.Context(), n, wait)
	}
	var failed *task.Error
	switch {
	case errors.As(err, &failed):
		http.Error(w, failed.Message, http.StatusInternalServerError)
	case err != nil:
		unavailable(w, err)
	case o == nil:
		http.Error(w, "there is no such job", http.StatusNotFound)
	case o.Finished.IsZero():
		w.WriteHeader(http.StatusAccepted)
	default:
		writeJSON(w, o)
	}
}

// await waits for the outcome of a job, and returns its order after that.
func (s *service) await(ctx context.Context, n name, wait time.Duration) (*order, error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	defer context.AfterFunc(s.ending, cancel)()
	err := s.tasks.Wait(waiting, n.uniqueKey())
	// it ended long ago
	if err != nil && waiting.Err() == nil && !errors.Is(err, task.ErrNotFound) {
		return nil, err
	}
	return s.orders.find(ctx, n)
}

func nameOf(r *http.Request) (name, error) {
	// from authentication, if this were not an example
	n := name{Tenant: r.Header.Get("X-Tenant"), Job: r.PathValue("name")}
	for _, text := range []string{n.Tenant, n.Job} {
		if text == "" || len(text) > maxName {
			return n, fmt.Errorf("the header X-Tenant and the name of the job must have 1 to %d bytes",
				maxName)
		}
		for _, c := range []byte(text) {
			if c <= ' ' || c > '~' || c == '/' {
				return n, errors.New("the header X-Tenant and the name of the job must be " +
					"printable ASCII without slashes")
			}
		}
	}
	return n, nil
}

// unavailable answers with an error of the database. Whether a job was stored may be unknown then,
// but it can be put again.
func unavailable(w http.ResponseWriter, err error) {
	http.Error(w, err.Error(), http.StatusServiceUnavailable)
}

func (s *service) getStats(w http.ResponseWriter, r *http.Request) {
	var all struct {
		Ready, Delayed, Taken, Buried int
		Tenants                       []fairq.KeyStat[string] // those with the longest backlogs
	}
	queue, err := s.tasks.Stats(r.Context())
	if err == nil {
		all.Tenants, err = s.tasks.KeyStats(r.Context(), topTenants, fairq.ByBacklog)
	}
	if err != nil {
		unavailable(w, err)
		return
	}
	all.Ready, all.Delayed, all.Taken, all.Buried = queue.Ready, queue.Delayed, queue.Taken,
		queue.Buried
	writeJSON(w, all)
}

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // if it fails, the client is gone
}
