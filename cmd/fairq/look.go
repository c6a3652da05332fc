package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/each"
	"github.com/fairq/fairq/internal/printable"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/driver"
)

// print prints a value as JSON, or what table writes: cells that end in tabs.
func (c *call) print(v any, table func(w io.Writer)) error {
	if c.json {
		e := json.NewEncoder(c.out)
		e.SetIndent("", "  ")
		return e.Encode(v)
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	table(w)
	return w.Flush()
}

// openNamed opens the queue that the first argument names.
func (c *call) openNamed(ctx context.Context) (*queue, error) {
	name, err := printable.Parse(c.args[0])
	if err != nil {
		return nil, usage("the queue %v", err)
	}
	return c.open(ctx, name)
}

// queueRow has the numbers of a queue, without the counters of task.Stats: these count the calls
// of this process, which makes none.
type queueRow struct {
	Name     string `json:"name"`
	Ready    int    `json:"ready"`
	Delayed  int    `json:"delayed"`
	Taken    int    `json:"taken"`
	Buried   int    `json:"buried"`
	Held     int    `json:"held"`
	Keys     int    `json:"keys"`
	Counted  int    `json:"counted"`            // tasks that count in the capacity
	Capacity int    `json:"capacity,omitempty"` // 0 means no limit
	Paused   bool   `json:"paused"`
}

func rowOf(ctx context.Context, q *queue) (queueRow, error) {
	s, err := q.Stats(ctx)
	row := queueRow{
		printable.Text(q.Name()), s.Ready, s.Delayed, s.Taken, s.Buried, s.Held, s.Keys, s.Counted,
		s.Capacity, s.Paused,
	}
	if row.Capacity == fairq.MaxLen {
		row.Capacity = 0
	}
	return row, err
}

func queues(ctx context.Context, c *call) error {
	names, err := c.store.Queues(ctx, "", 0)
	if err != nil {
		return err
	}
	rows := []queueRow{}
	for _, name := range names {
		q, err := c.open(ctx, name)
		var row queueRow
		if err == nil {
			row, err = rowOf(ctx, q)
			_ = q.Close(ctx)
		}
		switch {
		case err == nil:
			rows = append(rows, row)
		case !errors.Is(err, task.ErrNotFound) && !errors.Is(err, task.ErrDropped):
			return err // any other queue was dropped since it was listed
		}
	}
	return c.print(map[string]any{"queues": rows}, func(w io.Writer) {
		fmt.Fprintln(w, "QUEUE\tREADY\tDELAYED\tTAKEN\tBURIED\tHELD\tKEYS\t")
		for _, r := range rows {
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t", r.Name, r.Ready, r.Delayed, r.Taken,
				r.Buried, r.Held, r.Keys)
			if r.Paused {
				fmt.Fprint(w, "paused")
			}
			fmt.Fprintln(w)
		}
	})
}

func stats(ctx context.Context, c *call) error {
	q, err := c.openNamed(ctx)
	if err != nil {
		return err
	}
	r, err := rowOf(ctx, q)
	if err != nil {
		return err
	}
	return c.print(r, func(w io.Writer) {
		capacity := "no limit"
		if r.Capacity > 0 {
			capacity = fmt.Sprintf("%d, of which %d are used", r.Capacity, r.Counted)
		}
		fmt.Fprintf(w,
			"ready\t%d\ndelayed\t%d\ntaken\t%d\nburied\t%d\nheld\t%d\nkeys\t%d\ncapacity\t%s\npaused\t%v\n",
			r.Ready, r.Delayed, r.Taken, r.Buried, r.Held, r.Keys, capacity, r.Paused)
	})
}

