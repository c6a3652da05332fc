package main

import (
	"context"
	"database/sql"
	"net/url"

	_ "modernc.org/sqlite" // the driver of all
)

// openSQLite opens a file for every contestant without a way of its own. It uses one connection,
// as goqite advises: SQLite has one writer at a time, and waiting for the connection is faster
// than waiting in busy_timeout.
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
