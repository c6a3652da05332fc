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
	}, rows(t, m, path+"tasks?by=reason", "groups"))
	require.Equal(t, rows(t, m, path+"tasks?by=key", "groups"),
		rows(t, m, "/v1/queues/workers/tasks?by=key", "groups"))
	require.Len(t, rows(t, m, path+"tasks?by=key", "groups"), 3)
	require.Len(t, rows(t, m, path+"tasks?by=kind", "groups"), 2)
	groups := rows(t, m, path+"tasks", "groups")
	require.Len(t, groups, 12)
	require.Equal(t,
		map[string]any{
			"reason": "no mailbox #", "key": "user 0", "kind": `""`, "count": 520.0, "first": "7",
			"last": "3895",
		},
		groups[0])

	form := map[string]string{"key": "user 0", "kind": `""`, "reason": "no mailbox #"}
	query := url.Values{"limit": {"1000"}, "reason": {"mailbox"}}
	for name, value := range form {
		query.Set(name, value)
	}
	require.Len(t, rows(t, m, path+"tasks?"+query.Encode(), "tasks"), 520)
	query.Set("reason", "mail")
	require.Len(t, rows(t, m, path+"tasks?"+query.Encode(), "tasks"), 520, "a part of a reason")
	query.Set("limit", "3")
	list := rows(t, m, path+"tasks?"+query.Encode(), "tasks")
	require.Equal(t, []any{"7", "13", "19"}, []any{list[0]["id"], list[1]["id"], list[2]["id"]})

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
	require.Len(t, rows(t, m, path+"tasks?by=reason", "groups"), 1, "they are counted anew")
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

// A pool shows the last failures that it has seen, with the stack of a panic.
func TestPoolFailures(t *testing.T) {
	forget := func(context.Context, *pool.DeadLetter[int]) error { return nil }
	p := pool.Func(func(_ context.Context, task *task.Task[int]) error {
		if task.Payload == 214 {
			panic("boom")
		}
		return pool.Permanent(fmt.Errorf("no mailbox %d", task.Payload%2*task.Payload))
	}, &pool.Options[int]{
		Workers: 1, Logger: slog.New(slog.DiscardHandler), DeadLetters: forget,
		Policy: pool.Policy{MaxAttempts: 1},
	})
	for i := range 215 {
		require.NoError(t, p.Submit(t.Context(), fmt.Sprint("user ", i%3), i))
	}
	require.NoError(t, p.StopAndWait(t.Context()))
	m := monitor.New(nil, monitor.Pool("workers", p, nil))
	path := "/v1/queues/workers/tasks?state=failed&by="
	groups := rows(t, m, path+"reason", "groups")
	require.Equal(t, []any{"no mailbox #", 99.0}, []any{groups[0]["reason"], groups[0]["count"]})
	require.Len(t, rows(t, m, path+"key", "groups"), 3)
	require.Len(t, rows(t, m, path+"key&key=user+1", "groups"), 1)
	last := rows(t, m, path+"reason&limit=1", "tasks")[0]
	require.Contains(t, last["reason"], "boom")
	require.Contains(t, last["stack"], "monitor_test.TestPoolFailures")
}

// Attempts that are tried again are failures, and the tasks are in the groups.
func TestRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, err := task.Open[int](t.Context(), new(memory.Store), "mails", nil)
		require.NoError(t, err)
		p := pool.New(q, func(_ context.Context, task *task.Task[int]) error {
			switch {
			case task.Payload == 0:
				return nil
			case task.Payload < 0:
				return pool.Permanent(errors.New("a full mailbox"))
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
		submit(130, 1)
		submit(110, -200)
		require.Equal(t,
			[]any{"240 of 240 attempts failed in the last 2 s: upstream is down: #"},
			alerts(t, m, "workers"))
		for _, source := range []string{"mails", "workers"} {
			path := "/v1/queues/" + source + "/tasks?by=reason&state="
			require.Equal(t, []map[string]any{{
				"reason": "upstream is down: #", "count": 130.0, "first": "1", "last": "130",
			}}, rows(t, m, path+"retrying", "groups"))
			require.Empty(t, rows(t, m, path+"delayed", "groups"))
		}
		for range 300 {
			submit(1, 0)
		}
		require.Empty(t, alerts(t, m, "workers"))
	})
}

