package faulttest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairq/fairq/task/driver"
)

// certainty is whether something has happened.
type certainty uint8

const (
	maybe certainty = iota
	yes
	no
)

// fate is what the journal tells of a task.
type fate struct {
	Put
	queue   string
	batch   []*fate // those that were put together
	began   int     // the line
	put     certainty
	id      driver.ID
	holder  *holder
	takes   int            // that were written down
	snoozes int            // that were begun, and other ends of leases that do not count
	settled map[string]int // how often that was begun, by Op
	over    string         // it is gone, by this Op
	overAt  int            // the line
	ended   *driver.Ended
}

// holder is who has taken a task last.
type holder struct {
	by    string
	take  int64 // the number of the take
	tries int
	until int64 // when the lease runs out at the latest
	since int64
	free  bool // it may have been given back
}

// is tells whether the lease in a line is still the last one.
func (h *holder) is(l *Line) bool { return h.by == l.By && h.take == l.Take }

// group is what the journal tells of a group.
type group struct {
	tasks     []*fate
	started   bool // maybe
	cancelled bool
}

// account goes through a journal, and then through what is left in the database.
type account struct {
	t      testing.TB
	report func(format string, args ...any) // of a mistake

	lines      []Line
	line       int
	now        *Line
	fates      map[string]*fate
	groups     map[string]*group
	uniqueKeys map[string]*fate // who has had it last for sure
	calls      map[string]int   // the lines of what has begun and not ended
	batches    map[string][]*fate
	killed     map[string]int64
	stalled    map[string]bool

	// rough is set where the database fails: then calls may return errors, and it may not be known
	// whether they were done.
	rough bool

	fullest                          int // that a queue was
	errors                           int
	kills, waits, back, lost, hidden int
	longest                          time.Duration // call
}

func newAccount(t testing.TB) *account {
	a := &account{
		t: t, fates: map[string]*fate{}, groups: map[string]*group{}, uniqueKeys: map[string]*fate{}, calls: map[string]int{},
		batches: map[string][]*fate{}, killed: map[string]int64{}, stalled: map[string]bool{},
	}
	mistakes := 0
	a.report = func(format string, args ...any) {
		t.Helper()
		if mistakes++; mistakes <= 20 {
			t.Errorf(format, args...)
		}
	}
	return a
}

func (a *account) wrong(f *fate, what string, args ...any) {
	a.t.Helper()
	var history strings.Builder
	for i, l := range a.lines {
		about := l.Name == f.Name || l.Name == f.Group && f.Group != "" || f.holder != nil && l.Name == f.holder.by
		if about || slices.ContainsFunc(l.Puts, func(p Put) bool { return p.Name == f.Name }) {
			l.Puts = nil
			text, _ := json.Marshal(l)
			fmt.Fprintf(&history, "\n%d: %s", i+1, text)
		}
	}
	a.report("line %d: task %d %+v: %s%s", a.line, f.id, f.Put, fmt.Sprintf(what, args...), history.String())
}

// read goes through a journal.
func (a *account) read(lines []Line) {
	a.lines = lines
	a.excuse()
	for i := range lines {
		a.line, a.now = i+1, &lines[i]
		a.step(a.now)
	}
	a.now = nil
}

// excuse notes which processes did not get to run, or to the database, for a while. That is
// written down only when it is over, when others may have what they held.
func (a *account) excuse() {
	calls := map[string]int64{}
	for _, l := range a.lines {
		call := fmt.Sprint(l.By, " ", l.Call)
		switch begun, ok := calls[call]; {
		case l.Op == "stalled":
			a.stalled[l.By] = true
		case l.Call > 0 && !l.Done:
			calls[call] = l.At
		case l.Done && ok:
			a.stalled[l.By] = a.stalled[l.By] || l.At-begun > int64(stalled)
			delete(calls, call)
		}
	}
}

