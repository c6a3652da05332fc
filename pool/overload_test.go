package pool_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// TestWhenFull submits tasks of the keys a, a, a, b, c, a and b to a pool that is paused and has
// room for 4. Then the remaining tasks are done. Package fairq has a model of evictions.
func TestWhenFull(t *testing.T) {
	for _, c := range []struct {
		queue                  fairq.WhenFull
		keyCapacity            int
		dropped, refused, left []int
	}{
		{refused: []int{4, 5, 6}, left: []int{0, 1, 2, 3}},
		{queue: fairq.RejectOverShare, refused: []int{2, 5, 6}, left: []int{0, 1, 3, 4}},
		{queue: fairq.EvictOldest, dropped: []int{0, 1, 2}, left: []int{3, 4, 5, 6}},
		{
			queue: fairq.EvictOldest, keyCapacity: 2, dropped: []int{0}, refused: []int{2, 5},
			left: []int{1, 3, 4, 6},
		},
		{queue: fairq.EvictHeaviest, dropped: []int{2, 1}, refused: []int{5}, left: []int{0, 3, 4, 6}},
	} {
		t.Run(fmt.Sprint(c.queue, c.keyCapacity), func(t *testing.T) {
			inBubble(t, func(t *testing.T, ctx context.Context) {
				var box mailbox[int]
				var dropped, refused, done []int
				told := 0
				p := openFunc(t, func(_ context.Context, tk *task.Task[int]) error {
					done = append(done, tk.Payload)
					return nil
				}, pool.Options[int]{
					Workers:     1,
					Queue:       task.Options[int]{Capacity: 4, WhenFull: c.queue, KeyCapacity: c.keyCapacity},
					DeadLetters: box.sink,
					Observer:    on(pool.EventDropped, func(pool.Event[int]) { told++ }),
				})
				p.Pause()
				begin := time.Now()
				for n, key := range []string{"a", "a", "a", "b", "c", "a", "b"} {
					if _, err := p.TrySubmit(ctx, key, n, pool.PutOptions{}); err != nil {
						require.ErrorAs(t, err, new(*fairq.FullError))
						refused = append(refused, n)
					}
					synctest.Wait()
					for _, letter := range box.all()[len(dropped):] {
						dropped = append(dropped, letter.Payload)
						require.Equal(t, pool.ReasonOverflow, letter.Reason)
						require.ErrorIs(t, letter.Err, fairq.ErrFull)
						require.Zero(t, letter.Task.Attempts)
						require.Equal(t, time.Now(), letter.At)
						require.Equal(t, begin.Add(time.Duration(letter.Payload)*time.Second), letter.Task.Created)
					}
					time.Sleep(time.Second)
				}
				require.Equal(t, [2][]int{c.dropped, c.refused}, [2][]int{dropped, refused})
				s := p.Stats()
				require.Equal(t, [3]int{told, told, told},
					[3]int{len(dropped), int(s.Dropped), int(s.DeadLetters)})
				p.Resume()
				wait(t, p)
				require.ElementsMatch(t, c.left, done)
				end(t, ctx, p)
				require.Len(t, box.all(), len(dropped))
			})
		})
	}
}

// TestWhatCannotBeDropped has a failing sink: the log has the task.
func TestWhatCannotBeDropped(t *testing.T) {
	for name, sink := range map[string]pool.Handler[*pool.DeadLetter[int]]{
		"error": func(context.Context, *pool.DeadLetter[int]) error { return errNo },
		"panic": func(context.Context, *pool.DeadLetter[int]) error { panic(errNo) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, ctx context.Context) {
				var out bytes.Buffer
				p := openFunc(t, nothing, pool.Options[int]{
					Workers: 1, Queue: task.Options[int]{Capacity: 2, WhenFull: fairq.EvictHeaviest},
					DeadLetters: sink,
					Logger:      slog.New(slog.NewTextHandler(&out, nil)),
				})
				p.Pause()
				require.NoError(t, p.Submit(ctx, "a", 21))
				require.NoError(t, p.Submit(ctx, "a", 22))
				require.NoError(t, p.Submit(ctx, "b", 23))
				synctest.Wait()
				require.Contains(t, out.String(), "payload=22")
				require.Contains(t, out.String(), "key=a")
				require.Contains(t, out.String(), "reason=overflow")
			})
		})
	}
}

// TestSubmitWithContextThatIsDone puts nothing, although there is room.
func TestSubmitWithContextThatIsDone(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		p := openFunc(t, nothing, pool.Options[int]{Workers: 1})
		done, cancel := context.WithCancel(ctx)
		cancel()
		_, put := p.Put(done, "a", 1, pool.PutOptions{})
		_, try := p.TrySubmit(done, "a", 1, pool.PutOptions{})
		for _, err := range []error{
			p.Submit(done, "a", 1), put, try,
			p.Do(done, "a", 1, pool.PutOptions{}),
		} {
			require.Equal(t, context.Canceled, err)
		}
		synctest.Wait()
		require.Equal(t, pool.Stats{Min: 1, Max: 1}, p.Stats())
		end(t, ctx, p)
	})
}
