package sqlite_test

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/task"
)

// TestFileIsGone removes the file under a store in use, and then puts another one there.
func TestFileIsGone(t *testing.T) {
	ctx, path := t.Context(), newFile(t)
	open := func() *task.Queue[string] {
		s, err := openFaulty(ctx, path)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		q, err := task.Open[string](ctx, s, "queue", nil)
		require.NoError(t, err)
		t.Cleanup(func() {
			if q.Close(context.Background()) != nil { // it has not noticed yet what the test has done
				require.NoError(t, q.Close(context.Background()))
			}
		})
		return q
	}
	before := open()
	put := func() error {
		_, err := before.Put(ctx, "key", "", task.PutOptions{})
		return err
	}
	require.NoError(t, put())
	for _, suffix := range []string{"", "-wal", "-shm"} {
		require.NoError(t, os.Remove(path+suffix))
	}
	for range 3 { // the tasks put would be lost
		err := put()
		require.ErrorContains(t, err,
			"sqlite: "+path+": begin: the file of the database was removed, renamed or replaced")
		require.NoFileExists(t, path)
	}
	after := open()
	require.NoError(t, put())
	stats, err := after.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, stats.Ready)
	require.NoError(t, os.Rename(path, path+".old"))
	require.NoError(t, os.Rename(path+"-wal", path+".old-wal"))
	latest := open()
	require.ErrorContains(t, put(), "replaced") // the connection still had the old one
	require.NoError(t, put())
	stats, err = latest.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, stats.Ready)
}
