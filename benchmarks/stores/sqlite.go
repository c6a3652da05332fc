package main

import (
	"context"
	"database/sql"
	"net/url"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite" // the driver of all
)

// openSQLite opens a file for contestants that have no way of their own to open one. It uses one
// connection, as goqite advises: SQLite has one writer at a time, and waiting for the connection
// is faster than waiting in busy_timeout.
func openSQLite(path string) (*sql.DB, error) {
	settings := url.Values{
		"_pragma": {"journal_mode(WAL)", "synchronous(FULL)", "busy_timeout(10000)", "foreign_keys(1)"},
		"_txlock": {"immediate"},
	}
	db, err := sql.Open("sqlite", "file:"+path+"?"+settings.Encode())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

// startSQLite makes a folder for the files.
func startSQLite(context.Context, bool) (*server, error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, err
	}
	defer db.Close()
	var version string
	if err := db.QueryRow("SELECT sqlite_version()").Scan(&version); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "fairq-stores-")
	return &server{
		version: "SQLite " + version + " of modernc.org/sqlite " + moduleVersion("modernc.org/sqlite"),
		create: func(_ context.Context, name string) (string, error) {
			return filepath.Join(dir, name+".db"), nil
		},
		settle: settleSQLite,
		stop:   func() { os.RemoveAll(dir) },
	}, err
}

// settleSQLite moves the log into the database.
func settleSQLite(ctx context.Context, path string) error {
	db, err := openSQLite(path)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	return err
}
