package monitor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/admit"
	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/monitor"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

// rows returns a list of an answer.
func rows(t *testing.T, h http.Handler, path, field string) (all []map[string]any) {
	t.Helper()
	status, answer := get(t, h, path)
	require.Equal(t, http.StatusOK, status, "%v", answer)
	for _, row := range answer[field].([]any) {
		all = append(all, row.(map[string]any))
	}
	return all
}

func alerts(t *testing.T, h http.Handler, source string) []any {
	t.Helper()
	_, answer := get(t, h, "/v1/queues/"+source)
	return answer["alerts"].([]any)
}

// The last minute has its events, and an alert names the flooding key.
func TestMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := fairq.New(userOf, &fairq.Options[string, work]{
			Capacity: 1000, WhenFull: fairq.RejectOverShare, TrackWait: true, CountKeys: 300,
		})
		m := monitor.New(nil, monitor.FairQueue("jobs", q, nil))
		second := func() {
			_ = q.Push(work{"alice", 1})
			for range 50 {
				_ = q.Push(work{"mallory", 1})
			}
			for range 2 {
				q.Pop()
			}
			time.Sleep(time.Second)
		}
		for i := range 150 { // each with a longer backlog than alice
			for range 2 {
				_ = q.Push(work{fmt.Sprint("other ", i), 1})
			}
		}
		_, answer := get(t, m, "/v1/queues/jobs")
		require.NotContains(t, answer, "minute", "nothing is known yet")
		require.Empty(t, answer["alerts"])
		for range 200 {
			second()
			get(t, m, "/v1/queues/jobs")
		}
		_, answer = get(t, m, "/v1/queues/jobs")
		minute := answer["minute"].(map[string]any)
		span := time.Duration(minute["span_ns"].(float64))
		require.GreaterOrEqual(t, span, time.Minute)
		require.Less(t, span, 75*time.Second)
		require.InDelta(t, 2*span.Seconds(), minute["served"], 0.5)
		require.Positive(t, minute["wait"].(map[string]any)["p99_ns"])

		first := rows(t, m, "/v1/queues/jobs/keys?by=refused&limit=1", "keys")[0]
		require.Equal(t, "mallory", first["key"], "though 150 others are in the queue")
		refused := first["minute"].(map[string]any)["refused"].(float64)
		require.Greater(t, refused, 40*span.Seconds())
		require.Len(t, answer["alerts"], 1)
		require.Regexp(t,
			fmt.Sprintf(`^mallory has \d\d %% of the backlog; \d,%03.0f of its pushes were `+
				`refused in the last %.0f s$`,
				float64(int(refused)%1000), span.Seconds()), answer["alerts"].([]any)[0])
		served := 0.0
		for _, row := range rows(t, m, "/v1/queues/jobs/keys?limit=100", "keys") {
			served += row["share"].(float64)
		}
		require.InDelta(t, 1, served, 0.3)

		time.Sleep(10 * time.Minute)
		_, answer = get(t, m, "/v1/queues/jobs")
		require.NotContains(t, answer, "minute", "nobody has looked for longer than that")
	})
}

// A caller waits for more than a minute before the first read, and for less after it.
func TestWaitsOfTheLastMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := fairq.New(userOf, &fairq.Options[string, work]{TrackWait: true})
		m := monitor.New(nil, monitor.FairQueue("jobs", q, nil))
		ctx, cancel := context.WithCancel(t.Context())
		go m.Run(ctx)
		for _, wait := range []time.Duration{time.Hour, time.Second} {
			for range 100 {
				require.NoError(t, q.Push(work{"alice", 1}))
			}
			time.Sleep(wait)
			for range 99 {
				q.Pop()
			}
			time.Sleep(10 * time.Second)
			_, answer := get(t, m, "/v1/queues/jobs")
			require.Equal(t, wait > time.Minute,
				answer["minute"].(map[string]any)["wait"].(map[string]any)["p50_ns"].(float64) > 2e9)
			key := rows(t, m, "/v1/queues/jobs/keys", "keys")[0]
			require.Equal(t, answer["minute"].(map[string]any)["wait"],
				key["minute"].(map[string]any)["wait"])
			q.Pop()
			time.Sleep(2 * time.Minute)
		}
		points := rows(t, m, "/v1/queues/jobs/history", "points")
		require.Greater(t, len(points), 300, "of an hour, though nobody has looked")
		require.LessOrEqual(t, len(points), 720)
		require.EqualValues(t, 200, points[len(points)-1]["served"])
		cancel()
	})
}

