package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/sqlite"
	"github.com/fairq/fairq/task"
)

func TestUsage(t *testing.T) {
	t.Setenv("FAIRQ_STORE", "")
	for line, want := range map[string]string{
		"":               "which command?",
		"explode":        "there is no command explode",
		"stats":          `stats has 0 arguments; it is "stats QUEUE"`,
		"stats a b":      `stats has 2 arguments; it is "stats QUEUE"`,
		"queues a":       `queues has 1 arguments; it is "queues"`,
		"peek a":         `peek has 1 arguments; it is "peek QUEUE ID..."`,
		"stats a":        "which store? Name it with -store or in FAIRQ_STORE",
		"stats a -force": "stats has no flag -force",
		"stats a -store x": "the store is x; it must begin with sqlite:, postgres://, " +
			"etcd://, redis://, rediss:// or foundationdb:",
		"stats a -store postgress://u:pw@h/db": "the store is postgress:...; it must begin",
		"stats a -store host=h,password=pw":    "the store is host=...; it must begin",
		"postgres://u:pw@h/db":                 "there is no command postgres:...\n",
		"help postgres://u:pw@h/db":            "there is no command postgres:...\n",
		"stats a -store etcd:u:pw@h":           "must be etcd://[USER:PASSWORD@]HOST:PORT",
		"stats a -store etcd://":               "must be etcd://[USER:PASSWORD@]HOST:PORT",
		"stats a -store etcd://a:1/b":          "must be etcd://[USER:PASSWORD@]HOST:PORT",
		"list a -limit 0":                      "-limit is 0; it must be 1 to 10000",
		"list a -limit x":                      `invalid value "x" for flag -limit`,
		"list a -state x":                      "it must be ready, delayed, taken, buried or held",
		`list a -key "x`:                       "is not a text in quotes",
		"serve -port 65536":                    "-port is 65536; it must be 0 to 65535",
		"drop a -history -1s":                  "-history is -1s; it must be 0 or more",
	} {
		cli(t, strings.Fields(line)...).fails(misused, want)
	}
	t.Setenv("FAIRQ_STORE", "etcd://user:secret@127.0.0.1:1")
	for _, line := range []string{"-h", "help", "-help"} {
		r := cli(t, strings.Fields(line)...)
		require.Equal(t, done, r.status)
		for _, c := range commands {
			require.Contains(t, r.out, "\n  "+strings.TrimSpace(c.name+" "+c.args))
		}
		require.Contains(t, r.out, "  -soonest\n")
		require.NotContains(t, r.out, "secret")
	}
	for _, line := range []string{"keys -h", "help keys"} {
		r := cli(t, strings.Fields(line)...)
		require.Equal(t, done, r.status)
		require.Contains(t, r.out, "fairq [flags] keys QUEUE\n")
		require.Contains(t, r.out, "  -paused\n")
		require.NotContains(t, r.out, "-soonest")
	}
	cli(t, "help", "explode").fails(misused, "there is no command explode")
	require.Regexp(t, `^fairq \S+\n$`, cli(t, "version").out)
	cli(t, "completion", "csh").fails(misused, "it must be bash, zsh or fish")
	for _, shell := range []string{"bash", "zsh", "fish"} {
		for _, c := range commands {
			require.Contains(t, cli(t, "completion", shell).out, c.name)
		}
	}
	if bash, err := exec.LookPath("bash"); err == nil {
		script := cli(t, "completion", "bash").out +
			"COMP_WORDS=(fairq keys -p) COMP_CWORD=2; _fairq; echo ${COMPREPLY[@]}"
		out, err := exec.CommandContext(t.Context(), bash, "-c", script).Output()
		require.NoError(t, err)
		require.Equal(t, "-prefix -paused\n", string(out))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	for _, user := range []string{"", "u:p@w@"} {
		var text bytes.Buffer
		require.Equal(t, failed,
			run(ctx, []string{"-store", "etcd://" + user + "127.0.0.1:1", "queues"}, io.Discard, &text))
		require.Contains(t, text.String(), "fairq: 127.0.0.1:1: ")
		require.NotContains(t, text.String(), "w@")
	}
	cli(t, "-store", "postgres://127.0.0.1:1/x", "queues").fails(failed, "127.0.0.1")
	cli(t, "-store", "redis://u:secret@127.0.0.1:1", "queues").fails(failed, "127.0.0.1:1: ")
	cli(t, "-store", "redis://u:secret@[", "queues").fails(failed, "redis: open: the URL: ")
	cli(t, "-store", "foundationdb:", "queues").fails(failed, "-tags foundationdb")
}

// newStore makes a file with a queue that has a buried task and a ready one, and returns the id of
// the first.
func newStore(t *testing.T) (*sqlite.Store, string) {
	file := filepath.Join(t.TempDir(), "tasks.db")
	t.Setenv("FAIRQ_STORE", "sqlite:"+file)
	s, err := sqlite.Open(t.Context(), file, nil)
	require.NoError(t, err)
	q, err := task.Open[string](t.Context(), s, `mail/"send"`, nil)
	require.NoError(t, err)
	id, err := q.Put(t.Context(), "a", "to a", task.PutOptions{})
	require.NoError(t, err)
	_, err = q.Put(t.Context(), "b", "to b", task.PutOptions{})
	require.NoError(t, err)
	require.NoError(t, q.Bury(t.Context(), id, nil))
	require.NoError(t, q.Close(t.Context()))
	return s, fmt.Sprint(id)
}

func TestArguments(t *testing.T) {
	s, id := newStore(t)
	require.NoError(t, s.Close())
	cli(t, "kick", "-all", "--", `mail/"send"`).prints("kicked: 1\n")
	cli(t, "list", `mail/"send`, "-after", id).fails(notFound,
		`queue mail/"send; there are: mail/"send"`)
	require.Contains(t, cli(t, "list", `mail/"send"`, "-after", id, "-payload").out, `"\"to b\""`)
	cli(t, "list", "x", "-soonest").fails(misused, "-soonest is for -state delayed or buried")
	cli(t, "kick", "x").fails(misused, "kick which tasks?")
	cli(t, "delete", "x").fails(misused, "delete which tasks?")
	cli(t, "delete", "x", "1", "-key", "a").fails(misused, "either by ids, or by -state")
	cli(t, "kick", "x", "1", "-all").fails(misused, "either by ids, or by -all")
	cli(t, "peek", `"x`, "1").fails(misused, "the queue \"\\\"x\" begins with a quote")
	for _, command := range []string{"peek", "kick", "bury", "delete"} {
		cli(t, command, `mail/"send"`, "0").fails(misused,
			"the id is 0; it must be a whole number from 1")
	}
}

// serving begins to serve, and returns the address of the page, and a function that ends it.
func serving(t *testing.T, args ...string) (page string, end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, append([]string{"serve", "-port=0"}, args...), w, w) }()
	lines, printed := bufio.NewReader(r), ""
	for page == "" {
		line, err := lines.ReadString('\n')
		require.NoError(t, err, printed)
		printed += line
		page = regexp.MustCompile(`http://localhost:\d+/`).FindString(line)
	}
	require.Equal(t, slices.Contains(args, "-json"), strings.HasPrefix(printed, "{"))
	go func() { _, _ = io.Copy(io.Discard, r) }()
	return page, func() {
		cancel()
		require.Equal(t, done, <-ended)
	}
}

