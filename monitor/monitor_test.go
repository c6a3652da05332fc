package monitor_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/admit"
	"github.com/fairq/fairq/monitor"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

// work is an item: whose it is, and what it costs.
type work struct {
	user string
	cost int64
}

func userOf(w work) string { return w.user }

// get returns the status and the answer, which must be JSON.
func get(t *testing.T, h http.Handler, path string) (status int, answer map[string]any) {
	t.Helper()
	return send(t, h, httptest.NewRequest(http.MethodGet, path, nil))
}

func send(t *testing.T, h http.Handler, r *http.Request) (status int, answer map[string]any) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, "application/json; charset=utf-8", w.Header().Get("Content-Type"), "%s", w.Body)
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer), "%s", w.Body)
	return w.Code, answer
}

// asJSON returns a value after a round trip through JSON.
func asJSON(t *testing.T, v any) (answer any) {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &answer))
	return answer
}

func TestFairQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := fairq.New(userOf, &fairq.Options[string, work]{
			Capacity: 10_000, WhenFull: fairq.RejectOverShare, TrackWait: true, CountKeys: 100,
			Cost: func(w work) int64 { return w.cost }, Quantum: 10,
		})
		for i := range 3000 {
			require.NoError(t, q.Push(work{fmt.Sprint("user ", i%40), int64(1 + i%25)}))
		}
		time.Sleep(time.Second)
		for range 100 {
			q.Pop()
		}
		time.Sleep(time.Second)
		m := monitor.New(nil,
			monitor.FairQueue("jobs", q, func(w work) string { return fmt.Sprint("cost ", w.cost) }))

		status, answer := get(t, m, "/v1/queues/jobs")
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, "jobs", answer["name"])
		require.Equal(t, "queue", answer["kind"])
		require.Equal(t, asJSON(t, q.Stats()), answer["stats"])

		_, all := get(t, m, "/v1/queues")
		answer["actions"] = []any{}
		require.Equal(t, map[string]any{"queues": []any{answer}}, all)

		_, answer = get(t, m, "/v1/queues/jobs/keys?limit=40")
		rows := answer["keys"].([]any)
		require.Len(t, rows, 40)
		last := len("longest") * 1000
		for _, row := range rows {
			row := row.(map[string]any)
			key := row["key"].(string)
			stat := q.KeyStat(key)
			require.EqualValues(t, stat.Backlog, row["backlog"])
			require.EqualValues(t, stat.Cost, row["cost"])
			require.EqualValues(t, stat.OldestAge, row["oldest_age_ns"])
			require.Equal(t, asJSON(t, stat.Total), row["total"])
			require.LessOrEqual(t, stat.Backlog, last)
			last = stat.Backlog
		}

		_, answer = get(t, m, "/v1/queues/jobs/snapshot?limit=1000")
		require.Equal(t, true, answer["more"])
		shown := answer["upcoming"].([]any)
		require.Len(t, shown, 1000)
		for i, row := range shown {
			row := row.(map[string]any)
			item, ok := q.Pop()
			require.True(t, ok)
			require.Equal(t, item.user, row["key"])
			require.EqualValues(t, item.cost, row["cost"])
			if i < 100 {
				require.Equal(t, fmt.Sprint("cost ", item.cost), row["payload"])
			} else {
				require.NotContains(t, row, "payload")
			}
		}
	})
}

func TestSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := fairq.New(userOf, &fairq.Options[string, work]{Capacity: fairq.Unbounded})
		m := monitor.New(nil, monitor.FairQueue("jobs", q, nil))
		search := func(key string) map[string]any {
			time.Sleep(time.Second) // for a new look
			status, answer := get(t, m, "/v1/queues/jobs/search?key="+url.QueryEscape(key))
			require.Equal(t, http.StatusOK, status)
			return answer
		}
		require.Equal(t, map[string]any{"key": "bob", "position": nil, "len": 0.0}, search("bob"))
		for i := range 1500 {
			require.NoError(t, q.Push(work{fmt.Sprint("user ", i), 1}))
		}
		require.NoError(t, q.Push(work{"user 7", 1}))
		require.Equal(t, map[string]any{"key": "user 7", "position": 7.0, "len": 2.0}, search("user 7"))
		require.Equal(t, map[string]any{"key": "user 17", "position": 17.0, "len": 1.0}, search("r 17"),
			"the first that contains it")
		require.Equal(t,
			map[string]any{"key": "user 1400", "position": nil, "len": 1.0, "more_than": 1000.0},
			search("user 1400"))
		require.Equal(t, map[string]any{"key": "nobody", "position": nil, "len": 0.0}, search("nobody"))
	})
}

func TestTaskQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, err := task.Open[string](t.Context(), new(memory.Store), "mails",
			&task.Options[string]{CountKeys: 10})
		require.NoError(t, err)
		for i := range 20 {
			_, err := q.Put(t.Context(), fmt.Sprint("user ", i%3),
				fmt.Sprint("mail ", i), task.PutOptions{})
			require.NoError(t, err)
		}
		for range 3 {
			taken, err := q.Take(t.Context())
			require.NoError(t, err)
			require.NoError(t, taken.Bury(t.Context(), fmt.Errorf("no such mailbox: %d", taken.ID)))
		}
		m := monitor.New(nil, monitor.TaskQueue("mails", q, func(mail string) string { return mail }))

		_, answer := get(t, m, "/v1/queues/mails")
		stats, err := q.Stats(t.Context())
		require.NoError(t, err)
		require.Equal(t, asJSON(t, stats), answer["stats"])
		require.Equal(t, "tasks", answer["kind"])

		_, answer = get(t, m, "/v1/queues/mails/snapshot")
		require.Equal(t, false, answer["more"])
		require.Len(t, answer["upcoming"], 17)
		for i, row := range answer["upcoming"].([]any) {
			taken, err := q.Take(t.Context())
			require.NoError(t, err)
			require.Equal(t,
				map[string]any{"key": taken.Key, "id": fmt.Sprint(taken.ID), "round": float64(1 + i/3)}, row)
		}

		_, answer = get(t, m, "/v1/queues/mails/keys")
		require.Len(t, answer["keys"], 3)

		_, answer = get(t, m, "/v1/queues/mails/search?key=user+2")
		require.Equal(t, map[string]any{"key": "user 2", "position": 2.0, "len": 5.0}, answer,
			"after those of user 0 and 1, in the old look")
		require.NoError(t, q.Close(t.Context()))

		time.Sleep(time.Second)
		status, answer := get(t, m, "/v1/queues/mails")
		require.Equal(t, http.StatusServiceUnavailable, status)
		require.Equal(t, map[string]any{"error": task.ErrClosed.Error()}, answer)
	})
}

// The page shows the key with the longest backlog first, even if its items leave late and nothing
// is counted, and then the keys of the next items.
func TestLongestBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := fairq.New(userOf, &fairq.Options[string, work]{Capacity: fairq.Unbounded, TrackWait: true})
		for i := range 3000 {
			require.NoError(t, q.Push(work{fmt.Sprint("user ", 2999-i), 1}))
			time.Sleep(time.Millisecond)
		}
		for range 50 {
			require.NoError(t, q.Push(work{"mallory", 1}))
		}
		_, answer := get(t, monitor.New(nil, monitor.FairQueue("jobs", q, nil)),
			"/v1/queues/jobs/keys?limit=3")
		var keys []any
		for _, row := range answer["keys"].([]any) {
			keys = append(keys, row.(map[string]any)["key"])
		}
		require.Equal(t, []any{"mallory", "user 2999", "user 2998"}, keys)
	})
}

// A queue that is opened AsIs has no counts.
func TestLooker(t *testing.T) {
	var s memory.Store
	_, err := task.Open[int](t.Context(), &s, "mails", nil)
	require.NoError(t, err)
	looker, err := task.Open[int](t.Context(), &s, "mails", &task.Options[int]{AsIs: true})
	require.NoError(t, err)
	_, answer := get(t, monitor.New(nil, monitor.TaskQueue("mails", looker, nil)), "/v1/queues/mails")
	require.Equal(t, "nothing", answer["counts"])
}