// What is wrong is told in words, of all kinds of sources.
func TestAlerts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tasks, err := task.Open[int](t.Context(), new(memory.Store), "mails",
			&task.Options[int]{Capacity: 10, CountKeys: 10})
		require.NoError(t, err)
		limiter := admit.New(1, &admit.Options[string]{MaxWaitingPerKey: 1})
		p := &fixed{}
		mails := monitor.TaskQueue("mails", tasks, nil)
		m := monitor.New(nil, mails, monitor.Limiter("api", limiter),
			monitor.Pool("workers", p, mails))
		for _, source := range []string{"mails", "api", "workers"} {
			require.Empty(t, alerts(t, m, source))
		}
		for i := range 15 {
			_, _ = tasks.Put(t.Context(), fmt.Sprint("user ", i%2), i, task.PutOptions{})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			go func() {
				_, _ = limiter.Acquire(ctx, "a")
				cancel()
			}()
		}
		time.Sleep(3 * time.Second)
		taken, err := tasks.Take(t.Context())
		require.NoError(t, err)
		require.NoError(t, taken.Bury(t.Context(), errors.New("no")))
		_, answer := get(t, m, "/v1/queues/mails")
		require.EqualValues(t, 4194304*time.Microsecond,
			answer["minute"].(map[string]any)["wait"].(map[string]any)["p50_ns"], "3 s at most")
		for _, key := range rows(t, m, "/v1/queues/mails/keys", "keys") {
			minute := key["minute"].(map[string]any)
			if key["key"] == taken.Key {
				require.Equal(t, answer["minute"].(map[string]any)["wait"], minute["wait"])
			} else {
				require.NotContains(t, minute, "wait")
			}
		}
		require.NoError(t, tasks.Pause(t.Context()))
		require.NoError(t, tasks.PauseKey(t.Context(), "nobody"))
		p.stats = pool.Stats{Failed: 3, Lost: 2, Paused: true}
		time.Sleep(2 * time.Second)
		require.Equal(t, []any{
			"it is paused by Queue.Pause; 9 wait", "the key nobody is paused by PauseKey",
			"3 tasks of user 0 were refused in the last 5 s",
			"1 task failed for good in the last 5 s", "1 task is buried",
		}, alerts(t, m, "mails"))
		require.Equal(t, []any{"13 calls of a were refused in the last 5 s"}, alerts(t, m, "api"))
		require.Equal(t, []any{
			"it is paused by Pool.Pause; 9 wait", "its queue is paused by Queue.Pause",
			"the key nobody is paused by PauseKey", "3 of 3 attempts failed in the last 5 s",
			"2 leases were lost in the last 5 s",
		}, alerts(t, m, "workers"))
		paused := rows(t, m, "/v1/queues/mails/keys?by=paused", "keys")
		require.Equal(t, "nobody", paused[0]["key"])
		require.Equal(t, "paused by PauseKey", paused[0]["why"])
		require.NotContains(t, paused[1], "why")
		require.NoError(t, tasks.ResumeKey(t.Context(), "nobody"))
		require.NoError(t, tasks.Resume(t.Context()))
		time.Sleep(3 * time.Minute)
		require.Equal(t, []any{"1 task is buried"}, alerts(t, m, "mails"))
	})
}

// fixed is a pool with these numbers.
type fixed struct{ stats pool.Stats }

func (f *fixed) Stats() pool.Stats      { return f.stats }
func (*fixed) Failures() []pool.Failure { return nil }
func (*fixed) Pause()                   {}
func (*fixed) Resume()                  {}

