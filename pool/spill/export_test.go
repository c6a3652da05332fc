package spill

import "os"

// Handle has the methods of a file that the package uses.
type Handle = handle

// Intercept lets f open all files of the directory.
func (d *Dir[V]) Intercept(f func(name string, flag int, open func() (Handle, error)) (Handle,
	error),
) {
	open := d.open
	d.open = func(name string, flag int) (handle, error) {
		return f(name, flag, func() (Handle, error) { return open(name, flag) })
	}
}

// IsNew reports whether a flag opens a new file for writing.
func IsNew(flag int) bool { return flag&os.O_EXCL != 0 }
