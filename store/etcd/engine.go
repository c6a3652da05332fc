package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/rows"
)

// engine implements kv.Engine.
type engine struct {
	client *clientv3.Client
	prefix string
	maxOps int
	traits rows.Traits
	bounds bounds
}

// answerTimeout is how long the engine waits for an answer. A request that a server has passed on
// to the leader is lost if the leader dies; the server reports that after seven seconds. A server
// without an answer after this time is frozen or unreachable, and the client tries another one.
const answerTimeout = 8 * time.Second

// Traits implements kv.Engine.
func (e *engine) Traits() rows.Traits { return e.traits }

// Changed implements kv.Engine. The watch may have missed a change, so it returns true.
func (e *engine) Changed(context.Context) (bool, error) { return true, nil }

// Joined implements kv.Engine. There are no transactions of callers.
func (e *engine) Joined(context.Context) (kv.Txn, error) {
	return nil, nil //nolint:nilnil // the interface's way to say none
}

// Watch implements kv.Watcher. It may have missed changes before it began, and changes that were
// compacted before it saw them.
func (e *engine) Watch(ctx context.Context, from, to []byte, f func(*kv.Entry)) {
	for ctx.Err() == nil {
		changes := e.client.Watch(clientv3.WithRequireLeader(ctx), e.key(from),
			clientv3.WithRange(e.key(to)), clientv3.WithCreatedNotify())
		for r := range changes {
			if r.Created || r.Err() != nil {
				f(nil)
			}
			for _, event := range r.Events {
				if event.Type == clientv3.EventTypePut {
					f(&kv.Entry{Key: event.Kv.Key[len(e.prefix):], Value: event.Kv.Value})
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second): // the servers are away, or do not let us watch
		}
	}
}

func (e *engine) key(key []byte) string { return e.prefix + string(key) }

// Begin implements kv.Engine. The first read returns the newest revision, and later reads the same
// revision.
func (e *engine) Begin(ctx context.Context) (kv.Txn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &txn{engine: e, ctx: ctx, known: map[string]known{}}, nil
}

// txn implements kv.Txn. It buffers writes until the commit.
type txn struct {
	*engine
	ctx      context.Context
	revision int64 // of all reads, 0 before the first one
	known    map[string]known
	fetched  []fetched
	writes   []write // in the order of keys
	cleared  []span
	guards   []span
	over     bool
}

// known is a key that was read. Its revision is 0 if the key does not exist.
type known struct {
	value    []byte
	revision int64
}

// fetched has the first entries of a span, or of its first part, read ahead.
type fetched struct {
	kv.Span
	*clientv3.GetResponse
}

// write is a put, or with a nil value a delete.
type write struct{ key, value []byte }

type span struct{ from, to []byte }

func (s span) holds(key []byte) bool {
	return bytes.Compare(key, s.from) >= 0 && bytes.Compare(key, s.to) < 0
}

// at returns the index of a key in the writes, or where it would be.
func (t *txn) at(key []byte) (int, bool) {
	return slices.BinarySearchFunc(t.writes, key, func(w write, key []byte) int {
		return bytes.Compare(w.key, key)
	})
}

// Get implements kv.Txn.
func (t *txn) Get(key []byte) ([]byte, error) {
	if i, ok := t.at(key); ok {
		return t.writes[i].value, nil
	}
	if t.isCleared(key) {
		return nil, nil
	}
	err := t.Fetch([][]byte{key})
	return t.known[string(key)].value, err
}

func (t *txn) isCleared(key []byte) bool {
	return slices.ContainsFunc(t.cleared, func(s span) bool { return s.holds(key) })
}

// Fetch implements kv.Txn. It reads the part of a span that Scan would read first.
func (t *txn) Fetch(keys [][]byte, spans ...kv.Span) error {
	if t.over {
		return errOver
	}
	var ops []clientv3.Op
	var note []func(*clientv3.GetResponse)
	for _, key := range keys {
		key := string(key)
		if _, ok := t.known[key]; !ok {
			t.known[key] = known{}
			ops = append(ops, clientv3.OpGet(t.prefix+key))
			note = append(note, func(r *clientv3.GetResponse) {
				for _, e := range r.Kvs {
					t.known[key] = known{e.Value, e.ModRevision}
				}
			})
		}
	}
	for i := range spans {
		first, size := t.bounds.split(spans[i])[0], firstSize(&spans[i])
		if t.page(&first, size) != nil {
			continue
		}
		ops = append(ops, clientv3.OpGet(t.engine.key(first.From), t.span(&first, size)...))
		note = append(note, func(r *clientv3.GetResponse) {
			t.fetched = append(t.fetched, fetched{first, r})
		})
	}
	for n := 0; len(ops) > 0; ops, note = ops[n:], note[n:] {
		n = min(len(ops), t.maxOps)
		for i := range n {
			clientv3.WithRev(t.revision)(&ops[i])
		}
		var found *clientv3.TxnResponse
		err := t.exchange(func(ctx context.Context) (err error) {
			found, err = t.client.Txn(ctx).Then(ops[:n]...).Commit()
			return err
		})
		if err != nil {
			return err
		}
		t.read(found.Header.Revision)
		for i, r := range found.Responses {
			note[i]((*clientv3.GetResponse)(r.GetResponseRange()))
		}
	}
	return nil
}

// read records the revision of a read.
func (t *txn) read(revision int64) {
	if t.revision == 0 {
		t.revision = revision
	}
}

// exchange reads, and retries while a server is away or the leader changes. If the revision was
// compacted, the transaction has taken very long.
func (t *txn) exchange(read func(context.Context) error) error {
	for {
		ctx, cancel := context.WithTimeout(t.ctx, answerTimeout)
		err := read(ctx)
		cancel()
		if code := codeOf(err); code != codes.Unavailable && code != codes.DeadlineExceeded {
			if errors.Is(err, rpctypes.ErrCompacted) {
				err = errors.Join(kv.ErrConflict, err)
			}
			return t.explained(err)
		}
		if over := rows.Pause(t.ctx, 20*time.Millisecond); errors.Is(err, over) {
			return err
		} else if over != nil {
			return fmt.Errorf("%w: %w", over, err)
		}
	}
}

func codeOf(err error) codes.Code {
	var e rpctypes.EtcdError
	switch {
	case errors.As(err, &e):
		return e.Code()
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	}
	return status.Code(err)
}

// Guard implements kv.Txn.
func (t *txn) Guard(from, to []byte) {
	t.guards = append(t.guards, span{bytes.Clone(from), bytes.Clone(to)})
}

// Put implements kv.Txn.
func (t *txn) Put(key, value []byte) error {
	if value == nil {
		value = []byte{}
	}
	return t.write(key, value)
}

// Delete implements kv.Txn.
func (t *txn) Delete(key []byte) error { return t.write(key, nil) }

func (t *txn) write(key, value []byte) error {
	if t.over {
		return errOver
	}
	i, ok := t.at(key)
	if !ok {
		t.writes = slices.Insert(t.writes, i, write{key: bytes.Clone(key)})
	}
	t.writes[i].value = value
	return nil
}

// Clear implements kv.Txn.
func (t *txn) Clear(from, to []byte) error {
	if t.over {
		return errOver
	}
	s := span{bytes.Clone(from), bytes.Clone(to)}
	t.writes = slices.DeleteFunc(t.writes, func(w write) bool { return s.holds(w.key) })
	t.cleared = append(t.cleared, s)
	return nil
}

// Commit implements kv.Txn.
func (t *txn) Commit() error {
	switch {
	case t.over:
		return errOver
	case t.ctx.Err() != nil:
		return t.ctx.Err()
	}
	if t.writes == nil && t.cleared == nil {
		t.over = true
		return nil
	}
	t.over = true
	compares := t.compares()
	var ops []clientv3.Op
	for _, s := range t.cleared {
		ops = append(ops, clientv3.OpDelete(t.engine.key(s.from),
			clientv3.WithRange(t.engine.key(s.to))))
	}
	for _, w := range t.writes {
		if w.value == nil {
			ops = append(ops, clientv3.OpDelete(t.engine.key(w.key)))
		} else {
			ops = append(ops, clientv3.OpPut(t.engine.key(w.key), string(w.value)))
		}
	}
	if n := max(len(ops), len(compares)); n > t.maxOps {
		return fmt.Errorf("the transaction has %d operations, must have at most %d, "+
			"which is Options.MaxOps",
			n, t.maxOps)
	}
	ctx, cancel := context.WithTimeout(t.ctx, answerTimeout)
	defer cancel()
	done, err := t.client.Txn(ctx).If(compares...).Then(ops...).Commit()
	switch {
	case errors.Is(err, rpctypes.ErrTooManyRequests): // nothing was done, and soon it can be
		return errors.Join(kv.ErrConflict, err)
	case errors.Is(err, rpctypes.ErrNoSpace): // the write that exceeds the quota is done
		return fmt.Errorf("%w: %w", kv.ErrFull, err)
	case err != nil && definite(err):
		return fmt.Errorf("%d writes, %d guards: %w", len(ops), len(compares), t.explained(err))
	case err != nil:
		return errors.Join(kv.ErrUnknown, err)
	case !done.Succeeded:
		return kv.ErrConflict
	}
	return nil
}

// compares returns the conditions of the commit. A key that was read must have the revision that
// was read. Guarded keys that were not read, and keys of guarded spans, must not be newer than the
// transaction. So deleting an unread key is no conflict: callers guard a key without reading it
// only if nobody deletes it.
func (t *txn) compares() (all []clientv3.Cmp) {
	seen := map[string]bool{}
	for _, g := range t.guards {
		id := string(g.from) + "\x00" + string(g.to)
		if seen[id] {
			continue
		}
		seen[id] = true
		revision := clientv3.ModRevision(t.engine.key(g.from))
		switch read, ok := t.known[string(g.from)]; {
		case g.to != nil:
			all = append(all, clientv3.Compare(revision, "<", t.revision+1).WithRange(t.engine.key(g.to)))
		case ok:
			all = append(all, clientv3.Compare(revision, "=", read.revision))
		default:
			all = append(all, clientv3.Compare(revision, "<", t.revision+1))
		}
	}
	return all
}

// explained adds to an error the option that the servers contradict by it.
func (e *engine) explained(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrTooManyOps):
		return fmt.Errorf("%w: Options.MaxOps is %d, must be at most the servers' --max-txn-ops", err,
			e.maxOps)
	case errors.Is(err, rpctypes.ErrRequestTooLarge) || isTooLarge(err):
		return fmt.Errorf("%w: Options.MaxPayload must be at most two thirds of the servers' "+
			"--max-request-bytes and of the client's MaxCallSendMsgSize", err)
	}
	return err
}

// isTooLarge reports whether the client has refused to send a request.
func isTooLarge(err error) bool {
	return codeOf(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "larger than max")
}

// definite reports whether an error means that nothing was done.
func definite(err error) bool {
	for _, e := range []error{
		rpctypes.ErrTooManyOps, rpctypes.ErrRequestTooLarge, rpctypes.ErrDuplicateKey,
		rpctypes.ErrPermissionDenied, rpctypes.ErrAuthFailed,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return codeOf(err) == codes.InvalidArgument || isTooLarge(err)
}

// Rollback implements kv.Txn.
func (t *txn) Rollback() { t.over = true }

var errOver = errors.New("the transaction is over")
