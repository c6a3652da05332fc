package sqlite

import (
	"context"
	sqldriver "database/sql/driver"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/monitor"
	"github.com/fairq/fairq/task"
)

// counter counts the statements that are run.
type counter struct {
	backend
	n *atomic.Int64
}

func (c counter) run(s *statement, args []sqldriver.NamedValue) (int64, error) {
	c.n.Add(1)
	return c.backend.run(s, args)
}

func (c counter) rows(s *statement, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	c.n.Add(1)
	return c.backend.rows(s, args)
}

// TestMonitor checks that a page costs a bounded number of statements a second, for any number of
// viewers and tasks, buried ones included.
func TestMonitor(t *testing.T) {
	for name, c := range map[string]struct {
		options task.Options[int]
		most    float64 // statements a second: a fifth more than were seen
	}{
		"Plain":    {task.Options[int]{}, 60},
		"InFlight": {task.Options[int]{MaxInFlightPerKey: 1}, 360},
	} {
		t.Run(name, func(t *testing.T) {
			few := statements(t, c.options, 500, 1)
			require.Positive(t, few)
			require.LessOrEqual(t, few, c.most)
			require.LessOrEqual(t, statements(t, c.options, 500, 50), 1.5*few, "50 look")
			require.LessOrEqual(t, statements(t, c.options, 5000, 1), c.most, "more tasks")
		})
	}
}

// statements returns the statements in a second for a number of viewers and tasks.
func statements(t *testing.T, o task.Options[int], tasks, viewers int) (each float64) {
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(t.Context(), filepath.Join(t.TempDir(), "tasks.db"), nil)
		require.NoError(t, err)
		q, err := task.Open(t.Context(), s, "q", &o)
		require.NoError(t, err)
		batch := make([]task.Entry[int], tasks)
		for i := range batch {
			batch[i] = task.Entry[int]{Key: fmt.Sprint("key ", i%300)}
		}
		ids, err := q.PutBatch(t.Context(), batch)
		require.NoError(t, err)
		for _, id := range ids[:70] {
			require.NoError(t, q.Bury(t.Context(), id, nil))
		}
		m := monitor.New(nil, monitor.TaskQueue("q", q, nil))
		var n atomic.Int64
		s.db.session.backend = counter{s.db.session.backend, &n}
		const seconds = 10
		ctx, cancel := context.WithTimeout(t.Context(), seconds*time.Second)
		defer cancel()
		var pages sync.WaitGroup
		for range viewers {
			pages.Go(func() {
				for ctx.Err() == nil {
					m.ServeHTTP(httptest.NewRecorder(),
						httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/queues/q/live", nil))
					time.Sleep(time.Second)
				}
			})
		}
		pages.Wait()
		w := httptest.NewRecorder()
		m.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/queues/q", nil))
		require.Contains(t, w.Body.String(), `"counts":"process"`, "others may share the file")
		each = float64(n.Load()) / seconds
		t.Logf("%d tasks, %d viewers: %v statements a second", tasks, viewers, each)
		require.NoError(t, q.Close(t.Context()))
		require.NoError(t, s.Close())
	})
	return each
}
