package bolt_test

import (
	"context"
	"testing"

	"github.com/fairq/fairq/store/bolt"
	"github.com/fairq/fairq/store/internal/rows/rowstest"
)

func BenchmarkQueue(b *testing.B) {
	rowstest.BenchmarkQueue(b, func(ctx context.Context, path string) (rowstest.Closer, error) {
		return bolt.Open(ctx, path, nil)
	})
}
