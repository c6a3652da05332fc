package pool_test

import (
	"context"
	"log/slog"
	"reflect"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// brokenLog is a handler of a Logger, and panics.
type brokenLog struct{ slog.Handler }

func (brokenLog) Enabled(_ context.Context, level slog.Level) bool {
	if level == slog.LevelDebug {
		panic("the log is broken")
	}
	return true
}

func (brokenLog) Handle(context.Context, slog.Record) error { panic("the log is broken") }

// brokenObserver returns one whose functions all call f, those too that nobody has thought of yet.
func brokenObserver(f func(name string)) (o pool.Observer[int]) {
	v := reflect.ValueOf(&o).Elem()
	for i := range v.NumField() {
		v.Field(i).Set(reflect.MakeFunc(v.Field(i).Type(), func([]reflect.Value) []reflect.Value {
			f(v.Type().Field(i).Name)
			return nil
		}))
	}
	return o
}

// hookCalls counts which functions were called.
type hookCalls struct {
	mu    sync.Mutex
	calls map[string]int
}

func (h *hookCalls) called(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls[name]++
}

// TestHooksThatPanic has a pool all of whose functions panic, each time: it does what it would do
// otherwise.
func TestHooksThatPanic(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		h := hookCalls{calls: map[string]int{}}
		broken := func(name string) {
			h.called(name)
			panic(name)
		}
		var p *pool.Pool[int]
		handle := func(ctx context.Context, tk *task.Task[int]) error {
			switch {
			case tk.Payload == 0 || tk.Attempts > 2:
				return nil
			case tk.Payload == 1:
				return pool.Permanent(errNo)
			case tk.Payload == 2:
				_ = tk.Ack(ctx)
			case tk.Payload == 6:
				require.NoError(t, p.Queue("").Delete(ctx, tk.ID))
				<-ctx.Done()
			}
			return errNo
		}
		p = openFunc(t, handle, pool.Options[int]{
			Scale: pool.Scale{Max: 3, IdleTimeout: time.Second}, WhenFull: pool.DropNew, Capacity: 4,
			Observer: brokenObserver(broken), Logger: slog.New(brokenLog{}),
			DeadLetters: func(_ context.Context, l *pool.DeadLetter[int]) error {
				if l.Payload < 5 {
					broken("DeadLetters")
				}
				return nil
			},
		})
		p.Pause()
		for i := range 4 {
			options := pool.PutOptions{}
			if i == 0 {
				options.Deadline = time.Now().Add(time.Second)
			}
			_, err := p.Put(ctx, "a", i, options)
			require.NoError(t, err)
		}
		require.ErrorAs(t, p.Submit(ctx, "a", 4), new(*pool.PanicError)) // nobody has it
		require.NoError(t, p.Submit(ctx, "a", 5))
		time.Sleep(2 * time.Second)
		p.Resume()
		wait(t, p)
		require.NoError(t, p.Submit(ctx, "a", 6))
		time.Sleep(time.Minute)
		requireLeft(t, p, p.Shutdown(ctx), 1) // that of the permanent error is buried
		require.Zero(t, goroutines())
		s := p.Stats()
		require.Equal(t, [7]uint64{6, 1, 1, 2, 1, 1, 1}, [7]uint64{s.Started, s.Succeeded, s.Failed, s.Retried, s.Cancelled, s.Lost, s.Expired})
		for i := range reflect.TypeFor[pool.Observer[int]]().NumField() {
			name := reflect.TypeFor[pool.Observer[int]]().Field(i).Name
			require.Positive(t, h.calls[name], name)
		}
		require.Positive(t, h.calls["DeadLetters"])
	})
}

