package memory

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/life"
)

// inbox has tasks that were put without the lock of the queue. A plain task needs only an id and
// room. So its Put need not wait for calls that take and settle, and does not fetch their memory
// into another cache. Each call that locks the queue first adds the tasks of the inbox, and no
// task enters the inbox while another Put has the lock. So the result is the same as if each task
// had been added at its Put.
type inbox struct {
	count atomic.Int32 // len(puts), read without mu

	// mu protects all fields that follow. It is locked after queue.mu, by beginPut too.
	mu    sync.Mutex
	last  driver.ID // the last id that was given to a task
	free  int       // the number of tasks that may still enter; only with queue.mu may it grow
	puts  []arrival
	added []arrival // the last puts, protected by queue.mu, to be used for puts again
}

// arrival is a plain task that was put. It is small, because one processor may write it and
// another one read it.
type arrival struct {
	id          driver.ID
	key, kind   string
	payload     any
	ttr         time.Duration
	created     int64
	weight      int32
	maxAttempts int32
	cost        uint32
	priority    int16
	learned     bool
}

// set sets all fields in place, because the processor stalls when it copies a struct that it has
// just written field by field.
func (a *arrival) set(n *driver.New, id driver.ID, now int64) {
	a.id, a.key, a.kind, a.payload, a.ttr, a.created = id, n.Key, n.Kind, n.Payload, n.TTR, now
	a.weight, a.maxAttempts, a.cost = int32(n.Weight), int32(n.MaxAttempts), uint32(n.Cost)
	a.priority, a.learned = int16(n.Priority), n.Learned
}

// maxInbox is the greatest number of tasks in an inbox.
const maxInbox = 64

// putPlain puts a task into the inbox if it is ready at once, has no timers, can be refused only
// for lack of room, and no notifier must hear of it.
func (q *queue) putPlain(n *driver.New, now int64) (id driver.ID, ok bool) {
	if isRare(n) || n.Delay != 0 || n.TTL != 0 {
		return 0, false
	}
	in := &q.inbox
	in.mu.Lock()
	if listens, waits := q.interest(); in.free <= 0 || listens || waits {
		in.mu.Unlock()
		return 0, false
	}
	in.free--
	in.last++
	id = in.last
	in.puts = append(in.puts, arrival{})
	in.puts[len(in.puts)-1].set(n, id, now)
	in.count.Store(int32(len(in.puts)))
	// A caller that waits already may have looked before the task was there, so it must be notified.
	// A caller that begins to wait after this will look, and find the task: see driver.Interest.
	_, waits := q.interest()
	in.mu.Unlock()
	if waits {
		q.lock()
		q.exit()
	}
	return id, true
}

// beginPut is called for a Put with the lock of the queue. It locks the inbox, and adds its tasks
// to the queue. So tasks are added in the order of their ids, and a batch is put as a whole.
func (q *queue) beginPut() {
	q.inbox.mu.Lock()
	q.add(q.inbox.takeOut())
}

func (q *queue) endPut() {
	q.inbox.free = q.freeInInbox(0)
	q.inbox.mu.Unlock()
}

// emptyInbox adds the tasks of the inbox, and computes again how many may enter it.
func (q *queue) emptyInbox() {
	q.inbox.mu.Lock()
	puts := q.inbox.takeOut()
	q.inbox.free = q.freeInInbox(len(puts))
	q.inbox.mu.Unlock()
	q.add(puts)
}

// takeOut takes all tasks out of the inbox. It is called with both locks, and its result is valid
// until the next call.
func (in *inbox) takeOut() []arrival {
	puts := in.puts
	in.puts, in.added = in.added[:0], puts
	in.count.Store(0)
	return puts
}

// plain stands for the options of a task in the inbox.
var plain driver.New

// add adds tasks that were in the inbox. Changes that were due before the Put of a task come
// first.
func (q *queue) add(puts []arrival) {
	most := timersPerCall
	for i := range puts {
		most = q.advance(puts[i].created, most)
		it := q.newItem(&puts[i])
		q.set(it, it.Put(&plain, false, it.created))
	}
	clear(puts)
}

// freeInInbox returns how many tasks may enter the inbox, if more is the number of tasks that are
// about to be added from it. The queue must have room for them whenever they are added, until
// freeInInbox is called again. So it counts tasks in all states, because only a Put increases
// their number.
func (q *queue) freeInInbox(more int) int {
	if q.dropped {
		return 0
	}
	return min(life.Free(&q.settings, q.tasks[0]+more), maxInbox)
}

// setNotifiers replaces the notifiers.
func (q *queue) setNotifiers(all []notifier) {
	q.inbox.mu.Lock()
	q.notifiers = all
	q.inbox.mu.Unlock()
}
