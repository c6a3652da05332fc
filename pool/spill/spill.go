package spill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
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

	// MaxBytes limits the size of all files together: a Write beyond it returns [ErrFull], but
	// Restore keeps the letters that are refused. A file counts until all its letters are
	// restored. 0 means no limit.
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
			return wrap(
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
	next   uint64    // the number of the next letter
	files  []*file   // files that are not done, by number
	active *file     // the last of files if it is being written, else nil; the others are sealed
	began  time.Time // when active was begun
	bytes  int64     // the sum of the sizes of files
}

// file is a file with letters. Its name has its number and that of its first letter.
type file struct {
	name   string
	number uint64

	// These are protected by Dir.mu.
	end    uint64 // the number behind that of its last letter; 0 if it is not known
	size   int64  // of its whole lines; a failed Write may have left bytes behind them
	handle handle // nil unless it is being written

	// These are for the goroutine that has put an element into Dir.busy.
	next   uint64 // the letters before it are done
	offset int64  // of the line behind these
	line   int    // the number of that line
	damage error  // nil if none was found
}

// handle has the used methods of an [os.File].
type handle interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error
}

// unlimited is more bytes than there are.
const unlimited = math.MaxInt64

func newFile(number, first uint64) *file {
	name := fmt.Sprintf("%09d-%d.letters", number, first)
	return &file{name: name, number: number, next: first, line: 1}
}

// wrap adds the package to an error; nil stays nil.
func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("spill: %w", err)
}

// Open opens a directory for letters, and makes it if there is none. nil options are the defaults.
// It returns [ErrInUse] if the directory is open already, and [task.ErrInvalid] if the options
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
		return nil, wrap(err)
	}
	var err error
	if d.lock, err = lock(filepath.Join(path, "lock")); err != nil {
		return nil, fmt.Errorf("spill: %s: %w", path, err)
	}
	if err := d.list(); err != nil {
		return nil, errors.Join(wrap(err), d.lock.Close())
	}
	d.ending, d.end = context.WithCancel(context.Background())
	return d, nil
}

// list finds the existing files, which ReadDir sorts by number. The letters of a file end where
// the next file begins. To find the end of the last file, list reads it.
func (d *Dir[V]) list() error {
	d.next = 1
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		var number, first uint64
		_, _ = fmt.Sscanf(e.Name(), "%d-%d", &number, &first)
		f := newFile(number, first)
		if e.Name() != f.name {
			continue
		}
		about, err := e.Info()
		if err != nil {
			return err
		}
		f.size = about.Size()
		d.files = append(d.files, f)
		d.bytes += f.size
	}
	for i, f := range d.files {
		d.last = f.number
		if i+1 == len(d.files) {
			err = d.findEnd(f)
			d.next = f.end
		} else if next := d.files[i+1]; next.number == f.number+1 { // else that one was done first
			f.end = next.next
		}
	}
	return err
}

// findEnd finds the end of a file without a next one. A damaged line counts as a letter, for
// Restore to find it.
func (d *Dir[V]) findEnd(f *file) error {
	source, err := d.open(f.name, os.O_RDWR)
	if err != nil {
		return err
	}
	defer source.Close()
	s, end := newScanner(source, 0), f.next
	for s.next() {
		if number, _, ok := parseLine(s.line); ok || string(s.line) != header {
			end = max(end, number) + 1
		}
	}
	if s.err == nil {
		f.end = end
	}
	return s.err
}

// Write stores a letter; it is a [pool.Sink]. If it returns an error, it has not taken the letter.
// That is [ErrFull], [ErrTooLarge], [ErrClosed], an error of the Codec or of the disk, or the
// error of a context that is done before the call.
func (d *Dir[V]) Write(ctx context.Context, letter *pool.DeadLetter[V]) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	body, err := encode(letter, d.options.Codec)
	if err != nil {
		return err
	}
	return d.append(body, d.options.MaxBytes)
}

// append writes a letter behind all others.
func (d *Dir[V]) append(body []byte, limit int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	f, line := d.active, makeLine(d.next, body)
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
		line = append([]byte(header), line...)
	}
	if d.bytes > limit-int64(len(line)) {
		return fmt.Errorf("%w: its files have %d bytes, the limit is %d", ErrFull, d.bytes, limit)
	}
	_, err := f.handle.WriteAt(line, f.size)
	if err == nil && d.options.Sync {
		err = f.handle.Sync()
	}
	if err == nil {
		d.next++
		f.end = d.next
		f.size += int64(len(line))
		d.bytes += int64(len(line))
		return nil
	}
	// A part of the line may be in the file. If it cannot be removed it must stay the last in its
	// file.
	if back := f.handle.Truncate(f.size); back != nil {
		err = errors.Join(err, back, d.sealLocked())
	}
	return wrap(err)
}

// beginLocked makes a new file the active one.
func (d *Dir[V]) beginLocked() (*file, error) {
	d.last++
	f := newFile(d.last, d.next)
	f.end = d.next
	var err error
	if f.handle, err = d.open(f.name, os.O_CREATE|os.O_EXCL|os.O_RDWR); err != nil {
		return nil, wrap(err)
	}
	if d.options.Sync {
		if err := d.sync(); err != nil {
			return nil, wrap(errors.Join(err, f.handle.Close(), d.remove(f)))
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
	return wrap(err)
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

// Close ends the use of the directory; the letters stay in it. If Restore has called a sink, Close
// ends the context of the sink, and waits until it returns. So no sink may call Close. A second
// Close does nothing.
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
