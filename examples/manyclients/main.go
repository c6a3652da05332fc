// Manyclients lets several processes share a queue in etcd, and shows once a second the work of
// each, and how often it conflicted with others.
//
//	cd examples/manyclients
//	go run . -producers 4 -consumers 8
//	go run . -producers 4 -consumers 8 -taking strict
//
// The server runs in this process, in a folder that is deleted at the end; with -servers the
// processes use yours. Kill one of the processes: ten seconds later others do its tasks.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/fairq/fairq/store/etcd"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal is not caught
	if text, ok := os.LookupEnv(workerEnv); ok {
		os.Exit(work(ctx, text))
	}
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

type config struct {
	producers, consumers int
	batch                int
	taking               etcd.Taking
	servers              string
	time                 time.Duration
}

// run returns the exit status: 2 if the command line is wrong, 1 if anything else is.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	c, err := parse(args, errOut)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(errOut, "manyclients: %v (-h tells more)\n", err)
		return 2
	}
	if c.time > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.time)
		defer cancel()
	}
	if err := share(ctx, c, out, errOut); err != nil {
		fmt.Fprintf(errOut, "manyclients: %v\n", err)
		return 1
	}
	return 0
}

var takings = map[string]etcd.Taking{
	"apart": etcd.Apart, "staged": etcd.Staged,
	"strict": etcd.Strict,
}

func parse(args []string, help io.Writer) (config, error) {
	var c config
	var taking string
	flags := flag.NewFlagSet("manyclients", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // run says what is wrong
	flags.IntVar(&c.producers, "producers", 4, "how many processes put tasks")
	flags.IntVar(&c.consumers, "consumers", 8, "how many processes take them")
	flags.IntVar(&c.batch, "batch", 10, "how many tasks a consumer takes at a time, 1 to 1000")
	flags.StringVar(&taking, "taking", "apart", "apart, staged or strict: see etcd.Taking")
	flags.StringVar(&c.servers, "servers", "",
		"`addresses` of servers of etcd 3.6 or newer, with commas between; \"\" means one of our own")
	flags.DurationVar(&c.time, "time", 0, "when to end; 0 means when you press Ctrl-C")
	err := flags.Parse(args)
	known := false
	c.taking, known = takings[taking]
	switch {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(help)
		flags.Usage()
	case err != nil:
	case flags.NArg() > 0:
		err = fmt.Errorf("%q is no flag", flags.Arg(0))
	case !known:
		err = fmt.Errorf("-taking is %q, must be apart, staged or strict", taking)
	case c.producers < 0 || c.consumers < 0 || c.producers+c.consumers == 0:
		err = fmt.Errorf("-producers is %d and -consumers is %d, at least one process is needed",
			c.producers, c.consumers)
	case c.batch < 1 || c.batch > 1000:
		err = fmt.Errorf("-batch is %d, must be 1 to 1000", c.batch)
	case c.time < 0:
		err = fmt.Errorf("-time is %v, must not be negative", c.time)
	}
	return c, err
}

// share starts the processes, and shows what they do until ctx is done.
func share(ctx context.Context, c config, out, errOut io.Writer) error {
	if c.servers == "" {
		s, err := startServer()
		if err != nil {
			return fmt.Errorf("start a server of etcd: %w", err)
		}
		defer s.stop()
		c.servers = s.address
	}
	var all []*process
	defer func() {
		for _, p := range all {
			p.stop()
		}
	}()
	for i := range c.producers + c.consumers {
		w := worker{Name: fmt.Sprint("producer ", i+1), Servers: c.servers, Taking: c.taking}
		if i >= c.producers {
			w.Name, w.Batch = fmt.Sprint("consumer ", i+1-c.producers), c.batch
		}
		p, err := start(w, errOut)
		if err != nil {
			return fmt.Errorf("start %s: %w", w.Name, err)
		}
		all = append(all, p)
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for before := make([]counts, len(all)); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		fmt.Fprint(out, clearScreen(out), table(all, before))
	}
}

// clearScreen returns the sequence that clears a terminal, and elsewhere an empty line.
func clearScreen(out io.Writer) string {
	if f, ok := out.(*os.File); ok {
		if s, err := f.Stat(); err == nil && s.Mode()&os.ModeCharDevice != 0 {
			return "\x1b[H\x1b[J"
		}
	}
	return "\n"
}

// table shows the work of each process since before, which it sets to now.
func table(all []*process, before []counts) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-12s %8s %10s %10s %15s\n", "process", "tasks/s", "tasks", "conflicts",
		"conflicts/task")
	row := func(name string, perSecond int64, now counts, note string) {
		fmt.Fprintf(&b, "%-12s %8d %10d %10d %15.3f%s\n",
			name, perSecond, now.Tasks, now.Conflicts, float64(now.Conflicts)/float64(max(1, now.Tasks)),
			note)
	}
	var put, taken [2]counts // in the last second, and in all
	for i, p := range all {
		now, ended := p.counts()
		note := ""
		if ended {
			note = "  has ended"
		}
		perSecond := counts{now.Tasks - before[i].Tasks, now.Conflicts - before[i].Conflicts}
		row(p.Name, perSecond.Tasks, now, note)
		before[i] = now
		sums := &taken
		if p.Batch == 0 {
			sums = &put
		}
		sums[0].add(perSecond)
		sums[1].add(now)
	}
	row("all put", put[0].Tasks, put[1], "")
	row("all taken", taken[0].Tasks, taken[1], "")
	return b.String()
}
