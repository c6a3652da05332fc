package monitor

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairq/fairq/internal/each"
	"github.com/fairq/fairq/internal/printable"
	"github.com/fairq/fairq/task"
)

// Limits of the buried tasks of one read, and of the shown parts of one task.
const (
	maxBuried  = 100
	maxGroups  = 50
	maxRead    = 10_000
	maxReasons = 100
	readPage   = 500
	maxPayload = 10_000
)

// keeper is a source of tasks. Only one call at a time is made of these.
type keeper interface {
	failures(ctx context.Context) (*failures, error)
	// retrying adds those of the first n delayed tasks that have failed.
	retrying(ctx context.Context, n int, found *failures) error
	buried(ctx context.Context, which buriedOnes, last *sample, n int) (*buriedPage, error)
	peek(ctx context.Context, id task.ID) (*taskRow, error)
}

// failures are tasks that are buried or wait for a retry, in groups, or what a pool has seen fail.
type failures struct {
	At       time.Time `json:"at"`
	Count    int       `json:"count"`              // buried tasks
	Read     int       `json:"read"`               // of these, those in the groups
	Retrying int       `json:"retrying,omitempty"` // tasks that wait for a retry
	More     bool      `json:"more,omitempty"`     // some delayed tasks were not read
	Gone     bool      `json:"gone,omitempty"`     // the failed tasks are in no store
	Groups   []group   `json:"groups"`             // the largest first

	all  map[group]tally // by reason, key and kind, without a tally
	next time.Time       // they are not read again before
}

// tally counts the tasks of a group.
type tally struct {
	Count    int    `json:"count"` // buried tasks
	Retrying int    `json:"retrying,omitempty"`
	First    uint64 `json:"first,omitempty,string"` // of the ids of the buried ones that were read
	Last     uint64 `json:"last,omitempty,string"`
}

func (f *failures) add(g group, n tally) {
	was := f.all[g]
	f.all[g] = tally{
		was.Count + n.Count, was.Retrying + n.Retrying,
		min(was.First-1, n.First-1) + 1, // 0 - 1 is more than any id
		max(was.Last, n.Last),
	}
}

// group is failed tasks with the same reason, key and kind, as far as these are not empty.
type group struct {
	Reason string `json:"reason,omitempty"` // with # for each number but a status code
	Key    string `json:"key,omitempty"`
	Kind   string `json:"kind,omitempty"` // "" in quotes if there is none
	tally
}

// by returns the failures in groups, by "reason", "key", "kind", or "all" of these.
func (f failures) by(by string) failures {
	groups := failures{all: map[group]tally{}}
	for g, n := range f.all {
		switch by {
		case "reason":
			g.Key, g.Kind = "", ""
		case "key":
			g.Reason, g.Kind = "", ""
		case "kind":
			g.Reason, g.Key = "", ""
		}
		groups.add(g, n)
	}
	for g, n := range groups.all {
		g.tally = n
		f.Groups = append(f.Groups, g)
	}
	slices.SortFunc(f.Groups, func(a, b group) int {
		return cmp.Or(cmp.Compare(b.Count+b.Retrying, a.Count+a.Retrying), cmp.Compare(a.Key, b.Key),
			cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Kind, b.Kind))
	})
	f.Groups = first(f.Groups, maxGroups)
	return f
}

type buriedPage struct {
	Buried []*taskRow `json:"buried"`
	After  string     `json:"after,omitempty"` // of the next page
}

// taskRow is all that there is to know of a task.
type taskRow struct {
	each.Row
	Reason  string `json:"reason"`
	Code    int    `json:"code,omitempty"` // of the reason
	Payload string `json:"payload,omitempty"`
	// of a panic, if this pool has seen it lately
	Stack string `json:"stack,omitempty"`
}

// buriedOnes selects buried tasks, by fields in the form of the page. An empty field means any.
type buriedOnes struct {
	key, kind, reason string
	after             task.ID
}

// options returns what List and Kick are to be asked for.
func (b buriedOnes) options(last *sample) (o task.ListOptions, err error) {
	o.State, o.After = task.Buried, b.after
	if b.key != "" {
		key, ok := resolve[string](b.key, last)
		if !ok {
			return o, errNoKey
		}
		o.Key = &key
	}
	if b.kind != "" {
		kind, err := printable.Parse(b.kind)
		if err != nil {
			return o, badRequest("the kind %v", err)
		}
		o.Kind = &kind
	}
	return o, nil
}

// numbers finds numbers, and status codes with the words by which they are known, as in
// "HTTP 404", "status: 503", "404 Not Found" and "550 5.1.1".
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

// read yields tasks in the order of their ids.
func (q *taskQueue[V]) read(
	ctx context.Context, o task.ListOptions,
) iter.Seq2[*task.Task[V], error] {
	if o.Limit = readPage; q.InMemory() {
		o.Limit = maxRead // each page is O(tasks)
	}
	return each.Task(ctx, q.Queue, o)
}

func (q *taskQueue[V]) failures(ctx context.Context) (*failures, error) {
	found := &failures{At: time.Now(), all: map[group]tally{}}
	for t, err := range q.read(ctx, task.ListOptions{State: task.Buried}) {
		if err != nil {
			return nil, err
		}
		found.add(groupOf(t), tally{Count: 1, First: uint64(t.ID), Last: uint64(t.ID)})
		if found.Read++; found.Read == maxRead {
			break
		}
	}
	found.Count = found.Read
	err := q.retrying(ctx, maxRead, found)
	if err == nil && found.Read == maxRead {
		found.Count, err = q.Count(ctx, task.ListOptions{State: task.Buried})
	}
	return found, err
}

