package redis

import (
	"context"
	_ "embed" // for the scripts
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/rows"
)

// engine implements kv.Map by two scripts, which the server runs one at a time. The map is in four
// keys of the server:
//
//   - keys: a sorted set of the keys of the map, in the order of their bytes;
//   - values: a hash with the values of these keys, except empty values;
//   - recent: a sorted set of the commits of the last ten seconds: the written keys, by version;
//   - state: a hash with the newest version, and the time when the store was born.
//
// A version is the server's time in microseconds. Each commit has a greater version than the one
// before.
//
// A commit is in conflict if another commit has written a guarded key since the reads. A later
// read of a transaction must return the state of the first read. So it is in conflict if another
// commit has written one of its keys or spans since then.
//
// A failover or a restart can lose commits that a process has read. Later commits can then get the
// versions of the lost ones. But the server has another replication id after it. That id and the
// time of birth are the run of a version. The time of birth changes if all data is deleted, or if
// the clock goes back. These versions are in conflict: one of another run, one too old for recent,
// and one newer than the server's. A replica that lags behind meets the last.
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

// args returns the first arguments of a script, for run, with capacity for n more.
func (e *engine) args(m moment, n int) []any {
	args := append(make([]any, 2, 9+n), len(e.keys))
	for _, key := range e.keys {
		args = append(args, key)
	}
	return append(args, m.run, m.version)
}

// run runs a script, which the server may have to be sent first.
func (e *engine) run(ctx context.Context, s script, args []any) (any, error) {
	args[0], args[1] = "evalsha", s.Hash()
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
	args := append(e.args(m, 1+len(keys)+5*len(spans)), len(keys))
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
	values := all[2].([]any) // of the keys, then of the entries in the spans
	value := func(none []byte) []byte {
		s, ok := values[0].(string)
		if values = values[1:]; !ok {
			return none
		}
		return []byte(s)
	}
	for _, key := range keys {
		found.Keys = append(found.Keys, kv.Entry{Key: key, Value: value(nil)})
	}
	for _, page := range all[3:] {
		var p kv.Page
		for _, key := range page.([]any) {
			e := kv.Entry{Key: []byte(key.(string)), Value: value([]byte{})}
			p.Entries = append(p.Entries, e)
		}
		found.Pages = append(found.Pages, p)
	}
	return found, nil
}

// The types of an array and a string in MessagePack, followed by a length in four bytes.
const (
	array = 0xdd
	str   = 0xdb
)

// Commit implements kv.Map. A full server takes only a commit that deletes at least half as many
// keys as it writes. Such a commit may exceed maxmemory, so tasks can be taken and acked.
//
// A script changes nothing if its first write fails: the server is full, or a replica. Messages
// are published before the first write, because the user may lack that right. No process reads the
// change before the script ends.
func (e *engine) Commit(
	ctx context.Context, at any, guards []kv.Guard, clears []kv.Span, writes []*kv.Entry,
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
	wrote := binary.BigEndian.AppendUint32([]byte{array}, uint32(len(writes)))
	for _, w := range writes {
		wrote = binary.BigEndian.AppendUint32(append(wrote, str), uint32(len(w.Key)))
		wrote = append(wrote, w.Key...)
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
	args := append(e.args(m, 9+len(keys)+len(spans)+2*len(writes)), frees, wrote)
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