// The page of a pool shows the tasks of its queue, from the same read as the page of the queue.
func TestPoolWithQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		handler := func(context.Context, *task.Task[int]) error { <-gate; return nil }
		p := pool.Func(handler, &pool.Options[int]{
			Queue:   task.Options[int]{CountKeys: 10, Weight: func(key string) int { return len(key) }},
			Workers: 1,
		})
		items := fairq.New(userOf, &fairq.Options[string, work]{CountKeys: 10})
		w := pool.NewWorkers(items, func(context.Context, work) error { <-gate; return nil },
			&pool.WorkersOptions[work]{Workers: 1})
		for i, key := range []string{"a", "b", "b", "ccc", "b", "a"} {
			require.NoError(t, p.Submit(t.Context(), key, i))
			require.NoError(t, items.Push(work{key, 1}))
			synctest.Wait()
		}
		waiting, jobs := monitor.TaskQueue("waiting", p.Queue(""), nil),
			monitor.FairQueue("jobs", items, nil)
		m := monitor.New(nil, waiting, jobs, monitor.Pool("of tasks", p, waiting),
			monitor.Pool("of items", w, jobs))
		for source, queue := range map[string]string{"of%20tasks": "waiting", "of%20items": "jobs"} {
			_, answer := get(t, m, "/v1/queues/"+source)
			require.Equal(t, queue, answer["queue"])
			_, own := get(t, m, "/v1/queues/"+queue+"/snapshot")
			_, answer = get(t, m, "/v1/queues/"+source+"/snapshot")
			require.Len(t, answer["upcoming"], 5)
			require.Equal(t, own["upcoming"], answer["upcoming"])
			require.Equal(t, own["more"], answer["more"])
			_, answer = get(t, m, "/v1/queues/"+source+"/search?key=ccc")
			require.EqualValues(t, 1, answer["position"])

			_, answer = get(t, m, "/v1/queues/"+source+"/keys")
			rows := map[any]map[string]any{}
			for _, row := range answer["keys"].([]any) {
				row := row.(map[string]any)
				rows[row["key"]] = row
			}
			require.Len(t, rows, 3)
			require.EqualValues(t, 3, rows["b"]["backlog"])
			require.EqualValues(t, 1, rows["a"]["backlog"])
			require.EqualValues(t, 1, rows["a"]["total"].(map[string]any)["served"])
		}
		_, answer := get(t, m, "/v1/queues/of%20tasks")
		require.Equal(t, asJSON(t, p.Stats()), answer["stats"])
		close(gate)
		items.Close()
		require.NoError(t, p.StopAndWait(t.Context()))
		require.NoError(t, w.Shutdown(t.Context()))
	})
}

func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := admit.New(2, &admit.Options[string]{MaxWaitingPerKey: 1})
		for _, key := range []string{"a", "a", "b", "a", "a"} {
			go func() { _, _ = l.Acquire(t.Context(), key) }()
			synctest.Wait()
		}
		time.Sleep(time.Second)
		m := monitor.New(nil, monitor.Limiter("api", l))
		_, answer := get(t, m, "/v1/queues/api")
		require.Equal(t, asJSON(t, l.Stats()), answer["stats"])
		require.Equal(t, "limiter", answer["kind"])
		_, answer = get(t, m, "/v1/queues/api/keys")
		rows := answer["keys"].([]any)
		require.Len(t, rows, 2)
		for _, row := range rows {
			row := row.(map[string]any)
			require.EqualValues(t, 1, row["backlog"])
			require.EqualValues(t, time.Second, row["oldest_age_ns"])
			if row["key"] == "a" {
				require.EqualValues(t, 2, row["total"].(map[string]any)["served"])
				require.EqualValues(t, 1, row["total"].(map[string]any)["refused"])
			}
		}
	})
}

// A pool is shown if its queue cannot be.
func TestPoolWithoutItsQueue(t *testing.T) {
	q := mails(t)
	m := monitor.New(nil, monitor.Pool("workers", new(counted), monitor.TaskQueue("mails", q, nil)))
	require.NoError(t, q.Close(t.Context()))
	status, answer := get(t, m, "/v1/queues/workers")
	require.Equal(t, http.StatusOK, status)
	require.EqualValues(t, 1, answer["stats"].(map[string]any)["running"])
	_, answer = get(t, m, "/v1/queues/workers/snapshot")
	require.Empty(t, answer["upcoming"])
}

// counted is a pool that counts its looks.
type counted struct {
	looks atomic.Int64
	takes time.Duration // a look
	done  []string
}

func (c *counted) Stats() pool.Stats {
	n := int(c.looks.Add(1))
	time.Sleep(c.takes)
	return pool.Stats{Running: n}
}
func (*counted) Failures() []pool.Failure { return nil }
func (c *counted) Pause()                 { c.done = append(c.done, "pause") }
func (c *counted) Resume()                { c.done = append(c.done, "resume") }