// The list waits for no source. It shows which sources are away, since when, and which are back.
func TestAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &counted{takes: time.Hour}
		s := &broken{Store: new(memory.Store)}
		q, err := task.Open[int](t.Context(), s, "mails", nil)
		require.NoError(t, err)
		m := monitor.New(nil, monitor.Pool("slow", slow, nil), monitor.TaskQueue("mails", q, nil),
			monitor.Pool("fast", new(counted), nil))
		list := func() []map[string]any {
			begin := time.Now()
			all := rows(t, m, "/v1/queues", "queues")
			require.LessOrEqual(t, time.Since(begin), 200*time.Millisecond)
			require.Equal(t, "open", all[2]["state"])
			return all
		}
		require.Equal(t, "away", list()[0]["state"])
		time.Sleep(12*time.Second - 200*time.Millisecond)
		all := list()
		require.Equal(t, []any{"no answer for 12 s"}, all[0]["alerts"])
		require.Equal(t, "open", all[1]["state"])
		s.err = errors.New("database is locked")
		time.Sleep(2 * time.Second)
		list()
		time.Sleep(30 * time.Second)
		all = list()
		require.Equal(t, "away", all[1]["state"])
		require.Equal(t, []any{"no answer for 30 s: database is locked"}, all[1]["alerts"])
		s.err = nil
		time.Sleep(2 * time.Second)
		all = list()
		require.Equal(t, "open", all[1]["state"])
		require.Empty(t, all[1]["alerts"])

		// A source that is away makes no gaps in the charts of others.
		ctx, cancel := context.WithCancel(t.Context())
		go m.Run(ctx)
		time.Sleep(10 * time.Minute)
		cancel()
		points := rows(t, m, "/v1/queues/fast/history", "points")
		require.Greater(t, len(points), 60)
		for i, p := range points[len(points)-60:] {
			at, err := time.Parse(time.RFC3339Nano, p["at"].(string))
			require.NoError(t, err)
			require.LessOrEqual(t, time.Since(at), time.Duration(60-i)*10*time.Second)
		}
		time.Sleep(2 * time.Hour)
	})
}

// Beside any number of tasks the page shows who has most of them. It counts in pages, for a
// fortieth of the time, and says how far it has come, and of what time the count is.
func TestManyTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &broken{Store: new(memory.Store), takes: 50 * time.Millisecond}
		q, err := task.Open[int](t.Context(), s, "mails", nil)
		require.NoError(t, err)
		for i := range 9500 {
			_, err := q.Put(t.Context(), []string{"mallory", fmt.Sprint("user ", i)}[i%2], i,
				task.PutOptions{})
			require.NoError(t, err)
		}
		require.NoError(t, q.PauseKey(t.Context(), "nobody"))
		m := monitor.New(nil, monitor.TaskQueue("mails", q, nil))
		_, answer := get(t, m, "/v1/queues/mails")
		require.EqualValues(t, 4000, answer["keys_of"])
		require.Equal(t,
			[]any{
				"the key nobody is paused by PauseKey",
				"mallory has 50 % of the first 4,000 of 9,500 tasks",
			},
			answer["alerts"])
		begin := time.Now()
		for answer["keys_of"] != nil {
			time.Sleep(time.Second)
			_, answer = get(t, m, "/v1/queues/mails")
		}
		require.GreaterOrEqual(t, time.Since(begin), 40*(s.counted-400*time.Millisecond))
		require.Less(t, time.Since(begin), 40*s.counted)
		require.Equal(t,
			[]any{"the key nobody is paused by PauseKey", "mallory has 50 % of the backlog"},
			answer["alerts"])
		require.InDelta(t, 20*time.Second, answer["keys_ns"], 5e9)
		first := rows(t, m, "/v1/queues/mails/keys?limit=1", "keys")[0]
		require.Equal(t, []any{"mallory", 4750.0}, []any{first["key"], first["backlog"]})
		_, found := get(t, m, "/v1/queues/mails/search?key=mallory")
		require.EqualValues(t, 4750, found["len"])
	})
}

