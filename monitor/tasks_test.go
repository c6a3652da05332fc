package monitor_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/monitor"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

// failed is a queue with n buried tasks of two reasons, three keys and two kinds.
func failed(t *testing.T, n int) *task.Queue[string] {
	q, err := task.Open[string](t.Context(), new(memory.Store), "mails", nil)
	require.NoError(t, err)
	for i := range n {
		id, err := q.Put(t.Context(), fmt.Sprint("user ", i%3), fmt.Sprint("mail ", i),
			task.PutOptions{Kind: []string{"", "news"}[i%2]})
		require.NoError(t, err)
		reason := fmt.Errorf("no mailbox %d", i)
		if i%5 == 0 {
			reason = errors.New("timed out")
		}
		require.NoError(t, q.Bury(t.Context(), id, reason))
	}
	return q
}

// Failures are counted in groups, shown in pages, and settled together.
func TestFailures(t *testing.T) {
	q := failed(t, 3900)
	mails := monitor.TaskQueue("mails", q, func(mail string) string { return mail })
	m := monitor.New(&monitor.Options{Actions: everything, Logger: slog.New(slog.DiscardHandler)},
		mails, monitor.Pool("workers", new(counted), mails))
	path := "/v1/queues/mails/"
	require.Equal(t, []map[string]any{
		{"reason": "no mailbox #", "count": 3120.0, "first": "2", "last": "3900"},
		{"reason": "timed out", "count": 780.0, "first": "1", "last": "3896"},
	}, rows(t, m, path+"failures?by=reason", "groups"))
	require.Equal(t, rows(t, m, path+"failures?by=key", "groups"),
		rows(t, m, "/v1/queues/workers/failures?by=key", "groups"))
	require.Len(t, rows(t, m, path+"failures?by=key", "groups"), 3)
	require.Len(t, rows(t, m, path+"failures?by=kind", "groups"), 2)
	groups := rows(t, m, path+"failures", "groups")
	require.Len(t, groups, 12)
	require.Equal(t,
		map[string]any{
			"reason": "no mailbox #", "key": "user 0", "kind": `""`, "count": 520.0, "first": "7",
			"last": "3895",
		},
		groups[0])

	// The pages of a group have each of its tasks once.
	form := map[string]string{"key": "user 0", "kind": `""`, "reason": "no mailbox #"}
	query := url.Values{"limit": {"100"}}
	for name, value := range form {
		query.Set(name, value)
	}
	seen := map[any]bool{}
	for after := any(""); after != nil; {
		query.Set("after", after.(string))
		if after == "" {
			query.Del("after")
		}
		_, page := get(t, m, path+"buried?"+query.Encode())
		for _, row := range page["buried"].([]any) {
			seen[row.(map[string]any)["id"]] = true
			require.Equal(t, "user 0", row.(map[string]any)["key"])
		}
		after = page["after"]
	}
	require.Len(t, seen, 520)

	count := func() (ready, buried int) {
		s, err := q.Stats(t.Context())
		require.NoError(t, err)
		return s.Ready, s.Buried
	}
	do := func(action string, form map[string]string, want, ready, buried int) {
		t.Helper()
		status, answer := act(t, m, "mails", action, form)
		require.Equal(t, http.StatusOK, status, answer)
		require.Equal(t, map[string]any{"done": float64(want)}, answer)
		r, b := count()
		require.Equal(t, [2]int{ready, buried}, [2]int{r, b})
	}
	do("kick-all", form, 520, 520, 3380)
	do("delete-all", map[string]string{"reason": "timed out"}, 780, 520, 2600)
	require.Len(t, rows(t, m, path+"failures?by=reason", "groups"), 1, "they are counted anew")
	do("kick-all", map[string]string{"kind": "news"}, 1560, 2080, 1040)
	do("kick-all", nil, 1040, 3120, 0)
	do("drop-key", map[string]string{"key": "user 1"}, 1040, 2080, 0)
	do("delete-all", map[string]string{"kind": "news"}, 0, 2080, 0)
}

// Errors of one group are shown alike, to the last byte, and differ in no status code.
func TestReasons(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"no mailbox 404", "no mailbox #"},
		{"GET /users/503: HTTP 503, try 2", "GET /users/#: HTTP 503, try #"},
		{"HTTP/1.1 404", "HTTP/1.1 404"},
		{"status code: 429 after 3 s", "status code: 429 after # s"},
		{"StatusCode=5031", "StatusCode=#"},
		{"upstream 7: 404 Not Found", "upstream #: 404 Not Found"},
		{"550 5.1.1 no such mailbox 17", "550 5.1.1 no such mailbox #"},
	} {
		require.Equal(t, c.want, monitor.ReasonOf(c.text))
	}
	long := strings.Repeat("x", 300)
	require.NotEqual(t, monitor.ReasonOf(long+"a"), monitor.ReasonOf(long+"b"))
	require.Equal(t, monitor.ReasonOf(long+"1"), monitor.ReasonOf(long+"22"))
}

