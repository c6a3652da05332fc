//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package spill

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// lock takes the lock that the file stands for, until it is closed or the process ends.
func lock(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrInUse
		}
		return nil, &os.PathError{Op: "flock", Path: path, Err: err}
	}
	return f, nil
}
