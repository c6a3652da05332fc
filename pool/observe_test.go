package pool_test

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// observed records the calls of an observer, a line each.
type observed struct {
	mu    sync.Mutex
	lines []string
}

// say adds a line, with the ID, payload and attempts of a task.
func (o *observed) say(ctx context.Context, e pool.Event[int]) {
	o.mu.Lock()
	defer o.mu.Unlock()
	words := []any{e.Kind, e.Class}
	switch t := e.Task; {
	case e.Letter != nil:
		words = append(words, e.Letter.Task.ID, e.Letter.Payload, e.Letter.Task.Attempts,
			e.Letter.Reason)
	default:
		words = append(words, t.ID, t.Payload, t.Attempts, e.Took)
	}
	if e.Delay > 0 {
		words = append(words, e.Delay)
	}
	if e.Err != nil {
		words = append(words, e.Err)
	}
	if ctx.Err() != nil {
		words = append(words, "too late")
	}
	o.lines = append(o.lines, strings.TrimSuffix(fmt.Sprintln(words...), "\n"))
}

// TestObserver has a task for each kind of event. TestAccounting compares the number of
// calls with Stats.
func TestObserver(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		var o observed
		p := openFunc(t, func(ctx context.Context, tk *task.Task[int]) error {
			time.Sleep(10 * time.Second)
			switch {
			case tk.Payload == 1:
				return errNo
			case tk.Payload == 2 && tk.Info().ReadyAt.Equal(tk.Info().Created):
				return pool.Snooze(time.Minute)
			case tk.Payload == 3 && tk.Attempts == 1:
				time.Sleep(10 * time.Second) // longer than its lease lasts
			case tk.Payload == 4:
				<-ctx.Done()
			}
			return ctx.Err()
		}, pool.Options[int]{
			Workers: 1, Queue: task.Options[int]{Capacity: 1, WhenFull: fairq.EvictOldest},
			Classes: []pool.Class[int]{
				{Name: "x"},
				{Name: "y", Queue: openQueue(t, &task.Options[int]{TTR: 15 * time.Second})},
			},
			Policy: pool.Policy{
				MaxAttempts: 2,
				Backoff:     pool.Backoff{Base: time.Minute, Max: time.Minute},
			},
			Observer:    o.say,
			DeadLetters: func(context.Context, *pool.DeadLetter[int]) error { return nil },
		})
		put := func(n int, options pool.PutOptions) {
			_, err := p.Put(ctx, "a", n, options)
			require.NoError(t, err)
		}
		for n, class := range []string{"x", "x", "x", "y"} {
			put(n, pool.PutOptions{Class: class})
			wait(t, p)
		}
		put(4, pool.PutOptions{})
		time.Sleep(12 * time.Second)
		require.NoError(t, p.Queue("x").Delete(ctx, 4))
		wait(t, p)
		p.Pause()
		put(5, pool.PutOptions{})
		put(6, pool.PutOptions{PutOptions: task.PutOptions{Deadline: time.Now().Add(time.Minute)}})
		wait(t, p)
		require.Equal(t, []string{
			"started x 1 0 1 0s",
			"succeeded x 1 0 1 10s",
			"started x 2 1 1 0s", "retried x 2 1 1 10s 1m0s no",
			"started x 2 1 2 0s", "dead letter x 2 1 2 failed", "failed x 2 1 2 10s no",
			"started x 3 2 1 0s",
			"snoozed x 3 2 1 10s 1m0s pool: to be done in 1m0s", "started x 3 2 1 0s",
			"succeeded x 3 2 1 10s",
			"started y 1 3 1 0s",
			"lost y 1 3 1 20s task: lease lost", "started y 1 3 2 5s", "succeeded y 1 3 2 10s",
			"started x 4 4 1 0s",
			"cancelled x 4 4 1 12s task: lease lost",
			"dropped x 5 5 0 0s", "dead letter x 5 5 0 overflow",
			"expired x 6 6 0 0s", "dead letter x 6 6 0 deadline",
		}, o.lines)
		end(t, ctx, p)
	})
}

