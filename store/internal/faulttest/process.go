package faulttest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Job is the work of a process.
type Job struct {
	Role    string
	Name    string // of the process
	Where   string // the database
	Journal string
	Seed    uint64
	Slot    int // see load.id
}

// Self is the process, in itself.
type Self struct {
	Job
	Store   Store
	Journal *journal
	Stop    context.Context // done when it is to end

	signals     chan struct{} // has the messages of the test
	tasks, runs atomic.Int64  // how many tasks it has named, and goroutines it has started
}

const jobEnv = "FAIRQ_FAULTTEST_JOB"

// Child must be called by a test named TestChild. It does nothing, unless Start has started the
// program with a job: then it does the job, and ends the process.
func Child(open Opener, roles map[string]func(*Self) error) {
	text, ok := os.LookupEnv(jobEnv)
	if !ok {
		return
	}
	if err := child(text, open, roles); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func child(text string, open Opener, roles map[string]func(*Self) error) (err error) {
	s := &Self{}
	if err := json.Unmarshal([]byte(text), &s.Job); err != nil {
		return err
	}
	if s.Journal, err = openJournal(s.Job.Journal, s.Name); err != nil {
		return err
	}
	role := roles[s.Role]
	if role == nil {
		role = ownRoles[s.Role]
	}
	stop, cancel := context.WithCancel(context.Background())
	s.Stop, s.signals = stop, make(chan struct{}, 100)
	go func() {
		defer cancel()
		// until the test closes it, or is gone
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			s.signals <- struct{}{}
		}
	}()
	go s.watch()
	if s.Store, err = open(context.Background(), s.Where); err != nil {
		return err
	}
	if err := role(s); err != nil {
		return err
	}
	return s.Store.Close()
}

// Say sends a message to the test.
func (s *Self) Say(what string) { fmt.Println(what) }

// await waits until the test lets the process go on.
func (s *Self) await() error {
	select {
	case <-s.signals:
		return nil
	case <-s.Stop.Done():
		return s.Stop.Err()
	}
}

// stalled is the pause of a process that excuses lost leases.
const stalled = grace / 4

// watch writes down pauses of the process.
func (s *Self) watch() {
	tick := time.NewTicker(stalled / 4)
	for last := time.Now(); ; last = time.Now() {
		<-tick.C
		if d := time.Since(last); d > stalled {
			s.Journal.write(line{Op: "stalled", Name: d.String()})
		}
	}
}

// Process is a process, in the test.
type Process struct {
	Job
	t      testing.TB
	cmd    *exec.Cmd
	in     io.WriteCloser
	says   chan string
	errors bytes.Buffer
	ended  chan error
}

// Start starts a process. It ends with the test at the latest.
func Start(t testing.TB, job Job) *Process {
	t.Helper()
	text, err := json.Marshal(job)
	require.NoError(t, err)
	program, err := os.Executable()
	require.NoError(t, err)
	p := &Process{Job: job, t: t, says: make(chan string, 100), ended: make(chan error, 1)}
	p.cmd = exec.Command(program, "-test.run=^TestChild$", "-test.timeout=5m")
	p.cmd.Env = append(os.Environ(), jobEnv+"="+string(text))
	p.cmd.Stderr = &p.errors
	p.in, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.says <- lines.Text()
		}
		close(p.says)
		p.ended <- p.cmd.Wait()
	}()
	t.Cleanup(func() {
		if p.ended != nil {
			_ = p.cmd.Process.Kill()
			_ = p.wait()
		}
	})
	return p
}

// timeout is how long a fast operation may take. If servers are killed too, a process that opens
// its queues may wait for several of these kills, for eight seconds each on etcd.
const timeout = 2 * time.Minute

// Await waits until the process says something, and returns it. A process that says nothing prints
// its goroutines and ends, see Start.
func (p *Process) Await() string {
	p.t.Helper()
	what, ok := <-p.says
	if !ok {
		require.FailNow(p.t, "the process has ended", "%s: %v\n%s", p.Name, p.wait(), &p.errors)
	}
	return what
}

// proceed lets the process go on.
func (p *Process) proceed() {
	p.t.Helper()
	_, err := p.in.Write([]byte{'\n'})
	require.NoError(p.t, err)
}

// kill ends the process as it is, and writes it down before.
func (p *Process) kill(j *journal) {
	p.t.Helper()
	j.write(line{Op: "kill", Name: p.Name})
	failed := p.cmd.Process.Kill()
	_ = p.wait() // it was killed
	require.NoError(p.t, failed, "%s: %s", p.Name, &p.errors)
	require.Empty(p.t, p.errors.String(), "it had failed before")
}

// Stop lets the process end by itself.
func (p *Process) Stop() {
	p.t.Helper()
	p.in.Close()
	if err := p.wait(); err != nil {
		require.FailNow(p.t, "the process has failed", "%s: %v\n%s", p.Name, err, p.errors.String())
	}
}

func (p *Process) wait() error {
	for range p.says { // so that it is not held up
	}
	err := <-p.ended
	p.ended = nil
	return err
}
