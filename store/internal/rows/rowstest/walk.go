package rowstest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/storetest"
	"github.com/fairq/fairq/store/internal/rows"
)

// walker checks the invariants of the rows of a queue.
type walker struct {
	v     rows.Calls
	head  *rows.Head
	now   int64
	all   []*rows.Row
	turns []*rows.Turn

	settings struct {
		driver.Settings
		Lines, Crowded bool
	}
	optimistic, lines, countsKeys bool
	keys                          map[string]*rows.Key
	followed                      map[uint64]*rows.Row // by the ids of their followers

	wrong string
}

// Walk returns a description of the faults in the rows of a queue, "" if it finds none. It looks
// only at the keys, groups and unique keys that package storetest uses.
func Walk(t *testing.T, db rows.DB, queue string) string {
	tx, err := db.Begin(context.Background())
	ok(t, "Begin", err)
	defer tx.Rollback()
	q, err := tx.Queue(queue, nil)
	ok(t, "Queue", err)
	if q == nil {
		return "there is no queue"
	}
	v, err := tx.Enter(q.ID, &rows.Plan{Exclusive: true})
	ok(t, "Enter", err)
	w := &walker{
		v: rows.Calls{View: v}, head: v.Head(), now: v.Now(),
		keys: map[string]*rows.Key{}, followed: map[uint64]*rows.Row{},
	}
	if err := json.Unmarshal(w.head.Settings, &w.settings); err != nil {
		return err.Error()
	}
	s := &w.settings
	w.lines = s.Lines || s.KeepPlace || w.limitsInFlight()
	w.optimistic = db.Traits().Optimistic
	w.countsKeys = s.KeyCapacity < s.Capacity || s.Crowded
	w.all, err = w.v.List(driver.ListOptions{Limit: math.MaxInt32})
	ok(t, "List", err)
	w.turns, err = w.v.Turns().Scan(rows.Range{Index: rows.TurnLine})
	ok(t, "Turns", err)
	for _, k := range storetest.Keys {
		w.keys[k], err = rowOfKey(w.v, k)
		ok(t, "Lines", err)
	}
	w.walkKeys()
	for _, r := range w.all {
		if r.Follower != 0 {
			w.check(r.State == driver.Taken && r.UniqueKey != "", "%s is followed", describe(r))
			w.followed[r.Follower] = r
		}
	}
	for _, r := range w.all {
		w.walkRow(r)
	}
	if w.walkTurns(); !w.lines {
		w.walkLines()
	}
	w.walkConsumers()
	for _, g := range storetest.Groups {
		w.walkGroup(g)
	}
	for _, a := range storetest.UniqueKeys {
		o, err := w.v.Outcome(a)
		ok(t, "Outcome", err)
		older := slices.ContainsFunc(w.all, func(r *rows.Row) bool {
			return r.UniqueKey == a && o != nil && (r.ID < o.ID || r.ID == o.ID && r.State != driver.Buried)
		})
		w.check(!older, "there is an outcome of unique key %s, and a task that has had it longer", a)
		w.check(o == nil || o.Until+int64(2*time.Minute+s.Retention) > w.now,
			"the outcome of unique key %s is still there", a)
	}
	return w.wrong
}

func (w *walker) check(right bool, format string, args ...any) {
	if !right {
		w.wrong += fmt.Sprintf(format, args...) + "\n"
	}
}

// describe shows what of a task matters here.
func describe(r *rows.Row) string {
	return fmt.Sprintf("task %d (key %s, priority %d, kind %q, state %v, takeable %v, in line %v, "+
		"round %d, used %d, place %d, returned %v, gap %v, wake %d, until %d)", r.ID,
		r.Key, r.Priority, r.Kind, r.State, r.Takeable, r.InLine, r.Round, r.Used, r.Place,
		r.Returned, r.Gap, r.Wake, r.Until)
}

func (w *walker) blocked(key string) bool {
	k := w.keys[key]
	if k == nil {
		return false
	}
	limit := w.settings.MaxInFlightPerKey
	if k.Limits != nil && k.Limits.MaxInFlight != 0 {
		limit = k.Limits.MaxInFlight
	}
	return k.IsHeld() || w.limitsInFlight() && limit > 0 && k.Tasks[driver.Taken] >= limit
}

func (w *walker) limitsInFlight() bool {
	return w.settings.MaxInFlightPerKey > 0 || w.settings.KeyRate.Limit > 0
}

