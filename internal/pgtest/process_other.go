//go:build unix && !linux

package pgtest

import (
	"os/exec"
	"syscall"
)

func (s *Server) attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: s.cred}
}

func start(cmd *exec.Cmd, started chan<- error, done chan<- exit) {
	err := cmd.Start()
	started <- err
	if err == nil {
		done <- exit{cmd.Wait()}
	}
}