// TestObserverOfItems is TestObserver with a FairQueue, which has fewer events.
func TestObserverOfItems(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		var o observed
		out := &records{lines: map[slog.Level][]string{}}
		q := fairq.New(func(int) string { return "a" }, nil)
		w := pool.NewWorkers(q, func(ctx context.Context, n int) error {
			time.Sleep(time.Second)
			return fails(ctx, n)
		}, &pool.WorkersOptions[int]{Workers: 1, Observer: o.say, Logger: slog.New(out)})
		for n := range 2 {
			require.NoError(t, q.Push(n))
		}
		require.NoError(t, w.Wait(ctx))
		require.NoError(t, w.Shutdown(ctx))
		require.Equal(t, []string{
			"started  0 0 1 0s", "succeeded  0 0 1 1s", "started  0 1 1 0s",
			"failed  0 1 1 1s no",
		}, o.lines)
		require.Equal(t, []string{"pool: a task failed for good attempts=1 error=no tasks=1"},
			out.lines[slog.LevelWarn])
		require.Empty(t, out.lines[slog.LevelInfo])
		require.Empty(t, out.lines[slog.LevelError])
	})
}

// records keeps the log.
type records struct {
	mu    sync.Mutex
	lines map[slog.Level][]string
}

func (*records) Enabled(context.Context, slog.Level) bool { return true }
func (h *records) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (h *records) WithGroup(string) slog.Handler          { return h }
func (h *records) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		return true
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines[r.Level] = append(h.lines[r.Level], line)
	return nil
}

// TestLog shows the log: a single task appears only if it has failed for good.
func TestLog(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		out := &records{lines: map[slog.Level][]string{}}
		p := openFunc(t, func(_ context.Context, tk *task.Task[int]) error {
			switch tk.Payload {
			case 1:
				return errNo
			case 2:
				panicHere("boo")
			}
			return nil
		}, pool.Options[int]{Workers: 1, Logger: slog.New(out), Policy: pool.Policy{MaxAttempts: 2}})
		for i := range 100 {
			key := "k"
			if i == 1 {
				key = ""
			}
			require.NoError(t, p.Submit(ctx, key, i))
		}
		wait(t, p)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Empty(t, out.lines[slog.LevelInfo])
		require.Empty(t, out.lines[slog.LevelError])
		failed := out.lines[slog.LevelWarn]
		require.Len(t, failed, 2)
		require.Equal(t, "pool: a task failed for good task=2 attempts=2 error=no tasks=1",
			failed[0])
		require.Contains(t, failed[1],
			"pool: a task failed for good task=3 key=k attempts=2 error=task: panic in the "+
				"handler: boo stack=goroutine")
		require.Equal(t, 1, strings.Count(failed[1], "panicHere("), "the stack stands once")
		end(t, ctx, p)
		require.Empty(t, out.lines[slog.LevelDebug])
		require.Empty(t, out.lines[slog.LevelInfo])
	})
}

// TestWarningsAreCounted has 100 tasks a second fail for ten seconds, or be settled by handlers.
// There is a line a second for each of the two reasons, and all lines together count all tasks.
func TestWarningsAreCounted(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		out := &records{lines: map[slog.Level][]string{}}
		p := openFunc(t, func(ctx context.Context, tk *task.Task[int]) error {
			if tk.Payload%4 == 0 {
				return tk.Ack(ctx) // the pool cannot settle it then
			}
			return pool.Permanent(errNo)
		}, pool.Options[int]{Workers: 1, Logger: slog.New(out)})
		for i := range 1000 {
			require.NoError(t, p.Submit(ctx, "k", i))
			synctest.Wait()
			if i%100 == 50 {
				for _, reason := range []string{"settled", "good"} {
					require.Equal(t, i/100+1, countWarned(out, reason).lines, "after %d tasks", i+1)
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
		end(t, ctx, p)
		synctest.Wait() // a timer may have been due just then
		require.Equal(t, 250, countWarned(out, "settled").tasks)
		require.Equal(t, 750, countWarned(out, "good").tasks)
	})
}

type warned struct{ lines, tasks int }

// countWarned counts the lines at Warn with a word, and their tasks.
func countWarned(out *records, word string) (sum warned) {
	for _, line := range out.lines[slog.LevelWarn] {
		if strings.Contains(line, word) {
			n, _ := strconv.Atoi(line[strings.LastIndex(line, "=")+1:])
			sum.lines, sum.tasks = sum.lines+1, sum.tasks+n
		}
	}
	return sum
}
