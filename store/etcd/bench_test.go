package etcd

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/rows/rowstest/kvtest"
	"github.com/fairq/fairq/task"
)

// The benchmark has the figures of benchmarks/stores/README.md.
func BenchmarkTake(b *testing.B) {
	database := func() string { return newDatabase(b, 1) }
	kvtest.Take(b, database, func(where string) (task.Store, func() int64) {
		_, prefix, _ := strings.Cut(where, "#")
		connection, err := dial(b.Context(), where)
		require.NoError(b, err)
		s, err := Open(b.Context(), connection, &Options{Prefix: prefix, MaxOps: maxOps})
		require.NoError(b, err)
		b.Cleanup(func() {
			require.NoError(b, s.Close())
			require.NoError(b, connection.Close())
		})
		return s, s.db.Conflicts
	})
}
