package each

import (
	"time"

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
