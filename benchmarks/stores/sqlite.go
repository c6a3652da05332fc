package main

import (
	"context"
	"database/sql"
	"net/url"

	_ "modernc.org/sqlite" // the driver of all
)

// openSQLite opens a file in the way that is the same for all who leave it to us. One connection
// is what goqite advises: SQLite has one writer at a time, and those who wait for their turn here
// are quicker than those who wait in busy_timeout.
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

// sqliteVersion returns the version of the library.
func sqliteVersion() (version string, err error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return "", err
	}
	defer db.Close()
	err = db.QueryRow("SELECT sqlite_version()").Scan(&version)
	return version, err
}

// settleSQLite moves what is in the log to its place.
func settleSQLite(ctx context.Context, path string) error {
	db, err := openSQLite(path)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	return err
}
