package storetest

import (
	"context"
	"sync"
	"time"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/task"
)

// watched is a Store whose calls of Tick are counted: they are all that an open queue costs if
// nothing is done with it.
type watched struct {
	task.Store
	ticks *ticks
}

func (w watched) Open(
	ctx context.Context, name string, s driver.Settings, n driver.Notifier,
) (driver.Backend, error) {
	b, err := w.Store.Open(ctx, name, s, n)
	return watchedBackend{b, w.ticks}, err
}

type watchedBackend struct {
	driver.Backend
	ticks *ticks
}

func (b watchedBackend) Tick(ctx context.Context) (time.Time, error) {
	if b.ticks.add() {
		return time.Time{}, nil // so that time can pass, and the case can end
	}
	return b.Backend.Tick(ctx)
}

type ticks struct {
	mu     sync.Mutex
	n      int
	now    time.Time
	atOnce int // those of now
}

// mostAtOnce is how many calls of Tick are taken for a loop that does not end if no time passes
// between them.
const mostAtOnce = 20_000

// add counts a call of Tick, and reports whether there are too many.
func (t *ticks) add() (tooMany bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
	if now := time.Now(); !now.Equal(t.now) {
		t.now, t.atOnce = now, 0
	}
	t.atOnce++
	return t.atOnce > mostAtOnce
}

func (t *ticks) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n
}

// idles checks that the queue, which is left alone, does next to nothing, whatever has happened to
// it. It may look after its leases, but not more often than a few times in each second.
func (q *queue) idles() {
	q.e.Helper()
	time.Sleep(time.Second) // due changes happen
	before := q.ticks.count()
	time.Sleep(time.Minute)
	if n := q.ticks.count() - before; n > 5*60 {
		q.e.Fatalf("Tick was called %d times in a minute in which nobody used the queue", n)
	}
}
