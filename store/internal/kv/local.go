package kv

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
	"sync"
	"time"

	"github.com/fairq/fairq/store/internal/rows"
)

// local is the state of a process for a queue, beside the database. Its predictions may be wrong,
// because they decide only what a transaction reads ahead.
type local struct {
	mu             sync.Mutex // protects all other fields but stop
	number         uint64     // the last number given out, whether it was committed or not
	inUse          []bool     // by tally: a transaction uses it
	contendedUntil time.Time  // until then an exclusive transaction locks the queue before it begins
	failures       int        // conflicts since the last commit
	skips          skips
	likelyNext     [][]byte             // keys of tasks that are probably taken next
	mark           []byte               // of the last head
	lanes          lanes                // of the last head
	last           map[rows.Line]uint64 // the task that was put last in each line
	stop           func()               // ends the watch, nil without one

	// The numbers of two heads, and when the heads were read. The older head was read at least
	// endedLag ago. No transaction takes longer than endedLag. So each transaction that commits
	// from now on has a number greater than that of the older head.
	older, newer struct {
		at     time.Time
		number uint64
	}
}

// endedLag is the longest time that a transaction may take. View.Ended may miss the outcomes of a
// slower one.
const endedLag = 15 * time.Second

// A number has three parts, from its high bits on: clock, process and count. The clock is one more
// than the greatest committed clock when the transaction began. So a transaction that begins after
// the end of another one gets greater numbers. The process is the number of the process, modulo
// 1<<processBits. So no two processes get the same number, and none has to write to get one.
//
// Of more than 1<<processBits processes, two could get the same number. If they put tasks with the
// same ID, their transactions conflict.
const (
	countBits   = 10
	processBits = 10
	clockBits   = countBits + processBits
)

// nextNumber returns a number greater than seen, and than all numbers before it.
func (l *local) nextNumber(db *DB, seen uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.number + 1
	if n%(1<<countBits) == 0 { // no count is left: go on with the next clock
		n += 1<<clockBits - 1<<countBits
	}
	l.number = max(n, (seen>>clockBits+1)<<clockBits|db.process%(1<<processBits)<<countBits)
	return l.number
}

// acquireTally returns a tally that no other transaction of this process uses.
func (l *local) acquireTally() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n = range l.inUse {
		if !l.inUse[n] {
			l.inUse[n] = true
			return n
		}
	}
	l.inUse = append(l.inUse, true)
	return len(l.inUse) - 1
}

// releaseTally lets other transactions use the tally.
func (v *view) releaseTally() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.inUse[v.tallyIndex] = false
}

// predictHead predicts the head, so that the first read can include the tasks that will probably
// be taken.
func (l *local) predictHead() *head {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &head{mark: mark{entry: l.mark}, lanes: lanes{max(1, l.lanes.count), l.lanes.own}}
}

// noteHead notes a head for the next prediction.
func (l *local) noteHead(h *head) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mark, l.lanes = h.mark.entry, h.lanes
}

// likelyTasks returns the keys of up to n tasks that will probably be taken next.
func (l *local) likelyTasks(n int) [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clip(l.likelyNext[:min(n, len(l.likelyNext))])
}

// maxLines limits the number of lines in local.last.
const maxLines = 1 << 16

// lastPut returns the task that was put last in a line.
func (l *local) lastPut(of rows.Line) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last[of]
}

func (l *local) notePut(r *rows.Row) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil || len(l.last) >= maxLines {
		l.last = map[rows.Line]uint64{}
	}
	l.last[rows.Line{Key: r.Key, Priority: r.Priority}] = r.ID
}

// noteNumber notes the number of a head. It returns the number after which View.Ended must look
// the next time.
func (l *local) noteNumber(number uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.newer.at) >= endedLag {
		l.older = l.newer
		l.newer.at, l.newer.number = time.Now(), number
	}
	return l.older.number
}

// noteEnd notes how a transaction has ended.
func (l *local) noteEnd(exclusive, conflict bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failures++; !conflict {
		l.failures = 0
	} else if exclusive {
		l.contendedUntil = time.Now().Add(time.Second)
	}
}

func (l *local) hasFailed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failures > 0
}

// maxFailures is the number of conflicts in a row after which a process locks the queue.
const maxFailures = 5

// shouldLock reports whether a transaction should lock the queue before it begins.
func (l *local) shouldLock(exclusive bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failures >= maxFailures || exclusive && time.Now().Before(l.contendedUntil)
}

// lanes keep processes that take tasks at the same time from taking the same ones. Each task that
// can be taken is in one lane, by its ID, and each turn by its key. Each process that has taken
// tasks lately has a lane, and takes the first tasks of it. A process without a lane takes any of
// the first tasks, but no turn before others have skipped it often.
//
// The distance from the fair order is bounded. For each task that it wants, a process looks at the
// first window tasks for each lane. If too few of these tasks are in its lane, the process takes
// other ones. It takes a task from any lane after skipping the task maxSkips times. So n processes
// that take k tasks at a time take at most n*k*maxSkips others before a task, even if some
// processes stop. A process that takes alone takes in order.
type lanes struct {
	count, own int // own is -1 for a process without a lane
}

const (
	lately   = 3 * time.Second
	window   = 4
	maxSkips = 3 * window
)

// window returns the number of tasks that a process looks at for each task that it wants.
func (l lanes) window() int { return window * l.count }

// laneOf returns the lane of a name. The index entries of turns have that of their key.
func laneOf(name []byte) []byte {
	return binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(name))
}

// distance returns how far the lane of the process comes after that for a result of laneOf.
func (l lanes) distance(lane []byte) int {
	if l.own < 0 {
		return l.count
	}
	return (l.own + l.count - int(binary.BigEndian.Uint32(lane)%uint32(l.count))) % l.count
}

// skips counts how often a process has skipped each task that it could have taken. It forgets a
// task after maxSkipped other tasks were skipped without it: another process has taken that task.
type skips struct{ now, before map[uint64]int }

const maxSkipped = 10_000

func (p *skips) count(id uint64) int { return max(p.now[id], p.before[id]) }

func (p *skips) add(id uint64) {
	if len(p.now) >= maxSkipped || p.now == nil {
		p.now, p.before = map[uint64]int{}, p.now
	}
	p.now[id] = p.count(id) + 1
}
