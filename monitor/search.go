package monitor

import (
	"net/http"
	"strings"
)

// place is what a search has found.
type place struct {
	Key      string `json:"key"`
	Position *int   `json:"position"` // how many leave before its first item; null if not known
	MoreThan *int   `json:"more_than,omitempty"`
	Len      *int   `json:"len,omitempty"` // items queued, if that is known
}

// search finds a key, or else a key that contains the text.
func search(s *Source, l *sample, r *http.Request) (any, error) {
	text := r.URL.Query().Get("key")
	if len(text) == 0 || len(text) > maxQuery {
		return nil, badRequest("key has %d bytes; the limits are 1 and %d", len(text), maxQuery)
	}
	counted, isCounted := s.of.(interface {
		keyLen(text string, last *sample) (n int, known bool)
	})
	f := place{Key: text}
	look := func(is func(key string) bool) {
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
		if isCounted {
			if n, known := counted.keyLen(f.Key, l); known {
				f.Len = &n
			}
		}
	}
	look(func(key string) bool { return key == text })
	if f.Position == nil && (f.Len == nil || *f.Len == 0) {
		look(func(key string) bool { return strings.Contains(key, text) })
	}
	if f.Position == nil && l.More && (f.Len == nil || *f.Len > 0) {
		f.MoreThan = new(len(l.Upcoming))
	}
	return f, nil
}
