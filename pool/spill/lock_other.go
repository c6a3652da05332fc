//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd || windows)

package spill

import (
	"io"
	"os"
)

// lock does not lock; see the package documentation.
func lock(path string) (io.Closer, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
}
