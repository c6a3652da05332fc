//go:build unix

package postgres_test

import (
	"context"
	"testing"

	"github.com/fairq/fairq/internal/pgtest"
	"github.com/fairq/fairq/store/internal/faulttest"
	"github.com/fairq/fairq/store/postgres"
)

func BenchmarkCaller(b *testing.B) {
	faulttest.Puts(b, func(ctx context.Context, url string) (faulttest.Store, error) {
		return postgres.Open(ctx, url, nil)
	}, pgtest.Own(b, "max_wal_size=4GB").URL("postgres"))
}
