package pool_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// TestDeadLetter checks the letter of a task that was tried three times.
func TestDeadLetter(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		var box mailbox[int]
		begin := time.Now()
		bad := &task.Error{Code: 7, Message: "seven"}
		p := openFunc(t, func(_ context.Context, tk *task.Task[int]) error {
			time.Sleep(time.Minute)
			return fmt.Errorf("attempt %d: %w", tk.Attempts, bad)
		}, pool.Options[int]{
			Workers: 1, DeadLetters: box.sink,
			Classes: []pool.Class[int]{{Name: "first"}, {Name: "second"}},
			Policy:  pool.Policy{MaxAttempts: 3, Backoff: pool.Backoff{Base: time.Hour}},
		})
		id, err := p.Put(ctx, "alice", 42, pool.PutOptions{PutOptions: task.PutOptions{
			Priority: 3, Kind: "mail", UniqueKey: "there", TTL: 24 * time.Hour,
		}, Class: "second"})
		require.NoError(t, err)
		err = p.Queue("second").Wait(ctx, "there")
		var recorded *task.Error
		require.ErrorAs(t, err, &recorded)
		require.Equal(t, task.Error{Code: 7, Message: "attempt 3: seven"}, *recorded)
		require.Len(t, box.all(), 1)
		l := box.all()[0]
		require.Equal(t, 42, l.Payload)
		require.Equal(t, "second", l.Class)
		require.Equal(t, pool.ReasonFailed, l.Reason)
		require.EqualError(t, l.Err, "attempt 3: seven")
		require.ErrorIs(t, l.Err, bad)
		require.Equal(t, 3, l.Task.Attempts)
		require.Equal(t, begin.Add(2*time.Hour+3*time.Minute), l.At)
		require.Equal(t, id, l.Task.ID)
		require.Equal(t, "alice", l.Task.Key)
		require.Equal(t, "mail", l.Task.Kind)
		require.Equal(t, "there", l.Task.UniqueKey)
		require.Equal(t, 3, l.Task.Priority)
		require.Equal(t, begin, l.Task.Created)
		require.Equal(t, begin.Add(26*time.Hour), l.Task.Expires) // with the delays
		require.EqualError(t, l.Task.Err, "attempt 2: seven")
		end(t, ctx, p)
	})
}

func TestReasonNames(t *testing.T) {
	var names []string
	for r := range pool.ReasonShutdown + 2 {
		names = append(names, r.String())
	}
	require.Equal(t, []string{"Reason(0)", "overflow", "failed", "deadline", "shutdown", "Reason(5)"},
		names)
}

// TestLetterComesFirst looks at the queue while a letter is sent: the task is still in it.
func TestLetterComesFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		q := openQueue[int](t, nil)
		letters := 0
		p := openNew(t, q, func(context.Context, *task.Task[int]) error { return pool.Permanent(errNo) },
			pool.Options[int]{
				Workers: 1, DeadLetters: func(ctx context.Context, l *pool.DeadLetter[int]) error {
					tk, err := q.Peek(ctx, l.Task.ID)
					require.NoError(t, err)
					require.Equal(t, task.Taken, tk.Info().State)
					letters++
					return nil
				},
			})
		require.EqualError(t, p.Do(ctx, "a", 1, pool.PutOptions{}), "no")
		s, err := q.Stats(ctx)
		require.NoError(t, err)
		require.Zero(t, s.Len())
		require.Equal(t, 1, letters)
		require.NoError(t, p.Shutdown(ctx))
	})
}

