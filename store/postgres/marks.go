package postgres

import (
	"errors"
	"sync"
	"time"

	"github.com/fairq/fairq/store/internal/columns"
	"github.com/fairq/fairq/store/internal/rows"
)

// Marks are low-water marks: no task or turn of a priority that can be taken comes before its
// mark, so a search begins there. For searches of kinds, each kind has its own.
//
// Rows are taken at the front of an index. The old entries stay there as long as any transaction
// in the database, however old, could still see them. A search from the beginning must pass all
// of them. As long as that is fast, marks are not used at all.
//
// Marks are right for all processes. A mark moves forward only in a transaction that is alone in
// the queue, and not beyond the round being served. So no other transaction is about to put a row
// before it. A later transaction may put a row into a round that is being served, or was: then it
// moves the mark back.
type marks struct {
	slow time.Duration
	step int // the number of rows to find before the marks move

	mu     sync.Mutex // protects queues
	queues map[uint64]queueMarks
}

type queueMarks struct {
	used  bool      // a search was slow: searches begin at the marks
	slow  bool      // so was the last one
	found int       // rows since the marks were moved
	moved time.Time // when that was
}

// uses reports whether searches begin at the marks.
func (m *marks) uses(queue uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.queues[queue].used
}

// mustMove reports whether it is time to move the marks. The caller tries it.
func (m *marks) mustMove(queue uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := m.queues[queue]
	isTime := q.used && (q.found >= m.step || q.slow && time.Since(q.moved) >= time.Second)
	if isTime {
		q.found, q.moved = 0, time.Now()
		m.queues[queue] = q
	}
	return isTime
}

// searched notes how long a search took. 50 µs for each row do not count as passing dead entries.
func (m *marks) searched(queue uint64, s *search, marked bool, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.queues == nil {
		m.queues = map[uint64]queueMarks{}
	}
	q, n := m.queues[queue], len(s.places())
	q.slow = took-time.Duration(n)*50*time.Microsecond >= m.slow
	q.used, q.found = q.used || q.slow || marked, q.found+n
	m.queues[queue] = q
}

// forget forgets a queue.
func (m *marks) forget(queue uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.queues, queue)
}

// segment is a part of an index with a mark: a priority in the index of a name, see search.
type segment struct {
	name     string
	priority int
}

type position struct{ round, place uint64 }

func (p position) before(q position) bool {
	return p.round < q.round || p.round == q.round && p.place < q.place
}

var (
	markColumns = []columns.Column{
		{Name: "priority", Int: true},
		{Name: "round", Int: true},
		{Name: "place", Int: true},
		{Name: "name"},
	}

	sqlSetMark = withRows(markColumns, `
INSERT INTO fairq.marks (queue, name, priority, round, place)
SELECT $1, name, priority, round, place FROM %s
ON CONFLICT (queue, name, priority) DO UPDATE SET round = excluded.round, place = excluded.place`)

	sqlMarkBack = withRows(markColumns, `
UPDATE fairq.marks m SET round = u.round, place = u.place
FROM (SELECT DISTINCT ON (name, priority) * FROM %s ORDER BY name, priority, round, place) u
WHERE m.queue = $1 AND m.name = u.name AND m.priority = u.priority
	AND (m.round, m.place) > (u.round, u.place)`)
)

// errMoving is the error of a transaction that would move marks. The next one need not be alone.
var errMoving = errors.New("the marks are being moved")

const sqlMarked = "UPDATE fairq.queues SET marked = true WHERE id = $1"

// maxMarks is the greatest number of marks that are moved at once.
const maxMarks = 256

// moveMarksBack moves the marks of these names back to a row that can be taken, and may be before
// them.
func (v *view) moveMarksBack(priority int, round, place uint64, names ...string) {
	if !v.marked || round > v.savedHead.Rounds[priority] {
		return
	}
	for _, name := range names {
		v.buffer(sqlMarkBack).add(int64(priority), int64(round), int64(place), []byte(name))
	}
}

// moveMarks moves marks to the first rows that an exclusive transaction has found, for the
// priorities and kinds that it searched. If the search has passed a priority and found nothing,
// that priority has no rows.
func (v *view) moveMarks(s *search) {
	first, last := map[segment]position{}, s.below
	places := s.places()
	for _, p := range places {
		at := segment{name: s.names[0]}
		if s.Index == rows.TurnKind {
			at.name, p = nameOf(p[0].(string)), p[1:]
		}
		at.priority = int(p[0].(int64))
		if _, known := first[at]; !known {
			first[at] = position{uint64(p[1].(int64)), uint64(p[2].(int64))}
		}
		if len(places) == s.Limit {
			last = at.priority
		}
	}
	to := v.buffer(sqlSetMark)
	for priority, round := range v.head.Rounds {
		for _, name := range s.names {
			p, found := first[segment{name, priority}]
			if end := (position{round + 1, 0}); !found || end.before(p) {
				p = end
			}
			if (found || priority < last) && len(to.rows) < maxMarks {
				to.add(int64(priority), int64(p.round), int64(p.place), []byte(name))
			}
		}
	}
	if !v.marked {
		v.marked = true
		v.do(sqlMarked)
	}
}