// watch returns a function that asks for the next sample of workers, as a page does.
func watch(t *testing.T, h http.Handler) func() (status int, answer map[string]any) {
	after := ""
	return func() (int, map[string]any) {
		status, answer := get(t, h, "/v1/queues/workers/live?after="+url.QueryEscape(after))
		after, _ = answer["at"].(string)
		return status, answer
	}
}

// A source is read once a second for any number of viewers, and not at all without viewers. Each
// gets each read once, and a viewer that reads slowly gets no old ones.
func TestOneLookForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(counted)
		m := monitor.New(nil, monitor.Pool("workers", p, nil))
		require.Zero(t, p.looks.Load())
		var all sync.WaitGroup
		for i := range 3 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 300 * time.Millisecond)
				next := watch(t, m)
				for n := range 10 {
					_, answer := next()
					require.EqualValues(t, n+1, answer["stats"].(map[string]any)["running"])
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 10, p.looks.Load())
		time.Sleep(time.Hour)
		require.EqualValues(t, 10, p.looks.Load(), "none is left")
		next := watch(t, m)
		next()
		time.Sleep(20 * time.Second)
		_, answer := next()
		at, err := time.Parse(time.RFC3339Nano, answer["at"].(string))
		require.NoError(t, err)
		require.Equal(t, time.Now().UTC(), at.UTC())
	})
}

// A Monitor reads a slow source less often.
func TestSlowSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &counted{takes: 200 * time.Millisecond}
		next, end := watch(t, monitor.New(nil, monitor.Pool("workers", p, nil))), time.Now()
		for range 10 {
			next()
		}
		require.Equal(t, 36*time.Second+200*time.Millisecond, time.Since(end))
	})
}

// Browsers get samples packed with gzip.
func TestPacked(t *testing.T) {
	m := monitor.New(nil, monitor.Pool("workers", new(counted), nil))
	r := httptest.NewRequest(http.MethodGet, "/v1/queues/workers/live", nil)
	r.Header.Set("Accept-Encoding", "gzip, br")
	w := httptest.NewRecorder()
	m.ServeHTTP(w, r)
	require.Equal(t, "gzip", w.Header().Get("Content-Encoding"))
	packed, err := gzip.NewReader(w.Body)
	require.NoError(t, err)
	var answer map[string]any
	require.NoError(t, json.NewDecoder(packed).Decode(&answer))
	require.Equal(t, "workers", answer["name"])
}

func TestNames(t *testing.T) {
	for _, name := range []string{
		"", ".", "..", " a", "a\x00", "a\xff", `"a`, strings.Repeat("a", 101),
	} {
		require.Panics(t, func() { monitor.Pool(name, new(counted), nil) }, "%q", name)
	}
	a := monitor.Pool("größe 1%?#&", new(counted), nil)
	require.PanicsWithValue(t, `monitor: two sources have the name "größe 1%?#&"`, func() {
		monitor.New(nil, a, a)
	})
	m := http.StripPrefix("/debug/fairq", monitor.New(nil, a))
	status, answer := get(t, m, "/debug/fairq/v1/queues/"+url.PathEscape("größe 1%?#&"))
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "größe 1%?#&", answer["name"])
}

// A name may have slashes, also behind a proxy that sends them as they are.
func TestSlashes(t *testing.T) {
	var sources []*monitor.Source
	for _, name := range []string{"mail", "mail/send", "mail/keys", "a%2Fb"} {
		sources = append(sources, monitor.Pool(name, new(counted), nil))
	}
	m := http.StripPrefix("/debug/fairq",
		monitor.New(&monitor.Options{Actions: everything, Logger: slog.New(slog.DiscardHandler)},
			sources...))
	for path, name := range map[string]string{
		"mail": "mail", "mail/history": "mail", "mail%2Fsend/keys": "mail/send",
		"mail/send/keys": "mail/send", "mail/send": "mail/send",
		"mail%2Fkeys": "mail/keys", "mail/keys/keys": "mail/keys", "mail/keys": "mail",
		"a%252Fb": "a%2Fb", "a%252Fb/keys": "a%2Fb",
	} {
		status, answer := get(t, m, "/debug/fairq/v1/queues/"+path)
		require.Equal(t, http.StatusOK, status, path)
		require.Equal(t, name, answer["name"], path)
	}
	status, _ := send(t, m,
		httptest.NewRequest(http.MethodPost, "/debug/fairq/v1/queues/mail/send/actions/pause", nil))
	require.Equal(t, http.StatusOK, status)
}

