package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/faulttest"
	"github.com/fairq/fairq/store/postgres"
)

func TestWakesAfterCommit(t *testing.T) {
	url := newDatabase(t)
	p, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	faulttest.WakesAfterCommit(t, openFaulty, url+seldom,
		func(ctx context.Context, f func(context.Context) error) error {
			return pgx.BeginFunc(ctx, p, func(tx pgx.Tx) error { return f(postgres.WithTx(ctx, tx)) })
		})
}
