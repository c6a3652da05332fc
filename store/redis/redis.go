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
	// Prefix begins the keys and channels; "" means "{fairq}". Its part in braces is what Redis
	// Cluster hashes, so all keys of a Store are in one slot. Another Prefix is another Store.
	Prefix string

	// MaxPayload limits the bytes of an encoded payload; 0 means 1 MiB. The server does nothing else
	// while it copies a large one.
	MaxPayload int

	// Skew is the largest difference between the clocks of two machines; 0 means a second. Other
	// processes take over a task only that long after its lease has ended or its process has died.
	Skew time.Duration

	// Poll is the interval at which waiting calls look for changes of other processes; 0 means ten
	// seconds. It covers a lost message: messages report changes within milliseconds.
	Poll time.Duration

	// Timeout limits a transaction with all its retries; 0 means 30 seconds. If the server does not
	// answer for that long, the calls in it return an error.
	Timeout time.Duration

	// History is how long Store.History lists tasks that have left; 0 means not at all. It costs
	// one more write for every task that ends.
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

// Store keeps tasks in Redis. All methods may be called at any time by any goroutine. Queues are
// opened with [task.Open].
//
// Its methods Open and Queues implement [task.Store]. History(ctx, queue, after, n) returns up to
// n tasks that have left a queue, by id, with ids greater than after, the last id of the page
// before; none if Options.History is 0. It returns [task.ErrNotFound] if there is no such queue.
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
// With rediss:// it uses TLS, and unix:// is followed by the path of a socket. Options in the URL
// are those of redis.ParseURL of go-redis. nil options are the defaults.
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

// OpenClient opens a store on the servers of a client, which the caller closes after the Store: of
// one server, Sentinel or Redis Cluster. Set its ContextTimeoutEnabled, so that the deadlines of
// calls hold while a server is silent.
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

// Close ends the subscriptions of the Store. Close its open queues first: that hands their taken
// tasks back, otherwise they return only after Options.Grace of the queue.
func (s *Store) Close() error {
	s.db.Close()
	if s.client == nil {
		return nil
	}
	return s.client.Close()
}
