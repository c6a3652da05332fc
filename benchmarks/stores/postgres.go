package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// errNoPostgres is returned when there is no server to be started.
var errNoPostgres = errors.New("no PostgreSQL server: initdb and postgres are neither in PATH nor in /usr/lib/postgresql/*/bin (Debian's package postgresql has them)")

// server is a PostgreSQL server of our own, in a folder of its own, that can be reached through a
// socket in that folder only.
type server struct {
	dir     string
	process *exec.Cmd
	output  bytes.Buffer
	ended   chan struct{} // closed when the process has ended
}

// serverSettings differ from the defaults where these are for machines of twenty years ago. What
// is written to disk when is as safe as it is by default, and said nevertheless.
var serverSettings = []string{
	"fsync=on", "synchronous_commit=on", "full_page_writes=on",
	"shared_buffers=512MB", "max_wal_size=4GB", "max_connections=200", "listen_addresses=",
	"min_wal_size=1GB",
}

// startServer starts a server. As root, which PostgreSQL refuses to run
// as, it is run as another user.
func startServer(ctx context.Context, dir string) (*server, error) {
	initdb, postgres, err := findServer()
	if err != nil {
		return nil, err
	}
	s := &server{ended: make(chan struct{})}
	if s.dir, err = os.MkdirTemp(dir, "fairq-pg-"); err != nil {
		return nil, err
	}
	attributes, err := unprivileged(s.dir)
	if err != nil {
		s.stop()
		return nil, err
	}
	data := filepath.Join(s.dir, "data")
	initialize := exec.CommandContext(ctx, initdb, "-D", data, "-U", "bench", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	initialize.Dir, initialize.SysProcAttr = s.dir, attributes
	if out, err := initialize.CombinedOutput(); err != nil {
		s.stop()
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	args := []string{"-D", data, "-k", s.dir}
	for _, setting := range serverSettings {
		args = append(args, "-c", setting)
	}
	// it is stopped by stop, not by ctx, so that it can end well
	process := exec.Command(postgres, args...)
	process.Dir, process.SysProcAttr = s.dir, attributes
	process.Stdout, process.Stderr = &s.output, &s.output
	if err := process.Start(); err != nil {
		s.stop()
		return nil, err
	}
	s.process = process
	go func() {
		defer close(s.ended)
		_ = process.Wait()
	}()
	if err := s.await(ctx); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func findServer() (initdb, postgres string, err error) {
	folders, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	for i := len(folders) - 1; i >= 0; i-- { // the newest one is the last
		initdb, postgres = filepath.Join(folders[i], "initdb"), filepath.Join(folders[i], "postgres")
		if isFile(initdb) && isFile(postgres) {
			return initdb, postgres, nil
		}
	}
	if initdb, err = exec.LookPath("initdb"); err == nil {
		postgres, err = exec.LookPath("postgres")
	}
	if err != nil {
		return "", "", errNoPostgres
	}
	return initdb, postgres, nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// await waits until the server can be connected to.
func (s *server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.dsn("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-s.ended:
			return fmt.Errorf("the PostgreSQL server has ended:\n%s", s.output.String())
		case <-ctx.Done():
			return fmt.Errorf("the PostgreSQL server does not answer: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// makeWAL has the server make files of its log ahead, as one has them that has run for some time:
// to fill a new one with zeros holds up all commits, for hundreds of milliseconds if the disk is busy.
func (s *server) makeWAL(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.dsn("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for range 40 {
		if _, err := conn.Exec(ctx, "SELECT pg_logical_emit_message(false, '', ''), pg_switch_wal()"); err != nil {
			return err
		}
	}
	_, err = conn.Exec(ctx, "CHECKPOINT") // now all but the last one can be used again
	return err
}

func (s *server) dsn(database string) string {
	return fmt.Sprintf("host=%s user=bench dbname=%s", s.dir, database)
}

// database makes a database, and returns how to connect to it.
func (s *server) database(ctx context.Context, name string) (dsn string, err error) {
	conn, err := pgx.Connect(ctx, s.dsn("postgres"))
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		return "", err
	}
	return s.dsn(name) + " pool_max_conns=20", nil
}

// version returns the server's.
func (s *server) version(ctx context.Context) (version string, err error) {
	conn, err := pgx.Connect(ctx, s.dsn("postgres"))
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(ctx) }()
	err = conn.QueryRow(ctx, "SHOW server_version").Scan(&version)
	version, _, _ = strings.Cut(version, " ")
	return version, err
}

// stop ends the server, and removes all of it.
func (s *server) stop() {
	if s.process != nil {
		_ = s.process.Process.Signal(os.Interrupt) // it breaks connections, and ends well
		select {
		case <-s.ended:
		case <-time.After(30 * time.Second):
			_ = s.process.Process.Kill()
			<-s.ended
		}
	}
	_ = os.RemoveAll(s.dir)
}

func openPool(ctx context.Context, dsn string) (*pgxpool.Pool, error) {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// settlePostgres does what autovacuum and the checkpointer would do soon.
func settlePostgres(ctx context.Context, dsn string) error {
	pool, err := openPool(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	for _, command := range []string{"VACUUM ANALYZE", "CHECKPOINT"} {
		if _, err := pool.Exec(ctx, command); err != nil {
			return err
		}
	}
	return nil
}
