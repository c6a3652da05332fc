package faulttest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairq/fairq/internal/driver"
)

// certainty is whether something has happened.
type certainty uint8

const (
	maybe certainty = iota
	yes
	no
)

// taskHistory is a task by the journal.
type taskHistory struct {
	putTask
	queue   string
	batch   []*taskHistory // tasks put together
	began   int            // the line
	put     certainty
	id      driver.ID
	holder  *holder
	takes   int            // in the journal
	snoozes int            // that were begun, and other ends of leases that do not count
	settled map[string]int // how often that was begun, by Op
	goneBy  string         // it is gone, by this Op
	goneAt  int            // the line
	ended   *driver.Ended
}

// holder is the last consumer that has taken a task.
type holder struct {
	by    string
	take  int64 // the number of the take
	tries int
	until int64 // when the lease runs out at the latest
	since int64
	free  bool // it may have been given back
}

// is reports whether the lease in a line is still the last one.
func (h *holder) is(l *line) bool { return h.by == l.By && h.take == l.Take }

// group is a group by the journal.
type group struct {
	tasks     []*taskHistory
	started   bool // maybe
	cancelled bool
}

// audit checks a journal line by line against the promises of package task, and then the final
// contents of the database.
type audit struct {
	t      testing.TB
	report func(format string, args ...any) // of a mistake

	lines      []line
	line       int
	current    *line
	tasks      map[string]*taskHistory
	groups     map[string]*group
	uniqueKeys map[string]*taskHistory // its last certain holder
	calls      map[string]int          // lines of calls that have begun and not ended
	batches    map[string][]*taskHistory
	killed     map[string]int64
	stalled    map[string]bool

	// outages is set if the database fails: then calls may return errors, and their outcome may be
	// unknown.
	outages bool

	// late is set if servers are killed too: then nothing bounds the time of a recovery.
	late bool

	errors                               int
	kills, waits, back, lost, unrecorded int
	longest                              time.Duration // call
}

