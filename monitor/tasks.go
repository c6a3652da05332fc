package monitor

import (
	"cmp"
	"context"
	"iter"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fairq/fairq/internal/each"
	"github.com/fairq/fairq/internal/printable"
	"github.com/fairq/fairq/task"
)

// Limits of the tasks of one read, and of the shown parts of one task.
const (
	maxTasks   = 1000 // of an answer
	maxGroups  = 50
	maxRead    = 10_000
	maxReasons = 100
	readPage   = 1000
	maxPayload = 10_000
)

// The page has two states more than package task. A delayed task with an attempt behind it is
// retrying. A failed task is gone; the pool remembers that it failed.
const (
	retrying = "retrying"
	failed   = "failed"
)

var states = []string{"ready", "taken", retrying, "delayed", "held", "buried", failed}

// selection selects tasks, by fields in the form of the page. An empty one means any.
type selection struct{ state, key, kind, reason string }

// keeper is a source of tasks. Only one call at a time is made of these.
type keeper interface {
	// tasks reads up to n tasks of a state, key and kind.
	tasks(ctx context.Context, which selection, last *sample, n int) (*taskList, error)
	peek(ctx context.Context, id task.ID) (*taskRow, error)
}

// taskList has the tasks of a selection. Ready tasks are in the order in which they leave, running
// ones by how long they run, waiting ones by when they are due, and all others by id.
type taskList struct {
	At     time.Time  `json:"at"`
	Read   int        `json:"read"`           // tasks in the groups
	More   bool       `json:"more,omitempty"` // there may be more than were read
	Groups []group    `json:"groups"`         // the largest first
	Tasks  []*taskRow `json:"tasks"`          // the first ones

	of    selection
	found []found
	next  time.Time // they are not read again before
}

// found is a task that was read.
type found struct {
	group
	since time.Time // of a task that runs
	row   func() *taskRow
}

// group is tasks with the same reason, key and kind, as far as these are not empty.
type group struct {
	Reason string `json:"reason,omitempty"` // with # for each number but a status code
	Key    string `json:"key,omitempty"`
	Kind   string `json:"kind,omitempty"` // "" in quotes if there is none
	Count  int    `json:"count"`
	First  uint64 `json:"first,omitempty,string"` // of the ids
	Last   uint64 `json:"last,omitempty,string"`
}

// answer returns the first n tasks, and all in groups by "reason", "key", "kind", or "all" of
// these.
func (l taskList) answer(by string, n int) taskList {
	isThis := func(f found) bool { return f.Reason == l.of.reason }
	if l.of.reason == "" || !slices.ContainsFunc(l.found, isThis) { // it is a part of reasons
		isThis = func(f found) bool { return strings.Contains(f.Reason, l.of.reason) }
	}
	groups := map[group]*group{}
	l.Tasks = []*taskRow{}
	for _, f := range l.found {
		if !isThis(f) {
			continue
		}
		if l.Read++; l.Read <= n {
			l.Tasks = append(l.Tasks, f.row())
		}
		of := group{Reason: f.Reason, Key: f.Key, Kind: f.Kind}
		switch by {
		case "reason":
			of = group{Reason: f.Reason}
		case "key":
			of = group{Key: f.Key}
		case "kind":
			of = group{Kind: f.Kind}
		}
		g := groups[of]
		if g == nil {
			g = &of
			groups[of] = g
			g.First = f.First
		}
		g.Count, g.First, g.Last = g.Count+1, min(g.First, f.First), max(g.Last, f.First)
	}
	for _, g := range groups {
		l.Groups = append(l.Groups, *g)
	}
	slices.SortFunc(l.Groups, func(a, b group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Key, b.Key),
			cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Kind, b.Kind))
	})
	l.Groups = first(l.Groups, maxGroups)
	return l
}

// reason returns the most frequent reason, after a colon, "" if there is none.
func (l taskList) reason() string {
	groups := l.answer("reason", 0).Groups
	if len(groups) == 0 {
		return ""
	}
	return ": " + groups[0].Reason
}

// taskRow is all that there is to know of a task.
type taskRow struct {
	each.Row
	Reason  string `json:"reason"`
	Code    int    `json:"code,omitempty"` // of the reason
	Payload string `json:"payload,omitempty"`
	Stack   string `json:"stack,omitempty"` // of a panic
	// Since is the begin of its lease, as far as it was looked at, or the time at which it failed.
	Since time.Time `json:"since,omitzero"`
}

// options returns what List and Kick are to be asked for.
func (s selection) options(last *sample) (o task.ListOptions, err error) {
	if s.key != "" {
		key, ok := resolve[string](s.key, last)
		if !ok {
			return o, errNoKey
		}
		o.Key = &key
	}
	if s.kind != "" {
		kind, err := printable.Parse(s.kind)
		if err != nil {
			return o, badRequest("the kind %v", err)
		}
		o.Kind = &kind
	}
	return o, nil
}

// numbers finds numbers. A status code is found together with the words that mark it, as in "HTTP
// 404", "status: 503", "404 Not Found" and "550 5.1.1".
var numbers = regexp.MustCompile(`(?i:\b(?:http(?:/[0-9.]+)?|status|code)[ :=]*(?:code[ :=]*)?)` +
	`[1-5][0-9]{2}\b|\b[1-5][0-9]{2} (?:[A-Z]|[245]\.[0-9]\.[0-9]+)|[0-9]+`)

// reasonOf returns the reason of a group: what differs in numbers only is the same, but for status
// codes.
func reasonOf(text string) string {
	return hashed(numbers.ReplaceAllStringFunc(text, func(number string) string {
		if strings.Trim(number, "0123456789") == "" {
			return "#"
		}
		return number
	}), maxText)
}

