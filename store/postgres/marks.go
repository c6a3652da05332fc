package postgres

import (
	"slices"
	"sync"
	"time"

	"github.com/fairq/fairq/store/internal/rows"
)

// marks are low-water marks: a search for ready tasks need not look before them.
//
// Tasks are taken at the front of an index. The entries of deleted tasks stay there as long as any
// transaction in the database, however old, could still see them, and a search from the beginning
// must pass all of them. So a search begins at the mark instead, where the last one has found a
// task.
//
// A mark may be too late: a released task, or a task of a transaction that committed late, can be
// before it. put moves the mark back for the tasks of this process. For tasks of others, a search
// starts at the beginning once a second, and whenever a search has found nothing. As long as such
// a search is fast, marks are not used at all.
type marks struct {
	slow time.Duration

	mu     sync.Mutex // protects queues, and the marks in them
	queues map[uint64]*queueMarks
}

type queueMarks struct {
	slow  bool      // the last search from the beginning was slow
	whole time.Time // when that was
	at    map[segment]position
}

// segment is a part of an index with its own mark: a band, or a kind within a band. The kind is ""
// if all kinds are searched.
type segment struct {
	kind string
	band int
}

type position struct{ round, place uint64 }

func positionOf(r *rows.Row) position { return position{r.Round, r.Place} }

func (p position) before(q position) bool {
	return p.round < q.round || p.round == q.round && p.place < q.place
}

// maxMarks limits the marks of a queue.
const maxMarks = 64

// search looks for the ready tasks of a range: in each segment from a position on, up to a band.
// The segments are in order.
type search struct {
	rows.Range
	marked bool // it begins at a mark
	// how many more of each kind are read than wanted, because others may have locked some
	extra    int
	found    []*rows.Row // rows not written since
	complete bool        // there are no others

	kinds                     [][]byte // as the arguments of the statement
	from, round, place, below []int64
}

func (s *search) add(kind string, from int, at position, below int) {
	s.kinds = append(s.kinds, []byte(kind))
	s.from, s.below = append(s.from, int64(from)), append(s.below, int64(below))
	s.round, s.place = append(s.round, int64(at.round)), append(s.place, int64(at.place))
}

// search returns the search for the tasks of a range.
func (m *marks) search(queue uint64, r *rows.Range) *search {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &search{Range: *r, extra: 16}
	q := m.queues[queue]
	s.marked = q != nil && q.slow && time.Since(q.whole) < time.Second
	kinds := []string{""}
	if r.Index == rows.TaskKind {
		kinds = nil
		for _, p := range r.Prefixes {
			kinds = append(kinds, p[0].(string))
		}
	}
	first, below := 0, int(r.To[0].(int64))
	if r.From != nil {
		first = int(r.From[0].(int64))
	}
	for _, kind := range kinds {
		from, at := first, position{}
		if s.marked {
			for _, next := range q.bands(kind) {
				if next < first {
					continue
				} else if next >= below {
					break
				}
				s.add(kind, from, at, next)
				from, at = next, q.at[segment{kind, next}]
			}
		}
		s.add(kind, from, at, below)
	}
	return s
}

// wholeSearch returns a search from the beginning, even if others have locked many tasks.
func wholeSearch(r *rows.Range) *search {
	s := new(marks).search(0, r)
	s.extra = 2000
	return s
}

// bands returns the bands with marks, in order.
func (q *queueMarks) bands(kind string) (list []int) {
	for p := range q.at {
		if p.kind == kind {
			list = append(list, p.band)
		}
	}
	slices.Sort(list)
	return list
}

// searched moves the marks to the tasks of a search. 50 µs of its time for each row do not count
// as passing dead entries.
func (m *marks) searched(queue uint64, s *search, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := m.queues[queue]
	if q == nil {
		if m.queues == nil {
			m.queues = map[uint64]*queueMarks{}
		}
		q = &queueMarks{at: map[segment]position{}}
		m.queues[queue] = q
	}
	if !s.marked {
		q.whole, q.slow = time.Now(), took-time.Duration(len(s.found))*50*time.Microsecond >= m.slow
	}
	seen := map[segment]bool{}
	for _, r := range s.found {
		p := segment{"", r.Band}
		if s.Index == rows.TaskKind {
			p.kind = r.Kind
		}
		if !seen[p] {
			seen[p] = true
			if _, ok := q.at[p]; !ok && len(q.at) >= maxMarks {
				clear(q.at)
			}
			q.at[p] = positionOf(r)
		}
	}
}

// put moves marks back to a task that this process gives a band.
func (m *marks) put(queue uint64, r *rows.Row) {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := m.queues[queue]
	if q == nil {
		return
	}
	for _, p := range [...]segment{{"", r.Band}, {r.Kind, r.Band}} {
		if at, ok := q.at[p]; ok && positionOf(r).before(at) {
			q.at[p] = positionOf(r)
		}
	}
}

// forget forgets a queue.
func (m *marks) forget(queue uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.queues, queue)
}
