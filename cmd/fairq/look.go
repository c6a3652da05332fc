package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/each"
	"github.com/fairq/fairq/internal/printable"
	"github.com/fairq/fairq/task"
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
	return c.print(r, func(w io.Writer) { fields(w, reflect.ValueOf(r)) })
}

func keys(ctx context.Context, c *call) error {
	q, err := c.openNamed(ctx)
	if err != nil {
		return err
	}
	n := c.limit
	if c.paused {
		n = 0 // the keys that are paused or wait are there too
	}
	found, err := q.KeyStats(ctx, n, fairq.ByBacklog)
	if err != nil {
		return err
	}
	own, most, err := each.LimitsOf(ctx, q, maxLimit)
	if err != nil {
		return err
	}
	rows := []each.KeyRow{}
	for _, k := range found {
		row := each.KeyRow{KeyStat: k}
		row.Key = printable.Text(k.Key)
		row.Explain(own[k.Key], most)
		rows = append(rows, row)
	}
	return c.print(map[string]any{"keys": rows}, func(w io.Writer) {
		fmt.Fprintln(w, "KEY\tBACKLOG\tTAKEN\tBURIED\tOLDEST\tLIMITS\t")
		for _, r := range rows {
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%v\t%s\t%s", r.Key, r.Backlog, r.Taken, r.Buried,
				r.OldestAge.Round(time.Millisecond), cmp.Or(r.Limits, "-"), r.Why)
			if !r.WaitsUntil.IsZero() {
				fmt.Fprint(w, " until ", r.WaitsUntil.Format(time.DateTime))
			}
			fmt.Fprintln(w)
		}
	})
}

// limit lists the limits of keys, or sets those of one.
func limit(ctx context.Context, c *call) error {
	q, err := c.openNamed(ctx)
	if err != nil {
		return err
	}
	if c.key != nil {
		if err := q.SetKey(ctx, *c.key, &c.limits); err != nil {
			return err
		}
		return c.report("limited", 1)
	}
	own, _, err := each.LimitsOf(ctx, q, maxLimit)
	return errors.Join(err, c.print(map[string]any{"limits": own}, func(w io.Writer) {
		for _, key := range slices.Sorted(maps.Keys(own)) {
			fmt.Fprintf(w, "%s\t%s\n", printable.Text(key), each.Words(own[key]))
		}
	}))
}

// taskRow is a task.
type taskRow struct {
	each.Row
	Role  string `json:"role,omitempty"`
	Error string `json:"error,omitempty"`

	Payload       json.RawMessage `json:"payload,omitempty"`        // if it is JSON
	PayloadBase64 []byte          `json:"payload_base64,omitempty"` // if it is not

	text   string // the payload
	reason string // the error without a stack
}

func (c *call) row(i *task.Info, payload []byte) taskRow {
	r := taskRow{Row: each.RowOf(i, printable.Text)}
	if i.Group != "" {
		r.Role = i.Role.String()
	}
	if i.Err != nil {
		reason, _ := each.Failure(i)
		r.Error, r.reason = printable.Text(i.Err.Message), printable.Text(reason)
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
				ago(r.Created), ago(r.Until), r.reason,
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
		if rows = append(rows, c.row(new(t.Info()), t.Payload)); len(rows) == c.limit {
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
		History(ctx context.Context, queue string, after task.ID, n int) ([]task.Ended, error)
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
			row := endedRow{c.row(new(task.Info(e.Info)), e.Payload), e.At, "done"}
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
		rows = append(rows, c.row(new(t.Info()), t.Payload))
	}
	err = c.print(map[string]any{"tasks": rows}, func(w io.Writer) {
		for i := range rows {
			if i > 0 {
				fmt.Fprintln(w)
			}
			fields(w, reflect.ValueOf(rows[i]))
		}
	})
	return errors.Join(append(errs, err)...)
}

// fields prints the fields of a row, one a line, but no empty texts and times.
func fields(w io.Writer, row reflect.Value) {
	for i := range row.NumField() {
		f, value := row.Type().Field(i), row.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		name = strings.NewReplacer("_ns", "", "_base64", "", "_", " ").Replace(name)
		switch kind := value.Kind(); {
		case f.Anonymous:
			fields(w, value)
			continue
		case !f.IsExported(), value.IsZero() && kind != reflect.Int && kind != reflect.Bool:
			continue
		}
		switch v := value.Interface().(type) {
		case time.Time:
			fmt.Fprintf(w, "%s\t%s\t(%s)\n", name, v.Format(time.RFC3339Nano), ago(v))
		case json.RawMessage:
			fmt.Fprintf(w, "%s\t%s\n", name, printable.Text(string(v)))
		case []byte:
			fmt.Fprintf(w, "%s\t%s\n", name, printable.Text(string(v)))
		case map[string]string:
			for _, of := range slices.Sorted(maps.Keys(v)) {
				fmt.Fprintf(w, "%s %s\t%s\n", name, of, v[of])
			}
		default:
			fmt.Fprintf(w, "%s\t%v\n", name, v)
		}
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