// A key without tasks that can be taken says why.
func TestWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, err := task.Open[int](t.Context(), new(memory.Store), "mails", &task.Options[int]{
			MaxInFlightPerKey: 2, KeyRate: task.Rate{Limit: 1.0 / 60, Burst: 3},
		})
		require.NoError(t, err)
		m := monitor.New(&monitor.Options{Actions: everything, Logger: slog.New(slog.DiscardHandler)},
			monitor.TaskQueue("mails", q, nil))
		limit := func(form map[string]string) (int, any) {
			form["key"] = "one"
			status, answer := act(t, m, "mails", "limit-key", form)
			return status, answer["error"]
		}
		_, failed := limit(map[string]string{"max_in_flight": "1", "rate": "0.5", "weight": "3"})
		require.Nil(t, failed)
		for _, key := range strings.Fields("two two two one one rate rate rate rate free held paused") {
			_, err := q.Put(t.Context(), key, 0, task.PutOptions{})
			require.NoError(t, err)
		}
		require.NoError(t, q.PauseKey(t.Context(), "paused"))
		require.NoError(t, q.HoldKey(t.Context(), "held", time.Hour))
		for range 7 {
			taken, err := q.Take(t.Context())
			require.NoError(t, err)
			if taken.Key == "rate" {
				require.NoError(t, taken.Ack(t.Context()))
			}
		}
		time.Sleep(2 * time.Second)
		why := map[any]any{}
		for _, row := range rows(t, m, "/v1/queues/mails/keys", "keys") {
			if why[row["key"]] = row["why"]; row["key"] == "one" {
				require.Equal(t, "weight 3, 1 at a time, 0.5 a second, up to 1 at once", row["limits"])
			}
		}
		require.Equal(t, map[any]any{
			"two": "at its limit of 2", "one": "at its limit of 1", "rate": "out of its rate",
			"free": nil, "held": "held", "paused": "paused by PauseKey",
		}, why)
		_, found := get(t, m, "/v1/queues/mails/search?key=one")
		require.Equal(t, map[string]any{
			"Weight": 3.0, "MaxInFlight": 1.0, "Rate": map[string]any{"Limit": 0.5, "Burst": 1.0},
		}, found["own"])
		_, found = get(t, m, "/v1/queues/mails/search?key=on")
		require.Equal(t, "one", found["key"], "so the limits are not those of on")
		status, failed := limit(map[string]string{"rate": "fast"})
		require.Equal(t, http.StatusBadRequest, status)
		require.Equal(t, "rate is fast; it must be a number", failed)
		status, failed = limit(map[string]string{"weight": "-1"})
		require.Equal(t, http.StatusBadRequest, status)
		require.Contains(t, failed, "KeyLimits.Weight is -1")
		_, failed = limit(map[string]string{})
		require.Nil(t, failed)
		limited, err := q.LimitedKeys(t.Context(), "", 0)
		require.NoError(t, err)
		require.Empty(t, limited)
		require.NoError(t, q.Close(t.Context()))
	})
}

// broken is a store that looks like a database. Its numbers cannot be read while err is set. Each
// list of tasks takes some time.
type broken struct {
	task.Store
	takes, counted time.Duration
	err            error
}

func (s *broken) Open(
	ctx context.Context, name string, o driver.Settings, n driver.Notifier,
) (driver.Backend, error) {
	b, err := s.Store.Open(ctx, name, o, elsewhere{n})
	return &brokenQueue{b, s}, err
}

// elsewhere hides that a store is in memory.
type elsewhere struct{ driver.Notifier }

func (elsewhere) InMemory() reflect.Type { return reflect.TypeFor[[]byte]() }

type brokenQueue struct {
	driver.Backend
	*broken
}

func (q *brokenQueue) Stats(ctx context.Context) (driver.Stats, error) {
	if q.err != nil {
		return driver.Stats{}, q.err
	}
	return q.Backend.Stats(ctx)
}

func (q *brokenQueue) List(ctx context.Context, o driver.ListOptions) ([]driver.Record, error) {
	time.Sleep(q.takes)
	q.counted += q.takes
	return q.Backend.List(ctx, o)
}

