package monitor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/fairq/fairq/task"
)

// Action is something that a request would do.
type Action struct {
	Source string  // the name of the source
	Name   string  // one of those that [Options.Actions] lists
	Key    string  // as it is shown
	ID     task.ID // of a task
}

// The names of actions.
const (
	kick      = "kick"
	kickAll   = "kick-all"
	bury      = "bury"
	remove    = "delete"
	dropKey   = "drop-key"
	pause     = "pause"
	resume    = "resume"
	pauseKey  = "pause-key"
	resumeKey = "resume-key"
)

// Limits of an action.
const (
	maxForm       = 64 << 10
	maxKicked     = 1000
	maxDropped    = 1000
	actionTimeout = 30 * time.Second
)

var errNoKey = errors.New("there is no such key among those that are shown")

// act does an action, if it may.
func (m *Monitor) act(w http.ResponseWriter, r *http.Request) {
	s := m.source(w, r)
	if s == nil {
		return
	}
	a := Action{Source: s.name, Name: r.PathValue("action")}
	status, n, err := m.try(w, r, s, &a)
	log := m.options.Logger
	if log == nil {
		log = slog.Default()
	}
	attrs := []any{"source", a.Source, "action", shown(a.Name), "remote", r.RemoteAddr, "status", status}
	if a.Key != "" {
		attrs = append(attrs, "key", a.Key)
	}
	if a.ID != 0 {
		attrs = append(attrs, "id", uint64(a.ID))
	}
	if err != nil {
		log.WarnContext(r.Context(), "monitor: action", append(attrs, "error", err)...)
		fail(w, status, "%s", err)
		return
	}
	log.InfoContext(r.Context(), "monitor: action", append(attrs, "done", n)...)
	answer(w, status, map[string]int{"done": n})
}

// try reads the request into a, and does it.
func (m *Monitor) try(w http.ResponseWriter, r *http.Request, s *Source, a *Action) (status, n int, err error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return http.StatusMethodNotAllowed, 0, fmt.Errorf("the method is %s; it must be POST", shown(r.Method))
	}
	if err := m.origin.Check(r); err != nil {
		return http.StatusForbidden, 0, errors.New("the request is from a page of another origin")
	}
	if m.options.Actions == nil {
		return http.StatusForbidden, 0, errors.New("actions are not allowed here")
	}
	if !slices.Contains(s.of.actions(), a.Name) {
		return http.StatusNotFound, 0, errors.New("there is no such action here")
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return http.StatusBadRequest, 0, errors.New("the form cannot be read; its limit is 64 KiB")
	}
	switch a.Name {
	case kick, bury, remove:
		id, err := strconv.ParseUint(r.PostForm.Get("id"), 10, 64)
		if err != nil || id == 0 {
			return http.StatusBadRequest, 0, fmt.Errorf(
				"id is %s; it must be that of a task, a whole number from 1", shown(r.PostForm.Get("id")))
		}
		a.ID = task.ID(id)
	case dropKey, pauseKey, resumeKey:
		key := r.PostForm.Get("key")
		if len(key) == 0 || len(key) > maxQuery {
			return http.StatusBadRequest, 0, fmt.Errorf("key has %d bytes; the limits are 1 and %d", len(key), maxQuery)
		}
		a.Key = key
	}
	if !m.options.Actions(r, *a) {
		return http.StatusForbidden, 0, errors.New("this is not allowed")
	}
	last, _, err := s.sample(r.Context())
	if err != nil {
		return http.StatusServiceUnavailable, 0, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), actionTimeout)
	defer cancel()
	n, err = s.of.do(ctx, *a, last)
	switch {
	case err == nil:
		return http.StatusOK, n, nil
	case errors.Is(err, errNoKey), errors.Is(err, task.ErrNotFound):
		return http.StatusNotFound, 0, err
	case errors.Is(err, task.ErrTaken):
		return http.StatusConflict, 0, err
	default:
		return http.StatusInternalServerError, 0, err
	}
}