func keys(ctx context.Context, c *call) error {
	q, err := c.openNamed(ctx)
	if err != nil {
		return err
	}
	n := c.limit
	if c.paused {
		n = 0 // the paused keys are there too
	}
	found, err := q.KeyStats(ctx, n, fairq.ByBacklog)
	if err != nil {
		return err
	}
	type keyRow struct {
		Key     string        `json:"key"`
		Backlog int           `json:"backlog"` // tasks that are ready, delayed or held
		Taken   int           `json:"taken"`
		Buried  int           `json:"buried"`
		Paused  bool          `json:"paused"`
		Oldest  time.Duration `json:"oldest_age_ns,omitempty"` // of the first that is ready or delayed
		Waits   time.Time     `json:"waits_until,omitzero"`    // see task.Queue.HoldKey
	}
	rows := []keyRow{}
	for _, k := range found {
		rows = append(rows, keyRow{
			printable.Text(k.Key), k.Backlog, k.Taken, k.Buried, k.Paused, k.OldestAge, k.WaitsUntil,
		})
	}
	return c.print(map[string]any{"keys": rows}, func(w io.Writer) {
		fmt.Fprintln(w, "KEY\tBACKLOG\tTAKEN\tBURIED\tOLDEST\t")
		for _, r := range rows {
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%v\t", r.Key, r.Backlog, r.Taken, r.Buried,
				r.Oldest.Round(time.Millisecond))
			switch {
			case r.Paused:
				fmt.Fprint(w, "paused")
			case !r.Waits.IsZero():
				fmt.Fprint(w, "waits until ", r.Waits.Format(time.DateTime))
			}
			fmt.Fprintln(w)
		}
	})
}

// taskRow is a task.
type taskRow struct {
	each.Row
	Role  string `json:"role,omitempty"`
	Error string `json:"error,omitempty"`

	Payload       json.RawMessage `json:"payload,omitempty"`        // if it is JSON
	PayloadBase64 []byte          `json:"payload_base64,omitempty"` // if it is not

	text string // the payload
}

func (c *call) row(i *task.Info, payload []byte) taskRow {
	r := taskRow{Row: each.RowOf(i, printable.Text)}
	if i.Group != "" {
		r.Role = i.Role.String()
	}
	if i.Err != nil {
		r.Error = printable.Text(i.Err.Message)
	}
	if c.payload {
		if r.text = printable.Text(string(payload)); json.Valid(payload) {
			r.Payload = payload
		} else {
			r.PayloadBase64 = payload
		}
	}
	return r
}

// printTasks prints a list of tasks.
func (c *call) printTasks(rows []taskRow) error {
	return c.print(map[string]any{"tasks": rows}, func(w io.Writer) {
		header := "ID\tSTATE\tKEY\tKIND\tATTEMPTS\tPUT\tUNTIL\tERROR\t"
		if c.payload {
			header += "PAYLOAD\t"
		}
		fmt.Fprintln(w, header)
		for _, r := range rows {
			cells := []string{
				strconv.FormatUint(uint64(r.ID), 10), r.State, r.Key, r.Kind, strconv.Itoa(r.Attempts),
				ago(r.Created), ago(r.Until), r.Error,
			}
			if c.payload {
				cells = append(cells, r.text)
			}
			for _, cell := range cells {
				fmt.Fprint(w, cmp.Or(cell, "-"), "\t")
			}
			fmt.Fprintln(w)
		}
	})
}

func next(ctx context.Context, c *call) error {
	q, err := c.openNamed(ctx)
	if err != nil {
		return err
	}
	found, err := q.Upcoming(ctx, c.limit)
	if err != nil {
		return err
	}
	rows := []taskRow{}
	for i := range found {
		rows = append(rows, c.row(&found[i].Info, nil))
	}
	return c.printTasks(rows)
}

func list(ctx context.Context, c *call) error {
	if c.soonest && c.state != task.Delayed && c.state != task.Buried {
		return usage("-soonest is for -state delayed or buried")
	}
	if c.soonest && c.reason != "" {
		return usage("-soonest and -reason do not go together")
	}
	q, err := c.openNamed(ctx)
	if err != nil {
		return err
	}
	n := min(c.limit, 1000)
	switch {
	case c.soonest: // this order has no pages
		n = c.limit
	case c.reason != "": // most tasks may have another one
		n = 1000
	}
	rows := []taskRow{}
	for t, err := range c.tasks(ctx, q, n) {
		if err != nil {
			return err
		}
		if !c.hasReason(t) {
			continue
		}
		info := t.Info()
		if rows = append(rows, c.row(&info, t.Payload)); len(rows) == c.limit {
			break
		}
	}
	return c.printTasks(rows)
}

