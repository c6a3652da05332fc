package pool_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// TestLettersAtShutdown has a running sink when the time of Shutdown is over, for each way in
// which a task becomes a letter. The sink is called once for the task. It has AbandonAfter until
// its context is done, and as long again after that. The letter is either taken or is not.
func TestLettersAtShutdown(t *testing.T) {
	for _, way := range []string{"failed", "failed, New", "expired", "evicted", "left"} {
		for _, takes := range []time.Duration{500, 1500, 2500, 3500, 4500, 60_000} {
			t.Run(fmt.Sprint(way, takes), func(t *testing.T) {
				inBubble(t, func(t *testing.T, ctx context.Context) {
					testLettersAtShutdown(t, ctx, way, takes*time.Millisecond)
				})
			})
		}
	}
}

func testLettersAtShutdown(t *testing.T, ctx context.Context, way string, takes time.Duration) {
	calls := 0
	var told []error
	var begun time.Time
	var contextLasted time.Duration
	o := pool.Options[int]{
		Workers: 1, Queue: task.Options[int]{Capacity: 1}, AbandonAfter: time.Second,
		DeadLetters: func(ctx context.Context, _ *pool.DeadLetter[int]) error {
			calls++
			begun = time.Now()
			context.AfterFunc(ctx, func() { contextLasted = time.Since(begun) })
			time.Sleep(takes)
			return nil
		},
		Observer: on(pool.EventDeadLetter, func(e pool.Event[int]) { told = append(told, e.Err) }),
	}
	open := func() *pool.Pool[int] {
		return openFunc(t, func(context.Context, *task.Task[int]) error { return pool.Permanent(errNo) },
			o)
	}
	var p *pool.Pool[int]
	var put pool.PutOptions
	switch way {
	case "failed, New":
		o.Queue.Capacity = 0
		p = openNew(t, openQueue[int](t, nil),
			func(context.Context, *task.Task[int]) error { return pool.Permanent(errNo) }, o)
	case "evicted":
		o.Queue.WhenFull = fairq.EvictOldest
		p = open()
	case "expired":
		put.Deadline = time.Now().Add(time.Nanosecond)
		p = open()
	default:
		p = open()
	}
	limit := 4 * time.Second // the time that the sink has
	if way != "failed" && way != "failed, New" {
		p.Pause()
	}
	_, err := p.Put(ctx, "a", 1, put)
	require.NoError(t, err)
	if way == "evicted" {
		go func() { _ = p.Submit(ctx, "a", 2) }()
	}
	time.Sleep(time.Millisecond)
	soon, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if way == "left" {
		limit = 3 * time.Second
	}
	if way == "evicted" { // empty the queue, so that there is one letter only
		_, err = p.Queue("").Truncate(ctx)
		require.NoError(t, err)
	}
	err = p.Shutdown(soon)
	s := p.Stats()
	if takes < limit {
		require.Equal(t, uint64(1), s.DeadLetters)
		require.Empty(t, p.Leftovers())
		require.NotErrorIs(t, err, pool.ErrAbandoned)
	} else {
		require.Zero(t, s.DeadLetters)
		require.ErrorIs(t, err, pool.ErrAbandoned)
		require.ErrorContains(t, err, "abandoned: 1 ")
		require.Equal(t, way == "failed" || way == "left", len(p.Leftovers()) == 1)
	}
	time.Sleep(time.Hour)
	synctest.Wait()
	if takes > limit-time.Second {
		require.InDelta(t, limit-time.Second, contextLasted, float64(2*time.Millisecond))
	}
	require.Equal(t, 1, calls)
	require.Equal(t, s.DeadLetters, p.Stats().DeadLetters)
	require.Len(t, told, 1)
	require.Equal(t, s.DeadLetters == 0, told[0] != nil)
}

// TestSubmitToOwnFullPool has handlers and sinks that put tasks into full queues of their own
// pool, in each way that there is. They get an ErrFull at once, although the pool waits for room.
func TestSubmitToOwnFullPool(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		var p *pool.Pool[int]
		ways := map[string]func(ctx context.Context) error{
			"Submit": func(ctx context.Context) error { return p.Submit(ctx, "a", 0) },
			"other goroutine": func(ctx context.Context) error {
				result := make(chan error)
				go func() { result <- p.Submit(ctx, "a", 0) }()
				return <-result
			},
			"Do": func(ctx context.Context) error { return p.Do(ctx, "a", 0, pool.PutOptions{}) },
		}
		got := map[string]error{}
		try := func(ctx context.Context, who string) {
			for name, put := range ways {
				got[who+name] = put(ctx)
			}
		}
		p = openFunc(t, func(ctx context.Context, _ *task.Task[int]) error {
			try(ctx, "handler ")
			return pool.Permanent(errNo)
		}, pool.Options[int]{
			Workers: 1, Queue: task.Options[int]{Capacity: 1},
			Classes: []pool.Class[int]{{Name: "full"}, {Name: "other"}},
			DeadLetters: func(ctx context.Context, l *pool.DeadLetter[int]) error {
				if l.Reason == pool.ReasonFailed {
					try(ctx, "sink ")
				}
				return nil
			},
		})
		p.Pause()
		require.NoError(t, p.Queue("full").Pause(ctx))
		require.NoError(t, p.Submit(ctx, "a", 0))
		_, err := p.Put(ctx, "a", 0, pool.PutOptions{Class: "other"})
		require.NoError(t, err)
		p.Resume()
		synctest.Wait()
		require.Len(t, got, 2*len(ways))
		for name, err := range got {
			require.ErrorIs(t, err, task.ErrFull, name)
		}
	})
}