func (q *taskQueue[V]) tasks(
	ctx context.Context, which selection, last *sample, n int,
) (*taskList, error) {
	o, err := which.options(last)
	if err != nil {
		return nil, err
	}
	l, read := &taskList{At: time.Now()}, 0
	if which.state == failed {
		return l, nil
	}
	for o.State = task.Ready; o.State < task.Held && o.State.String() != which.state; {
		o.State++
	}
	if which.state == retrying {
		o.State = task.Delayed
	}
	tasks := q.read(ctx, o, n)
	if o.State == task.Ready && o.Key == nil && o.Kind == nil {
		tasks = q.inOrder(ctx)
	}
	for t, err := range tasks {
		if err != nil {
			return nil, err
		}
		if read++; o.State != task.Delayed || t.Attempts > 0 == (which.state == retrying) {
			l.found = append(l.found, found{
				groupOf(t), q.running.since(new(t.Info())), func() *taskRow { return q.row(t, maxText) },
			})
		}
		if l.More = read == n; l.More {
			break
		}
	}
	slices.SortStableFunc(l.found, func(a, b found) int { return a.since.Compare(b.since) })
	return l, nil
}

// read yields up to n tasks, in the order of their ids or, if they are delayed, as they are due.
func (q *taskQueue[V]) read(
	ctx context.Context, o task.ListOptions, n int,
) iter.Seq2[*task.Task[V], error] {
	o.NextFirst = o.State == task.Delayed
	if o.Limit = readPage; q.InMemory() || o.NextFirst || o.State == task.Taken {
		o.Limit = n // otherwise each page is O(tasks)
	}
	return each.Task(ctx, q.Queue, o)
}

// inOrder yields the tasks that leave next, without their payloads.
func (q *taskQueue[V]) inOrder(ctx context.Context) iter.Seq2[*task.Task[V], error] {
	return func(yield func(*task.Task[V], error) bool) {
		upcoming, err := q.Upcoming(ctx, maxUpcoming)
		if err != nil {
			yield(nil, err)
		}
		for i := range upcoming {
			var none V
			if !yield(task.NewTask(upcoming[i].Info, none), nil) {
				return
			}
		}
	}
}

func groupOf[V any](t *task.Task[V]) group {
	reason, _ := each.Failure(new(t.Info()))
	id := uint64(t.ID)
	return group{reasonOf(reason), keyText(t.Key), shown(t.Kind), 1, id, id}
}

// row returns a task in the form of the page, with at most n bytes of its reason and its payload.
func (q *taskQueue[V]) row(t *task.Task[V], n int) *taskRow {
	i := t.Info()
	row := &taskRow{Row: each.RowOf(&i, shown)}
	row.Key = keyText(t.Key)
	reason, stack := each.Failure(&i)
	if row.Since = q.running.since(&i); i.Err != nil {
		row.Reason, row.Code, row.Stack = shownUpTo(reason, n), i.Err.Code, stack
	}
	if text := describe(q.describe, t.Payload); text != "" {
		row.Payload = shownUpTo(text, n)
	}
	return row
}

func (q *taskQueue[V]) peek(ctx context.Context, id task.ID) (*taskRow, error) {
	t, err := q.Peek(ctx, id)
	if err != nil {
		return nil, err
	}
	return q.row(t, maxPayload), nil
}

// keeper returns what knows the tasks of a source, or of none.
func (s *Source) keeper() keeper {
	if s != nil {
		if k, ok := s.of.(keeper); ok {
			return k
		}
	}
	return noTasks{}
}

type noTasks struct{}

func (noTasks) tasks(context.Context, selection, *sample, int) (*taskList, error) {
	return &taskList{At: time.Now()}, nil
}

func (noTasks) peek(context.Context, task.ID) (*taskRow, error) { return nil, task.ErrNotFound }

// tasks answers with what readTasks returns, one request after the other.
func (*Monitor) tasks(w http.ResponseWriter, r *http.Request, s *Source, rest string) {
	ctx, cancel := context.WithTimeout(r.Context(), lookTimeout)
	defer cancel()
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		reply(w, nil, context.Cause(ctx))
		return
	}
	v, err := func() (any, error) {
		defer func() { <-s.turn }()
		return s.readTasks(ctx, r, rest)
	}()
	reply(w, v, err)
}

// readTasks returns tasks of a selection, or the task of the id in the path.
func (s *Source) readTasks(ctx context.Context, r *http.Request, rest string) (any, error) {
	k := s.keeper()
	if rest != "" {
		id, err := idOf(rest)
		if err != nil {
			return nil, err
		}
		return k.peek(ctx, id)
	}
	n, err := limit(r, maxTasks)
	if err != nil {
		return nil, err
	}
	query := r.URL.Query()
	by, which := cmp.Or(query.Get("by"), "all"), selection{
		cmp.Or(query.Get("state"), "buried"), query.Get("key"), query.Get("kind"), query.Get("reason"),
	}
	switch {
	case !slices.Contains([]string{"reason", "key", "kind", "all"}, by):
		return nil, badRequest("by is %s; it must be reason, key, kind or all", shown(by))
	case !slices.Contains(states, which.state):
		return nil, badRequest("state is %s; it must be one of %s", shown(which.state),
			strings.Join(states, ", "))
	}
	now, list := time.Now(), s.tasks.Load()
	if list == nil || list.of != which || !now.Before(list.next) {
		if list, err = k.tasks(ctx, which, s.lastSample(), maxRead); err != nil {
			return nil, err
		}
		list.of, list.next = which, now.Add(max(interval, 20*time.Since(now)))
		s.tasks.Store(list)
	}
	return list.answer(by, n), nil
}
