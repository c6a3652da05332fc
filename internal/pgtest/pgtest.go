//go:build unix

// Package pgtest runs a Postgres server of its own for tests. It is in the root module for all
// modules that need a server, so it has no driver: it uses psql.
//
// It finds Postgres' programs in PATH or where Debian puts them, and keeps the server in a
// temporary folder. The server ends with the tests, however these end. Without the programs tests
// are skipped; in CI they fail.
package pgtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Server is a Postgres server.
type Server struct {
	dir    string // of its files
	bin    string
	config []string // settings, as name=value
	cred   *syscall.Credential

	mu      sync.Mutex // protects what follows
	process *exec.Cmd  // nil if it is stopped
	done    chan exit  // gets how the process ended
	names   atomic.Int64
}

// exit is how a process ended.
type exit struct{ err error }

var errMissing = errors.New("no Postgres server is installed: there is no program initdb in " +
	"PATH nor in /usr/lib/postgresql/*/bin")

// Fast are the settings for tests that need not survive a crash of the machine.
var Fast = []string{"fsync=off", "synchronous_commit=off", "full_page_writes=off"}

var shared struct {
	sync.Mutex
	server *Server
	err    error
}

// Shared returns the server that all tests of this program share. It starts it if it does not run
// yet. Main stops it.
func Shared(tb testing.TB) *Server {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil && shared.err == nil {
		shared.server, shared.err = New(Fast...)
	}
	check(tb, shared.err)
	return shared.server
}

// Own starts a server for this test alone, which may stop it.
func Own(tb testing.TB, config ...string) *Server {
	tb.Helper()
	s, err := New(config...)
	check(tb, err)
	tb.Cleanup(s.Remove)
	return s
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if errors.Is(err, errMissing) && os.Getenv("CI") != "true" {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// Main is a TestMain.
func Main(m *testing.M) {
	code := m.Run()
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil {
		shared.server.Remove()
	}
	os.Exit(code)
}

// New makes a server with the given settings, and starts it.
func New(config ...string) (*Server, error) {
	initdb, err := find()
	if err != nil {
		return nil, err
	}
	s := &Server{bin: filepath.Dir(initdb), config: config}
	if s.cred, err = unprivileged(); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp("", "pgtest"); err != nil {
		return nil, err
	}
	if s.cred != nil {
		err = os.Chown(s.dir, int(s.cred.Uid), int(s.cred.Gid))
	}
	if err == nil {
		err = run(s.command("initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8",
			"--no-sync", "--locale=C"))
	}
	if err == nil {
		err = s.Start()
	}
	if err != nil {
		os.RemoveAll(s.dir)
		return nil, err
	}
	return s, nil
}

// find returns the path of the newest initdb.
func find() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.EvalSymlinks(path)
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", errors.Join(errMissing, err)
	}
	version := func(path string) int {
		v, _ := strconv.Atoi(strings.Split(path, "/")[4]) // a name without a number is the oldest
		return v
	}
	return slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) }), nil
}

// unprivileged returns the user that runs the server, which refuses to run as root. nil is the
// user of this process.
func unprivileged() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, err
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = s.attributes()
	return cmd
}

func run(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, bytes.TrimSpace(out))
	}
	return nil
}

// Start starts the server and waits until it can be used.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// No port, because another server might take it first.
	args := []string{"-D", s.data(), "-k", s.dir, "-c", "listen_addresses="}
	for _, c := range s.config {
		args = append(args, "-c", c)
	}
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := s.command("postgres", args...)
	cmd.Stdout, cmd.Stderr = log, log
	s.process, s.done = cmd, make(chan exit, 1)
	started := make(chan error)
	go start(cmd, started, s.done)
	if err := <-started; err != nil {
		return err
	}
	return s.await()
}

// await waits until the server can be used.
func (s *Server) await() error {
	timeout := time.After(time.Minute)
	for {
		err := s.exec("SELECT 1")
		if err == nil {
			return nil
		}
		select {
		case <-timeout:
			return err
		case ended := <-s.done:
			s.process = nil
			log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			return fmt.Errorf("the server ended: %w\n%s", ended.err, log)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Stop ends the server; clients are cut off.
func (s *Server) Stop() { s.end(syscall.SIGINT) }

// Kill ends the server as a crash of it does. It stops at once, and Start must recover the
// committed changes.
func (s *Server) Kill() { s.end(syscall.SIGQUIT) }

func (s *Server) end(signal syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return
	}
	_ = s.process.Process.Signal(signal) // it may have ended before
	<-s.done                             // its exit status is no news
	s.process = nil
}

// Restart stops the server and starts it again.
func (s *Server) Restart() error {
	s.Stop()
	return s.Start()
}

// Remove ends the server and deletes its files.
func (s *Server) Remove() {
	s.Kill()
	os.RemoveAll(s.dir)
}

// URL returns how to connect to a database, in the form name=value.
func (s *Server) URL(database string) string {
	return fmt.Sprintf("user=postgres host='%s' dbname=%s", s.dir, database)
}

// Database makes an empty database for this test, and returns its URL.
func (s *Server) Database(tb testing.TB) string {
	tb.Helper()
	name := fmt.Sprintf("test%d", s.names.Add(1))
	if err := s.exec("CREATE DATABASE " + name); err != nil {
		tb.Fatal(err)
	}
	// the server may be stopped
	tb.Cleanup(func() { _ = s.exec("DROP DATABASE " + name + " WITH (FORCE)") })
	return s.URL(name)
}

func (s *Server) exec(sql string) error {
	url := s.URL("postgres")
	return run(s.command("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", url, "-c", sql))
}