// TestSinkThatFails has sinks that do not take a letter, for tasks of a queue of one's own: they
// are buried, and can be kicked.
func TestSinkThatFails(t *testing.T) {
	errSink := errors.New("sink is full")
	for name, sink := range map[string]pool.Handler[*pool.DeadLetter[int]]{
		"sink is full": func(context.Context, *pool.DeadLetter[int]) error {
			return errSink
		},
		"panic in the sink: sink is full": func(context.Context, *pool.DeadLetter[int]) error {
			panic(errSink)
		},
		"pool: sink called runtime.Goexit": func(context.Context, *pool.DeadLetter[int]) error {
			runtime.Goexit()
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, ctx context.Context) {
				q := openQueue[int](t, nil)
				fails := true
				var told error
				p := openNew(t, q, func(context.Context, *task.Task[int]) error {
					if fails {
						return pool.Permanent(errNo)
					}
					return nil
				}, pool.Options[int]{
					Workers: 1, DeadLetters: sink,
					Observer: on(pool.EventFailed, func(e pool.Event[int]) { told = e.Err }),
				})
				err := p.Do(ctx, "a", 1, pool.PutOptions{})
				synctest.Wait()
				require.ErrorContains(t, err, "no\n")
				require.ErrorContains(t, err, name)
				require.ErrorIs(t, told, errNo)
				require.Equal(t, !strings.HasSuffix(name, "Goexit"), errors.Is(told, errSink))
				s, err := q.Stats(ctx)
				require.NoError(t, err)
				require.Equal(t, 1, s.Buried)
				require.Equal(t, [2]uint64{1, 0}, [2]uint64{p.Stats().Failed, p.Stats().DeadLetters})
				fails = false
				_, err = q.Kick(ctx, task.ListOptions{Limit: 1})
				require.NoError(t, err)
				wait(t, p)
				require.Equal(t, uint64(1), p.Stats().Succeeded)
				require.NoError(t, p.Shutdown(ctx))
			})
		})
	}
}

// TestLateLetterRefused has a sink that refuses the letter of a task past its time, which cannot
// be buried. It gets one letter, with the error of the handler, and the log has the rest.
func TestLateLetterRefused(t *testing.T) {
	for _, attempts := range []int{0, 1} {
		for _, own := range []bool{true, false} {
			inBubble(t, func(t *testing.T, ctx context.Context) {
				var box mailbox[int]
				out := &records{lines: map[slog.Level][]string{}}
				o := pool.Options[int]{
					Logger: slog.New(out),
					DeadLetters: func(ctx context.Context, l *pool.DeadLetter[int]) error {
						_ = box.sink(ctx, l)
						return errSink
					},
				}
				handler := func(context.Context, *task.Task[int]) error {
					time.Sleep(2 * time.Second)
					return errNo
				}
				p := openFunc(t, handler, o)
				if !own {
					p = openNew(t, openQueue[int](t, nil), handler, o)
				}
				_, err := p.Put(ctx, "a", 7, pool.PutOptions{PutOptions: task.PutOptions{
					TTL: time.Second, MaxAttempts: attempts,
				}})
				require.NoError(t, err)
				wait(t, p)
				letters := box.all()
				require.Len(t, letters, 1)
				require.ErrorIs(t, letters[0].Err, errNo)
				s := p.Stats()
				require.Equal(t, [2]uint64{1, 1 - uint64(attempts)}, [2]uint64{s.Failed, s.Expired})
				require.Len(t, out.lines[slog.LevelError], 1)
				require.Regexp(t, "lost.*payload=7 error=no\nthe sink", out.lines[slog.LevelError][0])
				end(t, ctx, p)
			})
		}
	}
}

