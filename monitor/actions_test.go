package monitor_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/monitor"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

func everything(_ *http.Request, asked []monitor.Action) []monitor.Action { return asked }

func act(
	t *testing.T, h http.Handler, source, name string, form map[string]string,
) (status int, answer map[string]any) {
	t.Helper()
	return send(t, h, action(http.MethodPost, source, name, form))
}

func action(method, source, name string, form map[string]string) *http.Request {
	values := url.Values{}
	for name, value := range form {
		values.Set(name, value)
	}
	r := httptest.NewRequest(method, "/v1/queues/"+source+"/actions/"+name,
		strings.NewReader(values.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return r
}

// mails is a queue with ten tasks. Task 1 is buried, and task 2 is taken.
func mails(t *testing.T) *task.Queue[int] {
	q, err := task.Open[int](t.Context(), new(memory.Store), "mails", nil)
	require.NoError(t, err)
	for i := range 10 {
		_, err := q.Put(t.Context(), fmt.Sprint("user ", i%2), i, task.PutOptions{})
		require.NoError(t, err)
	}
	first, err := q.Take(t.Context())
	require.NoError(t, err)
	require.NoError(t, first.Bury(t.Context(), errors.New("no")))
	_, err = q.Take(t.Context())
	require.NoError(t, err)
	return q
}

func TestActions(t *testing.T) {
	q := mails(t)
	p := new(counted)
	var asked []monitor.Action
	var log bytes.Buffer
	m := monitor.New(&monitor.Options{
		Actions: func(r *http.Request, a []monitor.Action) []monitor.Action {
			if asked = append(asked, a...); r.Header.Get("X-User") == "mallory" {
				return nil
			}
			return a
		},
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	}, monitor.TaskQueue("mails", q, nil), monitor.Pool("workers", p, nil))
	const notID = "; it must be that of a task, a whole number from 1"
	for _, c := range []struct {
		source, name string
		form         map[string]string
		status       int
		answer       any // done, or the error
	}{
		{"mails", "kick", map[string]string{"id": "1"}, 200, 1.0},
		{"mails", "kick", map[string]string{"id": "1"}, 404, "task: not found: task 1"},
		{"mails", "bury", map[string]string{"id": "3"}, 200, 1.0},
		{"mails", "bury", map[string]string{"id": "2"}, 409, task.ErrTaken.Error()},
		{"mails", "kick-all", nil, 200, 1.0},
		{"mails", "delete", map[string]string{"id": "3"}, 200, 1.0},
		{"mails", "delete", map[string]string{"id": "2"}, 409, task.ErrTaken.Error()},
		{"mails", "delete", map[string]string{"id": "99"}, 404, "task: not found: task 99"},
		{"mails", "pause", nil, 200, 1.0},
		{"mails", "resume", nil, 200, 1.0},
		{"mails", "pause-key", map[string]string{"key": "user 0"}, 200, 1.0},
		{"mails", "resume-key", map[string]string{"key": "user 0"}, 200, 1.0},
		{"mails", "drop-key", map[string]string{"key": "user 1"}, 200, 4.0}, // one is taken
		{
			"mails", "drop-key",
			map[string]string{"key": `"a"… of 200 bytes`},
			404,
			"there is no such key among those that are shown",
		},
		{"workers", "pause", nil, 200, 1.0},
		{"workers", "resume", nil, 200, 1.0},

		{"workers", "kick", map[string]string{"id": "1"}, 404, "there is no such action here"},
		{"mails", "explode", nil, 404, "there is no such action here"},
		{"nothing", "pause", nil, 404, "there is no queue nothing"},
		{"mails", "kick", nil, 400, "id is \"\"" + notID},
		{"mails", "kick", map[string]string{"id": "0"}, 400, "id is 0" + notID},
		{"mails", "kick", map[string]string{"id": "-1"}, 400, "id is -1" + notID},
		{"mails", "pause-key", nil, 400, "there is no key"},
		{
			"mails", "pause-key",
			map[string]string{"key": strings.Repeat("a", 1025)},
			400,
			"key has 1025 bytes; the limit is 1024",
		},
		{
			"mails", "pause-key",
			map[string]string{"key": strings.Repeat("a", 1<<17)},
			400,
			"the form cannot be read; its limit is 64 KiB",
		},
	} {
		asked = nil
		status, answer := act(t, m, c.source, c.name, c.form)
		require.Equal(t, c.status, status, "%v: %v", c, answer)
		if status == 200 {
			require.Equal(t, map[string]any{"done": c.answer}, answer)
			require.Contains(t, log.String(),
				"level=INFO msg=\"monitor: action\" source="+c.source+" action="+c.name+" remote=")
		} else {
			require.Equal(t, map[string]any{"error": c.answer}, answer)
			require.Equal(t, c.source != "nothing", strings.Contains(log.String(), "level=WARN"))
		}
		if len(asked) > 0 {
			require.Equal(t,
				[]monitor.Action{{Source: c.source, Name: c.name, Key: c.form["key"], ID: asked[0].ID}}, asked)
		}
		log.Reset()
	}
	require.Equal(t, []string{"pause", "resume"}, p.done)
	stats, err := q.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, 4, stats.Ready)
	require.Equal(t, 1, stats.Taken)

	r := action(http.MethodPost, "mails", "drop-key", map[string]string{"key": "user\n0"})
	r.Header.Set("X-User", "mallory")
	status, answer := send(t, m, r)
	require.Equal(t, http.StatusForbidden, status)
	require.Equal(t, map[string]any{"error": "this is not allowed"}, answer)
	require.Equal(t, 1, strings.Count(log.String(), "\n"), "whatever the key is, it is one line")
}

// An action is refused with another method, from a page of another origin, or without permission.
func TestRefusedActions(t *testing.T) {
	q := mails(t)
	log := slog.New(slog.DiscardHandler)
	off := monitor.New(&monitor.Options{Logger: log}, monitor.TaskQueue("mails", q, nil))
	on := monitor.New(&monitor.Options{Actions: everything, Logger: log},
		monitor.TaskQueue("mails", q, nil))
	check := func(h http.Handler, r *http.Request, status int, message string) {
		t.Helper()
		got, answer := send(t, h, r)
		require.Equal(t, map[string]any{"error": message}, answer)
		require.Equal(t, status, got)
	}
	key := map[string]string{"key": "user 0"}
	check(off, action(http.MethodPost, "mails", "drop-key", key), http.StatusForbidden,
		"actions are not allowed here")
	for _, method := range []string{
		http.MethodGet, http.MethodPut, http.MethodDelete, http.MethodOptions,
	} {
		check(on, action(method, "mails", "drop-key", key), http.StatusMethodNotAllowed,
			"the method is "+method+"; it must be POST")
	}
	for _, header := range []http.Header{
		{"Origin": {"https://evil.example"}},
		{"Origin": {"null"}}, // of a frame in a sandbox, or of a file
		{"Origin": {"http://example.com:8080"}},
		{"Sec-Fetch-Site": {"cross-site"}},
		{"Sec-Fetch-Site": {"same-site"}, "Origin": {"http://other.example.com"}},
		{"Sec-Fetch-Site": {"cross-site"}, "Origin": {"http://example.com"}},
	} {
		r := action(http.MethodPost, "mails", "drop-key", key)
		maps.Copy(r.Header, header)
		check(on, r, http.StatusForbidden, "the request is from a page of another origin")
	}
	stats, err := q.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, 8, stats.Ready)

	_, answer := get(t, off, "/v1/queues")
	require.Empty(t, answer["queues"].([]any)[0].(map[string]any)["actions"])
	_, answer = get(t, on, "/v1/queues")
	require.Len(t, answer["queues"].([]any)[0].(map[string]any)["actions"], 11)

	for i, header := range []http.Header{
		// A browser sends its page's origin, here the host of the request.
		{"Sec-Fetch-Site": {"same-origin"}, "Origin": {"http://example.com"}},
		// An old browser sends no Sec-Fetch-Site.
		{"Origin": {"http://example.com"}},
		{}, // from a program
	} {
		r := action(http.MethodPost, "mails", "delete", map[string]string{"id": fmt.Sprint(3 + i)})
		maps.Copy(r.Header, header)
		status, _ := send(t, on, r)
		require.Equal(t, http.StatusOK, status, header)
	}

	// Parameters in the address do not count, so a link cannot do anything.
	r := action(http.MethodPost, "mails", "delete?id=6", nil)
	check(on, r, http.StatusBadRequest, `id is ""; it must be that of a task, a whole number from 1`)
}
