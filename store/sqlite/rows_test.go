package sqlite

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest"
)

// handle is a db that can be opened once more, as by another process.
type handle struct{ *db }

func (h handle) Reopen(t *testing.T) rows.DB { return openHandle(t, h.path, h.options) }

// openHandle opens a database until the end of the test.
func openHandle(t testing.TB, path string, o options) handle {
	t.Helper()
	d, err := openDB(context.Background(), path, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.close()) })
	return handle{d}
}

// file returns the path of a new database. Its name has every special character.
func file(t testing.TB) string { return filepath.Join(t.TempDir(), "a b?c#d%20é&mode=memory;.db") }

func TestRows(t *testing.T) {
	rowstest.Run(t, func(t *testing.T) rows.DB {
		return openHandle(t, file(t), options{synchronous: "normal"})
	})
}

func TestModel(t *testing.T) {
	rowstest.Model(t, 3, func(t *testing.T) rows.DB {
		return openHandle(t, file(t), options{synchronous: "normal", now: time.Now})
	})
}
