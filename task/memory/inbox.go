package memory

import (
	"sync"
	"sync/atomic"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/share"
	"github.com/fairq/fairq/task/driver"
)

// inbox has tasks that were put without the lock of the queue. To accept a plain task takes no more
// than an id and room, so those who put need not wait for those who take and settle, and do not
// fetch what these work with into another cache. Whoever locks the queue adds the tasks that are
// there before it does anything else. So to all calls it is as if each task had been added at once.
type inbox struct {
	len atomic.Int32 // of puts, to be read without mu

	// mu protects all that follows. It is locked after queue.mu, and while a task is put in whatever
	// way, so that tasks are added in the order of their ids.
	mu          sync.Mutex
	last        driver.ID // the last id that was given to a task
	room        int       // how many more tasks the inbox takes; queue.mu is needed to make it more
	puts, other []arrival // other is puts as it was emptied last
	spare       []*item
}

// arrival is a task in the inbox.
type arrival struct {
	*item
	key    string
	weight int
}

// maxInbox is how many tasks an inbox has at most.
const maxInbox = 64

// putPlain puts a task into the inbox, if that may be. Nothing of such a task can be refused or told,
// or happens by itself.
func (q *queue) putPlain(n *driver.New, now int64) (id driver.ID, ok bool) {
	if n.UniqueKey != "" || n.Group != "" || n.Delay != 0 || n.TTL != 0 || !n.Deadline.IsZero() || n.Metadata != nil {
		return 0, false
	}
	in := &q.inbox
	in.mu.Lock()
	if listens, waits := q.interest(); in.room <= 0 || listens || waits {
		in.mu.Unlock()
		return 0, false
	}
	in.room--
	in.last++
	id = in.last
	it := newItem(&in.spare, n, id, now)
	it.Put(n, now)
	in.puts = append(in.puts, arrival{it, n.Key, n.Weight})
	in.len.Store(int32(len(in.puts)))
	_, waits := q.interest() // who has begun to wait may have looked before: see driver.Interest
	in.mu.Unlock()
	if waits {
		q.lock() // tells him
		q.exit()
	}
	return id, true
}

// addPuts adds what is in the inbox, and counts anew how many tasks that may take.
func (q *queue) addPuts() {
	in := &q.inbox
	in.mu.Lock()
	puts := in.empty()
	in.room = q.roomInInbox(len(puts))
	if len(in.spare) == 0 {
		in.spare, q.spare = q.spare, in.spare
	}
	in.mu.Unlock()
	q.addAll(puts)
}

// empty takes out what is in the inbox. It is called with both locks, and what it returns is valid
// until the next call.
func (in *inbox) empty() []arrival {
	puts := in.puts
	in.puts, in.other = in.other[:0], puts
	in.len.Store(0)
	return puts
}

func (q *queue) addAll(puts []arrival) {
	for _, a := range puts {
		q.add(a.item, a.key, a.weight, driver.Ready)
	}
	clear(puts)
}

// roomInInbox returns how many tasks the inbox may take, if so many more are about to be added: as
// many as are refused in no case, until it is called again. So it counts all tasks, whatever their
// states: only a put makes these more.
func (q *queue) roomInInbox(more int) int {
	capacity := q.settings.Capacity
	switch {
	case q.dropped, q.settings.KeyCapacity < capacity, q.settings.WhenFull >= fairq.EvictHeaviest:
		return 0
	case q.settings.WhenFull == fairq.RejectOverShare:
		capacity = share.Matters(capacity)
	}
	return min(capacity-q.tasks[0]-more, maxInbox)
}

// setNotifiers changes who is told of what happens.
func (q *queue) setNotifiers(all []notifier) {
	q.inbox.mu.Lock()
	q.notifiers = all
	q.inbox.mu.Unlock()
}
