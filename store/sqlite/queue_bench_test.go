package sqlite_test

import (
	"context"
	"testing"

	"github.com/fairq/fairq/store/internal/rows/rowstest"
	"github.com/fairq/fairq/store/sqlite"
)

func BenchmarkQueue(b *testing.B) {
	rowstest.BenchmarkQueue(b, func(ctx context.Context, path string) (rowstest.Closer, error) {
		return sqlite.Open(ctx, path, nil)
	})
}
