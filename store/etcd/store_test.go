package etcd

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/rows/rowstest/kvtest"
)

// emptyEngine returns an engine over an empty database.
func emptyEngine(t *testing.T, client *clientv3.Client) *engine {
	_, prefix, _ := strings.Cut(newDatabase(t, 1), "#")
	return &engine{client: client, prefix: prefix, maxOps: maxOps}
}

// newClient returns a client of the shared cluster with n servers.
func newClient(t *testing.T, members int) *clientv3.Client {
	client, err := dial(t.Context(), newDatabase(t, members))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// empty returns a function that returns empty engines on n servers.
func empty(t *testing.T, members int) func(*testing.T) kv.Map {
	if testing.Short() {
		t.Skip("TestKill shows most of it")
	}
	client := newClient(t, members)
	return func(t *testing.T) kv.Map { return emptyEngine(t, client) }
}

func TestRows(t *testing.T)        { kvtest.Rows(t, empty(t, 1)) }
func TestRowsMembers(t *testing.T) { kvtest.Rows(t, empty(t, 3)) }

func TestStore(t *testing.T) {
	t.Parallel()
	kvtest.Store(t, empty(t, 1))
}

func TestStoreMembers(t *testing.T) {
	t.Parallel()
	kvtest.Store(t, empty(t, 3))
}
