package memory

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairq/fairq/internal/life"
	"github.com/fairq/fairq/task/driver"
)

// inbox has tasks that were put without the lock of the queue. To accept a plain task takes no more
// than an id and room, so those who put need not wait for those who take and settle, and do not
// fetch what these work with into another cache. Each call that locks the queue adds what is in the
// inbox before it does anything else, and no more task gets in while others are put in another way.
// So it is as if each task had been added when it was put.
type inbox struct {
	count atomic.Int32 // len(puts), to be read without mu

	// mu protects all that follows. It is locked after queue.mu, by beginPut too.
	mu    sync.Mutex
	last  driver.ID // the last id that was given to a task
	free  int       // how many more tasks the inbox takes; to make it more takes queue.mu too
	puts  []arrival
	added []arrival // puts until it was emptied; protected by queue.mu, and used for puts next time
}

// arrival is a task that was put, but for what few tasks have. It is small, as it may be written in
// one cache and read in another.
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

// set makes it that of a task. It is not made elsewhere and copied: the processor waits if it is to
// read at once what it has just written in smaller pieces.
func (a *arrival) set(n *driver.New, id driver.ID, now int64) {
	a.id, a.key, a.kind, a.payload, a.ttr, a.created = id, n.Key, n.Kind, n.Payload, n.TTR, now
	a.weight, a.maxAttempts, a.cost, a.priority = int32(n.Weight), int32(n.MaxAttempts), uint32(n.Cost), int16(n.Priority)
	a.learned = n.Learned
}

// maxInbox is how many tasks an inbox has at most.
const maxInbox = 64

// putPlain puts a task into the inbox, if it is one that is ready at once, of which nothing happens
// by itself, that only a lack of room can refuse, and if nobody is to be told of it.
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
	// Who has begun to wait since may have looked before the task was there, so he must be told. Who
	// begins after this looks after it: see driver.Interest.
	_, waits := q.interest()
	in.mu.Unlock()
	if waits {
		q.lock()
		q.exit()
	}
	return id, true
}

// beginPut locks the inbox for those who put with the lock of the queue, and adds what is in it, so
// that tasks are added in the order of their ids, and a batch is put as a whole.
func (q *queue) beginPut() {
	q.inbox.mu.Lock()
	q.add(q.inbox.takeOut())
}

func (q *queue) endPut() {
	q.inbox.free = q.freeInInbox(0)
	q.inbox.mu.Unlock()
}

// emptyInbox adds what is in the inbox, and finds out anew how many tasks that may take.
func (q *queue) emptyInbox() {
	q.inbox.mu.Lock()
	puts := q.inbox.takeOut()
	q.inbox.free = q.freeInInbox(len(puts))
	q.inbox.mu.Unlock()
	q.add(puts)
}

// takeOut takes all tasks out of the inbox. It is called with both locks, and what it returns is
// valid until the next call.
func (in *inbox) takeOut() []arrival {
	puts := in.puts
	in.puts, in.added = in.added[:0], puts
	in.count.Store(0)
	return puts
}

// plain is what the rules must know of a task in the inbox.
var plain driver.New

// add adds tasks that were in the inbox. What was due before one of them was put happens before it.
func (q *queue) add(puts []arrival) {
	most := timersPerCall
	for i := range puts {
		most = q.advance(puts[i].created, most)
		it := q.newItem(&puts[i])
		q.set(it, it.Put(&plain, it.created))
	}
	clear(puts)
}

// freeInInbox returns how many tasks the inbox may take, if so many more are about to be added: as
// many as are refused in no case until it is called again. So it counts all tasks, whatever their
// states: only a put makes these more.
func (q *queue) freeInInbox(more int) int {
	if q.dropped {
		return 0
	}
	return min(life.Free(&q.settings, q.tasks[0]+more), maxInbox)
}

// setNotifiers changes who is told of what happens.
func (q *queue) setNotifiers(all []notifier) {
	q.inbox.mu.Lock()
	q.notifiers = all
	q.inbox.mu.Unlock()
}