func (a *account) step(l *Line) {
	call := fmt.Sprint(l.By, " ", l.Call)
	if l.Call > 0 && !l.Done {
		a.calls[call] = a.line
	}
	begun := 0
	if l.Done && a.calls[call] > 0 {
		begun = a.calls[call]
		took := time.Duration(l.At - a.lines[begun-1].At)
		a.longest = max(a.longest, took)
		delete(a.calls, call)
	}
	if l.Err != "" && rulesSay[l.Err] == nil && l.Op != "waited" {
		if a.errors++; !a.rough || !named.MatchString(l.Err) {
			a.report("line %d: %s of %s: %s", a.line, l.Op, l.Name, l.Err)
		}
	}
	switch {
	case l.Op == "kill":
		a.kills++
		a.killed[l.Name] = l.At
	case l.Op == "stalled": // see excuse
	case l.Op == "close":
		for _, f := range a.fates {
			if f.holder != nil && f.holder.by == l.By && !f.holder.free {
				f.holder.free = true
				f.snoozes++
			}
		}
	case l.Op == "put" && !l.Done:
		a.beginPut(call, l)
	case l.Op == "put":
		a.endPut(a.batches[call], l)
	case l.Op == "start", l.Op == "cancel":
		g := a.groups[l.Name]
		g.started = g.started || l.Op == "start"
		g.cancelled = g.cancelled || l.Op == "cancel"
	case a.fates[l.Name] == nil:
		a.report("line %d: %s of %q, which was never put", a.line, l.Op, l.Name)
	case l.Op == "took":
		a.took(a.fates[l.Name], l)
	case l.Op == "touch":
		if h := a.fates[l.Name].holder; l.Done && l.Err == "" && h.is(l) {
			h.until = l.Until
		}
	case l.Op == "waited":
		a.waited(a.fates[l.Name], l)
	case !l.Done:
		f := a.fates[l.Name]
		f.settled[l.Op]++
		if f.holder.is(l) {
			f.holder.free = true
		}
		if l.Op == "snooze" {
			f.snoozes++
		}
	default:
		a.settled(a.fates[l.Name], l, begun)
	}
}

// named is an error that says in which call, of which queue, which database failed, and at what.
var named = regexp.MustCompile(`^error: (task: [A-Z]\w+, queue ".*": )?(sqlite|postgres): [^ ]+: [a-z ]+: `)

func (a *account) beginPut(call string, l *Line) {
	var batch []*fate
	for _, p := range l.Puts {
		f := &fate{Put: p, queue: l.Queue, began: a.line, settled: map[string]int{}}
		batch = append(batch, f)
		if a.fates[p.Name] != nil {
			a.report("line %d: there is another task of this name", a.line)
		}
		a.fates[p.Name] = f
		if p.Group != "" {
			if a.groups[p.Group] == nil {
				a.groups[p.Group] = &group{}
			}
			a.groups[p.Group].tasks = append(a.groups[p.Group].tasks, f)
		}
	}
	for _, f := range batch {
		f.batch = batch
	}
	a.batches[call] = batch
}

func (a *account) endPut(batch []*fate, l *Line) {
	for i, f := range batch {
		switch {
		case i < len(l.IDs):
			if f.id != 0 && f.id != l.IDs[i] {
				a.wrong(f, "it was taken by another id before")
			}
			f.put, f.id = yes, l.IDs[i]
		case l.Err != "" && !strings.Contains(l.Err, "not known whether it was done"):
			f.put = no
		}
		if f.put == no && f.takes > 0 {
			a.wrong(f, "it was taken, but not put")
		}
		if f.put == yes {
			a.room(f)
		}
		if f.put != yes || f.UniqueKey == "" {
			continue
		}
		other := a.uniqueKeys[f.queue+f.UniqueKey]
		if other != nil && other.began < f.began && other.put == yes && !a.mayBeOver(other) {
			a.wrong(f, "task %d has its unique key", other.id)
		}
		a.uniqueKeys[f.queue+f.UniqueKey] = f
	}
}

// mayBeOver tells whether a task may be gone already.
func (a *account) mayBeOver(f *fate) bool {
	return f.settled["ack"]+f.settled["discard"] > 0
}

