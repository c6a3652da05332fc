// Durable is a job server whose jobs survive kill -9: it keeps them with the orders that they are
// for, in an SQLite file. With -postgres they are in a Postgres database, and any number of
// processes can accept and do them.
//
//	cd examples/durable
//	go run . -db jobs.db
//	curl -X PUT -H 'X-Tenant: alice' -d 'some text' 'localhost:8082/jobs/1?rounds=1000000'
//	curl -H 'X-Tenant: alice' 'localhost:8082/jobs/1?wait=10s'
//	curl localhost:8082/stats
//
// PUT /jobs/NAME orders that a text be hashed again and again, and answers when the order is
// stored: 201, or 200 if it was ordered before. So a client without an answer can put it again.
// GET answers with the digest, or 202 if that takes longer than the client wants to wait. Tenants
// take turns, whatever they have ordered, before and after a restart.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal is not caught
	os.Exit(run(ctx, os.Args[1:], os.Stderr))
}

// run returns the exit status: 2 if the command line is wrong, 1 if anything else is.
func run(ctx context.Context, args []string, errOut io.Writer) int {
	c, err := parse(args, errOut)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(errOut, "durable: %v (-h tells more)\n", err)
		return 2
	}
	log := slog.New(slog.NewTextHandler(errOut, nil))
	if err := serve(ctx, c, log); err != nil {
		log.Error("failed", "error", err)
		return 1
	}
	return 0
}

type config struct {
	addr     string
	file     string
	postgres string
	workers  int
	keep     time.Duration
	grace    time.Duration
}

func parse(args []string, help io.Writer) (config, error) {
	var c config
	flags := flag.NewFlagSet("durable", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // run says what is wrong
	flags.StringVar(&c.addr, "addr", "localhost:8082",
		"`address` to listen on; with port 0 a free one is taken, and logged")
	flags.StringVar(&c.file, "db", "durable.db", "SQLite `file`; it is made if there is none")
	flags.StringVar(&c.postgres, "postgres", "", "`URL` of a Postgres database to be used instead")
	flags.IntVar(&c.workers, "workers", 2, "how many jobs run at the same time in this process")
	flags.DurationVar(&c.keep, "keep", 10*time.Second,
		"how long jobs stay with a process that gives no sign of life, before others do them")
	flags.DurationVar(&c.grace, "grace", 20*time.Second, "how long running jobs may take at the end")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(help)
		flags.Usage()
		return c, err
	case err != nil:
		return c, err
	case flags.NArg() > 0:
		return c, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case c.workers < 1 || c.workers > 10_000:
		return c, fmt.Errorf("-workers is %d; the limits are 1 and 10000", c.workers)
	case c.keep < time.Second:
		return c, fmt.Errorf("-keep is %v; it must be a second at least, or a short pause of the "+
			"process costs it its jobs", c.keep)
	case c.grace < 0:
		return c, fmt.Errorf("-grace is %v; it must not be negative", c.grace)
	}
	return c, nil
}

// open is the only place that knows the database.
func open(ctx context.Context, c config) (orders, error) {
	if c.postgres != "" {
		return openPostgres(ctx, c.postgres)
	}
	return openSQLite(ctx, c.file)
}

// serve runs the service until ctx is done. Unfinished jobs stay in the database.
func serve(ctx context.Context, c config, log *slog.Logger) (err error) {
	listener, err := net.Listen("tcp", c.addr)
	if err != nil {
		return fmt.Errorf("%w; -addr localhost:0 takes a free port", err)
	}
	defer listener.Close()
	all, err := open(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, all.close()) }()
	last := context.Background() // for the shutdown
	tasks, err := task.Open(ctx, all.store(), "jobs", &task.Options[name]{
		Grace: c.keep,
		// counts attempts that ended with the process too, because the job may have killed it
		MaxAttempts: maxAttempts,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tasks.Close(last)) }()

	s := &service{orders: all, tasks: tasks, ending: ctx}
	workers := pool.New(tasks, s.work, &pool.Options[name]{
		Workers: c.workers,
		Policy: pool.Policy{Backoff: pool.Backoff{
			Base: time.Second, Max: time.Minute,
			Jitter: pool.HalfJitter,
		}},
		Logger: log,
	})
	server := &http.Server{
		Handler: s.handler(), ReadTimeout: 10 * time.Second,
		IdleTimeout: time.Minute,
	}
	server.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	log.Info("listening", "addr", listener.Addr().String(), "workers", c.workers)

	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	grace, cancel := context.WithTimeout(last, c.grace)
	defer cancel()
	if server.Shutdown(grace) != nil {
		server.Close()
	}
	if unfinished := workers.Shutdown(grace); unfinished != nil {
		log.Warn("jobs are left to whoever comes next", "error", unfinished)
	}
	log.Info("stopped")
	return err
}

// maxAttempts is how often a job is tried.
const maxAttempts = 5
