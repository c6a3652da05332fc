package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/rows"
)

// Options say how a Store keeps its tasks. The zero value is right for most.
type Options struct {
	// Prefix begins all keys; "" means "fairq/". Everything below it belongs to the Store.
	Prefix string

	// MaxOps is the number of operations that a transaction may have: the --max-txn-ops of the
	// servers. 0 means 128, the default of etcd. With 128 operations few calls share a
	// transaction.
	MaxOps int

	// MaxPayload limits the bytes of an encoded payload; 0 means 1 MiB. The servers'
	// --max-request-bytes must be at least one and a half times MaxPayload; it is 1.5 MiB unless
	// set. So must the client's MaxCallSendMsgSize; it is 2 MiB unless set. All payloads of a
	// PutBatch together may have 448 KiB if MaxPayload is 1 MiB.
	MaxPayload int

	// Skew is the largest difference between the clocks of two machines; 0 means a second. After a
	// lease has ended or a process has died, other processes wait for Skew. Only then they take
	// over the task.
	Skew time.Duration

	// Poll is the interval at which waiting calls look for changes of other processes; 0 means ten
	// seconds. The watch reports changes within milliseconds. Poll is for the case that the watch
	// is lost.
	Poll time.Duration

	// Timeout limits a transaction with all its retries; 0 means 30 seconds. If the servers do not
	// answer for so long, the calls in the transaction return an error. A call may wait for some
	// seconds when the leader dies.
	Timeout time.Duration

	// History is how long Store.History lists a task that has left; 0 means not at all. Each task
	// that ends costs one more write.
	History time.Duration

	// KeepSchema makes Open return an error, instead of beginning a store, if there is none.
	KeepSchema bool
}

func (o *Options) check() error {
	err := kv.CheckOptions("etcd", o.Skew, maxPayload, o.rules())
	if err == nil && o.MaxOps != 0 && (o.MaxOps < minOps || o.MaxOps > 1<<20) {
		err = &driver.FieldError{
			Field: "etcd.Options.MaxOps", Value: o.MaxOps,
			Limit: fmt.Sprintf("0, or %d to %d", minOps, 1<<20),
		}
	}
	return err
}

func (o *Options) rules() rows.Options {
	return rows.Options{
		MaxPayload: o.MaxPayload, History: o.History, Poll: o.Poll, Timeout: o.Timeout,
	}
}

const (
	maxPayload = 512 << 20
	minOps     = 128
	opsPerRow  = 4 // operations to write a row with its indexes, on average
)

// Store keeps tasks in etcd. All methods may be called at any time by any goroutine. [task.Open]
// opens its queues.
//
// The methods Open and Queues implement [task.Store]. History(ctx, queue, after, n) returns up to
// n tasks that have left a queue, in the order of their ids. The ids are greater than after, which
// is the last id of the page before. History returns no task if Options.History is 0, and
// [task.ErrNotFound] if there is no such queue.
type Store struct {
	*rules
	db *kv.DB
}

type rules = rows.Store // with the methods Open, Queues and History

// Open opens a store on the servers of a client. The caller closes the client after the Store. nil
// options are the defaults. Servers older than 3.6 are refused.
func Open(ctx context.Context, client *clientv3.Client, o *Options) (*Store, error) {
	if o == nil {
		o = &Options{}
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	if err := checkVersion(ctx, client); err != nil {
		return nil, fmt.Errorf("etcd: open: %w", err)
	}
	return open(ctx, newEngine(client, o), o)
}

func newEngine(client *clientv3.Client, o *Options) *engine {
	ops, payload := cmp.Or(o.MaxOps, minOps), cmp.Or(o.MaxPayload, 1<<20)
	return &engine{
		client: client, prefix: cmp.Or(o.Prefix, "fairq/"), maxOps: ops, traits: rows.Traits{
			MaxWrites: ops / opsPerRow, MaxBytes: max(minRequest, payload+payload/2) - payload - aside,
			Linger: 50 * time.Microsecond, Skew: cmp.Or(o.Skew, time.Second),
		},
	}
}

const (
	minRequest = 3 << 19  // default limit of the servers for a request, in bytes
	aside      = 64 << 10 // of these for uncounted parts
)

func open(ctx context.Context, m kv.Map, o *Options) (*Store, error) {
	db, s, err := kv.OpenStore(ctx, "etcd: "+cmp.Or(o.Prefix, "fairq/"), kv.Buffered{Map: m},
		kv.Options{KeepSchema: o.KeepSchema}, o.rules())
	if err != nil {
		return nil, err
	}
	return &Store{s, db}, nil
}

// checkVersion asks one of the servers for its version.
func checkVersion(ctx context.Context, client *clientv3.Client) error {
	var failed error
	for _, endpoint := range client.Endpoints() {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		status, err := client.Status(ctx, endpoint)
		cancel()
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", endpoint, err))
			continue
		}
		var major, minor int
		_, err = fmt.Sscanf(status.Version, "%d.%d", &major, &minor)
		if err != nil || major < 3 || major == 3 && minor < 6 {
			return fmt.Errorf("the server at %s has version %s, must be 3.6 or newer", endpoint,
				status.Version)
		}
		return nil
	}
	return cmp.Or(failed,
		fmt.Errorf("there is no endpoint in %q", strings.Join(client.Endpoints(), ", ")))
}

// Close ends the watches of the Store. Close its open queues first, so that they hand back their
// taken tasks. Otherwise these tasks return only after Options.Grace of the queue.
func (s *Store) Close() error {
	s.db.Close()
	return nil
}
