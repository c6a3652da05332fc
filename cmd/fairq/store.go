package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9/logging"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/fairq/fairq/internal/printable"
	"github.com/fairq/fairq/store/etcd"
	"github.com/fairq/fairq/store/postgres"
	"github.com/fairq/fairq/store/redis"
	"github.com/fairq/fairq/store/sqlite"
	"github.com/fairq/fairq/task"
)

// store is a task.Store that can be closed.
type store interface {
	task.Store
	Close() error
}

// openStore opens the store that the options name. It makes none, and migrates none.
func openStore(ctx context.Context, o *options) (store, error) {
	scheme, rest, _ := strings.Cut(o.store, ":")
	switch scheme {
	case "sqlite":
		path := strings.TrimPrefix(rest, "//")
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("there is no file %s", printable.Text(path))
		}
		return opened(sqlite.Open(ctx, path,
			&sqlite.Options{Prefix: o.prefix, History: o.history, KeepSchema: true}))
	case "postgres", "postgresql":
		connection := o.store
		if !strings.HasPrefix(rest, "//") {
			connection = rest
		}
		return opened(postgres.Open(ctx, connection,
			&postgres.Options{Schema: o.prefix, MaxConns: 2, History: o.history, KeepSchema: true}))
	case "foundationdb":
		return openFoundationDB(ctx, rest, o)
	case "etcd":
		return openEtcd(ctx, o)
	case "redis", "rediss":
		logging.Disable()
		return opened(redis.Open(ctx, o.store,
			&redis.Options{Prefix: o.prefix, History: o.history, KeepSchema: true}))
	}
	return nil, usage("the store is %s; it must begin with sqlite:, postgres://, "+
		"etcd://, redis://, rediss:// or foundationdb:", withoutPassword(o.store))
}

// withoutPassword shows the beginning of a text that may be the mistyped address of a store.
func withoutPassword(text string) string {
	if i := strings.IndexAny(text, ":=@"); i >= 0 {
		text = text[:i+1] + "..."
	}
	return printable.Text(text)
}

// opened makes no store a nil one.
func opened[S store](s S, err error) (store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

const dialTimeout = 5 * time.Second

func openEtcd(ctx context.Context, o *options) (store, error) {
	// A URL has one host, so there is one for each.
	address, isURL := strings.CutPrefix(o.store, "etcd://")
	at := strings.LastIndex(address, "@") + 1 // a password may have one
	hosts := address[at:]
	u, err := url.Parse("etcd://" + address[:max(0, at-1)] + "@host")
	if err != nil || !isURL || hosts == "" || strings.Contains(hosts, "/") {
		return nil, usage("the store is an etcd:// that makes no sense; it must be " +
			"etcd://[USER:PASSWORD@]HOST:PORT,...")
	}
	config := clientv3.Config{
		Endpoints: strings.Split(hosts, ","), DialTimeout: dialTimeout, Logger: zap.NewNop(),
		Username: u.User.Username(), Context: ctx,
	}
	config.Password, _ = u.User.Password()
	client, err := clientv3.New(config)
	if err == nil {
		var s *etcd.Store
		s, err = etcd.Open(ctx, client,
			&etcd.Options{Prefix: o.prefix, History: o.history, KeepSchema: true})
		if err == nil {
			return &onClient{s, client}, nil
		}
		client.Close()
	}
	return nil, fmt.Errorf("%s: %w", printable.Text(hosts), err)
}

// onClient is a store with a client of its own.
type onClient struct {
	*etcd.Store
	client *clientv3.Client
}

func (s *onClient) Close() error { return errors.Join(s.Store.Close(), s.client.Close()) }

// queue is a queue whose payloads are as they were written down.
type queue = task.Queue[[]byte]

// raw is a codec that changes nothing.
type raw struct{}

func (raw) Encode(payload []byte) ([]byte, error) { return payload, nil }
func (raw) Decode(data []byte) ([]byte, error)    { return bytes.Clone(data), nil }

// open opens a queue that there is.
func (c *call) open(ctx context.Context, name string) (*queue, error) {
	q, err := task.Open(ctx, c.store, name, &task.Options[[]byte]{AsIs: true, Codec: raw{}})
	if !errors.Is(err, task.ErrNotFound) {
		return q, err
	}
	const most = 20
	names, listErr := c.store.Queues(ctx, "", most+1)
	if listErr != nil {
		return nil, listErr
	}
	there := "there is none at all"
	if len(names) > 0 {
		for i := range names {
			names[i] = printable.Text(names[i])
		}
		if len(names) > most {
			names[most] = "..."
		}
		there = "there are: " + strings.Join(names, ", ")
	}
	return nil, fmt.Errorf("%w: queue %s; %s", task.ErrNotFound, printable.Text(name), there)
}
