package monitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/fairq/fairq/internal/each"
	"github.com/fairq/fairq/task"
)

// Action is something that a request would do.
type Action struct {
	Source string  // the name of the source
	Name   string  // an action of [Options.Actions]
	Key    string  // as it is shown
	ID     task.ID // of a task
	Kind   string  // as it is shown; of kick-all and delete-all, as are Key and Reason, empty for any
	Reason string  // as in a group of failures

	Limits task.KeyLimits // of limit-key
}

// The names of actions.
const (
	kick      = "kick"
	kickAll   = "kick-all"
	bury      = "bury"
	remove    = "delete"
	removeAll = "delete-all"
	dropKey   = "drop-key"
	pause     = "pause"
	resume    = "resume"
	pauseKey  = "pause-key"
	resumeKey = "resume-key"
	limitKey  = "limit-key"
)

// Limits of an action.
const (
	maxForm       = 64 << 10
	maxKicked     = 1000 // in a transaction
	actionTimeout = 30 * time.Second
)

var errNoKey = refuse(http.StatusNotFound, "there is no such key among those that are shown")

// act does an action, if it may.
func (m *Monitor) act(w http.ResponseWriter, r *http.Request, s *Source, name string) {
	a := Action{Source: s.name, Name: name}
	n, more, err := m.try(w, r, s, &a)
	status := statusOf(err)
	log := cmp.Or(m.options.Logger, slog.Default()).With(
		"source", a.Source, "action", shown(a.Name), "remote", r.RemoteAddr, "status", status,
		"key", a.Key, "id", uint64(a.ID), "kind", a.Kind, "reason", a.Reason)
	if err != nil {
		log.WarnContext(r.Context(), "monitor: action", "error", err)
		fail(w, status, "%s", err)
		return
	}
	log.InfoContext(r.Context(), "monitor: action", "done", n)
	answer(w, status, struct {
		Done int  `json:"done"`
		More bool `json:"more,omitempty"`
	}{n, more})
}

// try reads the request into a, and does it.
func (m *Monitor) try(
	w http.ResponseWriter, r *http.Request, s *Source, a *Action,
) (n int, more bool, err error) {
	if err := m.read(w, r, s, a); err != nil {
		return 0, false, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), actionTimeout)
	defer cancel()
	n, more, err = s.of.(actor).do(ctx, *a, s.lastSample())
	s.tasks.Store(nil)
	s.mu.Lock()
	s.next = time.Time{} // so that the sender sees the result at once
	s.mu.Unlock()
	return n, more, err
}

// read reads the request into a. It returns an error if it may not be done.
func (m *Monitor) read(
	w http.ResponseWriter, r *http.Request, s *Source, a *Action,
) (err error) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	switch {
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		return refuse(http.StatusMethodNotAllowed, "the method is %s; it must be POST", shown(r.Method))
	case m.origin.Check(r) != nil:
		return refuse(http.StatusForbidden, "the request is from a page of another origin")
	case m.options.Actions == nil:
		return refuse(http.StatusForbidden, "actions are not allowed here")
	case !slices.Contains(s.actions, a.Name):
		return refuse(http.StatusNotFound, "there is no such action here")
	case r.ParseForm() != nil:
		return badRequest("the form cannot be read; its limit is 64 KiB")
	}
	for name, field := range map[string]*string{"key": &a.Key, "kind": &a.Kind, "reason": &a.Reason} {
		if *field = r.PostForm.Get(name); len(*field) > maxQuery {
			return badRequest("%s has %d bytes; the limit is %d", name, len(*field), maxQuery)
		}
	}
	switch a.Name {
	case kick, bury, remove:
		if a.ID, err = idOf(r.PostForm.Get("id")); err != nil {
			return err
		}
	case dropKey, pauseKey, resumeKey, limitKey:
		if a.Key == "" {
			return badRequest("there is no key")
		}
	}
	for name, field := range map[string]any{
		"weight": &a.Limits.Weight, "max_in_flight": &a.Limits.MaxInFlight,
		"rate": &a.Limits.Rate.Limit, "burst": &a.Limits.Rate.Burst,
	} {
		text := r.PostForm.Get(name)
		if text == "" || a.Name != limitKey {
			continue
		}
		if _, err := fmt.Sscanln(text, field); err != nil {
			return badRequest("%s is %s; it must be a number", name, shown(text))
		}
	}
	if !slices.Contains(m.permitted(r, []Action{*a}), *a) {
		return refuse(http.StatusForbidden, "this is not allowed")
	}
	_, _, err = s.sample(r.Context()) // because it maps texts to keys
	return err
}

// idOf reads the id of a task.
func idOf(text string) (task.ID, error) {
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil || id == 0 {
		return 0, badRequest("id is %s; it must be that of a task, a whole number from 1", shown(text))
	}
	return task.ID(id), nil
}

var errByMonitor = errors.New("buried by hand")

func (q *taskQueue[V]) do(
	ctx context.Context, a Action, last *sample,
) (n int, more bool, err error) {
	o, err := selection{key: a.Key, kind: a.Kind}.options(last)
	if err != nil {
		return 0, false, err
	}
	if o.Key != nil {
		q.changed.Store(true)
	}
	n = 1
	switch a.Name {
	case kick:
		err = q.KickID(ctx, a.ID)
	case bury:
		err = q.BuryUnlessTaken(ctx, a.ID, errByMonitor)
	case remove:
		err = q.DeleteUnlessTaken(ctx, a.ID)
	case pause:
		err = q.Pause(ctx)
	case resume:
		err = q.Resume(ctx)
	case pauseKey:
		err = q.PauseKey(ctx, *o.Key)
	case resumeKey:
		err = q.ResumeKey(ctx, *o.Key)
	case limitKey:
		err = q.SetKey(ctx, *o.Key, &a.Limits)
	default:
		n = 0
	}
	if n > 0 {
		return n, false, err
	}
	if a.Name != dropKey {
		o.State = task.Buried
	}
	switch {
	case a.Name == dropKey, a.Name == removeAll && a.Reason == "":
		n, err = q.DeleteSome(ctx, o)
		return finished(ctx, n, err)
	case a.Name == removeAll:
		return q.each(ctx, o, a.Reason, q.DeleteUnlessTaken)
	case a.Reason != "":
		return q.each(ctx, o, a.Reason, q.KickID)
	}
	// Count first, so that a task that fails again is not kicked again and again.
	left, err := q.Count(ctx, o)
	for err == nil && left > 0 {
		var some int
		o.Limit = min(left, maxKicked)
		if some, err = q.Kick(ctx, o); some == 0 {
			break
		}
		n, left = n+some, left-some
	}
	return finished(ctx, n, err)
}

// each calls do for each task that has failed for the reason, in the order of their ids.
func (q *taskQueue[V]) each(
	ctx context.Context, o task.ListOptions, reason string, do func(context.Context, task.ID) error,
) (n int, more bool, err error) {
	failed := func(t *task.Task[V]) bool { return reason == groupOf(t).Reason }
	n, err = each.Do(ctx, q.read(ctx, o, maxRead), failed, do)
	return finished(ctx, n, err)
}

// finished returns the result of an action. If ctx is done, more tasks may be left.
func finished(ctx context.Context, n int, err error) (int, bool, error) {
	more := err != nil && n > 0 && ctx.Err() != nil
	if more {
		err = nil
	}
	return n, more, err
}
