//go:build unix

package faulttest

import "syscall"

// LimitFiles makes writes of this process fail that would make a file longer than size, in bytes,
// as on a full disk.
func LimitFiles(size uint64) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	limit.Cur = min(size, limit.Max)
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
}
