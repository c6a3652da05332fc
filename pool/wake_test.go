package pool_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// Whatever comes while some workers are idle, as many tasks run as there are workers for: none is
// left to a worker that is asleep. Handlers that fail, and pauses, come in between.
func TestNoTaskWaitsForAnIdleWorker(t *testing.T) {
	const workers = 4
	type source struct {
		submit func(n int) error
		wait   func() error
		pause  func(bool)
		end    func()
	}
	sources := map[string]func(ctx context.Context, handle func(int) error) source{
		"Func": func(ctx context.Context, handle func(int) error) source {
			p := pool.Func(func(_ context.Context, t *task.Task[int]) error { return handle(t.Payload) },
				&pool.Options[int]{Workers: workers, Policy: pool.Policy{MaxAttempts: 1}, Logger: slog.New(slog.DiscardHandler)})
			return source{
				submit: func(n int) error { return p.Submit(ctx, string(rune('a'+n%3)), n) },
				wait:   func() error { return p.Wait(ctx) },
				pause: func(paused bool) {
					if p.Resume(); paused {
						p.Pause()
					}
				},
				end: func() { require.NoError(t, p.Shutdown(ctx)) },
			}
		},
		"classes": func(ctx context.Context, handle func(int) error) source {
			p := pool.Func(func(_ context.Context, t *task.Task[int]) error { return handle(t.Payload) }, &pool.Options[int]{
				Workers: workers, Policy: pool.Policy{MaxAttempts: 1}, Logger: slog.New(slog.DiscardHandler),
				Classes: []pool.Class[int]{{Name: "x"}, {Name: "y"}},
			})
			return source{
				submit: func(n int) error {
					_, err := p.Put(ctx, "a", n, pool.PutOptions{Class: []string{"x", "y"}[n%2]})
					return err
				},
				wait: func() error { return p.Wait(ctx) },
				pause: func(paused bool) {
					if p.Resume(); paused {
						p.Pause()
					}
				},
				end: func() { require.NoError(t, p.Shutdown(ctx)) },
			}
		},
		"NewWorkers": func(ctx context.Context, handle func(int) error) source {
			q := fairq.New(func(n int) int { return n % 3 }, &fairq.Options[int, int]{Capacity: fairq.Unbounded})
			p := pool.NewWorkers(q, func(_ context.Context, n int) error { return handle(n) },
				&pool.Options[int]{Workers: workers, Logger: slog.New(slog.DiscardHandler)})
			return source{
				submit: func(n int) error { return q.PushWait(ctx, n) },
				wait:   func() error { return p.Wait(ctx) },
				pause: func(paused bool) {
					if p.Resume(); paused {
						p.Pause()
					}
				},
				end: func() { q.Close(); require.NoError(t, p.Shutdown(ctx)) },
			}
		},
	}
	for name, start := range sources {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(30) {
				synctest.Test(t, func(t *testing.T) {
					r := rand.New(rand.NewPCG(seed, 1))
					var running, left atomic.Int32
					release := make(chan error)
					s := start(t.Context(), func(int) error {
						running.Add(1)
						defer running.Add(-1)
						return <-release
					})
					paused := false
					for range 40 {
						switch r.IntN(8) {
						case 0:
							paused = !paused
							s.pause(paused)
						case 1, 2, 3:
							var all sync.WaitGroup
							for i := range 1 + r.IntN(5) {
								left.Add(1)
								all.Go(func() { require.NoError(t, s.submit(i)) })
							}
							all.Wait()
						default:
							for range r.IntN(int(running.Load()) + 1) {
								left.Add(-1)
								if r.IntN(4) == 0 {
									release <- context.DeadlineExceeded
								} else {
									release <- nil
								}
							}
						}
						synctest.Wait()
						if !paused {
							require.Equal(t, min(workers, left.Load()), running.Load(), "seed %d", seed)
						}
					}
					s.pause(false)
					close(release)
					require.NoError(t, s.wait())
					require.Zero(t, running.Load())
					s.end()
				})
			}
		})
	}
}
