//go:build unix

package sqlite_test

import (
	"context"
	"testing"

	"github.com/fairq/fairq/store/internal/faulttest"
	"github.com/fairq/fairq/store/sqlite"
)

func BenchmarkCaller(b *testing.B) {
	faulttest.Puts(b, func(ctx context.Context, path string) (faulttest.Store, error) {
		return sqlite.Open(ctx, path, nil)
	}, newFile(b))
}
