package redis

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/rows/rowstest/kvtest"
	"github.com/fairq/fairq/task"
)

// server is a redis-server, in a process of its own.
type server struct {
	address string
	args    []string
	process *exec.Cmd
	stdin   io.Closer
}

// newServer starts a server without a file of its writes, unless args say otherwise. It skips the
// test where there is none.
func newServer(t testing.TB, dir string, args ...string) *server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("redis-server is not installed")
	}
	s := &server{address: kvtest.FreeAddress(t)}
	_, port, err := net.SplitHostPort(s.address)
	require.NoError(t, err)
	s.args = append([]string{"--port", port, "--dir", dir, "--save", ""}, args...)
	require.NoError(t, s.start())
	return s
}

// untilEOF runs a command until its input ends, as it does when the test is gone.
const untilEOF = `"$0" "$@" & read _; kill -9 $!; wait`

// start starts it, and waits until it answers.
func (s *server) start() (err error) {
	s.process = exec.Command("sh", append([]string{"-c", untilEOF, "redis-server"}, s.args...)...)
	if s.stdin, err = s.process.StdinPipe(); err == nil {
		err = s.process.Start()
	}
	client, _ := dial(s.url(""))
	defer client.Close()
	for err == nil && client.Ping(context.Background()).Err() != nil {
		time.Sleep(time.Millisecond)
	}
	return err
}

// kill ends it as a crash would.
func (s *server) kill() {
	_ = s.stdin.Close()
	_ = s.process.Wait()
}

// url returns a URL, whose part behind a # is a prefix.
func (s *server) url(prefix string) string { return "redis://" + s.address + "/#" + prefix }

// dial returns a client of the server at a URL, and the prefix.
func dial(where string) (client *redis.Client, prefix string) {
	address, prefix, _ := strings.Cut(where, "#")
	o, err := redis.ParseURL(address)
	if err != nil {
		panic(err)
	}
	o.ContextTimeoutEnabled = true
	return redis.NewClient(o), prefix
}

// shared has the server that tests use, each with its own prefix.
var shared struct {
	sync.Mutex
	*server
	prefixes int
}

// newDatabase returns the URL of an empty database.
func newDatabase(t testing.TB) string {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		shared.server = newServer(t, os.TempDir()) // where it writes nothing
	}
	shared.prefixes++
	return shared.url(fmt.Sprintf("{test%d}", shared.prefixes))
}

// newClient returns a client of a database, and its prefix.
func newClient(t testing.TB, where string) (*redis.Client, string) {
	client, prefix := dial(where)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client, prefix
}

// newMap returns an engine over a database.
func newMap(t testing.TB, where string) *engine {
	client, prefix := newClient(t, where)
	return newEngine(client, &Options{Prefix: prefix})
}

// openStore opens a store in a database.
func openStore(t testing.TB, where string, o Options) *Store {
	t.Helper()
	client, prefix := newClient(t, where)
	o.Prefix = cmp.Or(o.Prefix, prefix)
	s, err := OpenClient(t.Context(), client, &o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// The benchmark has the figures of benchmarks/stores/README.md.
func BenchmarkTake(b *testing.B) {
	database := func() string { return newDatabase(b) }
	kvtest.Take(b, database, func(where string) (task.Store, func() int64) {
		s := openStore(b, where, Options{})
		return s, s.db.Conflicts
	})
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.server != nil {
		shared.kill()
	}
	os.Exit(code)
}
