package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

var errInUse = errors.New("another process, or this one, has the file open, and only one can")

func openEngine(path string, mustExist bool) (*engine, error) {
	path, err := filepath.Abs(path) // the working directory may change
	if err != nil {
		return nil, err
	}
	e := &engine{path: path, slot: make(chan struct{}, 1)}
	info, err := os.Stat(path)
	isNew := errors.Is(err, os.ErrNotExist)
	switch {
	case err != nil && mustExist:
		return nil, err
	case err == nil && !info.Mode().IsRegular():
		return nil, fmt.Errorf("this is not a file, its mode is %v", info.Mode())
	case err == nil && info.Size() == 0 && mustExist:
		return nil, errors.New("the file is empty")
	case err == nil && info.Size() > 0:
		if err := check(path, info.Size()); err != nil {
			return nil, err
		}
	}
	if e.db, err = open(path, false); err != nil {
		return nil, err
	}
	if e.file, err = os.Stat(path); err == nil && isNew {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		e.db.Close()
		return nil, err
	}
	return e, nil
}

// open opens the file. All that NoFreelistSync costs is that it is read once. Without it, one that
// was large at some time makes each commit write a long list of what is free in it.
func open(path string, readOnly bool) (db *bbolt.DB, err error) {
	err = safely(func() (err error) {
		db, err = bbolt.Open(path, 0o600, &bbolt.Options{
			Timeout: time.Nanosecond, ReadOnly: readOnly, NoFreelistSync: true,
			FreelistType: bbolt.FreelistMapType, NoStatistics: true,
		})
		return err
	})
	if errors.Is(err, berrors.ErrTimeout) {
		err = errInUse
	}
	return db, err
}

// check reads a file. Where it is damaged, bbolt could end the process when it does so.
func check(path string, size int64) error {
	db, err := open(path, true)
	if err != nil {
		return err
	}
	defer db.Close()
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return db.View(func(tx *bbolt.Tx) error {
		if tx.Size() > size {
			return fmt.Errorf("the file is damaged: it has %d bytes, and should have %d", size, tx.Size())
		}
		pageSize := int64(db.Info().PageSize)
		c := &checker{file, pageSize, make([]bool, tx.Size()/pageSize)}
		return safely(func() error { return c.page(uint64(tx.Cursor().Bucket().Root()), nil, nil) })
	})
}

// checker walks through the pages of a file, see bbolt's internal/common/page.go. It panics where
// something is not within its page.
type checker struct {
	file     io.ReaderAt
	pageSize int64
	seen     []bool // by number of the page
}

var order = binary.NativeEndian

// page checks a page and all below it. Their keys are from one on and before another, if that is
// not nil.
func (c *checker) page(number uint64, from, to []byte) error {
	head := make([]byte, 16)
	at := int64(number) * c.pageSize
	if _, err := c.file.ReadAt(head, at); err != nil {
		return err
	}
	more := uint64(order.Uint32(head[12:])) // pages that belong to this one
	for _, seen := range c.seen[number : number+more+1] {
		if seen || order.Uint64(head) != number {
			return fmt.Errorf("the file is damaged: page %d is not where it should be", number)
		}
	}
	for i := range more + 1 {
		c.seen[number+i] = true
	}
	page := make([]byte, int64(more+1)*c.pageSize)
	if _, err := c.file.ReadAt(page, at); err != nil {
		return err
	}
	return c.elements(page, from, to)
}

// elements checks what is in a page. A leaf has keys with values, a branch keys with pages below it.
func (c *checker) elements(page, from, to []byte) error {
	const isBranch, isLeaf = 1, 2
	kind, n := order.Uint16(page[8:]), int(order.Uint16(page[10:]))
	if kind != isLeaf && (kind != isBranch || n == 0) {
		return fmt.Errorf("the file is damaged: a page with %d elements is of kind %d", n, kind)
	}
	keys := make([][]byte, n, n+1)
	for i := range n {
		element := page[16+16*i:]
		lengths := element[4*(kind-isBranch):] // a leaf's elements begin with flags
		key := element[order.Uint32(lengths):]
		keys[i] = key[:order.Uint32(lengths[4:])]
		if bytes.Compare(keys[i], from) < 0 || to != nil && bytes.Compare(keys[i], to) >= 0 ||
			i > 0 && bytes.Equal(keys[i], from) {
			return fmt.Errorf("the file is damaged: key %.200q is not between %.200q and %.200q", keys[i], from, to)
		}
		if from = keys[i]; kind == isLeaf {
			err := c.value(key[len(keys[i]):][:order.Uint32(element[12:])], order.Uint32(element))
			if err != nil {
				return err
			}
		}
	}
	keys = append(keys, to)
	for i := 0; i < n && kind == isBranch; i++ {
		if err := c.page(order.Uint64(page[16+16*i+8:]), keys[i], keys[i+1]); err != nil {
			return err
		}
	}
	return nil
}

// value checks a value if its flags say that it is a bucket: a page, or where that is.
func (c *checker) value(value []byte, flags uint32) error {
	switch {
	case flags&1 == 0:
		return nil
	case order.Uint64(value) == 0:
		return c.elements(value[16:], nil, nil)
	}
	return c.page(order.Uint64(value), nil, nil)
}

// syncDir makes it durable that there is a new file in a directory, where systems can do that.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	_ = d.Sync()
	return nil
}
