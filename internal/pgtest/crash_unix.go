//go:build unix

package pgtest

import (
	"syscall"
	"time"
)

// Crash ends the main process of the server and leaves the others to themselves.
func (s *Server) Crash() { s.end(syscall.SIGKILL) }

// StartAgain is Start, for a server some of whose processes may still be there.
func (s *Server) StartAgain() (err error) {
	for range 100 {
		if err = s.Start(); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond) // they look for the main one now and then
	}
	return err
}
