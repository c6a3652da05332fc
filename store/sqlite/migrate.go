package sqlite

import (
	"context"
	"fmt"
	"time"
)

// migrate brings the tables to the version of this program. Programs that migrate at the same time
// wait for each other at each step; if a step is interrupted, the steps before it stay.
func migrate(ctx context.Context, c *conn, all []migration, timeout time.Duration) error {
	for {
		var version int
		// while another process opens a database after a crash
		err := retryBusy(ctx, time.Now().Add(timeout), func() (err error) {
			version, err = readVersion(c, len(all))
			return err
		})
		if err != nil || version >= len(all) {
			return err
		}
		err = retryBusy(ctx, time.Now().Add(timeout),
			func() error { return c.script("BEGIN IMMEDIATE") })
		if err == nil {
			if err = step(c, all); err == nil {
				err = c.script("COMMIT")
			}
			if err != nil {
				_ = c.script("ROLLBACK") // it fails if SQLite has done it by itself
			}
		}
		if err != nil {
			return fmt.Errorf("migrate: %w", err)
		}
	}
}

// step makes the next migration, if there is one.
func step(c *conn, all []migration) error {
	version, err := readVersion(c, len(all)) // again, now that nobody else can change it
	if err != nil || version >= len(all) {
		return err
	}
	if version == 0 {
		err := c.script(`CREATE TABLE ~meta (name PRIMARY KEY, value NOT NULL) WITHOUT ROWID`)
		if err != nil {
			return err
		}
	}
	next := all[version]
	if err := c.script(next.script); err != nil {
		return fmt.Errorf("to version %d: %w", version+1, err)
	}
	return c.script(fmt.Sprintf(
		`INSERT OR REPLACE INTO ~meta (name, value) VALUES ('version', %d), ('min_reader', %d)`,
		version+1, next.minReader))
}

// checkVersion reports whether this program can work with the tables as they are.
func checkVersion(c *conn, mine int) error {
	version, err := readVersion(c, mine)
	if err == nil && version < mine {
		err = fmt.Errorf("the tables have version %d, this program needs %d: migrate them first",
			version, mine)
	}
	return err
}

// readVersion returns the version of the tables, 0 if there are none, or an error if a program of
// version mine cannot use them.
func readVersion(c *conn, mine int) (int, error) {
	s := newSession(c, "")
	exists, err := s.number(selectTable, c.prefix+"meta")
	if err != nil || exists == 0 {
		return 0, err
	}
	version, err := s.number(selectMeta, "version")
	if version < 1 && code(err) <= resultError {
		return 0, fmt.Errorf("the table %smeta is of another program: choose another Options.Prefix",
			c.prefix)
	}
	if err != nil {
		return 0, err
	}
	minReader, err := s.number(selectMeta, "min_reader")
	if err == nil && int64(mine) < minReader {
		err = fmt.Errorf("the tables have version %d, which needs a program of version %d or newer; "+
			"this one has version %d",
			version, minReader, mine)
	}
	return int(version), err
}
