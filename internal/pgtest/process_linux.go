package pgtest

import (
	"os/exec"
	"runtime"
	"syscall"
)

// attributes make the server end when this program is killed.
func (s *Server) attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: s.cred, Pdeathsig: syscall.SIGQUIT}
}

// start starts a process and reports how it ended. The thread that starts it must live as long as
// the process: when that thread ends, the process gets the signal.
func start(cmd *exec.Cmd, started chan<- error, done chan<- exit) {
	runtime.LockOSThread()
	err := cmd.Start()
	started <- err
	if err == nil {
		done <- exit{cmd.Wait()}
	}
	runtime.UnlockOSThread()
}
