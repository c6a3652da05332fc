package each_test

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/each"
	"github.com/fairq/fairq/task"
)

// Do makes a hundred calls at the same time, waits after a thousand, and counts the changed tasks.
func TestDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tasks := func(yield func(*task.Task[int], error) bool) {
			for id := range task.ID(4000) {
				if !yield(task.NewTask(task.Info{ID: id}, 0), nil) {
					return
				}
			}
		}
		begin := time.Now()
		n, err := each.Do(t.Context(), tasks, func(t *task.Task[int]) bool { return t.ID%2 == 0 },
			func(_ context.Context, id task.ID) error {
				time.Sleep(time.Second)
				return map[task.ID]error{10: task.ErrTaken, 3998: io.EOF}[id]
			})
		require.Equal(t, io.EOF, err)
		require.Equal(t, 1998, n)
		require.Equal(t, 21040*time.Millisecond, time.Since(begin))
	})
}
