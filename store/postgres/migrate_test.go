package postgres

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/pgtest"
)

func TestMigrate(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := openTest(t, func(c *config) { c.schema = `odd "name" ; ` })
	var wg sync.WaitGroup
	for range 4 { // it is done once
		wg.Go(func() { assert.NoError(t, db.Migrate(ctx)) })
	}
	wg.Wait()
	version := func() (v int) {
		require.NoError(t, db.pool.QueryRow(ctx,
			db.text("SELECT max(version) FROM fairq.version")).Scan(&v))
		return v
	}
	require.Equal(t, 1, version())
	second := migration{"CREATE TABLE fairq.second (a int)", 1}
	third := migration{"CREATE TABLE fairq.third (a int)", 3}
	require.NoError(t, db.migrate(ctx, append(migrations, second)))
	require.NoError(t, db.Migrate(ctx), "an old program can go on")
	require.Error(t, db.migrate(ctx, append(migrations, second, migration{"nonsense", 1})))
	require.Equal(t, 2, version())
	require.NoError(t, db.migrate(ctx, append(migrations, second, third)))
	require.Equal(t, 3, version())
	require.ErrorContains(t, db.Migrate(ctx),
		"the tables have version 3, which programs from version 3 on can use; this one has version 1")

	_, err := db.pool.Exec(ctx,
		db.text("DROP TABLE fairq.version; CREATE TABLE fairq.version (of text)"))
	require.NoError(t, err)
	for _, err := range []error{db.Migrate(ctx), db.check(ctx)} {
		require.ErrorContains(t, err, "postgres: "+db.name+": ")
		require.ErrorContains(t, err, "version is of another program")
	}
}

// With KeepSchema nothing is made, not even for a moment, because the user may lack the right.
func TestKeepSchema(t *testing.T) {
	t.Parallel()
	url := pgtest.Shared(t).Database(t)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), "CREATE ROLE looker LOGIN")
	require.NoError(t, err)
	defer func() {
		_, err := conn.Exec(context.Background(), "DROP OWNED BY looker; DROP ROLE looker")
		require.NoError(t, err)
	}()
	keep := func() error {
		s, err := Open(t.Context(), url+" user=looker", &Options{KeepSchema: true})
		if err == nil {
			s.Close()
		}
		return err
	}
	require.ErrorContains(t, keep(),
		"the tables have version 0, this program needs 1: migrate them first")
	s, err := Open(t.Context(), url, nil)
	require.NoError(t, err)
	s.Close()
	_, err = conn.Exec(t.Context(),
		"GRANT USAGE ON SCHEMA fairq TO looker; GRANT SELECT ON ALL TABLES IN SCHEMA fairq TO looker")
	require.NoError(t, err)
	require.NoError(t, keep())
}

// The names of tables are replaced as text, so they must not occur elsewhere.
func TestSchemaIsQualified(t *testing.T) {
	for line := range strings.Lines(schema1) {
		if words := strings.Fields(line); len(words) > 2 && words[0] == "CREATE" {
			require.Contains(t, line, " fairq.", line)
		}
	}
}
