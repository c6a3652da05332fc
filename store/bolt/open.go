package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

var errInUse = errors.New("another process, or this one, has the file open, and only one can")

func openEngine(path string) (*engine, error) {
	path, err := filepath.Abs(path) // the working directory may change
	if err != nil {
		return nil, err
	}
	e := &engine{path: path, slot: make(chan struct{}, 1)}
	info, err := os.Stat(path)
	isNew := errors.Is(err, os.ErrNotExist)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return nil, fmt.Errorf("this is not a file, its mode is %v", info.Mode())
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

// check reads a file. Where it cannot, bbolt would end the process when it does so.
func check(path string, size int64) error {
	db, err := open(path, true)
	if err != nil {
		return err
	}
	defer db.Close()
	return db.View(func(tx *bbolt.Tx) error {
		if tx.Size() > size {
			return fmt.Errorf("the file is damaged: it has %d bytes, and should have %d", size, tx.Size())
		}
		return safely(func() error {
			return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error { return checkBucket(b) })
		})
	})
}

// reached is for what is read for nothing else but to see that it can be.
var reached atomic.Uint32

func checkBucket(b *bbolt.Bucket) error {
	var last []byte
	return b.ForEach(func(key, value []byte) error {
		for _, data := range [][]byte{key, value} {
			if len(data) > 0 {
				reached.Store(uint32(data[len(data)-1])) // so it does not end behind the file
			}
		}
		if len(key) > bbolt.MaxKeySize || last != nil && bytes.Compare(key, last) <= 0 {
			return fmt.Errorf("the file is damaged: key %.200q comes after %.200q", key, last)
		}
		if last = key; value == nil && b.Bucket(key) != nil {
			return checkBucket(b.Bucket(key))
		}
		return nil
	})
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
