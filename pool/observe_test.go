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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// tally is what an observer was told.
type tally struct {
	mu    sync.Mutex
	calls map[string]uint64
	bad   []string
}

func (c *tally) add(what, class string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[what]++
	c.calls[what+" "+class]++
	if !ok {
		c.bad = append(c.bad, what)
	}
}

// caller is a key of what the contexts of those who submit have.
type caller struct{}

// observer returns one that counts its calls, and checks that it is told of the right tasks, and
// that handlers take as long as said.
func (c *tally) observer(runs time.Duration, items bool) pool.Observer[int] {
	type tk = *task.Task[int]
	type span = time.Duration
	// alive tells whether the task is the one that a handler gets, and the context one that is not
	// done.
	alive := func(ctx context.Context, t tk) bool {
		return ctx.Err() == nil && (items && t.ID == 0 || t.ID > 0 && t.Key != "" && t.Attempts > 0)
	}
	// submitted tells whether the task is one that was just submitted.
	submitted := func(ctx context.Context, t tk) bool { return ctx.Value(caller{}) == true && t.ID == 0 && t.Key != "" }
	return pool.Observer[int]{
		Offered: func(ctx context.Context, class string, t tk) { c.add("offered", class, submitted(ctx, t)) },
		Refused: func(ctx context.Context, class string, t tk, err error) {
			c.add("refused", class, submitted(ctx, t) && err != nil)
		},
		Started: func(ctx context.Context, class string, t tk, waited span) {
			c.add("started", class, waited >= 0 && alive(ctx, t))
		},
		Succeeded: func(ctx context.Context, class string, t tk, ran span) {
			c.add("succeeded", class, ran == runs && alive(ctx, t))
		},
		Retried: func(ctx context.Context, class string, t tk, ran, delay span, err error) {
			c.add("retried", class, ran == runs && delay == time.Minute && err != nil && alive(ctx, t))
		},
		Failed: func(ctx context.Context, class string, t tk, ran span, err error) {
			c.add("failed", class, ran == runs && err != nil && alive(ctx, t))
		},
		Cancelled: func(ctx context.Context, class string, t tk, ran span, err error) {
			c.add("cancelled", class, ran == runs && err != nil && alive(ctx, t))
		},
		Lost: func(ctx context.Context, class string, t tk, ran span, err error) {
			c.add("lost", class, ran == runs && err != nil && alive(ctx, t))
		},
		Dropped: func(ctx context.Context, class string, t tk) { c.add("dropped", class, submitted(ctx, t)) },
		Expired: func(ctx context.Context, class string, t tk) { c.add("expired", class, ctx.Err() == nil && t.ID > 0) },
		DeadLetter: func(ctx context.Context, l *pool.DeadLetter[int], err error) {
			c.add("letter", l.Class, ctx.Err() == nil && (l.Task.Key != "" || items) && err == nil)
		},
		Scaled: func(from, to int) { c.add("scaled", "", from-to == 1 || to-from == 1) },
	}
}

