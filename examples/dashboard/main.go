// Dashboard replays the log of a computing grid through a queue and workers, and shows both on a
// page: which users wait and for how long. Mallory sends a flood of jobs every half a minute, and
// delays nobody else.
//
//	go run ./examples/dashboard
package main

import (
	"compress/gzip"
	"context"
	"encoding/csv"
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
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/monitor"
	"github.com/fairq/fairq/pool"
)

// The log has the jobs of 1,600 servers. One job in ten is replayed, to spare the machine.
const (
	servers = 160
	oneIn   = 10
	speed   = 5000 // seconds of the log in a second
)

// job occupies a server for a time, in seconds of the log.
type job struct {
	user   string
	submit int64
	run    int64
}

// settings are the flags of the command line.
type settings struct {
	log   string
	addr  string
	flood int // jobs of a flood
	every time.Duration
}

func main() {
	var s settings
	flag.StringVar(&s.log, "log", "examples/replay/testdata/lcg-2005.csv.gz",
		"the log, submit_s,user,run_s, packed with gzip")
	flag.StringVar(&s.addr, "addr", "localhost:8083",
		"`address` of the page; with port 0 a free one is taken")
	flag.IntVar(&s.flood, "flood", 3000, "how many jobs mallory sends at once")
	flag.DurationVar(&s.every, "every", 30*time.Second, "how often")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, s, os.Stdout); err != nil && !errors.Is(err, context.Canceled) {
		log.Fatal(err)
	}
}

// run replays the log again and again until ctx is done.
func run(ctx context.Context, s settings, out io.Writer) error {
	if s.every <= 0 {
		return fmt.Errorf("-every is %v; it must be more than 0", s.every)
	}
	jobs, err := read(s.log)
	if err != nil {
		return fmt.Errorf("%s: %w (run it in the root of the repository, or name a -log)", s.log, err)
	}
	queue := fairq.New(func(j job) string { return j.user }, &fairq.Options[string, job]{
		Capacity:  2000,
		WhenFull:  fairq.RejectOverShare, // so mallory cannot keep the others out
		Cost:      func(j job) int64 { return max(1, j.run) },
		Quantum:   1000,
		TrackWait: true,
		CountKeys: 250,
	})
	workers := pool.NewWorkers(queue, func(ctx context.Context, j job) error {
		sleep(ctx, scaled(j.run))
		return nil
	}, &pool.WorkersOptions[job]{Workers: servers})

	listener, err := net.Listen("tcp", s.addr)
	if err != nil {
		return err
	}
	address := listener.Addr().String()
	grid := monitor.FairQueue("grid", queue,
		func(j job) string { return fmt.Sprintf("runs for %d s", j.run) })
	m := monitor.New(&monitor.Options{
		// Every client that reaches the page may do everything. A page of another name for this
		// address may not.
		Actions: func(r *http.Request, asked []monitor.Action) []monitor.Action {
			if r.Host != address {
				return nil
			}
			return asked
		},
	}, grid, monitor.Pool("servers", workers, grid))
	go m.Run(ctx) // so that a page opens with its history
	server := &http.Server{
		Handler:           m,
		ReadHeaderTimeout: 5 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx }, // ends the pages' streams
	}
	go func() { _ = server.Serve(listener) }()
	fmt.Fprintf(out, "The page is at http://%s/ (Ctrl-C ends it)\n", address)

	go flood(ctx, s, queue)
	for ctx.Err() == nil {
		replay(ctx, queue, jobs)
	}
	return errors.Join(ctx.Err(), server.Close(), workers.Shutdown(ctx))
}

// scaled returns how long seconds of the log take.
func scaled(seconds int64) time.Duration { return time.Duration(seconds) * time.Second / speed }

// replay pushes the jobs when they are due. Refused jobs are lost.
func replay(ctx context.Context, queue *fairq.FairQueue[string, job], jobs []job) {
	begin := time.Now()
	for _, j := range jobs {
		if sleep(ctx, time.Until(begin.Add(scaled(j.submit)))); ctx.Err() != nil {
			return
		}
		_ = queue.Push(j)
	}
}

// flood sends mallory's jobs; each runs for an hour.
func flood(ctx context.Context, s settings, queue *fairq.FairQueue[string, job]) {
	for ctx.Err() == nil {
		sleep(ctx, s.every/2)
		for range s.flood {
			_ = queue.Push(job{user: "mallory", run: 3600})
		}
		sleep(ctx, s.every/2)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// read returns one in ten jobs of a log.
func read(name string) (jobs []job, err error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	lines, err := csv.NewReader(text).ReadAll()
	if err != nil {
		return nil, err
	}
	for i := 1; i < len(lines); i += oneIn { // the first line is the header
		submit, err1 := strconv.ParseInt(lines[i][0], 10, 64)
		run, err2 := strconv.ParseInt(lines[i][2], 10, 64)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		jobs = append(jobs, job{"user " + lines[i][1], submit, run})
	}
	return jobs, nil
}
