//go:build unix

package pgtest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { Main(m) }

func (s *Server) in(url, sql string) error {
	return run(s.command("psql", "-X", "-q", "-d", url, "-c", sql))
}

func TestCommittedSurvivesKill(t *testing.T) {
	t.Parallel()
	s := Own(t)
	url := s.Database(t)
	require.NoError(t, s.in(url, "CREATE TABLE a AS SELECT 1 AS b"))
	s.Kill()
	require.Error(t, s.in(url, "SELECT 1"))
	require.NoError(t, s.Start())
	for range 2 {
		require.NoError(t, s.in(url, "SELECT 1 / count(*) FROM a"))
		require.NoError(t, s.Restart())
	}
}

func TestDatabasesAreEmpty(t *testing.T) {
	t.Parallel()
	for range 2 {
		require.NoError(t, Shared(t).in(Shared(t).Database(t), "CREATE TABLE a (b int)"))
	}
}
