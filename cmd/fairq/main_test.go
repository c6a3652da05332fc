package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/pgtest"
	"github.com/fairq/fairq/store/postgres"
	"github.com/fairq/fairq/store/sqlite"
	"github.com/fairq/fairq/task"
)

// asWorker makes the test binary the other process: it works on the queues of the store that the
// variable names.
const asWorker = "FAIRQ_TEST_AS_WORKER"

func TestMain(m *testing.M) {
	if url := os.Getenv(asWorker); url != "" {
		if err := work(url, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	pgtest.Main(m)
}

// job is the payload of a task.
type job struct{ Text string }

// outcome is what the worker prints at its end.
type outcome struct {
	Worked, Failed int        // tasks of the queue "busy"
	Still          task.Stats // of the queue "still"
}

// stillOptions differ from the defaults, so that the command must read them.
var stillOptions = task.Options[job]{
	Capacity: 100, KeyCapacity: 50,
	MaxInFlightPerKey: 3, Quantum: 10, Format: "job",
}

// work puts tasks into the queue "still" and leaves them alone, and puts and works on those of the
// queue "busy" until in ends. Then it prints the outcome.
func work(url string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := forWork(ctx, url)
	if err != nil {
		return err
	}
	defer s.Close()
	still, err := task.Open(ctx, s, "still", &stillOptions)
	if err != nil {
		return err
	}
	busy, err := task.Open(ctx, s, "busy", &task.Options[job]{MaxAttempts: 1})
	if err != nil {
		return err
	}
	ids, err := prepare(ctx, still)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, ids)
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	var o outcome
	for i := 0; ctx.Err() == nil; i++ {
		_, err := busy.Put(context.Background(), fmt.Sprint("user ", i%3), job{fmt.Sprint(i)},
			task.PutOptions{})
		if err != nil {
			return err
		}
		t, ok, err := busy.TryTake(context.Background())
		switch {
		case err != nil:
			return err
		case !ok: // the queue or the key is paused
			time.Sleep(time.Millisecond)
		case i%10 == 0:
			err = t.Bury(context.Background(), errors.New("no"))
			o.Failed++
		default:
			err = t.Ack(context.Background())
			o.Worked++
		}
		if err != nil && !errors.Is(err, task.ErrLeaseLost) {
			return err
		}
	}
	if o.Still, err = still.Stats(context.Background()); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(o)
}

// forWork opens a store as a program does.
func forWork(ctx context.Context, url string) (store, error) {
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		return opened(sqlite.Open(ctx, path, &sqlite.Options{Prefix: "test_"}))
	}
	return opened(postgres.Open(ctx, strings.TrimPrefix(url, "postgres:"),
		&postgres.Options{Schema: "test_"}))
}

// hostile is a key that would do things to a terminal.
const hostile = "<b>\x1b[2J\xff"

