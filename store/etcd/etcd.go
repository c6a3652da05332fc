package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task/driver"
)

// Options say how a Store keeps its tasks. The zero value is right for most.
type Options struct {
	// Prefix begins all keys; "" means "fairq/". All that is below it is the Store's.
	Prefix string

	// MaxOps is how many operations a transaction may have: what the servers were started with as
	// --max-txn-ops. 0 means 128, which is etcd's default, and makes few calls share a transaction.
	MaxOps int

	// MaxPayload is how many bytes an encoded payload may have; 0 means 1 MiB. The servers must take
	// requests that are half as large again: see their --max-request-bytes, which is 1.5 MiB unless
	// set. So must the client: its MaxCallSendMsgSize is 2 MiB unless set. What such a request has no
	// room for beside one payload, a PutBatch may not have either: 448 KiB in all if MaxPayload is
	// 1 MiB.
	MaxPayload int

	// Skew is by how much the clocks of two machines may differ; 0 means a second. A consumer
	// whose process has died is expired that much later.
	Skew time.Duration

	// Poll is how often somebody who waits looks for what other processes have done, in case he
	// was not told; 0 means ten seconds. He is told within milliseconds.
	Poll time.Duration

	// Timeout is how long a transaction may take, with all tries; 0 means 30 seconds. If the servers
	// do not answer for that long, the calls in it return an error. Where one that leads dies, a
	// call may wait for some seconds.
	Timeout time.Duration

	// History is how long tasks that are gone can be listed by Store.History; 0 means that they
	// are forgotten at once. It makes every task that ends cost one more write.
	History time.Duration

	// Taking is what processes do that take tasks at the same time. The zero value, Apart, is the
	// fastest. All processes should have the same.
	Taking Taking

	// KeepSchema makes Open return an error, instead of beginning a store, if there is none.
	KeepSchema bool
}

// Taking is what processes do that take tasks at the same time. One alone always takes in order.
type Taking uint8

const (
	// Apart has each of them take from a part of its own of the first tasks, so that they hardly
	// ever meet. How far that is from the order is in the package comment.
	Apart Taking = iota

	// Staged has them ask for tasks first, and one of them hand out the very first ones to all who
	// have asked. They hardly ever meet, and the order is that of the queue but for what is taken at
	// the same moment; a Take waits for two or three transactions more. What was handed out to a
	// process that dies is handed out again after two seconds.
	Staged

	// Strict has all of them take the very first tasks, and all but one try again.
	Strict
)

func (o *Options) check() error {
	const of = "etcd.Options."
	err := cmp.Or(
		rows.CheckRange(of+"Skew", o.Skew, driver.MaxDuration),
		rows.CheckRange(of+"Poll", o.Poll, driver.MaxDuration),
		rows.CheckRange(of+"Timeout", o.Timeout, driver.MaxDuration),
		rows.CheckRange(of+"History", o.History, driver.MaxDuration),
		rows.CheckRange(of+"MaxPayload", o.MaxPayload, maxPayload),
	)
	switch {
	case err != nil:
		return err
	case o.Taking > Strict:
		return &driver.FieldError{Field: of + "Taking", Value: o.Taking, Limit: "Apart, Staged or Strict"}
	case o.MaxOps != 0 && (o.MaxOps < minOps || o.MaxOps > 1<<20):
		return &driver.FieldError{Field: of + "MaxOps", Value: o.MaxOps, Limit: fmt.Sprintf("0, or %d to %d", minOps, 1<<20)}
	}
	return nil
}

const (
	maxPayload = 512 << 20
	minOps     = 128
	opsPerRow  = 4 // so many operations it takes to write a row with its indexes, on an average
)

// Store keeps tasks in etcd. All methods may be called at any time by any goroutine. Queues are
// opened with [task.Open].
//
// Its methods Open and Queues are those of [task.Store]. History(ctx, queue, after, n) returns up to
// n tasks of a queue that are gone, in the order of their ids, those with greater ids than after: the
// last one of the page before; none if Options.History is 0. It returns [task.ErrNotFound] if there
// is no such queue.
type Store struct {
	*rules
	db *kv.DB
}

type rules = rows.Store // with the methods Open, Queues and History

// Open opens a store on the servers of a client, which the caller closes after the Store. nil
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
	minRequest = 3 << 19  // bytes that the servers take in a request, unless they take more
	aside      = 64 << 10 // of these for what is not counted
)

func open(ctx context.Context, e kv.Engine, o *Options) (*Store, error) {
	timeout := cmp.Or(o.Timeout, 30*time.Second)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	db, err := kv.Open(ctx, "etcd: "+cmp.Or(o.Prefix, "fairq/"), e, kv.Options{Taking: kv.Taking(o.Taking), KeepSchema: o.KeepSchema})
	if err != nil {
		return nil, err
	}
	s := &Store{db: db, rules: rows.New(db, rows.Options{
		MaxPayload: cmp.Or(o.MaxPayload, 1<<20), History: o.History,
		Poll: cmp.Or(o.Poll, 10*time.Second), Timeout: timeout,
	})}
	db.OnChange(func(queue uint64) { rows.Changed(s.rules, queue) })
	return s, nil
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
			return fmt.Errorf("the server at %s has version %s, must be 3.6 or newer", endpoint, status.Version)
		}
		return nil
	}
	return cmp.Or(failed, fmt.Errorf("there is no endpoint in %q", strings.Join(client.Endpoints(), ", ")))
}

// Conflicts returns how many transactions of this Store had to be tried again, because others were
// faster.
func (s *Store) Conflicts() int64 { return s.db.Conflicts() }

// Close ends what listens to what others do. The queues that are open should be closed before: what
// is taken is handed back then, otherwise only after Options.Grace of the queue.
func (s *Store) Close() error {
	s.db.Close()
	return nil
}