func groupOf[V any](t *task.Task[V]) group {
	return group{Reason: reasonOf(each.Message(t)), Key: keyText(t.Key), Kind: shown(t.Kind)}
}

func (q *taskQueue[V]) retrying(ctx context.Context, n int, found *failures) error {
	delayed, err := q.List(ctx, task.ListOptions{State: task.Delayed, NextFirst: true, Limit: n})
	for _, t := range delayed {
		if t.Attempts > 0 {
			found.add(groupOf(t), tally{Retrying: 1})
			found.Retrying++
		}
	}
	found.More = len(delayed) == n
	return err
}

func (q *taskQueue[V]) buried(
	ctx context.Context, which buriedOnes, last *sample, n int,
) (*buriedPage, error) {
	o, err := which.options(last)
	if err != nil {
		return nil, err
	}
	page, read := &buriedPage{Buried: []*taskRow{}}, 0
	for t, err := range q.read(ctx, o) {
		switch read++; {
		case err != nil:
			return nil, err
		case read > maxRead:
			return page, nil
		case which.reason != "" && which.reason != reasonOf(each.Message(t)):
		case len(page.Buried) == n:
			page.After = strconv.FormatUint(uint64(page.Buried[n-1].ID), 10)
			return page, nil
		default:
			page.Buried = append(page.Buried, q.row(t, maxText))
		}
	}
	return page, nil
}

// row returns a task in the form of the page, with at most n bytes of its reason and its payload.
func (q *taskQueue[V]) row(t *task.Task[V], n int) *taskRow {
	i := t.Info()
	row := &taskRow{Row: each.RowOf(&i, shown)}
	row.Key = keyText(t.Key)
	if i.Err != nil {
		row.Reason, row.Code = shownUpTo(i.Err.Message, n), i.Err.Code
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

// shownIfSet shows a text, and keeps an empty one empty.
func shownIfSet(text string) string {
	if text == "" {
		return ""
	}
	return shown(text)
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

func (noTasks) failures(context.Context) (*failures, error) {
	return &failures{At: time.Now()}, nil
}

func (noTasks) retrying(context.Context, int, *failures) error { return nil }

func (noTasks) buried(context.Context, buriedOnes, *sample, int) (*buriedPage, error) {
	return &buriedPage{Buried: []*taskRow{}}, nil
}

func (noTasks) peek(context.Context, task.ID) (*taskRow, error) { return nil, task.ErrNotFound }

// ofTasks returns a handler that answers with something that is read of tasks, one request after
// the other.
func ofTasks(
	read func(ctx context.Context, s *Source, k keeper, r *http.Request, rest string) (any, error),
) part {
	return func(_ *Monitor, w http.ResponseWriter, r *http.Request, s *Source, rest string) {
		k := s.keeper()
		ctx, cancel := context.WithTimeout(r.Context(), lookTimeout)
		defer cancel()
		select {
		case s.turn <- struct{}{}:
		case <-ctx.Done():
			fail(w, http.StatusServiceUnavailable, "%v", context.Cause(ctx))
			return
		}
		v, err := func() (any, error) {
			defer func() { <-s.turn }()
			return read(ctx, s, k, r, rest)
		}()
		switch {
		case err == nil:
			answer(w, http.StatusOK, v)
		case errors.Is(err, task.ErrNotFound), errors.Is(err, errNoKey):
			fail(w, http.StatusNotFound, "%v", err)
		case errors.Is(err, errRequest):
			fail(w, http.StatusBadRequest, "%v", err)
		default:
			fail(w, http.StatusServiceUnavailable, "%v", err)
		}
	}
}

func failuresOf(ctx context.Context, s *Source, k keeper, r *http.Request, _ string) (any, error) {
	by := cmp.Or(r.URL.Query().Get("by"), "all")
	if !slices.Contains([]string{"reason", "key", "kind", "all"}, by) {
		return nil, badRequest("by is %s; it must be reason, key, kind or all", shown(by))
	}
	now, found := time.Now(), s.failures.Load()
	if found == nil || !now.Before(found.next) {
		var err error
		if found, err = k.failures(ctx); err != nil {
			return nil, err
		}
		found.next = now.Add(max(interval, 20*time.Since(now)))
		s.failures.Store(found)
	}
	return found.by(by), nil
}

func buriedOf(ctx context.Context, s *Source, k keeper, r *http.Request, _ string) (any, error) {
	n, err := limit(r, maxBuried)
	if err != nil {
		return nil, err
	}
	query := r.URL.Query()
	which := buriedOnes{key: query.Get("key"), kind: query.Get("kind"), reason: query.Get("reason")}
	if text := query.Get("after"); text != "" {
		if which.after, err = idOf(text); err != nil {
			return nil, err
		}
	}
	return k.buried(ctx, which, s.lastSample(), n)
}

func taskOf(ctx context.Context, _ *Source, k keeper, _ *http.Request, rest string) (any, error) {
	id, err := idOf(rest)
	if err != nil {
		return nil, err
	}
	return k.peek(ctx, id)
}