// TestLettersKeepTimes has tasks that are dropped, evicted, and left over: the letter, and the
// queue into which it is put, keep the rest of their delay and time to live, and their
// metadata.
func TestLettersKeepTimes(t *testing.T) {
	for _, way := range []string{"evicted", "left"} {
		inBubble(t, func(t *testing.T, ctx context.Context) {
			next, begin := openQueue[int](t, nil), time.Now()
			var box mailbox[int]
			o := pool.Options[int]{
				Workers: 1, Queue: task.Options[int]{Capacity: 1},
				DeadLetters: func(ctx context.Context, l *pool.DeadLetter[int]) error {
					_ = box.sink(ctx, l)
					_, err := next.Put(ctx, l.Task.Key, l.Payload, l.PutOptions(time.Now()).PutOptions)
					return err
				},
			}
			switch way {
			case "evicted":
				o.Queue.WhenFull = fairq.EvictOldest
			}
			p := openFunc(t, newGate().handle, o)
			_, err := p.Put(ctx, "a", 2, pool.PutOptions{PutOptions: task.PutOptions{
				Delay: time.Hour, TTL: 3 * time.Hour, Priority: 3, Cost: 7, TTR: time.Minute,
				MaxAttempts: 4, Kind: "mail", UniqueKey: "there", Metadata: map[string]string{"by": "alice"},
			}})
			require.NoError(t, err)
			if way == "evicted" {
				time.Sleep(time.Minute)
				_, err := p.Put(ctx, "a", 1, pool.PutOptions{PutOptions: task.PutOptions{
					Delay: time.Hour,
				}})
				require.NoError(t, err)
			}
			if way == "left" {
				time.Sleep(time.Minute)
				require.NoError(t, p.Shutdown(ctx))
			}
			synctest.Wait()
			require.Len(t, box.all(), 1)
			l := box.all()[0]
			require.Equal(t, way == "left", l.Reason == pool.ReasonShutdown)
			require.Equal(t, way == "left", errors.Is(l.Err, pool.ErrShutdown))
			require.Zero(t, l.Task.Attempts)
			require.Equal(t, 2, l.Payload)
			require.Equal(t, begin, l.Task.Created)
			tasks, err := next.List(ctx, task.ListOptions{})
			require.NoError(t, err)
			require.Len(t, tasks, 1)
			for _, is := range []task.Info{l.Task, tasks[0].Info()} {
				require.Equal(t, task.Delayed, is.State)
				require.Equal(t, begin.Add(time.Hour), is.Until)
				require.Equal(t, begin.Add(4*time.Hour), is.Expires)
				require.Equal(t, [4]any{"a", "mail", "there", 3},
					[4]any{is.Key, is.Kind, is.UniqueKey, is.Priority})
				require.Equal(t, [3]any{int64(7), time.Minute, 4}, [3]any{is.Cost, is.TTR, is.MaxAttempts})
				require.Equal(t, map[string]string{"by": "alice"}, is.Metadata)
			}
			over, cancel := context.WithCancel(ctx)
			cancel()
			_ = p.Shutdown(over)
		})
	}
}

// TestLetterPutAgain is about the options to put a task again.
func TestLetterPutAgain(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		was  task.Info
		want pool.PutOptions
	}{
		{was: task.Info{State: task.Taken, Until: now.Add(time.Hour)}}, // that is its lease
		{
			was:  task.Info{State: task.Delayed, Until: now.Add(time.Hour)},
			want: pool.PutOptions{PutOptions: task.PutOptions{Delay: time.Hour}},
		},
		{
			was:  task.Info{State: task.Delayed, Until: now.Add(-time.Hour), Kind: "x", TTR: 1},
			want: pool.PutOptions{PutOptions: task.PutOptions{Kind: "x", TTR: 1}},
		},
		{was: task.Info{Expires: now.Add(time.Hour)}, want: pool.PutOptions{PutOptions: task.PutOptions{
			TTL: time.Hour,
		}}},
		{
			was:  task.Info{Expires: now.Add(time.Hour), Deadline: now.Add(time.Hour)},
			want: pool.PutOptions{PutOptions: task.PutOptions{Deadline: now.Add(time.Hour)}},
		},
		{
			was: task.Info{Expires: now.Add(time.Hour), Deadline: now.Add(2 * time.Hour)},
			want: pool.PutOptions{PutOptions: task.PutOptions{
				TTL: time.Hour, Deadline: now.Add(2 * time.Hour),
			}},
		},
		{
			was:  task.Info{Expires: now.Add(-time.Hour)},
			want: pool.PutOptions{PutOptions: task.PutOptions{Deadline: now.Add(-time.Hour)}},
		},
	} {
		require.Equal(t, c.want, (&pool.DeadLetter[int]{Task: c.was}).PutOptions(now))
	}
}