// TestHooksThatExit has functions that end the goroutine that calls them, as those do that call
// FailNow in a test.
func TestHooksThatExit(t *testing.T) {
	for _, hook := range []string{"Scaled", "Succeeded", "Failed", "Retried", "Expired", "Log", "DeadLetter", "DeadLetters", "ForTask"} {
		t.Run(hook, func(t *testing.T) {
			inBubble(t, func(t *testing.T, ctx context.Context) {
				exits := func(name string) {
					if name == hook {
						runtime.Goexit()
					}
				}
				o := pool.Options[int]{
					Scale: pool.Scale{Max: 2, IdleTimeout: time.Second}, Observer: brokenObserver(exits), Logger: quiet,
					DeadLetters: func(context.Context, *pool.DeadLetter[int]) error { exits("DeadLetters"); return nil },
					Policy:      pool.Policy{MaxAttempts: 2},
					ForTask:     func(_ *task.Task[int], p pool.Policy) pool.Policy { exits("ForTask"); return p },
				}
				if hook == "Log" {
					o.Logger = slog.New(exitingLog{})
				}
				p := openFunc(t, func(_ context.Context, tk *task.Task[int]) error {
					if tk.Payload == 0 {
						return nil
					}
					return errNo
				}, o)
				for i := range 2 {
					require.NoError(t, p.Submit(ctx, "a", i))
				}
				_, err := p.Put(ctx, "a", 0, pool.PutOptions{Delay: time.Hour, Deadline: time.Now().Add(time.Minute)})
				require.NoError(t, err)
				time.Sleep(2 * time.Minute)
				wait(t, p)
				s := p.Stats()
				require.Equal(t, s.Started, s.Succeeded+s.Failed+s.Retried)
				require.Zero(t, s.Lost) // each attempt is settled once
				require.Zero(t, s.Workers)
				result := later(func() error { return p.Shutdown(ctx) })
				switch hook {
				case "Log": // its caller is gone
				case "DeadLetters":
					requireLeft(t, p, <-result, 1)
				default:
					require.NoError(t, <-result)
				}
				synctest.Wait()
				require.Zero(t, goroutines())
			})
		})
	}
}

// exitingLog is a handler of a Logger, and ends the goroutine.
type exitingLog struct{ slog.Handler }

func (exitingLog) Enabled(context.Context, slog.Level) bool { return true }

func (exitingLog) Handle(context.Context, slog.Record) error {
	runtime.Goexit()
	return nil
}

// TestHooksOfItemsThatPanic is TestHooksThatPanic for a FairQueue.
func TestHooksOfItemsThatPanic(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		q := fairq.New(func(int) int { return 0 }, nil)
		w := pool.NewWorkers(q, func(_ context.Context, n int) error {
			if n == 0 {
				return nil
			}
			return errNo
		}, &pool.Options[int]{
			Workers: 1, Observer: brokenObserver(func(name string) { panic(name) }), Logger: slog.New(brokenLog{}),
			DeadLetters: func(context.Context, *pool.DeadLetter[int]) error { panic("DeadLetters") },
		})
		for i := range 3 {
			require.NoError(t, q.Push(i))
		}
		require.NoError(t, w.Wait(ctx))
		require.NoError(t, w.Shutdown(ctx))
		require.Equal(t, [2]uint64{1, 2}, [2]uint64{w.Stats().Succeeded, w.Stats().Failed})
		require.Zero(t, goroutines())
	})
}

// TestHooksOfItemsThatExit has functions that end the goroutine: an item has a letter
// nevertheless.
func TestHooksOfItemsThatExit(t *testing.T) {
	for _, hook := range []string{"Scaled", "Started", "Succeeded", "Failed", "DeadLetter"} {
		t.Run(hook, func(t *testing.T) {
			inBubble(t, func(t *testing.T, ctx context.Context) {
				var box mailbox[int]
				q := fairq.New(func(int) int { return 0 }, nil)
				w := pool.NewWorkers(q, func(_ context.Context, n int) error {
					if n == 0 {
						return nil
					}
					return errNo
				}, &pool.Options[int]{Workers: 1, Logger: quiet, DeadLetters: box.sink, Observer: brokenObserver(func(name string) {
					if name == hook {
						runtime.Goexit()
					}
				})})
				for i := range 3 {
					require.NoError(t, q.Push(i))
				}
				require.NoError(t, w.Wait(ctx))
				require.NoError(t, w.Shutdown(ctx))
				failed := map[bool]uint64{true: 3, false: 2}[hook == "Started"]
				require.Equal(t, [2]uint64{3 - failed, failed}, [2]uint64{w.Stats().Succeeded, w.Stats().Failed})
				require.Len(t, box.all(), int(failed))
				require.Zero(t, goroutines())
			})
		})
	}
}
