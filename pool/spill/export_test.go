package spill

import "os"

// Handle is what the package uses of a file.
type Handle = handle

// Intercept makes all opening of files in the directory go through f.
func (d *Dir[V]) Intercept(f func(name string, flag int, open func() (Handle, error)) (Handle, error)) {
	open := d.open
	d.open = func(name string, flag int) (handle, error) {
		return f(name, flag, func() (Handle, error) { return open(name, flag) })
	}
}

// IsNew tells whether a flag for opening a file is that of one to be written.
func IsNew(flag int) bool { return flag&os.O_EXCL != 0 }