func newAudit(t testing.TB) *audit {
	a := &audit{
		t: t, tasks: map[string]*taskHistory{}, groups: map[string]*group{},
		uniqueKeys: map[string]*taskHistory{}, calls: map[string]int{},
		batches: map[string][]*taskHistory{}, killed: map[string]int64{}, stalled: map[string]bool{},
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

func (a *audit) wrong(f *taskHistory, what string, args ...any) {
	a.t.Helper()
	var history strings.Builder
	for i, l := range a.lines {
		about := l.Name == f.Name || l.Name == f.Group && f.Group != "" ||
			f.holder != nil && l.Name == f.holder.by
		if about || slices.ContainsFunc(l.Puts, func(p putTask) bool { return p.Name == f.Name }) {
			l.Puts = nil
			text, _ := json.Marshal(l)
			fmt.Fprintf(&history, "\n%d: %s", i+1, text)
		}
	}
	a.report("line %d: task %d %+v: %s%s", a.line, f.id, f.putTask,
		fmt.Sprintf(what, args...), history.String())
}

// read goes through a journal.
func (a *audit) read(lines []line) {
	a.lines = lines
	a.findStalled()
	for i := range lines {
		a.line, a.current = i+1, &lines[i]
		a.step(a.current)
	}
	a.current = nil
}

// findStalled finds processes that could not run, or not reach the database, for a while: these
// may lose leases. It reads the whole journal first, because a stall is written down only at its
// end.
func (a *audit) findStalled() {
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

// step checks a line.
func (a *audit) step(l *line) {
	call := fmt.Sprint(l.By, " ", l.Call)
	begun := a.begun(call, l)
	if l.Err != "" && ruleErrors[l.Err] == nil && l.Op != "waited" {
		if a.errors++; !a.outages || !named.MatchString(l.Err) {
			a.report("line %d: %s of %s: %s", a.line, l.Op, l.Name, l.Err)
		}
	}
	f := a.tasks[l.Name]
	switch {
	case l.Op == "kill":
		a.kills++
		a.killed[l.Name] = l.At
	case l.Op == "stalled": // see findStalled
	case l.Op == "close":
		for _, f := range a.tasks {
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
	case f == nil:
		a.report("line %d: %s of %q, which was never put", a.line, l.Op, l.Name)
	case l.Op == "took":
		a.took(f, l)
	case l.Op == "touch":
		if l.Done && l.Err == "" && f.holder.is(l) {
			f.holder.until = l.Until
		}
	case l.Op == "waited":
		a.waited(f, l)
	case !l.Done:
		f.settled[l.Op]++
		if f.holder.is(l) {
			f.holder.free = true
		}
		if l.Op == "snooze" {
			f.snoozes++
		}
	default:
		a.settled(f, l, begun)
	}
}

// begun returns the line in which the call that ends in this line began, 0 if there is none.
func (a *audit) begun(call string, l *line) int {
	begun := a.calls[call]
	switch {
	case l.Done && begun > 0:
		a.longest = max(a.longest, time.Duration(l.At-a.lines[begun-1].At))
		delete(a.calls, call)
		return begun
	case l.Call > 0 && !l.Done:
		a.calls[call] = a.line
	}
	return 0
}

// named is an error that names the call, the queue, the database and the operation that failed.
var named = regexp.MustCompile(`^error: (task: [A-Z]\w+, queue ".*": )?(it is not known whether ` +
	`it was done: )?(sqlite|postgres): [^ ]+: [a-z ]+: `)

func (a *audit) beginPut(call string, l *line) {
	var batch []*taskHistory
	for _, p := range l.Puts {
		f := &taskHistory{putTask: p, queue: l.Queue, began: a.line, settled: map[string]int{}}
		batch = append(batch, f)
		if a.tasks[p.Name] != nil {
			a.report("line %d: there is another task of this name", a.line)
		}
		a.tasks[p.Name] = f
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

func (a *audit) endPut(batch []*taskHistory, l *line) {
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
			a.checkRoom(f)
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

// mayBeOver reports whether a task may have left already.
func (a *audit) mayBeOver(f *taskHistory) bool {
	return f.settled["ack"]+f.settled["discard"] > 0
}

func (a *audit) took(f *taskHistory, l *line) {
	// others may have taken it, and acked it, before this was written down
	if f.takes > 0 && l.Until != 0 && l.Until <= l.At {
		f.takes++
		f.holder.free = true // this lease may be later than that one
		return
	}
	if f.put == no || f.id != 0 && f.id != l.ID {
		a.wrong(f, "it was taken, but not put, or with another id")
	}
	if f.goneBy != "" {
		a.wrong(f, "it was taken after its %s", f.goneBy)
	}
	if first := f.takes == 0; first && l.Took.Attempts == 1 &&
		l.Took.ReadyAt-l.Took.Created < int64(f.Delay) {
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
			late := int64(time.Second) // the process died a little after the line of its kill
			// The task was kicked, at an unknown time, after a bury that took the lease away.
			kicked := l.Took.Attempts <= h.tries
			if !a.late && !kicked && l.Took.ReadyAt > died+int64(grace)+late &&
				(h.until == 0 || l.Took.ReadyAt > h.until) {
				a.wrong(f, "it was back only %v after the end of %s", time.Duration(l.Took.ReadyAt-died), h.by)
			}
		case h.until != 0 && h.until <= l.At:
		default:
			a.lostLease(f, h)
		}
	}
	if f.Role == driver.AtEnd {
		a.checkMembers(f)
	}
	f.id = l.ID
	f.takes++
	f.holder = &holder{by: l.By, take: l.Take, tries: l.Took.Attempts, until: l.Until, since: l.At}
	a.checkInFlight(f)
}

// lostLease checks a lease that was lost although it has not run out and its process lives. That
// may happen only if the process could not run, or not reach the database.
func (a *audit) lostLease(f *taskHistory, h *holder) {
	a.lost++
	held := a.stalled[h.by]
	for _, line := range a.calls {
		l := &a.lines[line-1]
		held = held || l.By == h.by && a.current.At-l.At > int64(stalled)
	}
	if !held && !a.outages {
		a.wrong(f, "%s has lost it %v after it has taken it", h.by, time.Duration(a.current.At-h.since))
	}
}

// checkInFlight checks that no more tasks of a key are taken than MaxInFlightPerKey allows.
func (a *audit) checkInFlight(f *taskHistory) {
	limit := queues[f.queue].MaxInFlightPerKey
	if limit == 0 {
		return
	}
	n := 0
	for _, other := range a.tasks {
		if h := other.holder; other.queue == f.queue && other.Key == f.Key && h != nil && !h.free &&
			a.killed[h.by] == 0 &&
			!a.stalled[h.by] && (h.until == 0 || h.until > a.current.At) {
			n++
		}
	}
	if n > limit {
		a.wrong(f, "%d tasks of its key are taken", n)
	}
}

// checkRoom checks the capacities. It does not count tasks of groups, because the end of a group
// can delete tasks that no journal has.
func (a *audit) checkRoom(f *taskHistory) {
	limit, keyLimit := queues[f.queue].Capacity, queues[f.queue].KeyCapacity
	if limit == 0 {
		return
	}
	n, ofKey := 0, 0
	for _, other := range a.tasks {
		if other.queue == f.queue && other.put == yes && other.Group == "" && !a.mayBeOver(other) {
			if n++; other.Key == f.Key {
				ofKey++
			}
		}
	}
	if n > limit || keyLimit > 0 && ofKey > keyLimit {
		a.wrong(f, "there are %d tasks now, and %d of its key", n, ofKey)
	}
}

// checkMembers checks that a task which comes at the end of its group has come after all members.
func (a *audit) checkMembers(end *taskHistory) {
	for _, f := range a.groups[end.Group].tasks {
		if f.Role == driver.Member && f.put == yes && !a.mayBeOver(f) {
			a.wrong(end, "its group has a member left: %d", f.id)
		}
	}
}

// settled checks the end of a call that settles a task; begun is the line in which it began.
func (a *audit) settled(f *taskHistory, l *line, begun int) {
	switch l.Err {
	case "":
		if f.goneBy != "" && (begun > f.goneAt || l.Op == "ack" || l.Op == "discard") {
			a.wrong(f, "it was gone already, by %s", f.goneBy)
		}
		if l.Op == "ack" || l.Op == "discard" {
			f.goneBy, f.goneAt = l.Op, a.line
		}
	case "lost":
		if h := f.holder; h.is(l) && (h.until == 0 || h.until > l.At) {
			a.lostLease(f, h)
		}
	}
}

// waited checks the result of a Wait.
func (a *audit) waited(f *taskHistory, l *line) {
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
