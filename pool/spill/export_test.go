package spill

// Handle has the methods of a file that the package uses.
type Handle = handle

// Intercept lets f open all files of the directory.
func (d *Dir[V]) Intercept(f func(name string, open func() (Handle, error)) (Handle, error)) {
	open := d.open
	d.open = func(name string, flag int) (handle, error) {
		return f(name, func() (Handle, error) { return open(name, flag) })
	}
}
