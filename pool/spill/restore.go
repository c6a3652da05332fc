package spill

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// Restore hands the letters that exist when it begins to a sink, the oldest first, and deletes the
// letters that the sink takes. It returns their number. When the sink returns an error that is not
// an [ErrRefused], or panics, or ctx is done, Restore stops and returns that error; the next call
// goes on with this letter. It waits only for another Restore.
//
// By [errors.Is] the error may also report letters that were set aside ([ErrDamaged]) or refused
// ([ErrRefused]), and files that were skipped ([ErrVersion], and unreadable files). If it is nil,
// none of the letters is left.
func (d *Dir[V]) Restore(ctx context.Context, to pool.Sink[V]) (n int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	select {
	case d.busy <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { <-d.busy }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(d.ending, func() { cancel(ErrClosed) })()
	if d.ending.Err() != nil {
		return 0, ErrClosed
	}
	r := restoration[V]{dir: d, to: to}
	for _, s := range d.listSections() {
		if err = r.restoreFile(ctx, s.file, s.end); err != nil {
			break
		}
	}
	if err != nil && d.ending.Err() != nil {
		err = errors.Join(ErrClosed, err)
	}
	return r.taken, errors.Join(err, r.refusalError(), errors.Join(r.failures...))
}

// section is a part of a file: all before end.
type section struct {
	file *file
	end  int64
}

// listSections returns all letters that exist now. Letters written later, refused ones included,
// are for the next Restore.
func (d *Dir[V]) listSections() []section {
	d.mu.Lock()
	defer d.mu.Unlock()
	var s []section
	for _, f := range d.files {
		if f != d.active || f.size > 0 {
			s = append(s, section{f, f.size})
		}
	}
	return s
}

// restoration is a Restore.
type restoration[V any] struct {
	dir *Dir[V]
	to  pool.Sink[V]

	taken    int
	refused  int
	first    error   // first refusal
	failures []error // that concern one file
}

func (r *restoration[V]) refusalError() error {
	if r.refused == 0 {
		return nil
	}
	return fmt.Errorf("spill: %d letters are kept behind the others, the first because: %w",
		r.refused, r.first)
}

// restoreFile restores the letters of a file, up to an offset. It returns an error if later files
// must wait.
func (r *restoration[V]) restoreFile(ctx context.Context, f *file, end int64) error {
	d := r.dir
	d.mu.Lock()
	var err error
	if d.active == f {
		// Only now, so that frequent calls do not make many small files.
		err = d.sealLocked()
	}
	whole := f.size == end
	d.mu.Unlock()
	if err != nil {
		r.failures = append(r.failures, err)
	}

	damage := quarantine{open: d.open, name: strings.TrimSuffix(f.name, suffix) + damagedSuffix}
	if d.options.Sync {
		damage.sync = d.sync
	}
	read, err := r.restoreLines(ctx, f, end, &damage)
	if bad := damage.close(); bad != nil {
		f.offset = 0 // to set it aside again
		return errors.Join(err, fmt.Errorf("spill: %w", bad))
	}
	if damage.lines > 0 {
		r.failures = append(r.failures,
			fmt.Errorf("%w: %d lines of %s, from byte %d on, with %d bytes; they are in %s now",
				ErrDamaged, damage.lines, f.name, damage.first, damage.bytes, damage.name))
	}
	if err == nil && read && whole {
		d.mu.Lock()
		defer d.mu.Unlock()
		if err := d.removeLocked(f); err != nil {
			r.failures = append(r.failures, fmt.Errorf("spill: %w", err))
		}
	}
	return err
}

// restoreLines reports whether it has read all lines up to an offset. If not, and without an
// error, the file is skipped.
func (r *restoration[V]) restoreLines(ctx context.Context, f *file, end int64,
	damage *quarantine,
) (bool, error) {
	source, err := r.dir.open(f.name, os.O_RDWR)
	if err != nil {
		r.failures = append(r.failures, fmt.Errorf("spill: %w", err))
		return false, nil
	}
	defer source.Close()
	s := newScanner(source, f.offset, end)
	for s.next() {
		if s.offset == 0 {
			if version, ok := newer(s.line); ok {
				r.failures = append(r.failures,
					fmt.Errorf("%w: %s is of version %s", ErrVersion, f.name, version))
				return false, nil
			}
		}
		mark, body, ok := parseLine(s.line)
		var err error
		switch {
		case s.offset == 0 && string(s.line) == header:
		case !ok:
			if err = damage.add(source, s.offset, s.length); err != nil {
				err = fmt.Errorf("spill: %w", err)
			}
		case mark == waiting:
			err = r.restoreLetter(ctx, s.line, body)
		}
		if err != nil {
			return false, err
		}
		f.offset = s.end()
		if mark == waiting && ok {
			if _, err := source.WriteAt([]byte{done}, s.offset); err != nil {
				return false, fmt.Errorf("spill: %w", err)
			}
		}
	}
	if s.err != nil {
		r.failures = append(r.failures, fmt.Errorf("spill: %w", s.err))
	}
	return s.err == nil, nil
}

// restoreLetter hands one letter to the sink; if the sink refuses it, restoreLetter appends it to
// the spill again. On nil the line may be deleted.
func (r *restoration[V]) restoreLetter(ctx context.Context, line, body []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	letter, err := decode(body, r.dir.options.Codec)
	if err == nil {
		err = guard("the sink", func() error { return r.to(ctx, letter) })
	}
	if err == nil {
		r.taken++
		return nil
	}
	if !errors.Is(err, ErrRefused) {
		return err
	}
	if r.refused == 0 {
		r.first = err
	}
	if line[len(line)-1] != '\n' {
		line = append(slices.Clip(line), '\n')
	}
	if err := r.dir.append(line); err != nil {
		return err
	}
	r.refused++
	return nil
}

// guard calls a user's function. It turns a panic into an error that names the function.
func guard(name string, f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &pool.PanicError{Func: name, Value: v, Stack: debug.Stack()}
		}
	}()
	return f()
}

