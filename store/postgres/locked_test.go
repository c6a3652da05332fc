package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/storetest"
	"github.com/fairq/fairq/store/postgres"
)

func TestLocked(t *testing.T) {
	url := newDatabase(t)
	s, err := postgres.Open(t.Context(), url, nil)
	require.NoError(t, err)
	defer s.Close()
	c, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer c.Close(t.Context())
	storetest.Locked(t, s, func() func() {
		tx, err := c.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "LOCK TABLE fairq.tasks, fairq.queues, fairq.consumers")
		require.NoError(t, err)
		return func() { require.NoError(t, tx.Rollback(t.Context())) }
	})
}
