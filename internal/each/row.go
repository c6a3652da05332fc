package each

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// Row is a task as the page and the command show it.
type Row struct {
	ID          task.ID           `json:"id,string"`
	State       string            `json:"state"`
	Key         string            `json:"key"`
	Kind        string            `json:"kind,omitempty"`
	UniqueKey   string            `json:"unique_key,omitempty"`
	Group       string            `json:"group,omitempty"`
	Priority    int               `json:"priority"`
	Cost        int64             `json:"cost"`
	Attempts    int               `json:"attempts"`
	MaxAttempts int               `json:"max_attempts,omitempty"` // 0 means no limit
	TTR         time.Duration     `json:"ttr_ns,omitempty"`
	Created     time.Time         `json:"created"`
	ReadyAt     time.Time         `json:"ready_at,omitzero"`
	Until       time.Time         `json:"until,omitzero"` // of the delay, or the lease
	Expires     time.Time         `json:"expires,omitzero"`
	Consumer    string            `json:"consumer,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
}

// RowOf returns the row of a task. Its key and its texts that are not empty are as shown returns.
func RowOf(i *task.Info, shown func(string) string) Row {
	text := func(text string) string {
		if text == "" {
			return ""
		}
		return shown(text)
	}
	r := Row{
		i.ID, i.State.String(), shown(i.Key), text(i.Kind), text(i.UniqueKey), text(i.Group),
		i.Priority, i.Cost, i.Attempts, i.MaxAttempts, i.TTR, i.Created, i.ReadyAt, i.Until, i.Expires,
		text(i.Consumer), nil,
	}
	for name, value := range i.Metadata {
		if r.Metadata == nil {
			r.Metadata = map[string]string{}
		}
		r.Metadata[shown(name)] = shown(value)
	}
	return r
}

// Words returns limits in words.
func Words(l task.KeyLimits) string {
	var all []string
	add := func(is bool, format string, args ...any) {
		if is {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	add(l.Weight != 0, "weight %d", l.Weight)
	add(l.MaxInFlight > 0, "%d at a time", l.MaxInFlight)
	add(l.MaxInFlight < 0, "any number at a time")
	add(l.Rate.Limit > 0, "%.3g a second, up to %d at once", l.Rate.Limit, l.Rate.Burst)
	add(l.Rate.Limit < 0, "no rate")
	return strings.Join(all, ", ")
}

// KeyRow is a key as the page and the command show it.
type KeyRow struct {
	fairq.KeyStat[string]
	Why    string `json:"why,omitempty"`    // nothing of the key can be taken
	Limits string `json:"limits,omitempty"` // of its own

	NoWait *struct{} `json:"wait,omitempty"` // hides the histogram
}

// LimitsOf returns the first n keys of a queue that have limits of their own. It also returns how
// many tasks of any other key can be taken at the same time.
func LimitsOf[V any](
	ctx context.Context, q *task.Queue[V], n int,
) (own map[string]task.KeyLimits, most int, err error) {
	if most, err = q.MaxInFlight(ctx, ""); err != nil {
		return nil, 0, err
	}
	keys, err := q.LimitedKeys(ctx, "", n)
	own = make(map[string]task.KeyLimits, len(keys))
	for _, k := range keys {
		own[k.Key] = k.KeyLimits
	}
	return own, most, err
}

// Explain fills in the limits and why no task can be taken.
func (r *KeyRow) Explain(own task.KeyLimits, most int) {
	if own.MaxInFlight != 0 {
		most = own.MaxInFlight
	}
	switch r.Limits = Words(own); {
	case r.Paused:
		r.Why = "paused by PauseKey"
	case time.Until(r.WaitsUntil) > 0 && r.HeldUntil.Before(r.WaitsUntil):
		r.Why = "out of its rate"
	case time.Until(r.WaitsUntil) > 0:
		r.Why = "held"
	case most > 0 && r.Taken >= most:
		r.Why = fmt.Sprintf("at its limit of %d", most)
	}
}