// ask sends a request, and returns the answer.
func ask(t *testing.T, r *http.Request) (status int, body string) {
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(text)
}

func request(t *testing.T, method, url string) *http.Request {
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	require.NoError(t, err)
	return r
}

func TestServe(t *testing.T) {
	s, _ := newStore(t)
	require.NoError(t, s.Close())
	queue := "v1/queues/" + url.PathEscape(`mail/"send"`)
	for _, args := range [][]string{nil, {"-actions", "-json", "-payload", `mail/"send"`}} {
		page, end := serving(t, args...)
		status, body := ask(t, request(t, http.MethodGet, page+queue+"/tasks"))
		require.Equal(t, http.StatusOK, status)
		var answer struct {
			Tasks []struct{ Key, Payload string }
		}
		require.NoError(t, json.Unmarshal([]byte(body), &answer))
		require.Len(t, answer.Tasks, 1)
		require.Equal(t, "a", answer.Tasks[0].Key)
		require.Equal(t, args != nil, answer.Tasks[0].Payload != "", "payloads are shown if asked for")

		_, body = ask(t, request(t, http.MethodGet, page+queue))
		require.Contains(t, body, `"counts":"nothing"`, "so the page shows no rates")

		kick := request(t, http.MethodPost, page+queue+"/actions/kick-all")
		foreign := request(t, http.MethodPost, page+queue+"/actions/kick-all")
		foreign.Host = "evil.example"
		status, body = ask(t, foreign)
		require.Equal(t, http.StatusForbidden, status)
		require.Equal(t, "the host is not localhost\n", body)
		status, body = ask(t, kick)
		if args == nil {
			require.Equal(t, http.StatusForbidden, status)
		} else {
			require.Equal(t, "{\"done\":1}\n", body)
		}
		end()
	}
	cli(t, "serve", `mail/"send"`, "other").fails(notFound, "queue other; there are: ")
}