// prepare makes seven tasks: ready, delayed, two buried, two taken, and one of a hostile key.
func prepare(ctx context.Context, q *task.Queue[job]) (ids []task.ID, err error) {
	for i, o := range []task.PutOptions{
		{},
		{Delay: time.Hour},
		{Kind: "mail"},
		{},
		{},
		{},
		{UniqueKey: "x", Group: "g", Metadata: map[string]string{"trace": "a\n"}},
	} {
		key := fmt.Sprint("user ", i+1)
		if o.Group != "" {
			key = hostile
		}
		id, err := q.Put(ctx, key, job{fmt.Sprint("job ", i+1)}, o)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	for i, id := range ids[2:6] {
		t, err := q.TakeID(ctx, id)
		if err == nil && i < 2 {
			err = t.Bury(ctx, fmt.Errorf("job %d\nfailed", i+3))
		}
		if err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// result is what the command has printed.
type result struct {
	*testing.T
	status      int
	out, errOut string
}

// cli runs the command.
func cli(t *testing.T, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	status := run(t.Context(), args, &out, &errOut)
	return result{t, status, out.String(), errOut.String()}
}

// prints checks the printed text of a command that has worked.
func (r result) prints(want string) {
	r.Helper()
	require.Equal(r, done, r.status, r.errOut)
	require.Equal(r, want, r.out)
	require.Empty(r, r.errOut)
}

// fails checks how the command has failed.
func (r result) fails(status int, want string) {
	r.Helper()
	require.Contains(r, r.errOut, want)
	require.Equal(r, status, r.status)
}

// json returns the printed JSON.
func (r result) json() (v map[string]any) {
	r.Helper()
	require.Equal(r, done, r.status, r.errOut)
	require.NoError(r, json.Unmarshal([]byte(r.out), &v), r.out)
	return v
}

// launch starts the worker. It returns the ids of the tasks of the queue "still" from index 1 on,
// and a function that ends the worker and returns its outcome.
func launch(t *testing.T, url string) (ids []string, end func() outcome) {
	program, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), asWorker+"="+url)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	ids = append([]string{""}, strings.Fields(strings.Trim(line, "[]\n"))...)
	require.Len(t, ids, 8, line)
	return ids, func() (o outcome) {
		require.NoError(t, in.Close())
		err := json.NewDecoder(lines).Decode(&o)
		require.NoError(t, errors.Join(err, cmd.Wait()))
		return o
	}
}

// onStores runs a test with each store that several processes can use, while another process
// works.
func onStores(t *testing.T, test func(t *testing.T, id []string, end func() outcome)) {
	for name, url := range map[string]func(*testing.T) string{
		"sqlite": func(t *testing.T) string {
			return "sqlite:" + filepath.Join(t.TempDir(), "tasks.db")
		},
		"postgres": func(t *testing.T) string { return "postgres:" + pgtest.Shared(t).Database(t) },
	} {
		t.Run(name, func(t *testing.T) {
			url := url(t)
			t.Setenv("FAIRQ_STORE", url)
			ids, end := launch(t, url)
			test(t, ids, end)
		})
	}
}

const prefix = "-prefix=test_"

func TestLook(t *testing.T) {
	onStores(t, func(t *testing.T, id []string, end func() outcome) {
		cli(t, prefix, "stats", "still").prints("" +
			"name      still\nready     1\ndelayed   1\ntaken     2\nburied    2\nheld      1\n" +
			"keys      7\ncounted   7\ncapacity  100\npaused    false\n")
		require.Equal(t, map[string]any{
			"name": "still", "ready": 1.0, "delayed": 1.0, "taken": 2.0, "buried": 2.0,
			"held": 1.0, "keys": 7.0,
			"counted": 7.0, "capacity": 100.0, "paused": false,
		}, cli(t, prefix, "-json", "stats", "still").json())

		r := cli(t, prefix, "queues")
		require.Regexp(t,
			`^QUEUE +READY +DELAYED +TAKEN +BURIED +HELD +KEYS *\nbusy +\d.*\nstill +1 +1 +2 +2 +1 +7 *\n$`,
			r.out)

		r = cli(t, prefix, "keys", "-limit", "2", "still")
		require.Equal(t, 3, strings.Count(r.out, "\n"), r.out)
		rows := cli(t, prefix, "keys", "still", "-json").json()["keys"].([]any)
		require.Len(t, rows, 7)

		r = cli(t, prefix, "list", "still", "-state", "buried")
		require.Regexp(t, `^ID +STATE +KEY +KIND +ATTEMPTS +PUT +UNTIL +ERROR *\n`+
			id[3]+` +buried +user 3 +mail +1 +\S+ ago +- +"job 3\\nfailed" *\n`+id[4]+
			` +buried +user 4 +- +1 .*\n$`, r.out)
		r = cli(t, prefix, "list", "still", "-payload", "-kind=mail")
		require.Contains(t, r.out, `{"Text":"job 3"}`)
		require.NotContains(t, cli(t, prefix, "list", "still").out, "job 1", "payloads are private")
		require.NotContains(t, cli(t, prefix, "peek", "still", id[1]).out, "job 1")
		r = cli(t, prefix, "list", "still", "-group", "g")
		require.Contains(t, r.out, ` "<b>\x1b[2J\xff" `)
		require.NotContains(t, r.out, "\x1b")
		require.Equal(t, cli(t, prefix, "list", "still", "-group", "g", "-json").out,
			cli(t, prefix, "list", "still", "-key", `"<b>\x1b[2J\xff"`, "-json").out)
		require.Regexp(t, `^ID .*\n`+id[3]+` .*\n$`,
			cli(t, prefix, "list", "-state=buried", "still", "-soonest", "-limit=1").out)

		row := cli(t, prefix, "peek", "still", id[7], "-json",
			"-payload").json()["tasks"].([]any)[0].(map[string]any)
		require.Equal(t, id[7], row["id"])
		require.Equal(t, "held", row["state"])
		require.Equal(t, "x", row["unique_key"])
		require.Equal(t, map[string]any{"trace": `"a\n"`}, row["metadata"])
		require.Equal(t, map[string]any{"Text": "job 7"}, row["payload"])
		r = cli(t, prefix, "peek", "still", id[2], id[7], "999999", "-payload")
		r.fails(notFound, "task: not found: task 999999")
		require.Regexp(t,
			`^id +`+id[2]+`\nstate +delayed\nkey +user 2\n(?s:.*)until +\S+ +\(in (59m|1h)\S+\)\n`+
				`payload +\{"Text":"job 2"\}\n\nid +`+id[7]+`\n(?s:.*)\nmetadata trace +"a\\n"\n`, r.out)

		r = cli(t, prefix, "next", "still")
		require.Regexp(t, `^ID .*\n`+id[1]+` +ready +user 1 .*\n$`, r.out)
		require.Equal(t, 7, end().Still.Len(), "looking has changed nothing")
	})
}

func TestChange(t *testing.T) {
	onStores(t, func(t *testing.T, id []string, end func() outcome) {
		cli(t, prefix, "kick", "still", id[3]).prints("kicked: 1\n")
		cli(t, prefix, "kick", "still", id[3], id[4]).fails(notFound,
			"task: not found: task "+id[3]+" among those that are buried")
		cli(t, prefix, "bury", "still", id[1], id[5], "-reason", "for now").fails(failed,
			"task "+id[5]+": task: task is taken; -force does it all the same")
		require.Contains(t, cli(t, prefix, "peek", "still", id[1]).out, "for now")
		cli(t, prefix, "bury", "still", id[5], "-force").prints("buried: 1\n")
		cli(t, prefix, "kick", "still", "-key", "user 1").prints("kicked: 1\n")
		cli(t, prefix, "kick", "still", "-kind", "none").prints("kicked: 0\n")
		require.Equal(t, map[string]any{"done": 1.0},
			cli(t, prefix, "kick", "still", "-all", "-json").json())
		cli(t, prefix, "delete", "still", id[6]).fails(failed, "task is taken")
		cli(t, prefix, "delete", "still", id[6], id[7], "-force").prints("deleted: 2\n")
		cli(t, prefix, "pause", "still").prints("paused: 1\n")
		require.Contains(t, cli(t, prefix, "stats", "still").out, "paused    true")
		require.Contains(t, cli(t, prefix, "queues").out, " paused\n")
		cli(t, prefix, "resume", "still").prints("resumed: 1\n")
		cli(t, prefix, "pause", "still", "-key", "user 4").prints("paused: 1\n")
		require.Regexp(t, `user 4 .* paused by PauseKey\n`, cli(t, prefix, "keys", "still").out)
		require.NotContains(t, cli(t, prefix, "next", "still").out, "user 4")
		cli(t, prefix, "resume", "still", "-key", "user 4").prints("resumed: 1\n")
		require.Contains(t, cli(t, prefix, "next", "still").out, "user 4")

		cli(t, prefix, "drop", "still").fails(failed, "the queue has 5 tasks; -yes deletes them too")
		rounds := 20
		if testing.Short() {
			rounds = 5
		}
		for range rounds { // while the other process works on them
			cli(t, prefix, "queues", "-json").json()
			cli(t, prefix, "pause", "busy").prints("paused: 1\n")
			cli(t, prefix, "kick", "busy", "-all")
			cli(t, prefix, "resume", "busy").prints("resumed: 1\n")
		}
		o := end()
		require.Equal(t, 4, o.Still.Ready)
		require.Equal(t, 1, o.Still.Delayed)
		require.Positive(t, o.Worked)
		require.Equal(t, 100, o.Still.Capacity)
		cli(t, prefix, "drop", "still", "-yes").prints("dropped: 1\n")
		cli(t, prefix, "stats", "still").fails(notFound,
			"task: not found: queue still; there are: busy\n")
	})
}

// A queue that does not exist is not made, and neither is a store.
func TestNothingIsMade(t *testing.T) {
	onStores(t, func(t *testing.T, id []string, end func() outcome) {
		for _, command := range []string{
			"stats", "keys", "next", "list", "pause", "resume", "drop", "serve", "peek 1", "kick 1",
			"bury 1", "delete 1",
		} {
			name, id, _ := strings.Cut(command, " ")
			cli(t, append([]string{prefix, name, "stlil"}, strings.Fields(id)...)...).fails(notFound,
				"queue stlil; there are: busy, still\n")
		}
		require.Len(t, cli(t, prefix, "queues", "-json").json()["queues"], 2)
		cli(t, "-prefix=other_", "queues").fails(failed, "")
		end()
	})
	file := filepath.Join(t.TempDir(), "nothing.db")
	for _, scheme := range []string{"sqlite:", "sqlite://"} {
		cli(t, "-store", scheme+file, "queues").fails(failed, "there is no file "+file)
	}
	require.NoFileExists(t, file)
}
