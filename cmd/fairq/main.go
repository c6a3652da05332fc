// Fairq looks at the task queues of a store, and helps by hand. It works beside the programs that
// use the queues, makes no queue, and changes the options of none. By looking it changes nothing.
//
//	export FAIRQ_STORE=sqlite:tasks.db
//	fairq queues
//	fairq list -state buried emails
//	fairq kick emails 1234
//	fairq serve
//
// fairq -h lists the commands and flags; docs/operating.md has examples.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/fairq/fairq/internal/printable"
	"github.com/fairq/fairq/task"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal is not caught
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// The exit statuses.
const (
	done = iota
	failed
	misused  // the command line makes no sense
	notFound // there is no such queue or task
)

// errUsage is what is wrong with a command line.
var errUsage = errors.New("usage")

func usage(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errUsage, fmt.Sprintf(format, args...))
}

// run returns the exit status.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	c := &call{out: out, errOut: errOut}
	err := c.parse(args)
	if err == nil {
		err = c.run(ctx)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		help(out, c.command)
		return done
	case err == nil:
		return done
	}
	fmt.Fprintf(errOut, "fairq: %s\n", strings.TrimPrefix(err.Error(), errUsage.Error()+": "))
	switch {
	case errors.Is(err, errUsage):
		fmt.Fprintln(errOut, "fairq -h lists the commands and flags")
		return misused
	case errors.Is(err, task.ErrNotFound):
		return notFound
	}
	return failed
}

// command is something that can be done.
type command struct {
	name  string
	args  string // after the name
	does  string
	flags string // beyond those of all commands
	run   func(ctx context.Context, c *call) error
}

var commands = []command{
	{"queues", "", "list the queues, and how many tasks they have", "", queues},
	{"stats", "QUEUE", "print the number of tasks in each state", "", stats},
	{"keys", "QUEUE", "list the keys with the most tasks; reads all tasks", "limit paused", keys},
	{"next", "QUEUE", "list the next tasks, in order", "limit", next},
	{
		"list", "QUEUE", "list tasks in the order of their ids",
		"after group key kind limit payload reason soonest state", list,
	},
	{"peek", "QUEUE ID...", "print all fields of tasks", "payload", peek},
	{
		"history", "QUEUE",
		"list tasks that are gone, newest first, where programs keep a History; reads all of it",
		"after id key kind limit payload", history,
	},
	{
		"kick", "QUEUE [ID...]",
		"make buried tasks ready: these, or those of -all, -key, -kind or -reason",
		"all key kind reason", kick,
	},
	{"bury", "QUEUE ID...", "bury tasks that no worker has", "force history reason", bury},
	{
		"delete", "QUEUE [ID...]",
		"delete tasks that no worker has: these, or those of -state, -key, -kind or -reason",
		"force history key kind reason state yes", remove,
	},
	{"pause", "QUEUE", "let no task be taken; with -key, no task of that key", "key", pause},
	{"resume", "QUEUE", "end that", "key", pause},
	{
		"limit", "QUEUE",
		"list the keys with limits of their own; with -key, set these limits of that key, or none",
		"burst in-flight key rate weight", limit,
	},
	{"drop", "QUEUE", "delete a queue, unless a task of it is taken", "history yes", drop},
	{
		"serve", "[QUEUE...]", "show these queues, or all, on a page on localhost",
		"actions history payload port", serve,
	},
	{
		"completion", "SHELL",
		"print a script that completes commands and flags, for bash, zsh or fish", "", nil,
	},
	{"version", "", "print the version of fairq", "", version},
	{"help", "[COMMAND]", "list the commands and flags, or those of one command", "", nil},
}

// needsStore reports whether the command looks at a store.
func (c *command) needsStore() bool {
	return c.name != "completion" && c.name != "version" && c.name != "help"
}

// options are what the flags say.
type options struct {
	json    bool
	store   string
	prefix  string
	history time.Duration

	after, id uint64
	group     string
	key, kind *string // nil means any
	limit     int
	payload   bool
	soonest   bool
	state     task.State

	limits task.KeyLimits

	all, force, yes, paused bool
	reason                  string

	actions bool
	port    int
}

// common are the flags of all commands.
const common = "json prefix store"

