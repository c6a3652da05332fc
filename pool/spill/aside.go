package spill

import (
	"errors"
	"io"
	"os"
)

// aside is where the damaged lines of a file go: to the same places in another file. So it does no
// harm to set a line aside again, which happens when it was not known any more that it had been.
type aside struct {
	name string
	open func(name string, flag int) (handle, error)
	sync func() error // nil if Options.Sync is not set
	file handle       // nil until there is something

	lines        int
	bytes, first int64
}

func (a *aside) take(source io.ReaderAt, offset, length int64) error {
	if a.file == nil {
		var err error
		if a.file, err = a.open(a.name, os.O_CREATE|os.O_RDWR); err != nil {
			return err
		}
	}
	if _, err := io.Copy(io.NewOffsetWriter(a.file, offset), io.NewSectionReader(source, offset, length)); err != nil {
		return err
	}
	if a.lines == 0 {
		a.first = offset
	}
	a.lines++
	a.bytes += length
	return nil
}

func (a *aside) close() error {
	if a.file == nil {
		return nil
	}
	var err error
	if a.sync != nil {
		err = errors.Join(a.file.Sync(), a.sync())
	}
	return errors.Join(err, a.file.Close())
}
