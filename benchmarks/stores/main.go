// Command stores compares the durable queues of this repository with others, in SQLite and in
// PostgreSQL, which it starts itself. It prints medians as tables in Markdown, and its progress to
// standard error. README.md describes the measurements.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fairq/fairq/internal/pgtest"
)

// contestant is a queue that takes part.
type contestant struct {
	name   string
	module string // module whose version is printed
	open   func(ctx context.Context, address string) (queue, error)
	late   bool // it reports tasks as done some time later, many at a time
	oneKey bool // all tasks have the same key

	putsOnly bool // its work is not compared
}

// Each line with ours(...) is named "ours"; ratios are to it.
var contestants = map[string][]contestant{
	"sqlite": {
		{name: "ours", open: ours(openOurSQLite)},
		{name: "goqite", module: "maragu.dev/goqite", open: openGoqite},
		{
			name: "backlite", module: "github.com/mikestefanello/backlite", open: openBacklite,
			putsOnly: true,
		},
	},
	"postgres": {
		{name: "ours", open: ours(openOurPostgres)},
		{name: "river", module: "github.com/riverqueue/river", open: openRiver, late: true},
	},
}

// options are the flags.
type options struct {
	store    string
	names    []string // nil means all
	callers  []int
	backlogs []int
	time     time.Duration
	tasks    int
	count    int
	keys     int
	dir      string
	fifo     bool
	fair     bool
	load     load
}

func main() {
	o := options{load: load{heavy: 20_000, light: 1_000, workers: 8, service: time.Millisecond}}
	var names, callers, backlogs string
	flag.StringVar(&o.store, "store", "sqlite", "sqlite or postgres")
	flag.StringVar(&names, "peers", "", "who takes part, with commas between; all if empty")
	flag.StringVar(&callers, "callers", "",
		"how many at the same time (default 1,8,64, and 1,8,100 for postgres)")
	flag.StringVar(&backlogs, "backlog", "0,10000,1000000", "how many tasks are there already")
	flag.DurationVar(&o.time, "time", 0,
		"how long a trial lasts at most (default 2s, and 20s with -fair)")
	flag.IntVar(&o.tasks, "tasks", 20_000, "how many tasks a trial has at most")
	flag.IntVar(&o.count, "count", 3, "how many rounds")
	flag.IntVar(&o.keys, "keys", 1_000, "how many keys, unless -fair")
	flag.StringVar(&o.dir, "dir", "",
		"the folder for the databases of the run (default: the one for temporary files)")
	flag.BoolVar(&o.fifo, "fifo", false,
		"compare with the same queues when all tasks have one key: first in, first out")
	flag.BoolVar(&o.fair, "fair", false,
		"measure how long tasks of small tenants wait beside a big one")
	flag.Float64Var(&o.load.rate, "rate", 50,
		"with -fair: how many tasks the small tenants put in a second, all together")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := o.parse(names, callers, backlogs)
	if err == nil {
		err = run(ctx, &o, os.Stdout, os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "stores:", err)
		os.Exit(1)
	}
}

// parse checks the options, and sets lists and options that depend on others.
func (o *options) parse(names, callers, backlogs string) (err error) {
	if callers == "" {
		callers = "1,8,64"
		if o.store == "postgres" {
			callers = "1,8,100"
		}
	}
	if o.callers, err = numbers("-callers", callers, 1); err != nil {
		return err
	}
	if o.backlogs, err = numbers("-backlog", backlogs, 0); err != nil {
		return err
	}
	if names != "" {
		o.names = strings.Split(names, ",")
	}
	if o.time == 0 {
		o.time = 2 * time.Second
		if o.fair {
			o.time = 20 * time.Second
		}
	}
	if o.time < 0 || o.tasks < 1 || o.count < 1 || o.keys < 1 || o.load.rate <= 0 {
		return errors.New("-time, -tasks, -count, -keys and -rate must be positive")
	}
	return nil
}

func numbers(name, list string, least int) (all []int, err error) {
	for s := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < least {
			return nil, fmt.Errorf("%s: %q is not a number of at least %d", name, s, least)
		}
		all = append(all, n)
	}
	return all, nil
}

// selected returns the contestants that take part.
func (o *options) selected() ([]contestant, error) {
	all, ok := contestants[o.store]
	if !ok {
		return nil, fmt.Errorf("-store: %q is neither sqlite nor postgres", o.store)
	}
	for _, name := range o.names {
		if !slices.ContainsFunc(all, func(c contestant) bool { return c.name == name }) {
			return nil, fmt.Errorf("-peers: there is no %q with -store %s", name, o.store)
		}
	}
	var some []contestant
	for _, c := range all {
		if (o.names == nil || slices.Contains(o.names, c.name)) && !(o.fair && c.putsOnly) {
			some = append(some, c)
		}
	}
	if !o.fifo {
		return some, nil
	}
	first := all[0]
	first.name, first.oneKey = "fifo", true
	return []contestant{all[0], first}, nil
}

// run measures, and prints its measurements even if it fails later.
func run(ctx context.Context, o *options, out, progress io.Writer) error {
	chosen, err := o.selected()
	if err != nil {
		return err
	}
	if o.dir != "" {
		if err := os.Setenv("TMPDIR", o.dir); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "fairq-stores-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var version string
	address := func(name string) (string, error) { return filepath.Join(dir, name+".db"), nil }
	settle := settleSQLite
	if o.store == "postgres" {
		started, err := pgtest.New(serverSettings...)
		if err != nil {
			return err
		}
		defer started.Remove()
		s := server{started}
		if o.fair {
			if err := s.makeWAL(ctx); err != nil {
				return err
			}
		}
		if version, err = s.version(ctx); err != nil {
			return err
		}
		version = "PostgreSQL " + version
		address = func(name string) (string, error) { return s.database(ctx, name) }
		settle = settlePostgres
	} else {
		if version, err = sqliteVersion(); err != nil {
			return err
		}
		version = "SQLite " + version + " of modernc.org/sqlite " + moduleVersion("modernc.org/sqlite")
	}
	running := make([]*entrant, 0, len(chosen))
	for _, c := range chosen {
		a, err := address(c.name)
		if err != nil {
			return err
		}
		q, err := c.open(ctx, a)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		defer func() { _ = q.close() }()
		running = append(running, &entrant{
			contestant: c, queue: q, keys: o.keys,
			settle: func(ctx context.Context) error { return settle(ctx, a) },
		})
	}
	fmt.Fprintf(out, "Medians of %d rounds of %v, %s, %d processors, %s/%s, %s.\n",
		o.count, o.time, version, runtime.GOMAXPROCS(0), runtime.GOOS, runtime.GOARCH, runtime.Version())
	if o.fair {
		return compareFairness(ctx, o, running, out, progress)
	}
	return compareThroughput(ctx, o, running, out, progress)
}

// moduleVersion returns the version of a linked module, "" if it is unknown.
func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return m.Version
		}
	}
	return ""
}
