package sqlite

import (
	"context"
	"errors"
	"os"
)

// errMoved is returned as long as there is no database where it was, and once if there is another
// one by then. SQLite itself would go on with a file that nobody else sees any more, and with it
// would go what is put there.
var errMoved = errors.New("the file of the database was removed, renamed or replaced")

// checkFile returns an error unless the file is still the one that the connection is to. It costs a
// microsecond or two.
func (d *db) checkFile() error {
	now, err := os.Stat(d.path)
	if err == nil && os.SameFile(now, d.file) {
		return nil
	}
	return failed(d.path, "begin", errors.Join(errMoved, err))
}

// reconnect makes a new connection, but no new database.
func (d *db) reconnect(ctx context.Context) error {
	if _, err := os.Stat(d.path); err != nil {
		return failed(d.path, "begin", errors.Join(errMoved, err))
	}
	return d.connect(ctx)
}

// abandon gives up a connection to a file that is not where it was. Whoever closes a database last
// deletes its log, by its name: that may be another one's by now.
func (d *db) abandon() {
	if d.conn == nil {
		return
	}
	if c, ok := d.conn.Conn.(interface {
		FileControlPersistWAL(dbName string, mode int) (int, error)
	}); ok {
		_, _ = c.FileControlPersistWAL("main", 1)
	}
	d.conn.close()
	d.conn, d.session = nil, nil
}
