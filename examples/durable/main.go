// Durable is a job server whose jobs survive kill -9: it keeps them with the orders that they are
// for, in an SQLite file. With a Postgres database any number of processes can accept and do them.
//
//	cd examples/durable
//	go run . -db jobs.db
//	curl -X PUT -H 'X-Tenant: alice' -d 'some text' localhost:8082/jobs/1
//	curl -H 'X-Tenant: alice' localhost:8082/jobs/1
//
// PUT /jobs/NAME orders that a text be hashed a hundred thousand times, and answers when the order
// is stored: 201, or 200 if it was ordered before. So a client without an answer can put it again.
// GET answers with the digest as soon as there is one, whichever process computes it, or after ten
// seconds with 202. Tenants take turns, whatever they have ordered, before and after a restart.
package main

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

const (
	workers  = 2 // jobs at the same time in this process
	rounds   = 100_000
	maxText  = 64 << 10         // bytes
	patience = 10 * time.Second // how long a GET waits
	grace    = 20 * time.Second // how long running jobs may take at the end

	// If a process gives no sign of life for this long, others do its jobs. With a shorter time a
	// process that only pauses, for garbage collection or on a busy machine, would lose them.
	keep = 3 * time.Second

	// Attempts that ended with the process count too, because the job may have killed it.
	maxAttempts = 5
)

func main() {
	addr := flag.String("addr", "localhost:8082", "`address` to listen on")
	file := flag.String("db", "durable.db", "SQLite `file`; it is made if there is none")
	postgres := flag.String("postgres", "", "`URL` of a Postgres database to be used instead")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal is not caught
	open, db := openSQLite, *file
	if *postgres != "" {
		open, db = openPostgres, *postgres
	}
	orders, err := open(ctx, db)
	if err == nil {
		err = errors.Join(serve(ctx, *addr, orders), orders.close())
	}
	if err != nil {
		log.Fatal(err)
	}
}

// serve runs the service until ctx is done. Unfinished jobs stay in the database.
func serve(ctx context.Context, addr string, orders *orders) error {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	jobs, err := task.Open(ctx, orders.tasks, "jobs",
		&task.Options[string]{Grace: keep, MaxAttempts: maxAttempts})
	if err != nil {
		return err
	}
	s := &service{orders, jobs}
	doing := pool.New(jobs, s.do, &pool.Options[string]{Workers: workers})

	mux := http.NewServeMux()
	mux.HandleFunc("PUT /jobs/{name}", s.put)
	mux.HandleFunc("GET /jobs/{name}", s.get)
	server := &http.Server{
		Handler: mux, ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		// At the end clients do not wait any longer.
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	log.Printf("listening on http://%s", listener.Addr())
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	graceful, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if server.Shutdown(graceful) != nil {
		server.Close()
	}
	if unfinished := doing.Shutdown(graceful); unfinished != nil {
		log.Print("jobs are left to whoever comes next: ", unfinished)
	}
	return errors.Join(err, jobs.Close(context.Background()))
}

// service has the queue of the orders' ids. A task holds nothing else: the rest is in the table.
type service struct {
	orders *orders
	jobs   *task.Queue[string]
}

var valid = regexp.MustCompile(`^[\w.-]{1,64}$`)

// idOf returns the id of the order that a request is about. It answers if there is none.
func idOf(w http.ResponseWriter, r *http.Request) (tenant, id string, ok bool) {
	tenant, name := r.Header.Get("X-Tenant"), r.PathValue("name") // behind a login, its user
	ok = valid.MatchString(tenant) && valid.MatchString(name)
	if !ok {
		http.Error(w, "the header X-Tenant and the name of the job must be 1 to 64 letters, digits, "+
			"dots, dashes or underscores", http.StatusBadRequest)
	}
	return tenant, tenant + "/" + name, ok
}

// put is the outbox: there is an order if, and only if, there is a task for it.
func (s *service) put(w http.ResponseWriter, r *http.Request) {
	tenant, id, ok := idOf(w, r)
	if !ok {
		return
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxText))
	if err != nil {
		http.Error(w, "the text: "+err.Error(), http.StatusBadRequest)
		return
	}
	status := http.StatusOK
	err = s.orders.inTx(r.Context(), func(ctx context.Context, run statement) error {
		added, err := run("INSERT INTO orders (id, text) VALUES ($1, $2) ON CONFLICT DO NOTHING",
			id, text)
		if err != nil || added == 0 {
			return err
		}
		status = http.StatusCreated
		_, err = s.jobs.Put(ctx, tenant, id, task.PutOptions{UniqueKey: id}) // by which clients wait
		return err
	})
	if err != nil { // the outcome may be unknown, but the client can put it again
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(status)
}

// do does a job. If the process is killed after the update and before the pool has acked the task,
// the job is done again, so do is idempotent.
func (s *service) do(ctx context.Context, t *task.Task[string]) error {
	var text []byte
	row := s.orders.db.QueryRowContext(ctx, "SELECT text FROM orders WHERE id = $1", t.Payload)
	if err := row.Scan(&text); err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	for range rounds - 1 {
		sum = sha256.Sum256(sum[:])
	}
	return s.orders.inTx(ctx, func(_ context.Context, run statement) error {
		_, err := run("UPDATE orders SET digest = $1, finished = $2 WHERE id = $3",
			fmt.Sprintf("%x", sum), time.Now().UnixNano(), t.Payload)
		return err
	})
}

// outcome is the answer of GET.
type outcome struct {
	Digest   string
	Finished int64 // nanoseconds since 1970
}

func (s *service) get(w http.ResponseWriter, r *http.Request) {
	_, id, ok := idOf(w, r)
	if !ok {
		return
	}
	waiting, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	var failed *task.Error // of the last attempt
	buried := errors.As(s.jobs.Wait(waiting, id), &failed)
	// Other errors do not matter: after a long time the queue has forgotten the outcome.
	var o outcome
	row := s.orders.db.QueryRowContext(r.Context(),
		"SELECT digest, finished FROM orders WHERE id = $1", id)
	switch err := row.Scan(&o.Digest, &o.Finished); {
	case errors.Is(err, sql.ErrNoRows):
		http.Error(w, "there is no such job", http.StatusNotFound)
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case o.Digest != "":
		_ = json.NewEncoder(w).Encode(o) // if it fails, the client is gone
	case buried:
		http.Error(w, failed.Message, http.StatusInternalServerError)
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}
