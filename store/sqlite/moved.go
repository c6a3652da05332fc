package sqlite

import (
	"context"
	"errors"
	"os"
)

// errMoved is returned as long as there is no database at the path, and once if another one has
// taken its place. SQLite itself would go on with a file that no other process sees, and tasks put
// there would be lost.
var errMoved = errors.New("the file of the database was removed, renamed or replaced")

// checkFile returns an error unless the path still has the connection's file. It costs a
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

// abandon gives up a connection to a moved file without closing it. The last close of a database
// deletes its log by name, which may be the log of another database now.
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
