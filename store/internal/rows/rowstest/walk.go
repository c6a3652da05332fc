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
	v    rows.Calls
	head *rows.Head
	now  int64
	all  []*rows.Row

	settings struct {
		driver.Settings
		Fronts, Crowded bool
	}
	optimistic, frontsOnly, countsKeys bool
	keys                               map[string]*rows.Key
	followed                           map[uint64]*rows.Row // by the ids of their followers

	wrong string
}

// Walk returns what is wrong with the rows of a queue, "" if nothing is. Of keys, groups and
// unique keys it looks at those of package storetest.
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
	w.frontsOnly = s.Fronts || s.KeepPlace || w.limitsInFlight()
	w.optimistic = db.Traits().Optimistic
	w.countsKeys = s.KeepPlace && !w.limitsInFlight() && w.optimistic ||
		s.KeyCapacity < s.Capacity || s.Crowded
	w.all, err = w.v.List(driver.ListOptions{Limit: math.MaxInt32})
	ok(t, "List", err)
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
	w.walkLines()
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
	return fmt.Sprintf("task %d (key %s, priority %d, kind %q, state %v, takeable %v, front %v, "+
		"hidden %v, round %d, place %d, gap %v, wake %d, until %d)", r.ID,
		r.Key, r.Priority, r.Kind, r.State, r.Takeable, r.Front, r.Hidden, r.Round, r.Place,
		r.Gap, r.Wake, r.Until)
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
		front := 0
		for _, r := range w.all {
			if r.Key == name {
				tasks[0]++
				tasks[r.State]++
				if r.State == driver.Ready && r.Front == rows.AtFront {
					front++
				}
			}
		}
		if w.limitsInFlight() && !w.countsKeys {
			taken := tasks[driver.Taken]
			tasks = [driver.Held + 1]int{driver.Taken: taken}
			if w.optimistic {
				tasks[driver.Ready] = min(1, front)
			}
			tasks[0] = tasks[driver.Ready] + taken
		}
		if k == nil {
			w.check(!w.limitsInFlight() && !w.countsKeys || tasks[0] == 0,
				"key %s has tasks, but no row", name)
			continue
		}
		if k.MayWait() {
			paused++
		}
		w.check(k.Paused || k.Until != 0 || k.Limits != nil ||
			(w.countsKeys || w.limitsInFlight()) && tasks[0] > 0, "key %s has a row for nothing", name)
		if !w.countsKeys && !w.limitsInFlight() {
			tasks = [driver.Held + 1]int{}
		}
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
		if !w.frontsOnly {
			w.check(r.Round > 0, "%s has no round", describe(r))
		}
		behind := w.limitsInFlight() && slices.ContainsFunc(w.all, func(o *rows.Row) bool {
			return o.State == driver.Ready && o.Key == r.Key && o.Kind == r.Kind && o.Priority < r.Priority
		})
		shown := r.Round > 0 && (!w.blocked(r.Key) && !behind || r.Front == rows.Shares && r.Takeable)
		w.check(r.Takeable == shown,
			"%s; its key is blocked: %v; a line before its own has such a task: %v",
			describe(r), w.blocked(r.Key), behind)
		w.check(!r.Hidden || w.blocked(r.Key) && !r.Takeable, "%s is hidden; its key is blocked: %v",
			describe(r), w.blocked(r.Key))
		w.check((r.Front != rows.NoFront) == w.frontsOnly, "%s; the queue has fronts: %v",
			describe(r), w.frontsOnly)
		w.check(!w.frontsOnly || (r.Front == rows.Parked) == (r.Round == 0), "%s", describe(r))
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
	weightMayChange := w.limitsInFlight() // by SetKey
	w.check(weightMayChange || r.Used < uint64(w.share(r)),
		"%s has no share of its round left: %d is used", describe(r), r.Used)
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

// walkLines checks the order within each line, and that none has more turns in a round than it
// may.
func (w *walker) walkLines() {
	lines := map[rows.Line][]*rows.Row{}
	for _, r := range w.all {
		if r.State == driver.Ready || r.State == driver.Taken && !w.frontsOnly {
			l := rows.Line{Key: r.Key, Priority: r.Priority}
			lines[l] = append(lines[l], r)
		}
	}
	for l, line := range lines {
		slices.SortFunc(line, byPlace)
		if w.frontsOnly {
			w.walkFront(line)
			continue
		}
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

// walkFront checks that the first task of a line has its turn, and that the first of each further
// kind shares it. A task that was handed back has a turn of its own.
func (w *walker) walkFront(line []*rows.Row) {
	line = slices.DeleteFunc(line, func(r *rows.Row) bool {
		return r.Returned && r.Front == rows.AtFront
	})
	kinds := map[string]bool{}
	for i, r := range line {
		w.check((r.Front == rows.AtFront) == (i == 0), "%s is number %d of its line", describe(r), i)
		w.check(i == 0 || (r.Front == rows.Shares) == !kinds[r.Kind],
			"%s shares a turn; it is the first of its kind: %v", describe(r), !kinds[r.Kind])
		w.check(r.Round <= line[0].Round, "%s shares a turn that comes later than that of %s",
			describe(r), describe(line[0]))
		w.check(!r.Returned, "%s has no turn of its own", describe(r))
		kinds[r.Kind] = true
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
