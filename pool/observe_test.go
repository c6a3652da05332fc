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

// observer returns one that counts its calls, and checks that handlers take as long as said.
func (c *tally) observer(runs time.Duration) pool.Observer {
	return pool.Observer{
		Offered:   func(class string) { c.add("offered", class, true) },
		Started:   func(class string, waited time.Duration) { c.add("started", class, waited >= 0) },
		Succeeded: func(class string, ran time.Duration) { c.add("succeeded", class, ran == runs) },
		Retried: func(class string, ran, delay time.Duration, err error) {
			c.add("retried", class, ran == runs && delay == time.Minute && err != nil)
		},
		Failed:  func(class string, ran time.Duration, err error) { c.add("failed", class, ran == runs && err != nil) },
		Lost:    func(class string, ran time.Duration, err error) { c.add("lost", class, ran == runs && err != nil) },
		Dropped: func(class string) { c.add("dropped", class, true) },
		Expired: func(class string) { c.add("expired", class, true) },
		Scaled:  func(from, to int) { c.add("scaled", "", from-to == 1 || to-from == 1) },
	}
}

// TestObserver has some of everything, and compares what the observer was told with Stats, and with what the classes were given.
func TestObserver(t *testing.T) {
	r := chance(t)
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
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
					if tk.Attempts == 1 && time.Since(tk.Created) < 30*time.Second {
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
				Observer: c.observer(runs),
			})
			offered := map[string]uint64{}
			for range 100 {
				class := []string{"x", "y"}[r.IntN(2)]
				offered[class]++
				var options task.PutOptions
				if r.IntN(3) == 0 {
					options.Deadline = time.Now().Add(time.Duration(r.IntN(100)) * time.Second)
				}
				_, err := p.Put(ctx, strconv.Itoa(r.IntN(3)), r.IntN(8), pool.PutOptions{Class: class, PutOptions: options})
				require.NoError(t, err)
				time.Sleep(time.Duration(r.IntN(10000)) * time.Millisecond)
			}
			wait(t, p)
			time.Sleep(time.Hour)
			synctest.Wait()
			s := p.Stats()
			want := map[string]uint64{
				"offered": 100, "offered x": offered["x"], "offered y": offered["y"], "started": s.Started, "succeeded": s.Succeeded,
				"retried": s.Retried + s.Snoozed, "failed": s.Failed, "lost": s.Lost, "dropped": s.Dropped, "expired": s.Expired,
			}
			for what, n := range want {
				assert.Equal(t, n, c.calls[what], what)
				if !strings.HasPrefix(what, "offered") {
					assert.Equal(t, n, c.calls[what+" x"]+c.calls[what+" y"], what)
				}
			}
			require.Empty(t, c.bad)
			require.Equal(t, s.Started, s.Succeeded+s.Retried+s.Snoozed+s.Failed+s.Lost+s.Returned)
			require.Len(t, box.all(), int(s.Letters))
			require.NoError(t, p.Shutdown(ctx))
		})
	}
}

// TestWaitingTimes has one worker, and tasks with delays and retries. They wait from when they are ready.
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
			Observer: pool.Observer{Started: func(_ string, waited time.Duration) { waits = append(waits, waited) }},
		})
		for i := range 3 {
			_, err := p.Put(ctx, strconv.Itoa(i), i, pool.PutOptions{PutOptions: task.PutOptions{Delay: time.Duration(i) * time.Second}})
			require.NoError(t, err)
		}
		wait(t, p)
		// 0 at 0 s, 1 (ready at 1 s) at 10 s, 2 (ready at 2 s) at 20 s, 0 again (ready at 25 s) at 30 s.
		require.Equal(t, []time.Duration{0, 9 * time.Second, 18 * time.Second, 5 * time.Second}, waits)
		end(t, ctx, p)
	})
}

// TestObserverOfItems does with a FairQueue what can be done there.
func TestObserverOfItems(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		c := &tally{calls: map[string]uint64{}}
		q := fairq.New(func(int) string { return "a" }, nil)
		w := pool.Drain(q, func(_ context.Context, n int) error {
			time.Sleep(time.Second)
			if n%3 == 0 {
				return errNo
			}
			return nil
		}, &pool.Options[int]{Workers: 2, Observer: c.observer(time.Second), Logger: silent})
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

// TestLog shows what is logged, and that nothing is about each task unless it has failed for good.
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
			require.NoError(t, p.Submit(ctx, "secret", i))
		}
		wait(t, p)
		require.Empty(t, out.lines[slog.LevelInfo])
		require.Empty(t, out.lines[slog.LevelWarn])
		failed := out.lines[slog.LevelError]
		require.Len(t, failed, 2)
		require.Equal(t, "pool: a task failed for good task=2 class= reason=failed attempts=2 error=no", failed[0])
		require.Contains(t, failed[1], "pool: a task failed for good task=3 class= reason=failed attempts=2 error=pool: handler panicked: boo")
		require.Contains(t, failed[1], "stack=goroutine")
		require.Contains(t, failed[1], "panicHere")
		require.Contains(t, out.lines[slog.LevelDebug], "pool: to be tried again task=2 class= attempts=1 delay=1s error=no")
		require.Contains(t, out.lines[slog.LevelDebug], "pool: number of workers from=0 to=1")
		end(t, ctx, p)
		require.Equal(t, []string{
			"pool: shutting down workers=1 idle=1 nested=0",
			"pool: shut down succeeded=98 failed=2 retried=2 returned=0 letters=0 leftovers=0",
		}, out.lines[slog.LevelInfo])
		require.NotContains(t, fmt.Sprint(out.lines), "secret") // keys may be anything, and there may be any number of them
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
		require.Equal(t, []string{
			"pool: shutting down workers=2 idle=0 nested=0",
			"pool: shut down succeeded=0 failed=0 retried=0 returned=2 letters=0 leftovers=5",
		}, out.lines[slog.LevelInfo])
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
