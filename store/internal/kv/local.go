package kv

import (
	"encoding/binary"
	"hash/crc32"
	"sync"
	"time"

	"github.com/fairq/fairq/store/internal/rows"
)

// local is what a process knows of a queue beyond what is in the database.
type local struct {
	mu        sync.Mutex // protects all
	number    uint64     // the last one that was given, whatever became of the transaction
	using     []bool     // tallies, by those who run now
	contended time.Time  // until then, who wants to be alone locks the queue at once
	failures  int        // conflicts since a transaction was committed
	passed    passed
	coming    [][]byte // the keys of tasks that are probably taken next
	mark      []byte   // as it was in the last head, with the lanes
	lanes     lanes
	rounds    map[rows.Line]uint64 // the last ones that were found, or put; see view.LastRound
	stop      func()               // ends what watches, nil if nothing does; not protected

	// What was committed longer ago than marksLag has a lower number than the older one.
	older, newer struct {
		at     time.Time
		number uint64
	}
}

// marksLag is how long a transaction may take for View.Ended not to miss what it writes.
const marksLag = 15 * time.Second

// A number is, from its high bits on: one more than the greatest that was committed when the
// transaction began; by which process, of up to 1<<processBits with different ones; and a count.
// So numbers are in the order of transactions that do not run at the same time, nothing is
// written to get one, and no two processes have the same. (Of more processes than that two could
// have. If these then put tasks with the same ID, they conflict.)
const (
	countBits   = 10
	processBits = 10
	clockBits   = countBits + processBits
)

// next returns a number that is greater than one that was seen.
func (l *local) next(db *DB, seen uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.number + 1
	if n%(1<<countBits) == 0 { // all of these were given: the next are those of a later time
		n += 1<<clockBits - 1<<countBits
	}
	l.number = max(n, (seen>>clockBits+1)<<clockBits|db.process%(1<<processBits)<<countBits)
	return l.number
}

// use returns which tally a transaction uses, one that no other one of this process uses now.
func (l *local) use() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n = range l.using {
		if !l.using[n] {
			l.using[n] = true
			return n
		}
	}
	l.using = append(l.using, true)
	return len(l.using) - 1
}

// free lets others use the tally.
func (v *view) free() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.using[v.n] = false
}

// guess returns what a head will probably be, as far as that decides what is read with it.
func (l *local) guess() *head {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &head{mark: mark{entry: l.mark}, lanes: lanes{max(1, l.lanes.all), l.lanes.own}}
}

// saw notes what the head is.
func (l *local) saw(h *head) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mark, l.lanes = h.mark.entry, h.lanes
}

// likely returns the keys of up to n tasks that will probably be taken.
func (l *local) likely(n int) [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.coming[:min(n, len(l.coming))]
}

// maxRounds is of how many lines the last round is known at most.
const maxRounds = 1 << 16

func (l *local) knownRound(of rows.Line) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rounds[of]
}

// knowRound notes the last round of a line. 0 means that none is known.
func (l *local) knowRound(of rows.Line, round uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case round == 0:
		delete(l.rounds, of)
		return
	case l.rounds == nil || len(l.rounds) >= maxRounds:
		l.rounds = map[rows.Line]uint64{}
	}
	l.rounds[of] = round
}

// seen returns from which number on View.Ended must look, after number was seen.
func (l *local) seen(number uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.newer.at) >= marksLag {
		l.older = l.newer
		l.newer.at, l.newer.number = time.Now(), number
	}
	return l.older.number
}

// ended notes how a transaction has ended.
func (l *local) ended(alone, conflict bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failures++; !conflict {
		l.failures = 0
	} else if alone {
		l.contended = time.Now().Add(time.Second)
	}
}

func (l *local) hasFailed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failures > 0
}

// maxFailures is how many conflicts in a row have a process lock the queue.
const maxFailures = 5

func (l *local) isContended(alone bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failures >= maxFailures || alone && time.Now().Before(l.contended)
}

// lanes keep processes that take at the same time from taking the same tasks. Each task that can be
// taken is in one of them, by its ID, and each process that has taken something lately has one, of
// which it takes the first tasks. Whoever has none yet takes any of the first ones.
//
// How far that is from the order: a process looks at the first tasks only, window for each that it
// wants and each lane. If too few of them are in its lane, it takes any others. What it has passed
// over maxTimesPassed times it takes, whoever's it is. So n processes that take k tasks at a time
// pass a task over by n*k*maxTimesPassed others at most, also if some of them stop. A process that
// takes alone takes in order.
type lanes struct {
	all, own int // own is -1 if it has none
}

const (
	lately         = 3 * time.Second
	window         = 4
	maxTimesPassed = 3 * window
)

// window returns how many tasks a process looks at for each that it wants.
func (l lanes) window() int { return window * l.all }

// laneOf returns the value of the entry of a task that can be taken where lanes are of keys.
func laneOf(key string) []byte {
	return binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE([]byte(key)))
}

// has tells whether a task is in the lane of the process.
func (l lanes) has(h hit[rows.Row]) bool {
	n := id(h) * 0x9e3779b97f4a7c15 >> 40
	if len(h.value) == 4 {
		n = uint64(binary.BigEndian.Uint32(h.value))
	}
	return int(n%uint64(l.all)) == l.own
}

// passed counts how often a process has passed over tasks that it could have taken. Those that it
// has not for as long as it took to pass over maxPassed others are forgotten: somebody has taken them.
type passed struct{ now, before map[uint64]int }

const maxPassed = 10_000

func (p *passed) times(id uint64) int { return max(p.now[id], p.before[id]) }

func (p *passed) add(id uint64) {
	if len(p.now) >= maxPassed || p.now == nil {
		p.now, p.before = map[uint64]int{}, p.now
	}
	p.now[id] = p.times(id) + 1
}