// TestObserver has some of everything, and compares what the observer was told with Stats, and
// with what the classes were given.
func TestObserver(t *testing.T) {
	r := chance(t)
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			ctx := context.WithValue(t.Context(), caller{}, true)
			const runs = 10 * time.Second
			c := &tally{calls: map[string]uint64{}}
			var box mailbox[int]
			p := openFunc(t, func(ctx context.Context, tk *task.Task[int]) error {
				time.Sleep(runs)
				switch tk.Payload {
				case 0:
					return errNo
				case 1:
					panic("boo")
				case 2:
					if tk.Attempts == 1 && time.Since(tk.Info().Created) < 30*time.Second {
						return pool.Snooze(time.Minute)
					}
				case 3:
					return pool.Permanent(errNo)
				case 4:
					<-ctx.Done()
				}
				return ctx.Err()
			}, pool.Options[int]{
				Scale: pool.Scale{Max: 3}, WhenFull: pool.DropNew, Capacity: 10, DeadLetters: box.sink,
				Classes:  []pool.Class[int]{{Name: "x"}, {Name: "y", Queue: openQueue(t, &task.Options[int]{Capacity: 20, TTR: 15 * time.Second})}},
				Policy:   pool.Policy{MaxAttempts: 3, Timeout: runs, Backoff: pool.Backoff{Curve: pool.Constant, Base: time.Minute}},
				Observer: c.observer(runs, false),
			})
			offered, refused := map[string]uint64{}, uint64(0)
			for range 100 {
				class := []string{"x", "y"}[r.IntN(2)]
				offered[class]++
				options := pool.PutOptions{Class: class}
				if r.IntN(3) == 0 {
					options.Deadline = time.Now().Add(time.Duration(r.IntN(100)) * time.Second)
				}
				put := p.Put
				if r.IntN(2) == 0 {
					put = p.TrySubmit
				}
				_, err := put(ctx, strconv.Itoa(r.IntN(3)), r.IntN(8), options)
				if err != nil {
					require.ErrorIs(t, err, fairq.ErrFull)
					refused++
				}
				time.Sleep(time.Duration(r.IntN(10000)) * time.Millisecond)
			}
			wait(t, p)
			time.Sleep(time.Hour)
			synctest.Wait()
			s := p.Stats()
			want := map[string]uint64{
				"offered": 100, "offered x": offered["x"], "offered y": offered["y"], "started": s.Started, "succeeded": s.Succeeded,
				"retried": s.Retried + s.Snoozed, "failed": s.Failed, "cancelled": s.Cancelled, "lost": s.Lost, "dropped": s.Dropped, "expired": s.Expired,
				"letter": s.DeadLetters, "refused": s.Refused,
			}
			for what, n := range want {
				assert.Equal(t, n, c.calls[what], what)
				if !strings.HasPrefix(what, "offered") {
					assert.Equal(t, n, c.calls[what+" x"]+c.calls[what+" y"], what)
				}
			}
			require.Empty(t, c.bad)
			require.Equal(t, refused, s.Refused)
			require.Equal(t, s.Started, s.Succeeded+s.Retried+s.Snoozed+s.Failed+s.Cancelled+s.Lost+s.Returned)
			require.Len(t, box.all(), int(s.DeadLetters))
			require.NoError(t, p.Shutdown(ctx))
		})
	}
}

// TestWaitingTimes has one worker, and tasks with delays and retries. They wait from when they are
// ready.
func TestWaitingTimes(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		var waits []time.Duration
		p := openFunc(t, func(_ context.Context, tk *task.Task[int]) error {
			time.Sleep(10 * time.Second)
			if tk.Attempts == 1 && tk.Payload == 0 {
				return errNo
			}
			return nil
		}, pool.Options[int]{
			Workers: 1, Policy: pool.Policy{Backoff: pool.Backoff{Base: 15 * time.Second}},
			Observer: pool.Observer[int]{Started: func(_ context.Context, _ string, _ *task.Task[int], waited time.Duration) {
				waits = append(waits, waited)
			}},
		})
		for i := range 3 {
			_, err := p.Put(ctx, strconv.Itoa(i), i, pool.PutOptions{Delay: time.Duration(i) * time.Second})
			require.NoError(t, err)
		}
		wait(t, p)
		// 0 at 0 s, 1 (ready at 1 s) at 10 s, 2 (ready at 2 s) at 20 s, 0 again (ready at 25 s) at
		// 30 s.
		require.Equal(t, []time.Duration{0, 9 * time.Second, 18 * time.Second, 5 * time.Second}, waits)
		end(t, ctx, p)
	})
}

