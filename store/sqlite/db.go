package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairq/fairq/store/internal/rows"
)

// errClosed is returned by all calls after close.
var errClosed = errors.New("the database is closed")

const (
	walBytes     = 64 << 20 // size to which an emptied WAL file is cut
	maxPrefixLen = 40
)

// options are how a database is opened. Zero values mean defaults.
type options struct {
	prefix string // of the names of tables and indexes; default "fairq_"
	// how long to wait for a lock that another process has; default 10 s
	busyTimeout time.Duration
	// "full", the default, or "normal": a power cut can undo the last transactions
	synchronous     string
	checkpointPages int // how long the WAL grows; default 8000
	// default 16 MiB; a commit sometimes scans the whole cache, so more is not better
	cacheKiB  int
	noMigrate bool // fail if the tables are missing or old
	now       func() time.Time
}

func (o *options) fill() error {
	o.prefix = cmp.Or(o.prefix, "fairq_")
	o.busyTimeout = cmp.Or(o.busyTimeout, 10*time.Second)
	o.synchronous = cmp.Or(o.synchronous, "full")
	o.checkpointPages = cmp.Or(o.checkpointPages, 8000)
	o.cacheKiB = cmp.Or(o.cacheKiB, 16<<10)
	if o.now == nil {
		o.now = time.Now
	}
	switch {
	case len(o.prefix) > maxPrefixLen:
		return fmt.Errorf("sqlite: prefix is %q, %d bytes long, must be at most %d", o.prefix,
			len(o.prefix), maxPrefixLen)
	case !regexp.MustCompile("^[A-Za-z_][A-Za-z0-9_]*$").MatchString(o.prefix):
		return fmt.Errorf("sqlite: prefix is %q, must be letters, digits and "+
			"underscores, not a digit first", o.prefix)
	case strings.HasPrefix(strings.ToLower(o.prefix), "sqlite_"):
		return fmt.Errorf("sqlite: prefix is %q, must not begin with sqlite_", o.prefix)
	case o.synchronous != "full" && o.synchronous != "normal":
		return fmt.Errorf("sqlite: synchronous is %q, must be full or normal", o.synchronous)
	}
	return nil
}

// db implements rows.DB on one connection, for everything except transactions of the caller's own.
type db struct {
	path    string
	options options

	// slot has room for one holder, which may use the fields below: a transaction of ours,
	// Changed, or close. It is a channel instead of a mutex, because a waiter may give up.
	slot    chan struct{}
	closed  bool
	conn    *conn       // nil after an error from which it would not recover
	file    os.FileInfo // the file of the connection
	session *session
	version int64 // the last seen data_version, which changes when another connection commits
	heads   map[uint64]*head

	isClosed atomic.Bool // closed, for callers that do not wait for the slot
	others   atomic.Bool // others have committed since the last Changed

	// mu protects fields that transactions of the caller's own use too. Nothing is called under
	// it.
	mu sync.Mutex
	// by queue, the greatest number given, even by transactions that were rolled back
	numbers map[uint64]uint64
}

// openDB opens a database, and makes its missing parts.
func openDB(ctx context.Context, path string, o options) (_ *db, err error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	d := &db{
		path: path, options: o,
		slot: make(chan struct{}, 1), heads: make(map[uint64]*head), numbers: make(map[uint64]uint64),
	}
	if o.noMigrate { // nor make a file
		if _, err := os.Stat(path); err != nil {
			return nil, failed(path, "open", err)
		}
	}
	if err := d.connect(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			d.conn.close()
		}
	}()
	if d.path, err = filepath.Abs(path); err != nil { // the working directory may change
		return nil, failed(path, "open", err)
	}
	d.session.path = d.path
	if !o.noMigrate {
		if err = migrate(ctx, d.conn, migrations, o.busyTimeout); err != nil {
			return nil, failed(path, "open", err)
		}
	}
	err = retryBusy(ctx, time.Now().Add(o.busyTimeout), func() (err error) {
		d.session.failed = nil
		d.version, err = d.session.number(dataVersion)
		return err
	})
	return d, err
}

func (d *db) connect(ctx context.Context) error {
	c, err := connect(ctx, d.path, &d.options)
	if err != nil {
		return failed(d.path, "open", err)
	}
	if d.file, err = os.Stat(d.path); err != nil {
		c.close()
		return failed(d.path, "open", err)
	}
	d.conn, d.session = c, newSession(c, d.path)
	return nil
}

// acquire waits for the slot.
func (d *db) acquire(ctx context.Context, until time.Time) error {
	if err := ctx.Err(); err != nil {
		return failed(d.path, "begin", err)
	}
	select {
	case d.slot <- struct{}{}:
	default:
		t := time.NewTimer(time.Until(until))
		defer t.Stop()
		select {
		case d.slot <- struct{}{}:
		case <-ctx.Done():
			return failed(d.path, "begin", ctx.Err())
		case <-t.C:
			return failed(d.path, "begin",
				fmt.Errorf("another transaction of this process has not ended for %v", d.options.busyTimeout))
		}
	}
	if d.closed {
		<-d.slot
		return failed(d.path, "begin", errClosed)
	}
	return nil
}

