package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/rows"
)

// engine implements kv.Map.
type engine struct {
	client *clientv3.Client
	prefix string
	maxOps int
	traits rows.Traits
	bounds bounds
}

// Traits implements kv.Map.
func (e *engine) Traits() rows.Traits { return e.traits }

// Watch implements kv.Map. It may have missed changes before it began, and changes that were
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

// Read implements kv.Map. The first read of a transaction returns the newest revision. Later reads
// return the same revision. Of each span Read reads the part that bounds has chosen.
func (e *engine) Read(
	ctx context.Context, at any, keys [][]byte, spans []kv.Span,
) (found kv.Found, err error) {
	var ops []clientv3.Op
	for _, key := range keys {
		ops = append(ops, clientv3.OpGet(e.key(key)))
	}
	found.Pages = make([]kv.Page, len(spans))
	for i := range spans {
		first := spans[i]
		first.From, first.To, found.Pages[i].Next = e.bounds.split(&spans[i])
		ops = append(ops, clientv3.OpGet(e.key(first.From), e.span(&first)...))
	}
	revision, _ := at.(int64)
	var all []*clientv3.GetResponse
	for len(ops) > 0 {
		some := ops[:min(len(ops), e.maxOps)]
		ops = ops[len(some):]
		for i := range some {
			clientv3.WithRev(revision)(&some[i])
		}
		var r *clientv3.TxnResponse
		err := e.exchange(ctx, func(ctx context.Context) (err error) {
			r, err = e.client.Txn(ctx).Then(some...).Commit()
			return err
		})
		if err != nil {
			return found, err
		}
		revision = cmp.Or(revision, r.Header.Revision)
		for _, one := range r.Responses {
			all = append(all, (*clientv3.GetResponse)(one.GetResponseRange()))
		}
	}
	found.At, found.Keys = revision, make([]kv.Entry, len(keys))
	for i, r := range all[:len(keys)] {
		for _, one := range e.entries(r) {
			found.Keys[i] = one
		}
	}
	for i, r := range all[len(keys):] {
		p, s := &found.Pages[i], &spans[i]
		if (p.Next == nil || s.Limit >= lookAhead) && err == nil {
			err = e.learn(ctx, s, r, revision)
		}
		if p.Entries = e.entries(r); len(p.Entries) == s.Limit {
			p.Next = nil
		}
	}
	return found, err
}

// entries returns the entries of a response.
func (e *engine) entries(r *clientv3.GetResponse) (all []kv.Entry) {
	for _, one := range r.Kvs {
		if one.Value == nil {
			one.Value = []byte{}
		}
		all = append(all, kv.Entry{
			Key: one.Key[len(e.prefix):], Value: one.Value, Revision: one.ModRevision,
		})
	}
	return all
}

// span returns the options that make a read return the first entries of a span.
func (e *engine) span(s *kv.Span) []clientv3.OpOption {
	order := clientv3.SortAscend
	if s.Desc {
		order = clientv3.SortDescend
	}
	return []clientv3.OpOption{
		clientv3.WithRange(e.key(s.To)), clientv3.WithLimit(int64(s.Limit)),
		clientv3.WithSort(clientv3.SortByKey, order),
	}
}

// exchange reads, and retries while a server is away or the leader changes. If the revision was
// compacted, the transaction has taken very long.
func (e *engine) exchange(ctx context.Context, read func(context.Context) error) error {
	err := kv.Exchange(ctx, isAway, read)
	if errors.Is(err, rpctypes.ErrCompacted) {
		err = errors.Join(kv.ErrConflict, err)
	}
	return e.explained(err)
}

func isAway(err error) bool {
	code := codeOf(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded
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

// Commit implements kv.Map. A key that was read must still have its revision. Another guarded key
// must not have a newer revision than the reads. A deleted key has no revision, so Commit
// overlooks the deletion of a key that was not read. Callers guard a key without reading it only
// if nobody deletes it.
func (e *engine) Commit(
	ctx context.Context, at any, guards []kv.Guard, clears []kv.Span, writes []*kv.Entry,
) error {
	newest, _ := at.(int64)
	var compares []clientv3.Cmp
	for _, g := range guards {
		revision := clientv3.ModRevision(e.key(g.From))
		compare := clientv3.Compare(revision, "<", newest+1)
		switch {
		case g.Revision >= 0:
			compare = clientv3.Compare(revision, "=", g.Revision)
		case g.To != nil:
			compare = compare.WithRange(e.key(g.To))
		}
		compares = append(compares, compare)
	}
	var ops []clientv3.Op
	for _, s := range clears {
		ops = append(ops, clientv3.OpDelete(e.key(s.From), clientv3.WithRange(e.key(s.To))))
	}
	for _, w := range writes {
		if w.Value == nil {
			ops = append(ops, clientv3.OpDelete(e.key(w.Key)))
		} else {
			ops = append(ops, clientv3.OpPut(e.key(w.Key), string(w.Value)))
		}
	}
	if n := max(len(ops), len(compares)); n > e.maxOps {
		return fmt.Errorf("the transaction has %d operations, must have at most %d, "+
			"which is Options.MaxOps",
			n, e.maxOps)
	}
	ctx, cancel := context.WithTimeout(ctx, kv.AnswerTimeout)
	defer cancel()
	done, err := e.client.Txn(ctx).If(compares...).Then(ops...).Commit()
	switch {
	case errors.Is(err, rpctypes.ErrTooManyRequests): // nothing was done, and soon it can be
		return errors.Join(kv.ErrConflict, err)
	case errors.Is(err, rpctypes.ErrNoSpace): // the write that exceeds the quota is done
		return fmt.Errorf("%w: %w", kv.ErrFull, err)
	case err != nil && definite(err):
		return fmt.Errorf("%d writes, %d guards: %w", len(ops), len(compares), e.explained(err))
	case err != nil:
		return errors.Join(kv.ErrUnknown, err)
	case !done.Succeeded:
		return kv.ErrConflict
	}
	return nil
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
