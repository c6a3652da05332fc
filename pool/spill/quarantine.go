package spill

import (
	"errors"
	"io"
	"os"
)

// quarantine takes the damaged lines of a file, to the same places in another file. So setting a
// line aside twice does no harm; that happens after a crash.
type quarantine struct {
	name string
	open func(name string, flag int) (handle, error)
	sync func() error // nil if Options.Sync is not set
	file handle       // nil until there is something

	lines        int
	bytes, first int64
}

// add puts a line aside.
func (q *quarantine) add(source io.ReaderAt, offset, length int64) error {
	if q.file == nil {
		var err error
		if q.file, err = q.open(q.name, os.O_CREATE|os.O_RDWR); err != nil {
			return err
		}
	}
	if _, err := io.Copy(io.NewOffsetWriter(q.file, offset),
		io.NewSectionReader(source, offset, length)); err != nil {
		return err
	}
	if q.lines == 0 {
		q.first = offset
	}
	q.lines++
	q.bytes += length
	return nil
}

// close ends the file, if there is one.
func (q *quarantine) close() error {
	if q.file == nil {
		return nil
	}
	var err error
	if q.sync != nil {
		err = errors.Join(q.file.Sync(), q.sync())
	}
	return errors.Join(err, q.file.Close())
}