// Begin implements rows.DB. ctx ends only the wait for a lock.
func (d *db) Begin(ctx context.Context) (rows.Tx, error) {
	until := time.Now().Add(d.options.busyTimeout)
	if err := d.acquire(ctx, until); err != nil {
		return nil, err
	}
	if err := d.begin(ctx, until); err != nil {
		<-d.slot
		return nil, err
	}
	return &tx{db: d, session: d.session}, nil
}

func (d *db) begin(ctx context.Context, until time.Time) error {
	if d.conn == nil {
		if err := d.reconnect(ctx); err != nil {
			return err
		}
		d.others.Store(true) // its data_version says nothing of the time before
	}
	err := retryBusy(ctx, until, func() error {
		d.session.failed = nil
		_, err := d.session.exec(beginStatement)
		return err
	})
	if err != nil {
		return err
	}
	if err = d.checkDataVersion(); err == nil {
		err = d.checkFile()
	}
	if err != nil {
		d.rollback()
	}
	if errors.Is(err, errMoved) {
		d.abandon()
	}
	return err
}

// retryBusy calls f again as long as another connection has the lock. SQLite would wait too, but
// not end with ctx.
func retryBusy(ctx context.Context, until time.Time, f func() error) error {
	for i := 0; ; i++ {
		err := f()
		if code(err)&0xff != resultBusy {
			return err
		}
		if !time.Now().Before(until) {
			return fmt.Errorf("%w: another process has the lock for too long, or a transaction of this "+
				"one that is not the queue's", err)
		}
		if over := rows.Pause(ctx, busyPauses[min(i, len(busyPauses)-1)]*time.Millisecond); over != nil {
			return fmt.Errorf("%w: %w", over, err)
		}
	}
}

// checkDataVersion clears the cache if others have committed, because the cached state of a queue
// is right only as long as no other connection writes.
func (d *db) checkDataVersion() error {
	d.session.failed = nil
	version, err := d.session.number(dataVersion)
	if err != nil {
		return err
	}
	if version != d.version {
		d.version = version
		clear(d.heads)
		d.others.Store(true)
	}
	return nil
}

// rollback makes the connection ready for the next transaction.
func (d *db) rollback() {
	clear(d.heads)
	d.session.failed = nil
	// After some errors SQLite has rolled back by itself, and this rollback fails as a misuse.
	// After any other failure only a new connection is sure to be in no transaction.
	if _, err := d.session.exec(rollbackStatement); err != nil && code(err) != resultError {
		d.conn.close()
		d.conn, d.session = nil, nil
	}
}

// Again implements rows.DB. No other connection can write once a transaction of ours has begun, so
// only rare errors are left. A lock that was not free for the whole busy timeout is not among
// them.
func (d *db) Again(err error) (time.Duration, bool) {
	c := code(err)
	return 0, c == resultSnapshot || c == resultSchema
}

// Changed implements rows.DB. It asks the writing connection, where our own commits do not count.
// While that connection is busy it does nothing, because the transaction that runs there looks for
// changes itself.
func (d *db) Changed(context.Context) (bool, error) {
	select {
	case d.slot <- struct{}{}:
		defer func() { <-d.slot }()
		if d.closed {
			return false, failed(d.path, "look for changes", errClosed)
		}
		if d.conn == nil || d.checkFile() != nil {
			return true, nil // Begin returns the error
		}
		if err := d.checkDataVersion(); err != nil {
			if code(err)&0xff == resultBusy {
				return true, nil // not known
			}
			return false, err
		}
	default:
	}
	return d.others.Swap(false), nil
}

// Traits implements rows.DB. A savepoint in the caller's transaction would cost two statements for
// each call.
func (d *db) Traits() rows.Traits { return rows.Traits{Exclusive: true} }

// close waits for the transaction that runs.
func (d *db) close() error {
	d.slot <- struct{}{}
	defer func() { <-d.slot }()
	if d.closed {
		return failed(d.path, "close", errClosed)
	}
	d.closed = true
	d.isClosed.Store(true)
	if d.conn != nil && d.checkFile() != nil {
		d.abandon()
	}
	if d.conn == nil {
		return nil
	}
	if err := d.conn.close(); err != nil {
		return failed(d.path, "close", err)
	}
	return nil
}

// nextNumber returns the next number of a queue; known is the last one in the database. A rollback
// does not give numbers back, so the last one is kept here too.
func (d *db) nextNumber(queue, known uint64) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.numbers[queue] = max(d.numbers[queue], known) + 1
	return d.numbers[queue]
}