func (w *walker) walkKeys() {
	paused := 0
	for name, k := range w.keys {
		var tasks [driver.Held + 1]int
		for _, r := range w.all {
			if r.Key == name {
				tasks[0]++
				tasks[r.State]++
			}
		}
		if !w.countsKeys {
			var counted [driver.Held + 1]int
			if w.limitsInFlight() {
				counted[driver.Taken] = tasks[driver.Taken]
			}
			if w.lines && w.optimistic {
				counted[driver.Ready] = min(1, tasks[driver.Ready])
			}
			counted[0] = counted[driver.Ready] + counted[driver.Taken]
			tasks = counted
		}
		if k == nil {
			w.check(tasks[0] == 0, "key %s has tasks, but no row", name)
			continue
		}
		if k.MayWait() {
			paused++
		}
		w.check(k.Paused || k.Until != 0 || k.Limits != nil || tasks[0] > 0,
			"key %s has a row for nothing", name)
		w.check(k.Tasks == tasks, "key %s counts %v, and has %v", name, k.Tasks, tasks)
	}
	w.check(w.head.PausedKeys == paused, "PausedKeys is %d; it should be %d",
		w.head.PausedKeys, paused)
}

// ends returns when a task is of no use any more.
func ends(r *rows.Row) int64 {
	if r.Deadline == 0 {
		return r.Expires
	}
	return earlier(max(r.Deadline-1, 0, r.Created), r.Expires)
}

