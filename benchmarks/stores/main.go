// Command stores compares the durable queues of this repository with others, in SQLite, and in
// PostgreSQL and Redis, which it starts itself. It prints medians as tables in Markdown, and its
// progress to standard error. README.md describes the measurements.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// contestant is a queue that takes part.
type contestant struct {
	name     string
	module   string // whose version is printed
	open     func(ctx context.Context, address string) (queue, error)
	putsOnly bool // its work is not compared
	oneKey   bool // all tasks have the same key
}

// server has a database for each contestant.
type server struct {
	version string
	create  func(ctx context.Context, name string) (address string, err error)
	settle  func(ctx context.Context, address string) error // does delayed work now
	stop    func()
}

// store is a kind of database.
type store struct {
	start       func(ctx context.Context, fair bool) (*server, error)
	callers     []int // at the same time
	trials      []trial
	contestants []contestant // ratios are to the first one
}

// stores are by the value of -store.
var stores = map[string]*store{
	"sqlite": {
		startSQLite,
		[]int{1, 8, 64},
		[]trial{{"puts/s", false, put}, {"take+ack/s", true, takeAndAck}},
		[]contestant{
			{name: "ours", open: openOurSQLite},
			{name: "goqite", module: "maragu.dev/goqite", open: openGoqite},
			{
				name: "backlite", module: "github.com/mikestefanello/backlite", open: openBacklite,
				putsOnly: true,
			},
		},
	},
	"postgres": {
		startPostgres,
		[]int{1, 8, 100},
		[]trial{
			{"puts/s", false, put},
			{"tasks worked/s", true, work},
			{"puts/s, 100 at once", false, putBatches},
		},
		[]contestant{
			{name: "ours", open: openOurPostgres},
			{name: "river", module: "github.com/riverqueue/river", open: openRiver},
		},
	},
	"redis": {
		startRedis,
		[]int{1, 16, 100},
		[]trial{{"puts/s", false, put}, {"take+ack/s", true, takeOrWork}},
		[]contestant{
			{name: "ours", open: openOurRedis},
			{name: "asynq", module: "github.com/hibiken/asynq", open: openAsynq},
		},
	},
}

// options are the flags, and what the tests make smaller.
type options struct {
	store      string
	backlogs   []int
	time       time.Duration
	count      int
	fifo, fair bool
	tasks      int // a trial has at most
	load       load
}

func main() {
	o := options{
		backlogs: []int{0, 10_000, 1_000_000}, tasks: 20_000,
		load: load{heavy: 20_000, light: 1_000, rate: 50, workers: 8, service: time.Millisecond},
	}
	flag.StringVar(&o.store, "store", "sqlite", "sqlite, postgres or redis")
	flag.Func("backlog", "how many tasks are there already (default 0,10000,1000000)", o.setBacklogs)
	flag.DurationVar(&o.time, "time", 0,
		"how long a trial lasts at most (default 2s, and 20s with -fair)")
	flag.IntVar(&o.count, "count", 3, "how many rounds")
	flag.BoolVar(&o.fifo, "fifo", false,
		"compare with the same queues when all tasks have one key: first in, first out")
	flag.BoolVar(&o.fair, "fair", false,
		"measure how long tasks of small tenants wait beside a big one")
	flag.Parse()
	if o.time <= 0 {
		o.time = 2 * time.Second
		if o.fair {
			o.time = 20 * time.Second
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, &o, os.Stdout, os.Stderr); err != nil {
		stop()
		log.Fatal("stores: ", err)
	}
}

func (o *options) setBacklogs(list string) error {
	o.backlogs = nil
	for s := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 {
			return fmt.Errorf("%q is not a number of at least 0", s)
		}
		o.backlogs = append(o.backlogs, n)
	}
	return nil
}

// run measures, and prints its measurements even if it fails later.
func run(ctx context.Context, o *options, out, progress io.Writer) error {
	store, ok := stores[o.store]
	if !ok {
		return fmt.Errorf("-store: %q is not sqlite, postgres or redis", o.store)
	}
	s, err := store.start(ctx, o.fair)
	if err != nil {
		return err
	}
	defer s.stop()
	chosen := store.contestants
	if o.fifo {
		fifo := chosen[0]
		fifo.name, fifo.oneKey = "fifo", true
		chosen = []contestant{chosen[0], fifo}
	}
	var running []*entrant
	for _, c := range chosen {
		if o.fair && c.putsOnly {
			continue
		}
		address, err := s.create(ctx, c.name)
		if err != nil {
			return err
		}
		q, err := c.open(ctx, address)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		defer func() { _ = q.close() }()
		running = append(running, &entrant{
			contestant: c, queue: q, settle: func() error { return s.settle(ctx, address) },
		})
	}
	fmt.Fprintf(out, "Medians of %d rounds of %v, %s, %d processors, %s/%s, %s.\n", o.count, o.time,
		s.version, runtime.GOMAXPROCS(0), runtime.GOOS, runtime.GOARCH, runtime.Version())
	if o.fair {
		return compareFairness(ctx, o, running, out, progress)
	}
	return compareThroughput(ctx, o, store, running, out, progress)
}

// moduleVersion returns the version of a linked module, "" if it is unknown.
func moduleVersion(path string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == path {
				return m.Version
			}
		}
	}
	return ""
}
