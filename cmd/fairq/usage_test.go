package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
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
		"":                            "which command?",
		"explode":                     "there is no command explode",
		"stats":                       `stats has 0 arguments; it is "stats QUEUE"`,
		"stats a b":                   `stats has 2 arguments; it is "stats QUEUE"`,
		"queues a":                    `queues has 1 arguments; it is "queues"`,
		"peek a":                      `peek has 1 arguments; it is "peek QUEUE ID..."`,
		"stats a":                     "which store? Name it with -store or in FAIRQ_STORE",
		"stats a -force":              "stats has no flag -force",
		"stats a -store x":            "the store is x; it must begin with sqlite:, postgres://, etcd:// or foundationdb:",
		"stats a -store etcd://":      "must be etcd://[USER:PASSWORD@]HOST:PORT",
		"stats a -store etcd://a:1/b": "must be etcd://[USER:PASSWORD@]HOST:PORT",
		"list a -limit 0":             "-limit is 0; it must be 1 to 10000",
		"list a -limit x":             `invalid value "x" for flag -limit`,
		"list a -state x":             "it must be ready, delayed, taken, buried or held",
		`list a -key "x`:              "is not a text in quotes",
		"serve -port 65536":           "-port is 65536; it must be 0 to 65535",
		"drop a -history -1s":         "-history is -1s; it must be 0 or more",
	} {
		cli(t, strings.Fields(line)...).fails(misused, want)
	}
	t.Setenv("FAIRQ_STORE", "etcd://user:secret@127.0.0.1:1")
	for _, line := range []string{"-h", "help", "stats -h", "-help"} {
		r := cli(t, strings.Fields(line)...)
		require.Equal(t, done, r.status)
		for _, c := range commands {
			require.Contains(t, r.out, "\n  "+strings.TrimSpace(c.name+" "+c.args))
		}
		require.Contains(t, r.out, "  -soonest\n")
		require.NotContains(t, r.out, "secret")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.Equal(t, failed, run(ctx, []string{"-store", "etcd://127.0.0.1:1", "queues"}, io.Discard, io.Discard))
	cli(t, "-store", "postgres://127.0.0.1:1/x", "queues").fails(failed, "127.0.0.1")
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
	cli(t, "list", `mail/"send`, "-after", id).fails(notFound, `queue mail/"send; there are: mail/"send"`)
	require.Contains(t, cli(t, "list", `mail/"send"`, "-after", id, "-payload").out, `"\"to b\""`)
	cli(t, "list", "x", "-soonest").fails(misused, "-soonest is for -state delayed or buried")
	cli(t, "kick", "x").fails(misused, "kick which tasks?")
	cli(t, "kick", "x", "1", "-all").fails(misused, "either by ids, or by -all")
	cli(t, "peek", `"x`, "1").fails(misused, "the queue \"\\\"x\" begins with a quote")
	for _, command := range []string{"peek", "kick", "bury", "delete"} {
		cli(t, command, `mail/"send"`, "0").fails(misused, "the id is 0; it must be a whole number from 1")
	}
}

// serving begins to serve, and returns the address of the page, and a function that ends it.
func serving(t *testing.T, args ...string) (page string, end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, append([]string{"serve", "-port=0"}, args...), w, w) }()
	line, err := bufio.NewReader(r).ReadString('\n')
	require.NoError(t, err)
	page = regexp.MustCompile(`http://localhost:\d+/`).FindString(line)
	require.NotEmpty(t, page, line)
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
	for _, args := range [][]string{nil, {"-actions", "-payload", `mail/"send"`}} {
		page, end := serving(t, args...)
		status, body := ask(t, request(t, http.MethodGet, page+queue+"/buried"))
		require.Equal(t, http.StatusOK, status)
		var answer struct {
			Buried []struct{ Key, Payload string }
		}
		require.NoError(t, json.Unmarshal([]byte(body), &answer))
		require.Len(t, answer.Buried, 1)
		require.Equal(t, "a", answer.Buried[0].Key)
		require.Equal(t, args != nil, answer.Buried[0].Payload != "", "payloads are shown if asked for")

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
	require.Equal(t, `fairq: queue "a\x1b[2J" is left out: a page cannot have this name`, lines.Text())
	require.True(t, lines.Scan())
	_, body := ask(t, request(t, http.MethodGet, regexp.MustCompile(`http://\S+/`).FindString(lines.Text())+"v1/queues"))
	require.Contains(t, body, `mail/\"send\"`)
	cancel()
}