func (o *options) flags() *flag.FlagSet {
	f := flag.NewFlagSet("fairq", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.store, "store", "", "the `store`: sqlite:FILE, "+
		"postgres://... or postgres:NAME=VALUE..., as in libpq, etcd://[USER:PASSWORD@]HOST:PORT,..., "+
		"redis://[USER:PASSWORD@]HOST:PORT/DATABASE, rediss://... with TLS or "+
		"foundationdb:CLUSTERFILE; unless given, it is $FAIRQ_STORE")
	f.StringVar(&o.prefix, "prefix", "",
		"what the programs give as Options.`Prefix` (sqlite, etcd, redis), the bytes of Subspace "+
			"(foundationdb) or Schema (postgres)")
	f.BoolVar(&o.json, "json", false, "print JSON")
	f.DurationVar(&o.history, "history", 0,
		"what the programs give as Options.History: deleted tasks are remembered for that `time`")
	f.Uint64Var(&o.after, "after", 0, "only tasks with greater ids than this `id`")
	f.Uint64Var(&o.id, "id", 0, "only the task of this `id`")
	f.StringVar(&o.group, "group", "", "only tasks of this `group`")
	f.Func("key",
		"only what has this `key`; in quotes, with escapes as in Go, if it begins with a quote",
		text(&o.key))
	f.Func("kind", "only tasks of this `kind`; in quotes as a key", text(&o.kind))
	f.IntVar(&o.limit, "limit", 20, "how many to list, a `number` from 1 to 10000")
	f.BoolVar(&o.payload, "payload", false, "show payloads, which may be private")
	f.BoolVar(&o.soonest, "soonest", false,
		"with -state delayed or buried: tasks in the order in which they are due, or kicked")
	setState := func(name string) error {
		for s := task.Ready; s <= task.Held; s++ {
			if s.String() == name {
				o.state = s
				return nil
			}
		}
		return errors.New("it must be ready, delayed, taken, buried or held")
	}
	f.Func("state", "only tasks in this `state`: ready, delayed, taken, buried or held", setState)
	f.BoolVar(&o.all, "all", false, "all buried tasks")
	f.BoolVar(&o.force, "force", false, "even if a worker has the task; the worker loses its lease")
	f.BoolVar(&o.yes, "yes", false,
		"delete the tasks of a queue with it, or those that -state, -key, -kind or -reason name")
	f.BoolVar(&o.paused, "paused", false, "only the keys that are paused or wait")
	f.StringVar(&o.reason, "reason", "",
		"the `text` that is recorded with tasks that are buried, or else is in the error of the tasks")
	f.BoolVar(&o.actions, "actions", false, "let the page kick, bury, delete, pause and resume")
	f.IntVar(&o.limits.MaxInFlight, "in-flight", 0,
		"a `number` of tasks of the key that can be taken at a time; negative for any")
	f.Float64Var(&o.limits.Rate.Limit, "rate", 0,
		"a `number` of tasks of the key that can be taken in a second; negative for any")
	f.IntVar(&o.limits.Rate.Burst, "burst", 0, "with -rate: the `number` that can be taken at once")
	f.IntVar(&o.limits.Weight, "weight", 0, "the `weight` of the key")
	f.IntVar(&o.port, "port", 7474, "the `port` of the page; 0 means a free one")
	return f
}

func text(into **string) func(string) error {
	return func(shown string) error {
		plain, err := printable.Parse(shown)
		*into = &plain
		return err
	}
}

// call is a command that is being run.
type call struct {
	options
	command     *command
	args        []string // the queue, and what follows
	store       store
	out, errOut io.Writer
}

// parse reads a command line. Flags may stand anywhere before "--".
func (c *call) parse(args []string) error {
	f := c.flags()
	var words []string
	for {
		if err := f.Parse(args); err != nil {
			if !errors.Is(err, flag.ErrHelp) {
				return usage("%v", err)
			}
			if len(words) > 0 {
				c.command = find(words[0])
			}
			return err
		}
		rest := f.Args()
		if n := len(args) - len(rest); n > 0 && args[n-1] == "--" {
			words = append(words, rest...)
			break
		}
		if len(rest) == 0 {
			break
		}
		words, args = append(words, rest[0]), rest[1:]
	}
	if c.options.store == "" { // not the flag's default, which -h prints: it can have a password
		c.options.store = os.Getenv("FAIRQ_STORE")
	}
	if len(words) == 0 {
		return usage("which command?")
	}
	c.command, c.args = find(words[0]), words[1:]
	if c.command == nil {
		return usage("there is no command %s", withoutPassword(words[0]))
	}
	if err := c.check(f); err != nil || words[0] != "help" {
		return err
	}
	c.command = nil
	if len(c.args) > 0 {
		if c.command = find(c.args[0]); c.command == nil {
			return usage("there is no command %s", withoutPassword(c.args[0]))
		}
	}
	return flag.ErrHelp
}

// find returns the command of a name, nil if there is none.
func find(name string) *command {
	i := slices.IndexFunc(commands, func(c command) bool { return c.name == name })
	if i < 0 {
		return nil
	}
	return &commands[i]
}