func (a *account) took(f *fate, l *Line) {
	// others may have taken it, and acked it, before this was written down
	if f.takes > 0 && l.Until != 0 && l.Until <= l.At {
		f.takes++
		return
	}
	if f.put == no || f.id != 0 && f.id != l.ID {
		a.wrong(f, "it was taken, but not put, or with another id")
	}
	if f.over != "" {
		a.wrong(f, "it was taken after its %s", f.over)
	}
	if first := f.takes == 0; first && l.Took.Attempts == 1 && l.Took.ReadyAt-l.Took.Created < int64(f.Delay) {
		a.wrong(f, "it was ready too early")
	}
	if l.Took.ReadyAt > l.At+int64(time.Second) || l.Took.Key != f.Key || l.Took.Attempts < 1 {
		a.wrong(f, "it is another one now")
	}
	if h := f.holder; h != nil && !h.free {
		died, dead := a.killed[h.by]
		switch {
		case l.Took.Attempts > h.tries+1: // there was a take that nobody had time to write down
		case dead:
			a.back++
			late := int64(time.Second) // it was killed a little later than that was written down
			if l.Took.ReadyAt > died+int64(grace)+late && (h.until == 0 || l.Took.ReadyAt > h.until) {
				a.wrong(f, "it was back only %v after the end of %s", time.Duration(l.Took.ReadyAt-died), h.by)
			}
		case h.until != 0 && h.until <= l.At:
		default:
			a.unfounded(f, h)
		}
	}
	if f.Role == driver.AtEnd {
		a.memberless(f)
	}
	f.id = l.ID
	f.takes++
	f.holder = &holder{by: l.By, take: l.Take, tries: l.Took.Attempts, until: l.Until, since: l.At}
	a.inFlight(f)
}

// unfounded is called if a lease was lost though it has not run out, and who held it lives. That
// may only be if that process did not get to run, or to the database.
func (a *account) unfounded(f *fate, h *holder) {
	a.lost++
	held := a.stalled[h.by]
	for _, line := range a.calls {
		l := &a.lines[line-1]
		held = held || l.By == h.by && a.now.At-l.At > int64(stalled)
	}
	if !held && !a.rough {
		a.wrong(f, "%s has lost it %v after it has taken it", h.by, time.Duration(a.now.At-h.since))
	}
}

// inFlight looks whether more tasks of a key are taken than there may be.
func (a *account) inFlight(f *fate) {
	limit := queues[f.queue].MaxInFlightPerKey
	if limit == 0 {
		return
	}
	n := 0
	for _, other := range a.fates {
		if h := other.holder; other.queue == f.queue && other.Key == f.Key && h != nil && !h.free && a.killed[h.by] == 0 &&
			!a.stalled[h.by] && (h.until == 0 || h.until > a.now.At) {
			n++
		}
	}
	if n > limit {
		a.wrong(f, "%d tasks of its key are taken", n)
	}
}

// room looks whether there are more tasks than there may be. The end of a group can delete some
// that nobody writes down.
func (a *account) room(f *fate) {
	limit, keyLimit := queues[f.queue].Capacity, queues[f.queue].KeyCapacity
	if limit == 0 {
		return
	}
	n, ofKey := 0, 0
	for _, other := range a.fates {
		if other.queue == f.queue && other.put == yes && other.Group == "" && !a.mayBeOver(other) {
			if n++; other.Key == f.Key {
				ofKey++
			}
		}
	}
	a.fullest = max(a.fullest, n)
	if n > limit || keyLimit > 0 && ofKey > keyLimit {
		a.wrong(f, "there are %d tasks now, and %d of its key", n, ofKey)
	}
}

// memberless looks whether the members of a group may be gone, whose end has come.
func (a *account) memberless(end *fate) {
	for _, f := range a.groups[end.Group].tasks {
		if f.Role == driver.Member && f.put == yes && !a.mayBeOver(f) {
			a.wrong(end, "its group has a member left: %d", f.id)
		}
	}
}

// settled is called with what came of a call that was begun in that line.
func (a *account) settled(f *fate, l *Line, begun int) {
	switch l.Err {
	case "":
		if f.over != "" && (begun > f.overAt || l.Op == "ack" || l.Op == "discard") {
			a.wrong(f, "it was gone already, by %s", f.over)
		}
		if l.Op == "ack" || l.Op == "discard" {
			f.over, f.overAt = l.Op, a.line
		}
	case "lost":
		if h := f.holder; h.is(l) && (h.until == 0 || h.until > l.At) {
			a.unfounded(f, h)
		}
	}
}

// waited checks what one was told who has waited for a task.
func (a *account) waited(f *fate, l *Line) {
	a.waits++
	ok := false
	switch l.Err {
	case "":
		ok = f.settled["ack"] > 0
	case "buried " + f.Name:
		ok = f.settled["bury"] > 0
	case "discarded " + f.Name:
		ok = f.settled["discard"] > 0
	default:
		ok = f.MaxAttempts > 0 && l.Err == fmt.Sprintf("not done after %d attempts", f.MaxAttempts)
	}
	if !ok {
		a.wrong(f, "who waited was told %q", l.Err)
	}
}