// history lists tasks that are gone, the latest end first. The store has them in the order
// of their ids, so it reads all.
func history(ctx context.Context, c *call) error {
	name, err := printable.Parse(c.args[0])
	if err != nil {
		return usage("the queue %v", err)
	}
	s, ok := c.store.(interface {
		History(ctx context.Context, queue string, after driver.ID, n int) ([]driver.Ended, error)
	})
	if !ok {
		return errors.New("this store keeps no history")
	}
	type endedRow struct {
		taskRow
		At      time.Time `json:"at"`
		Outcome string    `json:"outcome"`
	}
	rows, after, page := []endedRow{}, task.ID(c.after), 1000
	if c.id != 0 {
		after, page = task.ID(c.id)-1, 1
	}
	for more := true; more; {
		found, err := s.History(ctx, name, after, page)
		if err != nil {
			return err
		}
		for i := range found {
			e := &found[i]
			after = e.ID
			if c.id != 0 && uint64(e.ID) != c.id || c.key != nil && e.Key != *c.key ||
				c.kind != nil && e.Kind != *c.kind {
				continue
			}
			info := task.Info(e.Info)
			row := endedRow{c.row(&info, e.Payload), e.At, "done"}
			if row.State = ""; e.Outcome != nil {
				row.Outcome = printable.Text(e.Outcome.Error())
			}
			rows = append(rows, row)
		}
		slices.SortFunc(rows, func(a, b endedRow) int {
			return cmp.Or(b.At.Compare(a.At), cmp.Compare(b.ID, a.ID))
		})
		rows = rows[:min(len(rows), c.limit)]
		more = len(found) == page && c.id == 0
	}
	return c.print(map[string]any{"tasks": rows}, func(w io.Writer) {
		fmt.Fprintln(w, "ID\tKEY\tKIND\tATTEMPTS\tPUT\tGONE\tOUTCOME\t")
		for _, r := range rows {
			fmt.Fprintf(w, "%d\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", r.ID, r.Key, cmp.Or(r.Kind, "-"), r.Attempts,
				ago(r.Created), ago(r.At), r.Outcome, r.text)
		}
	})
}

func peek(ctx context.Context, c *call) error {
	q, err := c.openNamed(ctx)
	if err != nil {
		return err
	}
	ids, err := c.ids()
	if err != nil {
		return err
	}
	rows, errs := []taskRow{}, []error(nil)
	for _, id := range ids {
		t, err := q.Peek(ctx, id)
		if err != nil {
			errs = append(errs, aboutTask(id, err))
			continue
		}
		info := t.Info()
		rows = append(rows, c.row(&info, t.Payload))
	}
	err = c.print(map[string]any{"tasks": rows}, func(w io.Writer) {
		for i := range rows {
			if i > 0 {
				fmt.Fprintln(w)
			}
			rows[i].write(w)
		}
	})
	return errors.Join(append(errs, err)...)
}

// write prints all fields, one a line.
func (r *taskRow) write(w io.Writer) {
	most := "no limit"
	if r.MaxAttempts > 0 {
		most = strconv.Itoa(r.MaxAttempts)
	}
	for _, line := range []struct {
		name  string
		value any
	}{
		{"id", r.ID},
		{"state", r.State},
		{"key", r.Key},
		{"kind", r.Kind},
		{"unique key", r.UniqueKey},
		{"group", strings.TrimSpace(r.Group + " " + r.Role)},
		{"priority", r.Priority},
		{"cost", r.Cost},
		{"attempts", r.Attempts},
		{"max attempts", most},
		{"time to run", r.TTR},
		{"put", r.Created},
		{"ready", r.ReadyAt},
		{"until", r.Until},
		{"expires", r.Expires},
		{"consumer", r.Consumer},
		{"error", r.Error},
		{"payload", r.text},
	} {
		switch v := line.value.(type) {
		case time.Time:
			if !v.IsZero() {
				fmt.Fprintf(w, "%s\t%s\t(%s)\n", line.name, v.Format(time.RFC3339Nano), ago(v))
			}
		case time.Duration:
			if v != 0 {
				fmt.Fprintf(w, "%s\t%v\n", line.name, v)
			}
		case string:
			if v != "" {
				fmt.Fprintf(w, "%s\t%s\n", line.name, v)
			}
		default:
			fmt.Fprintf(w, "%s\t%v\n", line.name, v)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Metadata)) {
		fmt.Fprintf(w, "metadata %s\t%s\n", name, r.Metadata[name])
	}
}

// ago returns how long ago a time was, or when it will be.
func ago(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	d := time.Since(at)
	unit := time.Millisecond
	if d.Abs() > time.Minute {
		unit = time.Second
	}
	if d < 0 {
		return "in " + (-d).Round(unit).String()
	}
	return d.Round(unit).String() + " ago"
}
