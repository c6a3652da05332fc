package spill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// Options say how letters are kept. The zero value of each field is its default.
type Options[V any] struct {
	// MaxFileBytes is the size at which a file ends and the next one begins. A letter that is
	// larger has a file of its own. 0 means 64 MiB.
	MaxFileBytes int64

	// MaxFileAge is the age at which a file ends: the next Write begins a new one. 0 means an
	// hour.
	MaxFileAge time.Duration

	// MaxBytes is the size of all files with letters together; a Write beyond it returns
	// [ErrFull]. A file counts until all its letters are restored; damaged and refused letters may
	// exceed it. 0 means no limit.
	MaxBytes int64

	// Sync makes each Write wait until the disk has the letter, so that it survives a loss of
	// power. Without it the operating system has the letter, so it survives the process.
	Sync bool

	// Codec turns payloads into bytes and back; nil means JSON.
	Codec task.Codec[V]
}

func (o *Options[V]) complete() error {
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"MaxFileBytes", o.MaxFileBytes},
		{"MaxFileAge", int64(o.MaxFileAge)},
		{"MaxBytes", o.MaxBytes},
	} {
		if f.value < 0 {
			return fmt.Errorf("spill: %w",
				&task.FieldError{Field: "Options." + f.name, Value: f.value, Limit: "0 or more"})
		}
	}
	o.MaxFileBytes = cmp.Or(o.MaxFileBytes, 64<<20)
	o.MaxFileAge = cmp.Or(o.MaxFileAge, time.Hour)
	o.MaxBytes = cmp.Or(o.MaxBytes, unlimited)
	if o.Codec == nil {
		o.Codec = jsonCodec[V]{}
	}
	return nil
}

// Dir is a directory with letters. [Open] makes one. All methods may be called at any time by any
// goroutine.
type Dir[V any] struct {
	path    string
	options Options[V]
	lock    io.Closer                                   // nobody else has the directory open
	open    func(name string, flag int) (handle, error) // of files in it

	busy   chan struct{}   // has an element while there is a Restore or a Close
	ending context.Context // done when Close is called
	end    context.CancelFunc

	// mu protects the fields below and the active file. It is held while a line is written, but
	// not while files are read or user functions are called.
	mu     sync.Mutex
	closed bool
	last   uint64    // the number of the last file
	files  []*file   // files that are not done, by number
	active *file     // the last of files if it is being written, else nil; the others are sealed
	began  time.Time // when active was begun
	bytes  int64     // the sum of the sizes of files
}

// file is a file with letters.
type file struct {
	name   string
	number uint64
	size   int64  // of its whole lines; a failed Write may have left bytes behind them
	handle handle // nil unless it is being written; protected by Dir.mu, as is size

	// the lines before it are done; only for the goroutine that has put an element into Dir.busy
	offset int64
}

// handle has the used methods of an [os.File].
type handle interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error
}

const (
	suffix        = ".letters"
	damagedSuffix = ".damaged"
	lockFileName  = "lock"
)

// Open opens a directory for letters, and makes it if there is none. nil options are the defaults.
// It returns [ErrInUse] if the directory is open already, and [pool.ErrInvalid] if the options
// make no sense.
func Open[V any](path string, options *Options[V]) (*Dir[V], error) {
	d := &Dir[V]{path: path, busy: make(chan struct{}, 1)}
	if options != nil {
		d.options = *options
	}
	if err := d.options.complete(); err != nil {
		return nil, err
	}
	d.open = func(name string, flag int) (handle, error) {
		return os.OpenFile(filepath.Join(path, name), flag, 0o600)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("spill: %w", err)
	}
	var err error
	if d.lock, err = lock(filepath.Join(path, lockFileName)); err != nil {
		return nil, fmt.Errorf("spill: %s: %w", path, err)
	}
	if err := d.list(); err != nil {
		return nil, errors.Join(fmt.Errorf("spill: %w", err), d.lock.Close())
	}
	d.ending, d.end = context.WithCancel(context.Background())
	return d, nil
}

