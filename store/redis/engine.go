package redis

import (
	"context"
	_ "embed" // for the scripts
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/rows"
)

// engine implements kv.Map by two scripts, which the server runs one at a time. It has four keys:
//
//   - keys, a sorted set of the keys of the map, in the order of their bytes;
//   - values, a hash of their values, but for empty ones;
//   - recent, a sorted set of the commits of the last ten seconds: the written keys, by version;
//   - state, a hash of the newest version and of the time when the store was born.
//
// A version is the server's time in microseconds, and greater than the version before. A commit is
// in conflict if another one after the reads has written a guarded key. A later read of a
// transaction is in conflict if its keys or spans were written since the first read: otherwise
// they are as they were at the first one.
//
// After a failover or a restart the server may have lost commits that a process has read, and give
// their versions to others. Then it has another replication id. With the time of birth, which
// changes after a deletion of all data or if the clock goes back, that id is the run of a version.
// A version of another run is in conflict. So is a version that is too old for recent, or newer
// than the server's, as at a replica that lags behind.
//
// The scripts compare bytes by themselves, because Lua compares strings by the server's locale.
type engine struct {
	client redis.UniversalClient
	prefix string
	keys   []string
	traits rows.Traits
}

var (
	//go:embed moment.lua
	momentSource string
	//go:embed read.lua
	readSource string
	//go:embed commit.lua
	commitSource string

	readScript   = script{redis.NewScript(momentSource + readSource), momentSource + readSource}
	commitScript = script{redis.NewScript(momentSource + commitSource), momentSource + commitSource}
)

// script is a script with its source.
type script struct {
	*redis.Script
	source string
}

// moment is a version and its run.
type moment struct{ run, version string }

// once is a command that the client sends no second time if it does not know whether the server
// has got the first one.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// run runs a script, which the server may have to be sent first.
func (e *engine) run(ctx context.Context, s script, args []any) (any, error) {
	head := []any{"evalsha", s.Hash(), len(e.keys)}
	for _, key := range e.keys {
		head = append(head, key)
	}
	args = append(head, args...)
	c := once{redis.NewCmd(ctx, args...)}
	if err := e.client.Process(ctx, c); redis.HasErrorPrefix(err, "NOSCRIPT") {
		args[0], args[1] = "eval", s.source
		c = once{redis.NewCmd(ctx, args...)}
		_ = e.client.Process(ctx, c)
	}
	return c.Result()
}

// Traits implements kv.Map.
func (e *engine) Traits() rows.Traits { return e.traits }

// Watch implements kv.Map. The client subscribes again after it has lost its connection.
func (e *engine) Watch(ctx context.Context, from, _ []byte, f func(*kv.Entry)) {
	s := e.client.Subscribe(ctx, e.channel(from))
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	for message := range s.ChannelWithSubscriptions() {
		if m, ok := message.(*redis.Message); ok {
			f(&kv.Entry{Key: from, Value: []byte(m.Payload)})
		} else {
			f(nil)
		}
	}
}

func (e *engine) channel(key []byte) string { return e.prefix + ":" + string(key) }

// Read implements kv.Map.
func (e *engine) Read(
	ctx context.Context, at any, keys [][]byte, spans []kv.Span,
) (found kv.Found, err error) {
	m, _ := at.(moment)
	args := []any{m.run, m.version, len(keys)}
	for _, key := range keys {
		args = append(args, key)
	}
	for _, s := range spans {
		args = append(args, s.From, s.To, s.Desc, s.Limit, s.Loose)
	}
	var reply any
	err = kv.Exchange(ctx, isAway, func(ctx context.Context) (err error) {
		reply, err = e.run(ctx, readScript, args)
		return err
	})
	all, _ := reply.([]any)
	switch {
	case errors.Is(err, redis.Nil):
		return found, kv.ErrConflict
	case err != nil:
		return found, err
	case len(all) != 3+len(spans):
		return found, fmt.Errorf("the server returned %.200v", reply)
	}
	run, _ := all[0].(string)
	version, _ := all[1].(string)
	found.At = moment{run, version}
	if m.run != "" {
		found.At = m
	}
	for i, value := range all[2].([]any) {
		e := kv.Entry{Key: keys[i]}
		if s, ok := value.(string); ok {
			e.Value = []byte(s)
		}
		found.Keys = append(found.Keys, e)
	}
	for _, page := range all[3:] {
		var p kv.Page
		for pair := range slices.Chunk(page.([]any), 2) {
			p.Entries = append(p.Entries, kv.Entry{
				Key: []byte(pair[0].(string)), Value: []byte(pair[1].(string)),
			})
		}
		found.Pages = append(found.Pages, p)
	}
	return found, nil
}

// Commit implements kv.Map. A commit that deletes half as many keys as it writes may exceed the
// server's maxmemory, so that tasks can be taken and acked when it is full.
//
// A script has changed nothing if its first write fails, without memory or at a replica. It
// publishes before that, because a user may lack the right. Nobody reads before the script ends.
func (e *engine) Commit(
	ctx context.Context, at any, guards []kv.Guard, clears []kv.Span, writes []kv.Entry,
) error {
	var keys, spans, cleared, deleted, void, entries, notices []any
	for _, g := range guards {
		if g.To == nil {
			keys = append(keys, g.From)
		} else {
			spans = append(spans, g.From, g.To)
		}
	}
	for _, s := range clears {
		cleared = append(cleared, s.From, s.To)
	}
	for _, w := range writes {
		switch {
		case w.Value == nil:
			deleted = append(deleted, w.Key)
		case len(w.Value) == 0:
			void = append(void, w.Key)
		default:
			entries = append(entries, w.Key, w.Value)
		}
		if kv.IsNotice(w.Key) {
			notices = append(notices, e.channel(w.Key), w.Value)
		}
	}
	m, _ := at.(moment)
	frees := 2*(len(cleared)+len(deleted)) >= len(void)+len(entries)/2
	args := []any{m.run, m.version, frees}
	for _, list := range [][]any{keys, spans, notices, cleared, deleted, void, entries} {
		args = append(append(args, len(list)), list...)
	}
	ctx, cancel := context.WithTimeout(ctx, kv.AnswerTimeout)
	defer cancel()
	done, err := e.run(ctx, commitScript, args)
	var answer redis.Error
	switch {
	case err == nil && done == int64(1):
		return nil
	case err == nil:
		return kv.ErrConflict
	case !errors.As(err, &answer):
		return errors.Join(kv.ErrUnknown, err)
	case isAway(err): // nothing was done, and soon it can be
		return errors.Join(kv.ErrConflict, err)
	}
	return fmt.Errorf("%d writes, %d guards: %w", len(writes), len(guards), err)
}

// isAway reports whether a server may answer later instead of with this error.
func isAway(err error) bool {
	var answer redis.Error
	if errors.As(err, &answer) {
		return slices.ContainsFunc(later, func(prefix string) bool {
			return strings.HasPrefix(answer.Error(), prefix)
		})
	}
	return err != nil && !errors.Is(err, redis.ErrClosed)
}

// later begin the errors of a server that has not run a script, but may do so soon.
var later = []string{
	"LOADING", "BUSY", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "ERR max number of",
}
