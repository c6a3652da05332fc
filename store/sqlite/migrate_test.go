package sqlite

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// bare returns a connection to a file without tables.
func bare(t *testing.T) *conn {
	o := options{}
	require.NoError(t, o.fill())
	c, err := connect(context.Background(), file(t), &o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.close()) })
	return c
}

var steps = []migration{
	{1, "CREATE TABLE ~a (x)"},
	{1, "CREATE TABLE ~b (x); INSERT INTO ~b VALUES (1)"}, // a program of version 1 can ignore it
	{3, "DROP TABLE ~a"},
}

func version(t *testing.T, c *conn) int {
	v, err := readVersion(c, 1<<30)
	require.NoError(t, err)
	return v
}

func TestMigrate(t *testing.T) {
	c := bare(t)
	up := func(n int) error { return migrate(context.Background(), c, steps[:n], time.Second) }
	require.Equal(t, 0, version(t, c))
	require.ErrorContains(t, checkVersion(c, 1), "the tables have version 0, this program needs 1")
	for _, n := range []int{1, 1, 2} {
		require.NoError(t, up(n))
		require.Equal(t, n, version(t, c))
		require.NoError(t, checkVersion(c, n))
	}
	require.NoError(t, up(1)) // an older program goes on
	require.NoError(t, checkVersion(c, 1))
	require.Equal(t, 2, version(t, c))

	require.NoError(t, up(3))
	const refused = "the tables have version 3, which needs a program of version 3 or newer; " +
		"this one has version 2"
	require.EqualError(t, up(2), refused)
	require.EqualError(t, checkVersion(c, 2), refused)
}

// TestMigrateBroken interrupts a step.
func TestMigrateBroken(t *testing.T) {
	c := bare(t)
	broken := append(steps[:1:1], migration{2, "CREATE TABLE ~b (x); INSERT INTO ~c VALUES (1)"})
	err := migrate(context.Background(), c, broken, time.Second)
	require.ErrorContains(t, err, "migrate: to version 2: ")
	require.Equal(t, 1, version(t, c))
	require.NoError(t, migrate(context.Background(), c, steps, time.Second))
	require.Equal(t, 3, version(t, c))
}

// TestMigrateLocked waits for a lock.
func TestMigrateLocked(t *testing.T) {
	path := file(t)
	first := openHandle(t, path, options{prefix: "a_"})
	x, err := first.Begin(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	_, err = openDB(ctx, path, options{prefix: "b_"})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = openDB(t.Context(), path, options{prefix: "b_", noMigrate: true})
	require.ErrorContains(t, err, "migrate them first")
	openHandle(t, path, options{prefix: "a_", noMigrate: true}) // which needs no lock
	openHandle(t, path, options{prefix: "a_"})
	x.Rollback()
}

func TestPrefixes(t *testing.T) {
	path := file(t)
	a, b := openHandle(t, path, options{prefix: "a"}), openHandle(t, path, options{prefix: "b"})
	makeQueue(t, a.db)
	makeQueue(t, b.db)
	x, err := a.Begin(t.Context())
	require.NoError(t, err)
	v, err := enter(x, nil)
	require.NoError(t, err)
	_, err = v.Drop()
	require.NoError(t, err)
	require.NoError(t, x.Commit())
	require.Equal(t, 0, total(t, b.db))
}