// list finds the existing files.
func (d *Dir[V]) list() error {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		stem, letters := strings.CutSuffix(e.Name(), suffix)
		stem, aside := strings.CutSuffix(stem, damagedSuffix)
		number, err := strconv.ParseUint(stem, 10, 63)
		if err != nil || letters == aside {
			continue
		}
		d.last = max(d.last, number)
		if !letters {
			continue
		}
		about, err := e.Info()
		if err != nil {
			return err
		}
		d.files = append(d.files, &file{name: e.Name(), number: number, size: about.Size()})
		d.bytes += about.Size()
	}
	slices.SortStableFunc(d.files, func(a, b *file) int { return cmp.Compare(a.number, b.number) })
	return nil
}

// Write stores a letter; it is a [pool.Sink]. If it returns an error, it has not taken the letter:
// [ErrFull], [ErrTooLarge], [ErrClosed], an error of the Codec or the disk, or of a context that
// is done before the call.
func (d *Dir[V]) Write(ctx context.Context, letter *pool.DeadLetter[V]) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	line, err := encode(letter, d.options.Codec)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	return d.appendLocked(line, d.options.MaxBytes)
}

// append is Write for a line from another file.
func (d *Dir[V]) append(line []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.appendLocked(line, unlimited)
}

func (d *Dir[V]) appendLocked(line []byte, limit int64) error {
	f := d.active
	if f != nil && (f.size+int64(len(line)) > d.options.MaxFileBytes ||
		time.Since(d.began) >= d.options.MaxFileAge) {
		if err := d.sealLocked(); err != nil {
			return err
		}
		f = nil
	}
	if f == nil {
		var err error
		if f, err = d.beginLocked(); err != nil {
			return err
		}
	}
	if f.size == 0 {
		line = slices.Concat([]byte(header), line)
	}
	if d.bytes > limit-int64(len(line)) {
		return fmt.Errorf("%w: its files have %d bytes, the limit is %d", ErrFull, d.bytes, limit)
	}
	_, err := f.handle.WriteAt(line, f.size)
	if err == nil && d.options.Sync {
		err = f.handle.Sync()
	}
	if err == nil {
		f.size += int64(len(line))
		d.bytes += int64(len(line))
		return nil
	}
	// A part of the line may be in the file. If it cannot be removed it must stay the last in its
	// file.
	if back := f.handle.Truncate(f.size); back != nil {
		err = errors.Join(err, back, d.sealLocked())
	}
	return fmt.Errorf("spill: %w", err)
}

// beginLocked makes a new file the active one.
func (d *Dir[V]) beginLocked() (*file, error) {
	d.last++
	f := &file{name: fmt.Sprintf("%012d%s", d.last, suffix), number: d.last}
	var err error
	if f.handle, err = d.open(f.name, os.O_CREATE|os.O_EXCL|os.O_RDWR); err != nil {
		return nil, fmt.Errorf("spill: %w", err)
	}
	if d.options.Sync {
		if err := d.sync(); err != nil {
			return nil, fmt.Errorf("spill: %w", errors.Join(err, f.handle.Close(), d.remove(f)))
		}
	}
	d.files = append(d.files, f)
	d.active, d.began = f, time.Now()
	return f, nil
}

// sync writes the names of the files to the disk.
func (d *Dir[V]) sync() error {
	if runtime.GOOS == "windows" {
		return nil // a directory cannot be synced there, nor need it be
	}
	dir, err := os.Open(d.path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// sealLocked ends the active file, if there is one.
func (d *Dir[V]) sealLocked() error {
	f := d.active
	if f == nil {
		return nil
	}
	d.active = nil
	err := f.handle.Close()
	f.handle = nil
	if f.size == 0 {
		err = errors.Join(err, d.removeLocked(f))
	}
	if err != nil {
		return fmt.Errorf("spill: %w", err)
	}
	return nil
}

func (d *Dir[V]) remove(f *file) error {
	return os.Remove(filepath.Join(d.path, f.name))
}

// removeLocked removes a file that is done.
func (d *Dir[V]) removeLocked(f *file) error {
	if err := d.remove(f); err != nil {
		return err
	}
	d.bytes -= f.size
	d.files = slices.DeleteFunc(d.files, func(other *file) bool { return other == f })
	return nil
}

// Close ends the use of the directory; the letters stay in it. The context of a sink that Restore
// has called is done then, and Close waits for it, so no sink may call Close. A second Close does
// nothing.
func (d *Dir[V]) Close() error {
	d.end()
	d.busy <- struct{}{}
	defer func() { <-d.busy }()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	return errors.Join(d.sealLocked(), d.lock.Close())
}
