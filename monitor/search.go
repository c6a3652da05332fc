package monitor

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"github.com/fairq/fairq/task"
)

// place is what a search has found.
type place struct {
	Key      string `json:"key"`
	Position *int   `json:"position"` // how many leave before its first item; null if not known
	MoreThan *int   `json:"more_than,omitempty"`
	Len      *int   `json:"len,omitempty"` // items queued, if that is known

	Own *task.KeyLimits `json:"own,omitempty"` // the limits that only this key has
}

// finder is a source that knows more of each key than a sample does.
type finder interface {
	// find returns the number of a key's items, nil if it is not known. It also returns the limits
	// that only this key has, nil if there are none.
	find(ctx context.Context, text string, last *sample) (n *int, own *task.KeyLimits, err error)
}

// search finds a key, or else a key that contains the text.
func search(s *Source, l *sample, r *http.Request) (any, error) {
	text := r.URL.Query().Get("key")
	if len(text) == 0 || len(text) > maxQuery {
		return nil, badRequest("key has %d bytes; the limits are 1 and %d", len(text), maxQuery)
	}
	f := place{Key: text}
	look := func(is func(key string) bool) (err error) {
		for i := range l.Upcoming {
			if is(l.Upcoming[i].Key) {
				f.Key, f.Position = l.Upcoming[i].Key, &i
				break
			}
		}
		for i := range l.Keys {
			if k := &l.Keys[i]; k.Key == f.Key || f.Position == nil && is(k.Key) {
				f.Key, f.Len = k.Key, &k.Backlog
				break
			}
		}
		if finder, ok := s.of.(finder); ok {
			var n *int
			n, f.Own, err = finder.find(r.Context(), f.Key, l)
			f.Len = cmp.Or(n, f.Len)
		}
		return err
	}
	err := look(func(key string) bool { return key == text })
	if f.Position == nil && (f.Len == nil || *f.Len == 0) && f.Own == nil && err == nil {
		err = look(func(key string) bool { return strings.Contains(key, text) })
	}
	if f.Position == nil && l.More && (f.Len == nil || *f.Len > 0) {
		f.MoreThan = new(len(l.Upcoming))
	}
	return f, err
}