// Tasks are kicked and deleted by key, kind, state and reason; paused keys and the history are
// listed.
func TestMany(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tasks.db")
	t.Setenv("FAIRQ_STORE", "sqlite:"+file)
	s, err := sqlite.Open(t.Context(), file, &sqlite.Options{History: time.Hour})
	require.NoError(t, err)
	q, err := task.Open[string](t.Context(), s, "mails", nil)
	require.NoError(t, err)
	for i := range 40 {
		id, err := q.Put(t.Context(), fmt.Sprint("user ", i%2), "",
			task.PutOptions{Kind: []string{"", "news"}[i/20]})
		require.NoError(t, err)
		if i%4 < 2 {
			require.NoError(t,
				q.Bury(t.Context(), id, fmt.Errorf("%s %d", []string{"timed out", "no mailbox"}[i%2], i)))
		}
	}
	require.NoError(t, q.PauseKey(t.Context(), "nobody"))
	require.NoError(t, s.Close())
	require.Equal(t, 2, strings.Count(cli(t, "keys", "mails", "-paused").out, "\n"),
		"the head and nobody")
	cli(t, "delete", "mails", "-key", "user 0", "-state", "buried").fails(failed,
		"these are 10 tasks; -yes deletes them")
	cli(t, "delete", "mails", "-key", "user 0", "-kind", "news", "-state", "buried", "-yes",
		"-history=1h").prints("deleted: 5\n")
	out := cli(t, "list", "mails", "-reason", "mailbox", "-limit", "3").out
	require.Equal(t, []int{4, 3},
		[]int{strings.Count(out, "\n"), strings.Count(out, "no mailbox")}, out)
	cli(t, "list", "mails", "-reason", "x", "-soonest", "-state", "buried").fails(misused,
		"do not go together")
	cli(t, "kick", "mails", "-reason", "timed").prints("kicked: 5\n")
	cli(t, "delete", "mails", "-reason", "mailbox 1", "-yes",
		"-history=1h").prints("deleted: 3\n")
	require.Contains(t, cli(t, "stats", "mails").out, "buried    7\n")
	gone := func(args ...string) (ids []any) {
		for _, row := range cli(t, append([]string{"history", "mails", "-json"},
			args...)...).json()["tasks"].([]any) {
			ids = append(ids, row.(map[string]any)["id"])
		}
		return ids
	}
	all := gone()
	require.Len(t, all, 8)
	require.Equal(t, all[:2], gone("-limit", "2"), "the newest come first")
	require.Equal(t, all[3:], gone("-key", "user 0"), "they were deleted before")
	require.Len(t, gone("-kind", "news"), 5)
	require.Equal(t, all[3:4], gone("-id", all[3].(string)))
	require.Empty(t, gone("-id", "999"))
	require.Contains(t, cli(t, "history", "mails").out, "deleted")

	s, err = sqlite.Open(t.Context(), file, nil)
	require.NoError(t, err)
	q, err = task.Open[string](t.Context(), s, "later", nil)
	require.NoError(t, err)
	later := task.Entry[string]{Key: "a", Options: task.PutOptions{Delay: time.Hour}}
	_, err = q.PutBatch(t.Context(), slices.Repeat([]task.Entry[string]{later}, 1100))
	require.NoError(t, err)
	require.NoError(t, s.Close())
	for limit, want := range map[string]int{"1050": 1050, "2000": 1100} {
		r := cli(t, "list", "later", "-state=delayed", "-soonest", "-json", "-limit", limit)
		require.Len(t, r.json()["tasks"], want)
	}
}