// The stack of a panic stays with the task, and Wait does not return it.
func TestStack(t *testing.T) {
	q, err := task.Open[int](t.Context(), new(memory.Store), "mails", nil)
	require.NoError(t, err)
	p := pool.New(q, func(context.Context, *task.Task[int]) error { panic("boom") },
		&pool.Options[int]{Policy: pool.Policy{MaxAttempts: 1}, Logger: slog.New(slog.DiscardHandler)})
	require.Error(t, p.Do(t.Context(), "a", 1, pool.PutOptions{
		PutOptions: task.PutOptions{UniqueKey: "u"},
	}))
	require.EqualError(t, q.Wait(t.Context(), "u"), "task: panic in the handler: boom")
	require.NoError(t, p.Wait(t.Context()))
	m := monitor.New(nil, monitor.TaskQueue("mails", q, nil))
	_, answer := get(t, m, "/v1/queues/mails/tasks/1")
	require.Contains(t, answer["stack"], "monitor_test.TestStack")
	require.LessOrEqual(t, len(answer["stack"].(string)), 2048)
	require.Equal(t, "task: panic in the handler: boom", answer["reason"])
}

// Each state lists its tasks: as they leave, for how long they run, and when they are due. A task
// that runs ten times as long as the last ones of its kind is an alert.
func TestStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, err := task.Open[string](t.Context(), new(memory.Store), "mails",
			&task.Options[string]{TTR: time.Hour})
		require.NoError(t, err)
		put := func(payload string, o task.PutOptions) {
			_, err := q.Put(t.Context(), payload[:1], payload, o)
			require.NoError(t, err)
		}
		take := func() *task.Task[string] {
			taken, err := q.Take(t.Context())
			require.NoError(t, err)
			return taken
		}
		mails := monitor.TaskQueue("mails", q, func(mail string) string { return mail })
		m := monitor.New(nil, mails, monitor.Pool("workers", new(counted), mails))
		payloads := func(source, query string) (all []any) {
			for _, row := range rows(t, m, "/v1/queues/"+source+"/tasks?by=kind&state="+query, "tasks") {
				all = append(all, row["payload"])
			}
			return all
		}
		put("a hangs", task.PutOptions{Kind: "send"})
		hangs := take()
		for i := range 25 {
			put("b", task.PutOptions{Kind: "send"})
			taken := take()
			time.Sleep(time.Second)
			get(t, m, "/v1/queues/mails")
			time.Sleep(time.Second)
			require.NoError(t, taken.Ack(t.Context()))
			require.Equal(t, i >= 19, len(alerts(t, m, "mails")) > 0, "20 have ended")
		}
		busy := []any{"task 1 of a runs for 50 s; the last 25 of its kind took 1.5s"}
		require.Equal(t, busy, alerts(t, m, "mails"))
		require.Equal(t, busy, alerts(t, m, "workers"))
		put("c fails", task.PutOptions{})
		require.NoError(t, take().Fail(t.Context(), errors.New("no"), time.Minute))
		put("d later", task.PutOptions{Delay: 2 * time.Hour})
		put("e sooner", task.PutOptions{Delay: time.Hour})
		put("f held", task.PutOptions{Group: "g"})
		put("g hangs too", task.PutOptions{Kind: "other"})
		take()
		put("h", task.PutOptions{})
		put("i", task.PutOptions{Priority: 1})
		put("h next", task.PutOptions{})
		time.Sleep(time.Second) // no look has seen the tasks taken since
		for query, want := range map[string][]any{
			"taken": {"a hangs", "g hangs too"}, "taken&kind=other": {"g hangs too"},
			"retrying": {"c fails"}, "delayed": {"e sooner", "d later"}, "held": {"f held"},
			"ready&key=h": {"h", "h next"}, "buried": nil, "failed": nil, "retrying&reason=no": {"c fails"},
			"retrying&reason=yes": nil,
		} {
			require.Equal(t, want, payloads("mails", query), query)
			require.Equal(t, want, payloads("workers", query), query)
		}
		ready := rows(t, m, "/v1/queues/mails/tasks?state=ready", "tasks")
		require.Equal(t, []any{"h", "h", "i"}, []any{ready[0]["key"], ready[1]["key"], ready[2]["key"]})
		first := rows(t, m, "/v1/queues/mails/tasks?state=taken&limit=1", "tasks")[0]
		require.Equal(t, hangs.Info().Consumer, first["consumer"])
		since, err := time.Parse(time.RFC3339Nano, first["since"].(string))
		require.NoError(t, err)
		require.Equal(t, 51*time.Second, time.Since(since))
		require.NoError(t, hangs.Ack(t.Context()))
		time.Sleep(time.Second)
		require.Empty(t, alerts(t, m, "mails"))
		require.NoError(t, q.Close(t.Context()))
	})
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
		"mails/tasks/9": http.StatusNotFound, "mails/tasks?key=%22": http.StatusNotFound,
		"mails/tasks?kind=%22": http.StatusBadRequest,
	} {
		status, _ := get(t, m, "/v1/queues/"+path)
		require.Equal(t, want, status, path)
	}
}
