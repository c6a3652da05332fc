package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/rows"
)

// Options say how a Store keeps its tasks. The zero value is right for most.
type Options struct {
	// Prefix begins the names of all keys and channels; "" means "{fairq}". Redis Cluster hashes
	// only the part in braces, so all keys of a Store are in one slot. Stores with different
	// prefixes have nothing in common.
	Prefix string

	// MaxPayload limits the bytes of an encoded payload; 0 means 1 MiB. The server does nothing else
	// while it copies a large one.
	MaxPayload int

	// Skew is the largest difference between the clocks of two machines; 0 means a second. After a
	// lease has ended or a process has died, other processes wait for Skew. Only then they take
	// over the task.
	Skew time.Duration

	// Poll is the interval at which waiting calls look for changes of other processes; 0 means ten
	// seconds. Messages report changes within milliseconds. Poll is for the case that a message is
	// lost.
	Poll time.Duration

	// Timeout limits a transaction with all its retries; 0 means 30 seconds. If the server does
	// not answer for so long, the calls in the transaction return an error.
	Timeout time.Duration

	// History is how long Store.History lists a task that has left; 0 means not at all. Each task
	// that ends costs one more write.
	History time.Duration

	// KeepSchema makes Open return an error, instead of beginning a store, if there is none.
	KeepSchema bool
}

const maxPayload = 64 << 20

func (o *Options) rules() rows.Options {
	return rows.Options{
		MaxPayload: o.MaxPayload, History: o.History, Poll: o.Poll, Timeout: o.Timeout,
	}
}

// Store keeps tasks in Redis. All methods may be called at any time by any goroutine. [task.Open]
// opens its queues.
//
// The methods Open and Queues implement [task.Store]. History(ctx, queue, after, n) returns up to
// n tasks that have left a queue, in the order of their ids. The ids are greater than after, which
// is the last id of the page before. History returns no task if Options.History is 0, and
// [task.ErrNotFound] if there is no such queue.
type Store struct {
	*rules
	db     *kv.DB
	client redis.UniversalClient // nil if it is the program's
}

type rules = rows.Store // with the methods Open, Queues and History

// Open opens a store on the server at a URL, with a client of its own:
//
//	redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE][?OPTION=VALUE]
//
// rediss:// means TLS. unix:// is followed by the path of a socket. The options in the URL are
// those of redis.ParseURL of go-redis. nil options are the defaults.
func Open(ctx context.Context, address string, o *Options) (*Store, error) {
	config, err := redis.ParseURL(address)
	if err != nil {
		var hasPassword *url.Error
		if errors.As(err, &hasPassword) {
			err = hasPassword.Err
		}
		return nil, fmt.Errorf("redis: open: the URL: %w", err)
	}
	config.ContextTimeoutEnabled = true
	client := redis.NewClient(config)
	s, err := OpenClient(ctx, client, o)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	s.client = client
	return s, nil
}

// OpenClient opens a store with a client of the program: for one server, Sentinel or Redis
// Cluster. The caller closes the client after the Store. The deadline of a call holds while a
// server is silent only if the client has ContextTimeoutEnabled.
func OpenClient(ctx context.Context, client redis.UniversalClient, o *Options) (*Store, error) {
	if o == nil {
		o = &Options{}
	}
	if err := kv.CheckOptions("redis", o.Skew, maxPayload, o.rules()); err != nil {
		return nil, err
	}
	e := newEngine(client, o)
	if err := e.checkEviction(ctx); err != nil {
		return nil, fmt.Errorf("redis: open: %w", err)
	}
	return open(ctx, e, o)
}

func newEngine(client redis.UniversalClient, o *Options) *engine {
	prefix := cmp.Or(o.Prefix, "{fairq}")
	e := &engine{client: client, prefix: prefix, traits: rows.Traits{
		MaxWrites: 2000, MaxBytes: 8 << 20, Linger: 50 * time.Microsecond,
		Skew: cmp.Or(o.Skew, time.Second),
	}}
	for _, name := range []string{"keys", "values", "recent", "state"} {
		e.keys = append(e.keys, prefix+":"+name)
	}
	return e
}

func open(ctx context.Context, m kv.Map, o *Options) (*Store, error) {
	name := "redis: " + cmp.Or(o.Prefix, "{fairq}")
	db, s, err := kv.OpenStore(ctx, name, kv.Buffered{Map: m},
		kv.Options{KeepSchema: o.KeepSchema}, o.rules())
	if err != nil {
		return nil, err
	}
	return &Store{rules: s, db: db}, nil
}

var evicts = regexp.MustCompile(`maxmemory_policy:(allkeys\S*)`)

// checkEviction returns an error if the server deletes keys when its memory is full.
func (e *engine) checkEviction(ctx context.Context) error {
	text, err := e.client.Eval(ctx, "return redis.call('INFO', 'memory')", e.keys[:1]).Text()
	if policy := evicts.FindStringSubmatch(text); policy != nil {
		return fmt.Errorf("the server has maxmemory-policy %s, which deletes tasks; "+
			"it must be noeviction", policy[1])
	}
	return err
}

// Close ends the subscriptions of the Store. Close its open queues first, so that they hand back
// their taken tasks. Otherwise these tasks return only after Options.Grace of the queue.
func (s *Store) Close() error {
	s.db.Close()
	if s.client == nil {
		return nil
	}
	return s.client.Close()
}
