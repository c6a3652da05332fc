// Httpjobs is a small HTTP service with a fair queue between its handlers and its workers: a
// tenant that floods it waits for itself, and the others are served in time.
//
//	go run ./examples/httpjobs
//	curl -H 'X-Tenant: alice' -d 'some text' 'localhost:8081/jobs?rounds=1000000'
//	curl localhost:8081/stats
//
// POST /jobs hashes a text as often as the client asks for, and answers with the digest when that
// is done. 429 means that the tenant has its share of the queue, or that the queue is full;
// Retry-After says when to come back. If a client disconnects, its job leaves the queue, or is
// cancelled if it is running. SIGTERM or an interrupt ends the service as soon as all accepted
// jobs are done. Jobs that exceed the grace period get a 503. A second signal ends the service
// immediately.
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
)

// maxCapacity keeps the texts in a full queue within some gigabytes.
const maxCapacity = 100_000

// handOver is how long clients may take to fetch their answers at the end.
const handOver = 5 * time.Second

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
		fmt.Fprintf(errOut, "httpjobs: %v (-h tells more)\n", err)
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
	workers  int
	capacity int
	grace    time.Duration
}

func parse(args []string, help io.Writer) (config, error) {
	var c config
	flags := flag.NewFlagSet("httpjobs", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // run says what is wrong
	flags.StringVar(&c.addr, "addr", "localhost:8081",
		"`address` to listen on; with port 0 a free one is taken, and logged")
	flags.IntVar(&c.workers, "workers", 2, "how many jobs run at the same time")
	flags.IntVar(&c.capacity, "capacity", 256, "how many jobs may wait")
	flags.DurationVar(&c.grace, "grace", 20*time.Second, "how long accepted jobs may take at the end")
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
	case c.workers < 1 || c.workers > maxCapacity:
		return c, fmt.Errorf("-workers is %d; the limits are 1 and %d", c.workers, maxCapacity)
	case c.capacity < 1 || c.capacity > maxCapacity:
		return c, fmt.Errorf("-capacity is %d; the limits are 1 and %d", c.capacity, maxCapacity)
	case c.grace < 0:
		return c, fmt.Errorf("-grace is %v; it must not be negative", c.grace)
	}
	return c, nil
}

// serve runs the service until ctx is done and all accepted jobs are answered.
func serve(ctx context.Context, c config, log *slog.Logger) error {
	listener, err := net.Listen("tcp", c.addr)
	if err != nil {
		return fmt.Errorf("%w; -addr localhost:0 takes a free port", err)
	}
	s := start(c.workers, c.capacity, stretch)
	server := newServer(s.handler())
	server.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	log.Info("listening", "addr", listener.Addr().String(), "workers", c.workers, "capacity",
		c.capacity)

	select {
	case <-ctx.Done():
		err = nil
	case err = <-failed:
	}
	log.Info("draining", "queued", s.queue.Len(), "grace", c.grace)
	grace, cancel := context.WithTimeout(context.Background(), c.grace)
	defer cancel()
	// The server goes on: a new job gets a 503, and /stats still works.
	unfinished := s.drain(grace)

	last, cancel := context.WithTimeout(context.Background(), handOver)
	defer cancel()
	if server.Shutdown(last) != nil {
		// Only connections without an accepted job are left, or with clients that do not read.
		server.Close()
	}
	log.Info("stopped", "unfinished", unfinished)
	return err
}

// newServer sets no WriteTimeout, because that would include the wait of a job. The ReadTimeout
// does not: the server lifts it after it has read the text.
func newServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadTimeout: readTime, IdleTimeout: time.Minute}
}