// Keys have limits of their own, which are shown beside why nothing of the key can be taken.
func TestLimits(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tasks.db")
	t.Setenv("FAIRQ_STORE", "sqlite:"+file)
	s, err := sqlite.Open(t.Context(), file, nil)
	require.NoError(t, err)
	q, err := task.Open[string](t.Context(), s, "mails", &task.Options[string]{MaxInFlightPerKey: 9})
	require.NoError(t, err)
	_, err = q.Put(t.Context(), "a", "", task.PutOptions{})
	require.NoError(t, err)
	_, err = q.Take(t.Context())
	require.NoError(t, err)
	require.NoError(t, q.HoldKey(t.Context(), "b", time.Hour))
	_, err = q.Put(t.Context(), "b", "", task.PutOptions{})
	require.NoError(t, err)
	cli(t, "limit", "mails", "-key", "a", "-in-flight", "1", "-rate", "-1").prints("limited: 1\n")
	cli(t, "limit", "mails").prints("a  1 at a time, no rate\n")
	out := cli(t, "keys", "mails").out
	require.Regexp(t, `a +0 +1 +0 +0s +1 at a time, no rate +at its limit of 1\n`, out)
	require.Regexp(t, `b +1 +0 +0 +\S+ +- +held until 2\S+ \S+\n`, out)
	require.Regexp(t, `^KEY.*\nb .*held until \S+ \S+\n$`, cli(t, "keys", "mails", "-paused").out)
	require.Contains(t, cli(t, "limit", "mails", "-json").out, `"MaxInFlight": 1`)
	cli(t, "limit", "mails", "-key", "a", "-weight", "-1").fails(failed, "KeyLimits.Weight is -1")
	cli(t, "limit", "mails", "-key", "a").prints("limited: 1\n")
	cli(t, "limit", "mails").prints("")
	require.NoError(t, s.Close())
}

// The page shows new queues, and no dropped ones.
func TestServeFollows(t *testing.T) {
	s, _ := newStore(t)
	c := &call{store: s, errOut: io.Discard}
	all := map[string]*shown{}
	names := func() (names []string) {
		sources, err := c.sources(t.Context(), all)
		require.NoError(t, err)
		for _, s := range sources {
			_, err := s.Stats(t.Context())
			require.NoError(t, err)
			names = append(names, s.Name())
		}
		return names
	}
	require.Equal(t, []string{`mail/"send"`}, names())
	open := func(name string) *task.Queue[string] {
		q, err := task.Open[string](t.Context(), s, name, nil)
		require.NoError(t, err)
		return q
	}
	q := open("other")
	require.Equal(t, []string{`mail/"send"`, "other"}, names())
	require.NoError(t, q.Drop(t.Context()))
	gone := all["other"].queue
	require.Equal(t, []string{`mail/"send"`}, names())
	require.ErrorIs(t, gone.Pause(t.Context()), task.ErrClosed)
	q = open("other")
	require.Len(t, names(), 2)
	require.NoError(t, q.Drop(t.Context()))
	open("other")
	require.Len(t, names(), 2, "another one of that name")
	require.NoError(t, s.Close())
}

// A queue with a name that no page can have is left out, and the others are shown.
func TestServeHostileNames(t *testing.T) {
	s, _ := newStore(t)
	q, err := task.Open[string](t.Context(), s, "a\x1b[2J", nil)
	require.NoError(t, err)
	require.NoError(t, q.Close(t.Context()))
	require.NoError(t, s.Close())
	require.Contains(t, cli(t, "queues").out, `"a\x1b[2J"`)
	require.Contains(t, cli(t, "stats", `"a\x1b[2J"`).out, "ready     0")
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	go func() { run(ctx, []string{"serve", "-port=0"}, w, w) }()
	lines := bufio.NewScanner(r)
	require.True(t, lines.Scan())
	require.Equal(t,
		`fairq: queue "a\x1b[2J" is left out: a page cannot have this name`, lines.Text())
	require.True(t, lines.Scan())
	_, body := ask(t,
		request(t, http.MethodGet,
			regexp.MustCompile(`http://\S+/`).FindString(lines.Text())+"v1/queues"))
	require.Contains(t, body, `mail/\"send\"`)
	cancel()
}
