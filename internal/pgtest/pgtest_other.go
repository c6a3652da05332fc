//go:build !unix

// Package pgtest runs a Postgres server of its own for tests. Here it cannot, so these tests are
// skipped.
package pgtest

import (
	"errors"
	"os"
	"testing"
)

// Server is a Postgres server; this system has none.
type Server struct{}

// Fast are no settings.
var Fast []string

// Shared skips the test.
func Shared(tb testing.TB) *Server {
	tb.Helper()
	tb.Skip("a Postgres server for tests needs Unix")
	return nil
}

// Own skips the test.
func Own(tb testing.TB, _ ...string) *Server {
	tb.Helper()
	return Shared(tb)
}

// New returns an error.
func New(...string) (*Server, error) {
	return nil, errors.New("a Postgres server for tests needs Unix")
}

// Main is a TestMain.
func Main(m *testing.M) { os.Exit(m.Run()) }

// There is no Server, so these are never called.

func (*Server) Kill()                      {}
func (*Server) Remove()                    {}
func (*Server) Start() error               { return nil }
func (*Server) Restart() error             { return nil }
func (*Server) URL(string) string          { return "" }
func (*Server) Database(testing.TB) string { return "" }
