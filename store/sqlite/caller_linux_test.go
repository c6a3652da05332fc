package sqlite_test

import (
	"context"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/sqlite"
	"github.com/fairq/fairq/task"
)

// BenchmarkCaller counts the processor time of this process for each Put of a single caller, once
// with a context without an end, and once with a context that can end.
func BenchmarkCaller(b *testing.B) {
	ends, cancel := context.WithCancel(context.Background())
	defer cancel()
	for name, ctx := range map[string]context.Context{"Never": context.Background(), "Ends": ends} {
		b.Run(name, func(b *testing.B) {
			s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "tasks.db"), nil)
			require.NoError(b, err)
			q, err := task.Open[int](b.Context(), s, b.Name(), nil)
			require.NoError(b, err)
			used := func() (nanoseconds int64) {
				var r syscall.Rusage
				require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &r))
				return r.Utime.Nano() + r.Stime.Nano()
			}
			before := used()
			for i := range b.N {
				_, err := q.Put(ctx, "a", i, task.PutOptions{})
				require.NoError(b, err)
			}
			b.ReportMetric(float64(used()-before)/1000/float64(b.N), "cpu-us/op")
			require.NoError(b, q.Drop(context.Background()))
			require.NoError(b, s.Close())
		})
	}
}