// A pool without buried tasks shows the failures that it has seen.
func TestPoolFailures(t *testing.T) {
	forget := func(context.Context, *pool.DeadLetter[int]) error { return nil }
	p := pool.Func(func(_ context.Context, task *task.Task[int]) error {
		return pool.Permanent(fmt.Errorf("no mailbox %d", task.Payload%2*task.Payload))
	}, &pool.Options[int]{Workers: 2, Logger: slog.New(slog.DiscardHandler), DeadLetters: forget})
	for i := range 215 {
		require.NoError(t, p.Submit(t.Context(), fmt.Sprint("user ", i%3), i))
	}
	require.NoError(t, p.StopAndWait(t.Context()))
	m := monitor.New(nil, monitor.Pool("workers", p, nil))
	path := "/v1/queues/workers/failures?by="
	require.Equal(t, []map[string]any{{"reason": "no mailbox #", "count": 100.0}},
		rows(t, m, path+"reason", "groups"))
	require.Len(t, rows(t, m, path+"key", "groups"), 3)
	_, answer := get(t, m, path+"key")
	require.Equal(t, []any{215.0, 100.0, true},
		[]any{answer["count"], answer["read"], answer["gone"]})
}

// Attempts that are tried again are failures, and the tasks are in the groups.
func TestRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, err := task.Open[int](t.Context(), new(memory.Store), "mails", nil)
		require.NoError(t, err)
		p := pool.New(q, func(_ context.Context, task *task.Task[int]) error {
			if task.Payload == 0 {
				return nil
			}
			return fmt.Errorf("upstream is down: %d", task.Payload)
		}, &pool.Options[int]{
			Logger: slog.New(slog.DiscardHandler),
			Policy: pool.Policy{Backoff: pool.Backoff{Base: time.Hour}},
		})
		defer func() { require.NoError(t, p.StopAndWait(context.Background())) }()
		mails := monitor.TaskQueue("mails", q, nil)
		m := monitor.New(nil, mails, monitor.Pool("workers", p, mails))
		require.Empty(t, alerts(t, m, "workers"))
		submit := func(n, first int) {
			for i := range n {
				require.NoError(t, p.Submit(t.Context(), "a", first+i))
			}
			time.Sleep(time.Second)
		}
		submit(30, 1)
		require.Equal(t,
			[]any{"30 of 30 attempts failed in the last 1 s: upstream is down: #"}, alerts(t, m, "workers"))
		for _, source := range []string{"mails", "workers"} {
			_, answer := get(t, m, "/v1/queues/"+source+"/failures?by=reason")
			require.Equal(t, []any{0.0, 30.0}, []any{answer["count"], answer["retrying"]})
			require.Equal(t, []any{map[string]any{
				"reason": "upstream is down: #", "count": 0.0, "retrying": 30.0,
			}}, answer["groups"])
		}
		for range 300 {
			submit(1, 0)
		}
		require.Empty(t, alerts(t, m, "workers"))
	})
}

// A pool's page has the stack of a panic with the task that is buried for it.
func TestStack(t *testing.T) {
	q, err := task.Open[int](t.Context(), new(memory.Store), "mails", nil)
	require.NoError(t, err)
	p := pool.New(q, func(context.Context, *task.Task[int]) error { panic("boom") },
		&pool.Options[int]{Policy: pool.Policy{MaxAttempts: 1}, Logger: slog.New(slog.DiscardHandler)})
	require.Error(t, p.Do(t.Context(), "a", 1, pool.PutOptions{}))
	require.NoError(t, p.Wait(t.Context()))
	m := monitor.New(nil, monitor.Pool("workers", p, monitor.TaskQueue("mails", q, nil)))
	_, answer := get(t, m, "/v1/queues/workers/tasks/1")
	require.Contains(t, answer["stack"], "monitor_test.TestStack")
	require.Contains(t, answer["reason"], "boom")
}

// A task is shown with all its fields.
func TestPeek(t *testing.T) {
	q := failed(t, 1)
	id, err := q.Put(t.Context(), "user 0", "a mail", task.PutOptions{
		Metadata: map[string]string{"trace\n": "a\x00"}, UniqueKey: "u", MaxAttempts: 3, Cost: 2,
	})
	require.NoError(t, err)
	require.NoError(t,
		q.Bury(t.Context(), id, &task.Error{Code: 7, Message: "panic: no\ngoroutine 1 [running]:"}))
	m := monitor.New(nil, monitor.TaskQueue("mails", q, func(mail string) string { return mail }))
	_, answer := get(t, m, fmt.Sprint("/v1/queues/mails/tasks/", id))
	require.NotNil(t, answer["created"])
	delete(answer, "created")
	delete(answer, "ready_at")
	require.Equal(t, map[string]any{
		"id": "2", "key": "user 0", "state": "buried", "attempts": 0.0, "max_attempts": 3.0,
		"priority": 0.0, "cost": 2.0, "unique_key": "u", "code": 7.0,
		"reason": `"panic: no\ngoroutine 1 [running]:"`, "payload": "a mail",
		"metadata": map[string]any{`"trace\n"`: `"a\x00"`},
	}, answer)
	for path, want := range map[string]int{
		"mails/tasks/9": http.StatusNotFound, "mails/buried?key=%22": http.StatusNotFound,
		"mails/buried?kind=%22": http.StatusBadRequest,
	} {
		status, _ := get(t, m, "/v1/queues/"+path)
		require.Equal(t, want, status, path)
	}
}
