package postgres

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	notifyEvery = 5 * time.Millisecond // at most, and for each queue
	minBackoff  = 50 * time.Millisecond
	maxBackoff  = 5 * time.Second
)

// notifier notifies other processes of changed queues, and listens to them.
//
// A notification is not part of its transaction, because NOTIFY takes a lock of the whole server
// at the commit, so all commits would wait for each other. The process sends it right after the
// commit. If it dies in between, waiting calls notice the change when they poll. Only in a
// transaction of the caller's, whose end this process does not see, the notification is a part of
// it, and this process heeds it too.
type notifier struct {
	db       *database
	channel  string
	process  string // a random name in each notification, by which we skip our own
	onChange func(queue uint64)

	ctx    context.Context // done when the database is closed
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex // protects what follows
	changed map[uint64]bool
	running bool // there is a goroutine in send
	closed  bool
}

func newNotifier(db *database, onChange func(uint64)) *notifier {
	n := &notifier{
		db: db, onChange: onChange, process: strconv.FormatUint(rand.Uint64(), 36),
		changed: map[uint64]bool{},
	}
	h := fnv.New64a()
	h.Write([]byte(db.schema))
	n.channel = fmt.Sprintf("fairq_%x", h.Sum64())
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.wg.Go(n.listen)
	return n
}

func (n *notifier) close() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.cancel()
	n.wg.Wait()
}

func notification(process string, queue uint64) string {
	return process + " " + strconv.FormatUint(queue, 10)
}

// notify notifies other processes of a changed queue: immediately, or after a pause since the last
// notification. It does not block.
func (n *notifier) notify(queue uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	n.changed[queue] = true
	if !n.running {
		n.running = true
		n.wg.Go(n.send)
	}
}

// send sends notifications as long as there are any. A failed one is lost, which is harmless
// because waiting calls also poll.
func (n *notifier) send() {
	for {
		n.mu.Lock()
		var texts []string
		for queue := range n.changed {
			texts = append(texts, notification(n.process, queue))
		}
		clear(n.changed)
		n.running = texts != nil
		n.mu.Unlock()
		if texts == nil {
			return
		}
		_, _ = n.db.pool.Exec(n.ctx, "SELECT pg_notify($1, t) FROM unnest($2::text[]) t", n.channel,
			texts)
		select {
		case <-n.ctx.Done():
		case <-time.After(notifyEvery):
		}
	}
}

// listen listens to other processes until the database is closed. Notifications without a
// connection are lost, so after each new connection all queues count as changed.
func (n *notifier) listen() {
	for backoff := minBackoff; n.ctx.Err() == nil; backoff = min(2*backoff, maxBackoff) {
		if n.listenOnce() {
			backoff = minBackoff
		}
		select {
		case <-n.ctx.Done():
		case <-time.After(backoff/2 + rand.N(backoff)):
		}
	}
}

// listenOnce listens until the connection breaks. It reports whether there was one.
func (n *notifier) listenOnce() bool {
	conn, err := pgx.ConnectConfig(n.ctx, n.db.pool.Config().ConnConfig)
	if err != nil {
		return false
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if _, err := conn.Exec(n.ctx, "LISTEN "+n.channel); err != nil {
		return false
	}
	n.onChange(0)
	for {
		notification, err := conn.WaitForNotification(n.ctx)
		if err != nil {
			return true
		}
		process, queue, _ := strings.Cut(notification.Payload, " ")
		if id, err := strconv.ParseUint(queue, 10, 64); err == nil && process != n.process {
			n.onChange(id)
		}
	}
}