func TestBadRequests(t *testing.T) {
	q := fairq.New(userOf, nil)
	m := monitor.New(nil, monitor.FairQueue("jobs", q, nil))
	long := strings.Repeat("a", 1025)
	for path, want := range map[string]string{
		"/v1/queues/jobs/keys?limit=0":        "limit is 0; it must be a whole number from 1 to 100",
		"/v1/queues/jobs/keys?limit=101":      "limit is 101; it must be a whole number from 1 to 100",
		"/v1/queues/jobs/snapshot?limit=1001": "limit is 1001; it must be a whole number from 1 to 1000",
		"/v1/queues/jobs/snapshot?limit=x%00": `limit is "x\x00"; it must be a ` +
			`whole number from 1 to 1000`,
		"/v1/queues/jobs/keys?by=size": "by is size; it must be backlog, oldest, " +
			"served, refused or paused",
		"/v1/queues/jobs/tasks?by=size": "by is size; it must be reason, key, kind or all",
		"/v1/queues/jobs/tasks?state=bad": "state is bad; it must be one of ready, taken, retrying, " +
			"delayed, held, buried, failed",
		"/v1/queues/jobs/tasks/x":        "id is x; it must be that of a task, a whole number from 1",
		"/v1/queues/jobs/tasks?limit=-1": "limit is -1; it must be a whole number from 1 to 1000",
		"/v1/queues/jobs/tasks?limit=9999999999999999999": "limit is 9999999999999999999; it must be " +
			"a whole number from 1 to 1000",
		"/v1/queues/jobs/search":             "key has 0 bytes; the limits are 1 and 1024",
		"/v1/queues/jobs/search?key=" + long: "key has 1025 bytes; the limits are 1 and 1024",
	} {
		status, answer := get(t, m, path)
		require.Equal(t, http.StatusBadRequest, status, path)
		require.Equal(t, map[string]any{"error": want}, answer, path)
	}
	for path, want := range map[string]string{
		"/v1/queues/nothing":         "there is no queue nothing",
		"/v1/queues/%3Cb%3E%0A/keys": `there is no queue "<b>\n"`,
		"/v1/queues/x/live":          "there is no queue x",
		"/v2/queues":                 "there is nothing at /v2/queues",
		"/v1/queues/jobs/other":      "there is nothing at /v1/queues/jobs/other",
		"/v1/queues/jobs/keys/x":     "there is nothing at /v1/queues/jobs/keys/x",
	} {
		status, answer := get(t, m, path)
		require.Equal(t, http.StatusNotFound, status, path)
		require.Equal(t, map[string]any{"error": want}, answer, path)
	}
	for _, path := range []string{
		"/", "/page.js", "/v1/queues", "/v1/queues/jobs", "/v1/queues/jobs/live",
	} {
		status, answer := send(t, m, httptest.NewRequest(http.MethodPost, path, nil))
		require.Equal(t, http.StatusMethodNotAllowed, status, path)
		require.Equal(t, map[string]any{"error": "the method is POST; it must be GET"}, answer, path)
	}
}

// docs/operating.md names each field of an answer.
func TestFieldsAreDocumented(t *testing.T) {
	docs, err := os.ReadFile("../docs/operating.md")
	require.NoError(t, err)
	fields := append(monitor.Fields(), "queues", "actions")
	require.Subset(t, fields, []string{
		"name", "p99_ns", "share", "served", "age_ns", "reason", "more", "more_than", "metadata",
	})
	for _, field := range fields {
		require.Contains(t, string(docs), "`"+field+"`")
	}
}

func TestPage(t *testing.T) {
	m := monitor.New(nil)
	for path, kind := range map[string]string{
		"/": "text/html; charset=utf-8", "/style.css": "text/css; charset=utf-8",
		"/page.js": "text/javascript; charset=utf-8",
	} {
		w := httptest.NewRecorder()
		m.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, kind, w.Header().Get("Content-Type"))
		require.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'")
		require.NotContains(t, strings.ReplaceAll(w.Body.String(), "http://www.w3.org/2000/svg", ""),
			"://", "nothing is loaded from elsewhere")
		require.NotContains(t, w.Body.String(), "innerHTML")
	}
	_, answer := get(t, m, "/v1/queues")
	require.Equal(t, map[string]any{"queues": []any{}}, answer)
}
