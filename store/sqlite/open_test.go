package sqlite

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
)

func TestPaths(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		"plain", "with space", "a?b", "a#b", "100%", "%41", "a&b=c",
		"?_pragma=x", ":memory:x", "é", "'", `"`, "~",
	} {
		d := openHandle(t, filepath.Join(dir, name), options{}).db
		makeQueue(t, d)
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Positive(t, info.Size())
	}
	t.Chdir(dir)
	// the same one: queue 1 is there
	require.Equal(t, 0, total(t, openHandle(t, "a?b", options{}).db))
}

// create makes a file with other tables in it.
func create(t *testing.T, path, script string) {
	dsn, err := dataSource(path)
	require.NoError(t, err)
	connector, err := sqlite.NewConnector(dsn)
	require.NoError(t, err)
	dc, err := connector.Connect(t.Context())
	require.NoError(t, err)
	require.NoError(t, (&conn{Conn: dc}).script(script))
	require.NoError(t, dc.Close())
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	require.NoError(t, os.WriteFile(text, []byte(strings.Repeat("this is no database\n", 1000)),
		0o600))
	wide := filepath.Join(dir, "wide")
	create(t, wide, "PRAGMA encoding = 'UTF-16'; CREATE TABLE t (c)")
	made := func(name, script string) string {
		path := filepath.Join(dir, name)
		create(t, path, script)
		return path
	}
	const foreign = "the table fairq_meta is of another program"
	for path, want := range map[string]string{
		"":                               "not supported",
		":memory:":                       "not supported",
		"file::memory:":                  "not a URI",
		"a\x00b":                         "zero byte",
		dir:                              "unable to open",
		filepath.Join(dir, "no", "file"): "unable to open",
		text:                             "not a database",
		wide:                             "UTF-16",
		made("columns", "CREATE TABLE fairq_meta (a)"):        foreign,
		made("rows", "CREATE TABLE fairq_meta (name, value)"): foreign,
		made("tables", "CREATE TABLE fairq_tasks (a)"):        "migrate: to version 1: ",
		made("new", "CREATE TABLE fairq_meta (name, value); INSERT INTO fairq_meta "+
			"VALUES ('version', 9), ('min_reader', 8)"): "the tables have version 9, " +
			"which needs a program of version 8",
	} {
		_, err := openDB(context.Background(), path, options{})
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "sqlite: "+path+": open: ")
	}
	missing := filepath.Join(dir, "missing")
	_, err := openDB(context.Background(), missing, options{noMigrate: true})
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoFileExists(t, missing)
	for name, script := range map[string]string{
		"empty":  "",
		"others": "PRAGMA journal_mode = delete; CREATE TABLE t (c)",
	} {
		others := made(name, script)
		before, err := os.ReadFile(others)
		require.NoError(t, err)
		_, err = openDB(context.Background(), others, options{noMigrate: true})
		require.ErrorContains(t, err,
			"sqlite: "+others+": open: the tables have version 0, this program needs 1: migrate them first")
		after, err := os.ReadFile(others)
		require.NoError(t, err)
		require.Equal(t, before, after, "a file of another program stays as it is")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = openDB(ctx, file(t), options{})
	require.ErrorIs(t, err, context.Canceled)
}

func TestReadOnly(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("the superuser may write to each file")
	}
	path := file(t)
	require.NoError(t, openHandle(t, path, options{}).conn.script("PRAGMA journal_mode = delete"))
	require.NoError(t, os.Chmod(path, 0o400))
	_, err := openDB(context.Background(), path, options{})
	require.ErrorContains(t, err, "read-only")
}

// TestCorrupt overwrites each page but the first in turn. Every call that fails then says so.
func TestCorrupt(t *testing.T) {
	path := file(t)
	d, err := openDB(context.Background(), path, options{})
	require.NoError(t, err)
	makeQueue(t, d)
	in(t, d, func(v rows.Calls) {
		for range 300 {
			add(t, v, rows.Row{Key: "k", Payload: make([]byte, 100)})
		}
	})
	require.NoError(t, d.close())
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	const page = 4096
	failed := 0
	for at := page; at < len(whole); at += page {
		data := append([]byte(nil), whole...)
		for i := range page {
			data[at+i] = byte(i * 7)
		}
		require.NoError(t, os.WriteFile(path, data, 0o600))
		if err := use(path); err != nil {
			require.ErrorContains(t, err, "sqlite: ")
			failed++
		}
	}
	require.Positive(t, failed)
}

// use makes various calls on queue 1.
func use(path string) error {
	d, err := openDB(context.Background(), path, options{})
	if err != nil {
		return err
	}
	defer d.close()
	x, err := d.Begin(context.Background())
	if err != nil {
		return err
	}
	defer x.Rollback()
	v, err := enter(x, &rows.Plan{})
	if err != nil || v.View == nil {
		return err
	}
	id, err := v.Number()
	if err == nil {
		err = v.Put(&rows.Row{ID: id, Key: "k", State: driver.Ready})
	}
	if err == nil {
		_, err = v.List(driver.ListOptions{Limit: 1000})
	}
	if err != nil {
		return err
	}
	return x.Commit()
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		o    options
		want string
	}{
		{options{prefix: strings.Repeat("a", 41)}, "41 bytes long, must be at most 40"},
		{options{prefix: "a-b"}, `prefix is "a-b", must be letters`},
		{options{prefix: "1a"}, "not a digit first"},
		{options{prefix: "SQLite_x"}, "must not begin with sqlite_"},
		{options{synchronous: "off"}, `synchronous is "off", must be full or normal`},
	} {
		_, err := openDB(context.Background(), file(t), c.o)
		require.ErrorContains(t, err, c.want)
	}
	d := openHandle(t, file(t),
		options{
			prefix: strings.Repeat("a", 40), synchronous: "normal", checkpointPages: 77,
			cacheKiB: 123,
		})
	for name, want := range map[string]any{
		"journal_mode": "wal", "synchronous": int64(1), "wal_autocheckpoint": int64(77),
		"cache_size": int64(-123),
	} {
		got, err := d.conn.pragma(name)
		require.NoError(t, err)
		require.Equal(t, want, got, name)
	}
	synchronous, err := openHandle(t, file(t), options{}).conn.pragma("synchronous")
	require.NoError(t, err)
	require.EqualValues(t, 2, synchronous)
}

// TestOpenTogether opens a new file many times at once.
func TestOpenTogether(t *testing.T) {
	for range 30 {
		path := file(t)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				d, err := openDB(context.Background(), path, options{})
				if err == nil {
					err = d.close()
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
}