// Into returns a sink for Restore that puts letters into a queue while the queue's fill level is
// less than below, a part of its capacity; then it returns a [*fairq.FullError]. It panics unless
// 0 < below <= 1.
//
// The task keeps its key, kind, unique key, priority, cost, metadata, MaxAttempts and deadline,
// and the rest of its delay and of its time to live. If it had no such limit in a queue, it has
// none now; if it was in no queue, it gets this queue's. Its attempts restart, its time to run is
// this queue's. It is in its group only if it was held by that.
//
// The sink refuses a letter (see [ErrRefused]) if its task has expired, or if the error of the
// queue is about this task alone: [task.ErrDuplicate], [task.ErrGroupCancelled],
// [task.ErrInvalid], [task.ErrPanic], [fairq.ErrKeyFull], [fairq.ErrWeight] and [fairq.ErrCost].
// It always refuses an expired letter; the example shows how to drop it.
func Into[V any](queue *task.Queue[V], below float64) pool.Sink[V] {
	if !(below > 0 && below <= 1) {
		panic(fmt.Sprintf("spill: Into: below is %v; it must be more than 0 and at most 1", below))
	}
	return func(ctx context.Context, letter *pool.DeadLetter[V]) error {
		s, err := queue.Stats(ctx)
		if err != nil {
			return err
		}
		if limit := int(math.Ceil(below * float64(s.Capacity))); s.Counted >= limit {
			return &fairq.FullError{Len: s.Counted, Limit: limit}
		}
		options, err := putOptions(letter, time.Now())
		if err != nil {
			return fmt.Errorf("%w: key %q: %w", ErrRefused, letter.Task.Key, err)
		}
		id, err := queue.Put(ctx, letter.Task.Key, letter.Payload, options)
		if id != 0 {
			return nil // the task is there, even if Options.OnEvict has panicked
		}
		for _, own := range []error{
			task.ErrDuplicate, task.ErrGroupCancelled, task.ErrInvalid, task.ErrPanic, fairq.ErrKeyFull,
			fairq.ErrWeight,
			fairq.ErrCost,
		} {
			if errors.Is(err, own) {
				return fmt.Errorf("%w: key %q: %w", ErrRefused, letter.Task.Key, err)
			}
		}
		return err
	}
}

// putOptions returns the options to put a task again, or [task.ErrExpired].
func putOptions[V any](letter *pool.DeadLetter[V], now time.Time) (task.PutOptions, error) {
	t, p := &letter.Task, letter.PutOptions(now).Task()
	if !p.Deadline.IsZero() && !now.Add(p.Delay).Before(p.Deadline) {
		return p, task.ErrExpired
	}
	queued := t.ID != 0
	if !queued || t.State == task.Held {
		p.Group, p.Role = t.Group, t.Role
	}
	if queued && t.MaxAttempts == 0 {
		p.MaxAttempts = -1
	}
	if queued && p.TTL == 0 {
		p.TTL = -1
	}
	return p, nil
}