// check returns an error if the flags and arguments do not fit the command.
func (c *call) check(f *flag.FlagSet) (err error) {
	flags := append(c.command.all(), "json")
	f.Visit(func(f *flag.Flag) {
		if !slices.Contains(flags, f.Name) {
			err = usage("%s has no flag -%s", c.command.name, f.Name)
		}
	})
	args := " " + c.command.args
	least, most := strings.Count(args, " Q")+strings.Count(args, " S")+strings.Count(args, " I"), 1
	if strings.Contains(c.command.args, "...") {
		most = len(c.args)
	} else if c.command.args == "" {
		most = 0
	}
	switch {
	case err != nil:
		return err
	case len(c.args) < least || len(c.args) > most:
		return usage("%s has %d arguments; it is %q", c.command.name, len(c.args),
			strings.TrimSpace(c.command.name+" "+c.command.args))
	case c.limit < 1 || c.limit > maxLimit:
		return usage("-limit is %d; it must be 1 to %d", c.limit, maxLimit)
	case c.history < 0:
		return usage("-history is %v; it must be 0 or more", c.history)
	case c.port < 0 || c.port > 1<<16-1:
		return usage("-port is %d; it must be 0 to %d", c.port, 1<<16-1)
	case c.options.store == "" && c.command.needsStore():
		return usage("which store? Name it with -store or in FAIRQ_STORE")
	}
	return nil
}

const maxLimit = 10_000

func (c *call) run(ctx context.Context) error {
	if c.command.needsStore() {
		var err error
		if c.store, err = openStore(ctx, &c.options); err != nil {
			return err
		}
		defer c.store.Close()
	}
	if c.command.run == nil { // completion reads the list of commands, so it cannot be in it
		return c.completion()
	}
	return c.command.run(ctx, c)
}

// help prints how fairq is used, or one of its commands.
func help(out io.Writer, one *command) {
	f := new(options).flags()
	f.SetOutput(out)
	if one != nil {
		fmt.Fprintf(out, "    fairq [flags] %s\n\n%s.\n\nFlags:\n\n",
			strings.TrimSpace(one.name+" "+one.args), one.does)
		own := flag.NewFlagSet("", flag.ContinueOnError)
		own.SetOutput(out)
		for _, name := range one.all() {
			known := f.Lookup(name)
			own.Var(known.Value, name, known.Usage)
		}
		own.PrintDefaults()
		return
	}
	fmt.Fprint(out, `Fairq looks at the task queues of a store, and helps by hand.

    fairq [flags] command [arguments]

Commands:

`)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, c := range commands {
		does := c.does
		if c.flags != "" {
			does += " (-" + strings.ReplaceAll(c.flags, " ", ", -") + ")"
		}
		fmt.Fprintf(w, "  %s %s\t%s\n", c.name, c.args, does)
	}
	w.Flush()
	fmt.Fprintf(out, "\nFlags, of all commands -%s, the others as told above:\n\n",
		strings.ReplaceAll(common, " ", ", -"))
	f.PrintDefaults()
	fmt.Fprint(out, `
A key, kind, or queue that does not print is shown in quotes, with escapes as in Go.
Exit status: 0 done, 1 failed, 2 the command line makes no sense, 3 no such queue or task.
`)
}

// all returns the flags of a command.
func (c *command) all() []string {
	if !c.needsStore() {
		return nil
	}
	return strings.Fields(common + " " + c.flags)
}

func version(_ context.Context, c *call) error {
	v := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		v = cmp.Or(info.Main.Version, v)
	}
	return c.print(map[string]string{"version": v}, func(w io.Writer) { fmt.Fprintln(w, "fairq", v) })
}

// completion prints a script. It does not complete the names of queues, because reading them from
// the store takes time.
func (c *call) completion() error {
	var names []string
	flags := map[string]string{}
	for i := range commands {
		name := commands[i].name
		names = append(names, name)
		for _, f := range commands[i].all() {
			flags[name] += " -" + f
		}
	}
	switch c.args[0] {
	case "fish":
		fmt.Fprintf(c.out, "complete -c fairq -f -n __fish_use_subcommand -a '%s'\n",
			strings.Join(names, " "))
		for _, name := range names {
			for _, f := range strings.Fields(flags[name]) {
				fmt.Fprintf(c.out,
					"complete -c fairq -f -n '__fish_seen_subcommand_from %s' -o %s\n", name, f[1:])
			}
		}
		return nil
	case "zsh":
		fmt.Fprintln(c.out, "autoload -U +X bashcompinit && bashcompinit")
	case "bash":
	default:
		return usage("the shell is %s; it must be bash, zsh or fish", printable.Text(c.args[0]))
	}
	fmt.Fprintf(c.out, "_fairq() {\n\tlocal words=%q\n\tcase ${COMP_WORDS[1]} in\n",
		strings.Join(names, " "))
	for _, name := range names {
		fmt.Fprintf(c.out, "\t%s) ((COMP_CWORD > 1)) && words=%q ;;\n", name,
			strings.TrimSpace(flags[name]))
	}
	fmt.Fprint(c.out,
		"\tesac\n\tCOMPREPLY=($(compgen -W \"$words\" -- "+
			"\"${COMP_WORDS[COMP_CWORD]}\"))\n}\ncomplete -F _fairq fairq\n")
	return nil
}