// After Show a page has the new sources.
func TestShow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := monitor.Pool("a", new(counted), nil), monitor.Pool("workers", new(counted), nil)
		m := monitor.New(nil, a, b)
		next := watch(t, m)
		status, _ := next()
		require.Equal(t, http.StatusOK, status)
		m.Show(a)
		status, answer := next()
		require.Equal(t, http.StatusNotFound, status)
		require.Equal(t, "there is no queue workers", answer["error"])
		require.Len(t, rows(t, m, "/v1/queues", "queues"), 1)
	})
}

// The answers of the paths of v1 do not change. To change them on purpose: FAIRQ_WRITE_V1=1.
func TestV1(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := fairq.New(userOf, &fairq.Options[string, work]{
			Capacity: 5, TrackWait: true, CountKeys: 10,
			Cost: func(w work) int64 { return w.cost }, Quantum: 10,
		})
		tasks, err := task.Open[string](t.Context(), new(memory.Store), "mails",
			&task.Options[string]{CountKeys: 10})
		require.NoError(t, err)
		limiter := admit.New(1, &admit.Options[string]{})
		mails := monitor.TaskQueue("mails", tasks, func(mail string) string { return mail })
		m := monitor.New(&monitor.Options{Actions: everything},
			monitor.FairQueue("jobs", q, func(w work) string { return fmt.Sprint(w) }), mails,
			monitor.Pool("workers", &fixed{pool.Stats{Min: 1, Max: 2, Running: 1, Started: 3}}, mails),
			monitor.Limiter("api", limiter))
		get(t, m, "/v1/queues")
		for i := range 7 {
			_ = q.Push(work{fmt.Sprint("user ", i%2), int64(i)})
			_, err := tasks.Put(t.Context(), fmt.Sprint("user ", i%2), "a mail", task.PutOptions{
				Kind: "news", UniqueKey: fmt.Sprint("mail ", i), Group: []string{"", "g"}[i/6],
				Metadata: map[string]string{"trace": "1"}, TTL: time.Hour, MaxAttempts: 3,
			})
			require.NoError(t, err)
		}
		permit, err := limiter.Acquire(t.Context(), "a")
		require.NoError(t, err)
		time.Sleep(time.Second)
		q.Pop()
		for range 2 {
			taken, err := tasks.Take(t.Context())
			require.NoError(t, err)
			require.NoError(t,
				taken.Bury(t.Context(), &task.Error{Code: 5, Message: fmt.Sprint("no mailbox ", taken.ID)}))
		}
		require.NoError(t, tasks.PauseKey(t.Context(), "user 0"))
		time.Sleep(time.Second)
		answers := map[string]any{}
		for _, path := range []string{
			"", "/jobs", "/mails", "/workers", "/api", "/jobs/keys", "/mails/keys", "/jobs/snapshot",
			"/mails/snapshot", "/jobs/history", "/mails/history",
			"/mails/tasks", "/mails/tasks/1", "/jobs/search?key=user+1", "/nothing",
		} {
			_, answers["/v1/queues"+path] = get(t, m, "/v1/queues"+path)
		}
		text, err := json.MarshalIndent(answers, "", "\t")
		require.NoError(t, err)
		if os.Getenv("FAIRQ_WRITE_V1") != "" {
			require.NoError(t, os.WriteFile("testdata/v1.json", text, 0o666))
		}
		want, err := os.ReadFile("testdata/v1.json")
		require.NoError(t, err)
		require.Equal(t, string(want), string(text))
		permit.Release()
		require.NoError(t, tasks.Close(t.Context()))
	})
}

// Actions are refused by their origin.
func TestOrigins(t *testing.T) {
	m := monitor.New(&monitor.Options{
		Actions: everything, TrustedOrigins: []string{"http://ops.example.com"},
	}, monitor.Pool("workers", new(counted), nil))
	for origin, want := range map[string]int{
		"http://ops.example.com": http.StatusOK, "http://evil.example.com": http.StatusForbidden,
	} {
		r := httptest.NewRequest(http.MethodPost,
			"http://127.0.0.1:8080/v1/queues/workers/actions/pause", nil)
		r.Header.Set("Origin", origin)
		status, _ := send(t, m, r)
		require.Equal(t, want, status, origin)
	}
	require.Panics(t, func() {
		monitor.New(&monitor.Options{TrustedOrigins: []string{"ops.example.com"}})
	})
}
