package etcd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/fairq/fairq/store/internal/rows/rowstest/kvtest"
)

// member is a server of etcd, in a process of its own.
type member struct {
	Name, Dir, Client, Peer, Cluster string
	Quota                            int64 // bytes, 0 means etcd's default
	Request                          uint  // the same, of a request

	process *exec.Cmd
}

const memberEnv = "FAIRQ_ETCD_MEMBER"

// TestServer is the main function of a member.
func TestServer(*testing.T) {
	text, ok := os.LookupEnv(memberEnv)
	if !ok {
		return
	}
	if err := serve(text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve(text string) error {
	var m member
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return err
	}
	c := embed.NewConfig()
	client, err := url.Parse(m.Client)
	if err != nil {
		return err
	}
	peer, err := url.Parse(m.Peer)
	if err != nil {
		return err
	}
	c.Name, c.Dir, c.LogLevel, c.MaxTxnOps = m.Name, m.Dir, "panic", maxOps
	c.MaxRequestBytes = cmp.Or(m.Request, c.MaxRequestBytes)
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	c.InitialCluster, c.QuotaBackendBytes = m.Cluster, m.Quota
	c.UnsafeNoFsync = true // the machine stays
	e, err := embed.StartEtcd(c)
	if err != nil {
		return err
	}
	go func() { // until the test is gone
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}()
	return <-e.Err()
}

const (
	maxOps     = 1 << 14
	maxRequest = 16 << 20 // rowstest's transactions may write several payloads of 1 MiB
)

// start starts the process of a member.
func (m *member) start() error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	// it ends with this process
	m.process = exec.Command(program, "-test.run=^TestServer$", "-test.timeout=0")
	m.process.Env = append(os.Environ(), memberEnv+"="+string(text))
	m.process.Stderr = os.Stderr
	if _, err = m.process.StdinPipe(); err != nil { // its end closes with this process
		return err
	}
	return m.process.Start()
}

// kill ends it as a crash would.
func (m *member) kill() {
	_ = m.process.Process.Kill()
	_ = m.process.Wait()
}

// cluster is some members.
type cluster []*member

func newCluster(t testing.TB, dir string, n int, quota int64, request uint) (c cluster) {
	t.Helper()
	var all []string
	for i := range n {
		m := &member{
			Name: fmt.Sprint("m", i), Quota: quota, Request: request,
			Client: "http://" + kvtest.FreeAddress(t), Peer: "http://" + kvtest.FreeAddress(t),
		}
		m.Dir = filepath.Join(dir, m.Name)
		all = append(all, m.Name+"="+m.Peer)
		c = append(c, m)
	}
	for _, m := range c {
		m.Cluster = strings.Join(all, ",")
		require.NoError(t, m.start())
	}
	return c
}

// where returns the addresses of all members.
func (c cluster) where() string {
	var all []string
	for _, m := range c {
		all = append(all, m.Client)
	}
	return strings.Join(all, ",")
}

func (c cluster) kill() {
	for _, m := range c {
		m.kill()
	}
}

// dial returns a client that has reached the servers. The last part of where, behind a #, is a
// prefix.
func dial(ctx context.Context, where string, o ...grpc.DialOption) (*clientv3.Client, error) {
	endpoints, _, _ := strings.Cut(where, "#")
	client, err := clientv3.New(clientv3.Config{
		Endpoints: strings.Split(endpoints, ","), DialTimeout: 5 * time.Second,
		DialKeepAliveTime: time.Second, DialKeepAliveTimeout: time.Second,
		MaxCallSendMsgSize: maxRequest, Logger: zap.NewNop(),
		DialOptions: o,
	})
	if err != nil {
		return nil, err
	}
	for {
		once, cancel := context.WithTimeout(ctx, time.Second)
		_, err = client.Get(once, "x")
		cancel()
		if err == nil {
			return client, nil
		}
		if ctx.Err() != nil {
			client.Close()
			return nil, err
		}
	}
}

// shared has the clusters that all tests use, each with its own prefix, by number of members.
var shared struct {
	sync.Mutex
	clusters map[int]cluster
	dirs     []string
	prefixes int
}

// newDatabase returns the address of an empty database on n servers.
func newDatabase(t testing.TB, members int) string {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.clusters[members] == nil {
		dir, err := os.MkdirTemp("", "fairq-etcd")
		require.NoError(t, err)
		if shared.clusters == nil {
			shared.clusters = map[int]cluster{}
		}
		shared.dirs = append(shared.dirs, dir)
		shared.clusters[members] = newCluster(t, dir, members, 0, maxRequest)
	}
	shared.prefixes++
	return fmt.Sprintf("%s#test%d/", shared.clusters[members].where(), shared.prefixes)
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, c := range shared.clusters {
		c.kill()
	}
	for _, dir := range shared.dirs {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}