func earlier(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

func (w *walker) walkRow(r *rows.Row) {
	wake := ends(r)
	switch r.State {
	case driver.Ready:
		w.check(r.Takeable == !w.lines && (r.Round > 0) == !r.InLine, "%s; the queue has lines: %v",
			describe(r), w.lines)
		w.check(r.ReadyAt > 0, "%s has not become ready", describe(r))
	case driver.Delayed:
		wake = earlier(wake, r.Until)
		w.check(r.Until > 0, "%s has no delay", describe(r))
	case driver.Taken:
		wake = r.Until
		w.check((r.Until > 0) == (r.TTR > 0), "%s has a time to run of %v", describe(r), r.TTR)
		w.check(r.Attempts > 0, "%s has %d attempts", describe(r), r.Attempts)
		w.check(r.Round <= w.head.Rounds[r.Priority], "%s is after the round that is served, %d",
			describe(r), w.head.Rounds[r.Priority])
	case driver.Buried:
		w.check(r.Since > 0, "%s has no number", describe(r))
	case driver.Held:
		first := w.followed[r.ID]
		w.check(r.Group != "" || first != nil, "%s has no group and follows none", describe(r))
		w.check(first == nil || r.UniqueKey == "" && r.Key == first.Key && r.Group == first.Group,
			"%s follows another task: %+v", describe(r), first)
	}
	w.check(w.hasShare(r, r.Used), "%s has no share of its round left", describe(r))
	w.check(w.lines || !r.InLine, "%s; the queue has no lines", describe(r))
	w.check(r.Wake == wake, "%s should wake at %d", describe(r), wake)
	w.check(r.Wake == 0 || r.Wake > w.now, "%s is due", describe(r))
	waits := r.State == driver.Ready || r.State == driver.Delayed
	w.check(!waits || r.Since == 0, "%s has a number: %d", describe(r), r.Since)
	w.check((r.Consumer > 0) == (r.State == driver.Taken), "%s is held by %d",
		describe(r), r.Consumer)
	w.check(r.State != driver.Ready || r.Place > 0, "%s has no place", describe(r))
	if r.State == driver.Delayed || r.State == driver.Buried || r.State == driver.Held {
		w.check(r.Round == 0, "%s has a round", describe(r))
	}
}

// walkLines is for queues in which each task has a turn. It checks the order within each line, and
// that no line has more turns in a round than it may.
func (w *walker) walkLines() {
	lines := map[rows.Line][]*rows.Row{}
	for _, r := range w.all {
		if r.State == driver.Ready || r.State == driver.Taken {
			l := rows.Line{Key: r.Key, Priority: r.Priority}
			lines[l] = append(lines[l], r)
		}
	}
	for l, line := range lines {
		slices.SortFunc(line, func(a, b *rows.Row) int { return cmp.Compare(a.Place, b.Place) })
		byRound := func(a, b *rows.Row) int { return cmp.Compare(a.Round, b.Round) }
		if !slices.IsSortedFunc(line, byRound) {
			w.check(false, "the line %v is not in the order of places:", l)
			for _, r := range line {
				w.check(false, "  %s", describe(r))
			}
		}
		in := map[uint64]int{}
		for _, r := range line {
			if r.State == driver.Ready && r.Round > w.head.Rounds[l.Priority] {
				in[r.Round]++
				w.check(in[r.Round] <= w.share(r), "%s has too many beside it in its round", describe(r))
			}
		}
	}
}

// share returns how much the key of a task may use of a round.
func (w *walker) share(r *rows.Row) int { return r.Weight * max(1, int(w.settings.Quantum)) }

// hasShare reports whether the key of a task may use more of a round. With limits of keys, SetKey
// may have changed its weight.
func (w *walker) hasShare(r *rows.Row, used uint64) bool {
	return w.limitsInFlight() || used < uint64(w.share(r))
}

// turnID is the primary key of a turn.
type turnID struct {
	rows.Line
	kind string
	task uint64
}

// walkTurns checks that each line and kind with ready tasks has a turn, and that each ready task
// that was handed back has one. There must be no other turns.
func (w *walker) walkTurns() {
	first := map[turnID]*rows.Row{}
	for _, r := range w.all {
		if r.State != driver.Ready || !w.lines {
			continue
		}
		id := turnID{rows.Line{Key: r.Key, Priority: r.Priority}, r.Kind, 0}
		if !r.InLine {
			id.task = r.ID
		}
		if f := first[id]; f == nil || r.Place < f.Place {
			first[id] = r
		}
	}
	for _, t := range w.turns {
		id := turnID{t.Line, t.Kind, t.Task}
		r := first[id]
		if delete(first, id); r == nil {
			w.check(false, "the turn %+v is that of no task", *t)
			continue
		}
		what := fmt.Sprintf("the turn %+v, of %s", *t, describe(r))
		w.check(t.Place == r.Place && t.Round > 0 && w.hasShare(r, t.Used), "%s", what)
		w.check(t.Task == 0 || r.Returned && t.Round == r.Round && t.Used == r.Used, "%s", what)
		leads, may := true, !w.blocked(t.Key)
		for _, o := range w.turns {
			if o.Key == t.Key && o.Kind == t.Kind && o.Priority < t.Priority {
				may = false
			}
			if o.Line == t.Line && o.Task == 0 && t.Task == 0 && o.Place < t.Place {
				leads = false
				w.check(!o.Leads || t.Round < o.Round || t.Round == o.Round && t.Used <= o.Used,
					"%s, comes later than that of its line, %+v", what, *o)
			}
		}
		w.check(t.Leads == leads, "%s", what)
		w.check(t.Takeable == may || !leads && t.Takeable, "%s; it may be taken: %v", what, may)
	}
	for _, r := range first {
		w.check(false, "%s has no turn", describe(r))
	}
}

func (w *walker) walkConsumers() {
	known := map[uint64]*rows.Consumer{}
	consumers, err := w.v.ConsumersNamed("", 0)
	w.check(err == nil, "ConsumersNamed: %v", err)
	for _, c := range consumers {
		known[c.Number] = c
		w.check(c.Deadline > w.now, "consumer %d (%q) is due", c.Number, c.Name)
	}
	for _, r := range w.all {
		if _, ok := known[r.Consumer]; r.State == driver.Taken {
			w.check(ok, "%s is held by %d, which is not known", describe(r), r.Consumer)
		}
	}
}

func (w *walker) walkGroup(name string) {
	g, err := w.v.Group(name)
	w.check(err == nil, "Group: %v", err)
	tasks, members := 0, 0
	for _, r := range w.all {
		if r.Group == name {
			if tasks++; r.Role == driver.Member {
				members++
			}
			w.check(r.State != driver.Held || w.followed[r.ID] != nil ||
				g != nil && (!g.Started || r.Role != driver.Member), "%s is held", describe(r))
		}
	}
	if g == nil {
		w.check(tasks == 0, "group %s has tasks, but no row", name)
		return
	}
	w.check(tasks > 0 && g.Tasks == tasks && g.Members == members,
		"group %s counts %d and %d, and has %d and %d", name, g.Tasks, g.Members, tasks, members)
	w.check(!g.Started || members > 0, "group %s should have ended", name)
}