// TestObserverOfItems does with a FairQueue what can be done there.
func TestObserverOfItems(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		c, out := &tally{calls: map[string]uint64{}}, &records{lines: map[slog.Level][]string{}}
		q := fairq.New(func(int) string { return "a" }, nil)
		w := pool.NewWorkers(q, func(_ context.Context, n int) error {
			time.Sleep(time.Second)
			if n%3 == 0 {
				return errNo
			}
			return nil
		}, &pool.Options[int]{Workers: 2, Observer: c.observer(time.Second, true), Logger: slog.New(out)})
		for i := range 10 {
			require.NoError(t, q.Push(i))
		}
		require.NoError(t, w.Wait(ctx))
		require.Empty(t, c.bad)
		require.Equal(t, [4]uint64{10, 6, 4, 2}, [4]uint64{c.calls["started"], c.calls["succeeded"], c.calls["failed"], c.calls["scaled"]})
		s := w.Stats()
		require.Equal(t, [3]uint64{10, 6, 4}, [3]uint64{s.Started, s.Succeeded, s.Failed})
		require.NoError(t, w.Shutdown(ctx))
		require.Equal(t, uint64(4), c.calls["scaled"])
		failed := "pool: an item failed error=no"
		require.Equal(t, []string{failed, failed, failed, failed}, out.lines[slog.LevelWarn])
		require.Empty(t, out.lines[slog.LevelInfo])
		require.Empty(t, out.lines[slog.LevelError])
	})
}

// records keeps what was logged.
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

// TestLog shows what is logged, and that nothing is about each task above Debug unless it has
// failed for good.
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
		require.Empty(t, out.lines[slog.LevelInfo])
		require.Empty(t, out.lines[slog.LevelError])
		failed := out.lines[slog.LevelWarn]
		require.Len(t, failed, 2)
		require.Equal(t, "pool: a task failed for good task=2 reason=failed attempts=2 error=no", failed[0])
		require.Contains(t, failed[1], "pool: a task failed for good task=3 key=k reason=failed attempts=2 error=task: panic in the handler: boo stack=goroutine")
		require.Equal(t, 1, strings.Count(failed[1], "panicHere("), "the stack stands once")
		require.Contains(t, out.lines[slog.LevelDebug], "pool: to be tried again task=2 attempts=1 delay=1s error=no")
		require.Contains(t, out.lines[slog.LevelDebug], "pool: number of workers from=0 to=1")
		end(t, ctx, p)
		require.Contains(t, out.lines[slog.LevelDebug], "pool: shutting down workers=1 idle=1 nested=0")
		require.Contains(t, out.lines[slog.LevelDebug], "pool: shut down succeeded=98 failed=2 retried=2 returned=0 letters=0 leftovers=0")
		require.Empty(t, out.lines[slog.LevelInfo])
	})
}

// TestLogOfForcedShutdown has counts of what was cancelled, and of what is left.
func TestLogOfForcedShutdown(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		out := &records{lines: map[slog.Level][]string{}}
		p := openFunc(t, newGate().handle, pool.Options[int]{Workers: 2, Logger: slog.New(out)})
		for i := range 5 {
			require.NoError(t, p.Submit(ctx, "a", i))
		}
		synctest.Wait()
		soon, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		require.Error(t, p.Shutdown(soon))
		require.Equal(t, []string{"pool: handlers are cancelled running=2 nested=0"}, out.lines[slog.LevelWarn])
		require.Empty(t, out.lines[slog.LevelInfo])
		require.Contains(t, out.lines[slog.LevelDebug], "pool: shutting down workers=2 idle=0 nested=0")
		require.Contains(t, out.lines[slog.LevelDebug], "pool: shut down succeeded=0 failed=0 retried=0 returned=2 letters=0 leftovers=5")
		require.Equal(t, uint64(5), p.Stats().Leftovers)
	})
}

// TestStatsGauges follows a few tasks.
func TestStatsGauges(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		g := newGate()
		p := openFunc(t, g.handle, pool.Options[int]{Scale: pool.Scale{Min: 1, Max: 4}})
		require.Equal(t, pool.Stats{Min: 1, Max: 4}, p.Stats())
		for i := range 3 {
			require.NoError(t, p.Submit(ctx, "a", i))
		}
		synctest.Wait()
		require.Equal(t, pool.Stats{Min: 1, Max: 4, Workers: 3, Running: 3, Started: 3}, p.Stats())
		g.let(2)
		require.Equal(t, pool.Stats{Min: 1, Max: 4, Workers: 3, Running: 1, Idle: 2, Started: 3, Succeeded: 2}, p.Stats())
		g.let(1)
		end(t, ctx, p)
		require.Equal(t, pool.Stats{Min: 1, Max: 4, Closed: true, Started: 3, Succeeded: 3}, p.Stats())
	})
}
