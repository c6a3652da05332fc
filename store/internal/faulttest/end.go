package faulttest

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/fairq/fairq/internal/driver"
)

// end compares the journal with the tasks that have left, which must be all.
func (a *audit) end(gone map[string][]driver.Ended) {
	for queue, list := range gone {
		last := map[string]*driver.Ended{}
		for i := range list {
			e := &list[i]
			var name string
			if err := json.Unmarshal(e.Payload, &name); err != nil {
				a.report("task %+v has the payload %q", e, e.Payload)
				continue
			}
			f := a.tasks[name]
			switch {
			case f == nil || f.queue != queue:
				a.report("task %d %q was never put", e.ID, name)
				continue
			case f.ended != nil:
				a.wrong(f, "it has ended twice, also as %d", e.ID)
			}
			f.ended = e
			if e.UniqueKey != "" {
				if before := last[e.UniqueKey]; before != nil && before.At.After(e.Created.Add(time.Second)) {
					a.wrong(f, "its unique key was that of task %d until %v, it was put at %v", before.ID,
						before.At, e.Created)
				}
				last[e.UniqueKey] = e
			}
		}
	}
	for _, f := range a.tasks {
		a.endOf(f)
	}
	for name, g := range a.groups {
		a.endOfGroup(name, g)
	}
}

func (a *audit) endOf(f *taskHistory) {
	e := f.ended
	switch {
	case f.put == yes && e == nil:
		a.wrong(f, "it is lost")
	case f.put == no && e != nil:
		a.wrong(f, "it was refused, but is there")
	case f.put == maybe && e != nil:
		for _, before := range f.batch {
			if before == f {
				break
			}
			if before.ended == nil {
				a.wrong(f, "the one before it in its batch is not there")
			}
		}
		if last := f.batch[len(f.batch)-1]; f.queue == "plain" && last.ended == nil {
			a.wrong(f, "the last of its batch is not there")
		}
	}
	if e == nil {
		return
	}
	if f.id != 0 && e.ID != f.id || e.Key != f.Key || e.UniqueKey != f.UniqueKey {
		a.wrong(f, "it has ended as another one: %+v", e)
	}
	failed := (*driver.Error)(nil)
	ok := false
	switch {
	case e.Outcome == nil:
		ok = f.settled["ack"] > 0 && f.goneBy != "discard"
	case errors.As(e.Outcome, &failed):
		ok = failed.Message == "discarded "+f.Name && f.settled["discard"] > 0 && f.goneBy != "ack"
	case errors.Is(e.Outcome, driver.ErrDeleted):
		ok = f.Group != "" && f.goneBy == ""
	}
	if !ok {
		a.wrong(f, "it has ended with %v", e.Outcome)
	}
	if f.settled["bury"] > 0 || f.MaxAttempts > 0 || errors.Is(e.Outcome, driver.ErrDeleted) {
		return // how often it was taken is unknown
	}
	if e.Attempts < f.takes-f.snoozes {
		a.wrong(f, "it has %d attempts, but was taken %d times", e.Attempts, f.takes)
	}
	a.unrecorded += max(0, e.Attempts-f.takes)
}

// endOfGroup checks that a group has had the right one of its two ends.
func (a *audit) endOfGroup(name string, g *group) {
	for _, f := range g.tasks {
		if f.ended == nil {
			continue
		}
		deleted := errors.Is(f.ended.Outcome, driver.ErrDeleted)
		wrong := false
		switch f.Role {
		case driver.Member:
			wrong = deleted && !g.cancelled
		case driver.AtEnd:
			wrong = deleted && !g.cancelled || !deleted && !g.started
		case driver.AtAbort:
			wrong = deleted && !g.started || !deleted && !g.cancelled
		}
		if wrong {
			a.wrong(f, "group %s: it has ended with %v", name, f.ended.Outcome)
		}
	}
	deleted := func(f *taskHistory) bool { return errors.Is(f.ended.Outcome, driver.ErrDeleted) }
	if len(g.tasks) > 1 && g.tasks[0].ended != nil && g.tasks[1].ended != nil &&
		deleted(g.tasks[0]) == deleted(g.tasks[1]) {
		a.report("group %s: both its ends have come, or none", name)
	}
}
