package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"

	"github.com/fairq/fairq/internal/each"
	"github.com/fairq/fairq/internal/printable"
	"github.com/fairq/fairq/task"
)

// ids returns the ids among the arguments.
func (c *call) ids() ([]task.ID, error) {
	ids := make([]task.ID, len(c.args)-1)
	for i, text := range c.args[1:] {
		id, err := strconv.ParseUint(text, 10, 64)
		if err != nil || id == 0 {
			return nil, usage("the id is %s; it must be a whole number from 1", printable.Text(text))
		}
		ids[i] = task.ID(id)
	}
	return ids, nil
}

// report prints the number of changed tasks.
func (c *call) report(what string, n int) error {
	return c.print(map[string]int{"done": n}, func(w io.Writer) {
		fmt.Fprintf(w, "%s: %d\n", what, n)
	})
}

// aboutTask names the task in the error, which task.ErrNotFound does by itself.
func aboutTask(id task.ID, err error) error {
	if errors.Is(err, task.ErrNotFound) {
		return err
	}
	return fmt.Errorf("task %d: %w", id, err)
}

// each calls f for each task that the arguments name, even if it fails for some.
func (c *call) each(ctx context.Context, what string, f func(q *queue, id task.ID) error) error {
	ids, err := c.ids()
	if err != nil {
		return err
	}
	q, err := c.openNamed(ctx)
	if err != nil {
		return err
	}
	n, errs := 0, []error(nil)
	for _, id := range ids {
		err := f(q, id)
		if errors.Is(err, task.ErrTaken) {
			err = fmt.Errorf("%w; -force does it all the same", err)
		}
		if err != nil {
			errs = append(errs, aboutTask(id, err))
			continue
		}
		n++
	}
	return errors.Join(append(errs, c.report(what, n))...)
}

func kick(ctx context.Context, c *call) error {
	some := c.all || c.key != nil || c.kind != nil || c.reason != ""
	switch {
	case len(c.args) > 1 && some:
		return usage("kick either by ids, or by -all, -key, -kind or -reason")
	case len(c.args) > 1:
		return c.each(ctx, "kicked", func(q *queue, id task.ID) error {
			err := q.KickID(ctx, id)
			if errors.Is(err, task.ErrNotFound) {
				err = fmt.Errorf("%w among those that are buried", err)
			}
			return err
		})
	case !some:
		return usage("kick which tasks? Name ids, -key, -kind, -reason or -all")
	}
	q, err := c.openNamed(ctx)
	if err != nil {
		return err
	}
	c.state = task.Buried
	if c.reason != "" {
		return c.changeSome(ctx, q, "kicked", q.KickID)
	}
	// The limit is the number of tasks buried now, so a task that fails again is not kicked again.
	which := task.ListOptions{State: task.Buried, Key: c.key, Kind: c.kind}
	which.Limit, err = q.Count(ctx, which)
	n := 0
	if err == nil && which.Limit > 0 {
		n, err = q.Kick(ctx, which)
	}
	return errors.Join(err, c.report("kicked", n))
}

// changeSome calls f for each task that the flags name, unless the task has changed since it was
// read.
func (c *call) changeSome(
	ctx context.Context, q *queue, what string, f func(ctx context.Context, id task.ID) error,
) error {
	n, err := each.Do(ctx, c.tasks(ctx, q, 1000), c.hasReason, f)
	return errors.Join(err, c.report(what, n))
}

// tasks yields the tasks that the flags name, in the order of their ids. It ignores -reason, and
// reads n tasks at a time. With -soonest it yields only the n tasks that are due first.
func (c *call) tasks(ctx context.Context, q *queue, n int) iter.Seq2[*task.Task[[]byte], error] {
	return each.Task(ctx, q, task.ListOptions{
		State: c.state, Key: c.key, Kind: c.kind, Group: c.group, After: task.ID(c.after), Limit: n,
		NextFirst: c.soonest,
	})
}

// hasReason reports whether the error of a task has the text of -reason.
func (c *call) hasReason(t *task.Task[[]byte]) bool {
	reason, _ := each.Failure(new(t.Info()))
	return strings.Contains(reason, c.reason)
}

func bury(ctx context.Context, c *call) error {
	reason := errors.New(cmp.Or(c.reason, "buried by hand"))
	return c.each(ctx, "buried", func(q *queue, id task.ID) error {
		if c.force {
			return q.Bury(ctx, id, reason)
		}
		return q.BuryUnlessTaken(ctx, id, reason)
	})
}

func remove(ctx context.Context, c *call) error {
	do := (*queue).DeleteUnlessTaken
	if c.force {
		do = (*queue).Delete
	}
	some := c.state != 0 || c.key != nil || c.kind != nil || c.reason != ""
	switch {
	case len(c.args) > 1 && some:
		return usage("delete either by ids, or by -state, -key, -kind or -reason")
	case len(c.args) > 1:
		return c.each(ctx, "deleted", func(q *queue, id task.ID) error { return do(q, ctx, id) })
	case !some:
		return usage("delete which tasks? Name ids, -state, -key, -kind or -reason")
	}
	q, err := c.openNamed(ctx)
	if err != nil {
		return err
	}
	if !c.yes {
		nothing := func(context.Context, task.ID) error { return nil }
		n, err := each.Do(ctx, c.tasks(ctx, q, 1000), c.hasReason, nothing)
		if err != nil {
			return err
		}
		return fmt.Errorf("these are %d tasks; -yes deletes them", n)
	}
	if !c.force && c.reason == "" && c.state != task.Taken {
		n, err := q.DeleteSome(ctx, task.ListOptions{State: c.state, Key: c.key, Kind: c.kind})
		return errors.Join(err, c.report("deleted", n))
	}
	return c.changeSome(ctx, q, "deleted", func(ctx context.Context, id task.ID) error {
		return do(q, ctx, id)
	})
}

// pause is resume too.
func pause(ctx context.Context, c *call) error {
	q, err := c.openNamed(ctx)
	if err != nil {
		return err
	}
	switch paused := c.command.name == "pause"; {
	case c.key != nil && paused:
		err = q.PauseKey(ctx, *c.key)
	case c.key != nil:
		err = q.ResumeKey(ctx, *c.key)
	case paused:
		err = q.Pause(ctx)
	default:
		err = q.Resume(ctx)
	}
	if err != nil {
		return err
	}
	return c.report(c.command.name+"d", 1)
}

func drop(ctx context.Context, c *call) error {
	q, err := c.openNamed(ctx)
	if err != nil {
		return err
	}
	s, err := q.Stats(ctx)
	if err != nil {
		return err
	}
	if n := s.Len(); n > 0 && !c.yes {
		return fmt.Errorf("the queue has %d tasks; -yes deletes them too", n)
	}
	if err := q.DropUnlessTaken(ctx); err != nil {
		return err
	}
	return c.report("dropped", 1)
}
