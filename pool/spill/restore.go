package spill

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// Restore hands the letters that exist when it begins to a sink, the oldest first, and deletes the
// letters that the sink takes. It returns their number. Restore stops when ctx is done, or the
// sink panics or returns an error that is not an [ErrRefused]. It returns that error, and the next
// call goes on with this letter. It waits only for another Restore.
//
// By [errors.Is] the error may also report files that stay because they are damaged ([ErrDamaged])
// or cannot be read, and letters that were refused ([ErrRefused]). If it is nil, none of the
// letters is left.
func (d *Dir[V]) Restore(
	ctx context.Context, to pool.Handler[*pool.DeadLetter[V]],
) (n int, err error) {
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
	d.mu.Lock()
	files, end := slices.Clone(d.files), d.next
	d.mu.Unlock()
	for _, f := range files {
		err = r.restoreFile(ctx, f, end)
		r.note(f.damage)
		if err != nil {
			break
		}
	}
	if err != nil && d.ending.Err() != nil {
		err = errors.Join(ErrClosed, err)
	}
	if r.refused > 0 {
		r.note(fmt.Errorf("spill: letters kept behind the others: %d, the first because: %w",
			r.refused, r.first))
	}
	return r.taken, errors.Join(err, errors.Join(r.failures...))
}

// restoration is a Restore.
type restoration[V any] struct {
	dir *Dir[V]
	to  pool.Handler[*pool.DeadLetter[V]]

	taken    int
	refused  int
	first    error   // first refusal
	failures []error // that concern one file
}

// note adds an error that concerns one file.
func (r *restoration[V]) note(err error) {
	if err != nil {
		r.failures = append(r.failures, err)
	}
}

// restoreFile restores the letters of a file with numbers below end. Letters from there on were
// written during this Restore, refused ones too, and are for the next one. If no letter is left,
// it removes the file. An error that concerns only this file is noted, and not returned.
func (r *restoration[V]) restoreFile(ctx context.Context, f *file, end uint64) error {
	d := r.dir
	d.mu.Lock()
	if d.active == f {
		// Only now, so that frequent calls do not make many small files.
		r.note(d.sealLocked())
	}
	whole := f.end
	d.mu.Unlock()
	if whole == 0 {
		if err := d.findEnd(f); err != nil {
			r.note(wrap(err))
			return nil
		}
		whole = f.end
	}
	if err := r.restoreLines(ctx, f, min(whole, end)); err != nil {
		return err
	}
	if f.next == whole && f.damage == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		r.note(wrap(d.removeLocked(f)))
	}
	return nil
}

// restoreLines restores the letters of a file with numbers below end. Bytes behind the last letter
// come from a Write that has returned an error, or never returned.
func (r *restoration[V]) restoreLines(ctx context.Context, f *file, end uint64) error {
	source, err := r.dir.open(f.name, os.O_RDWR)
	if err != nil {
		r.note(wrap(err))
		return nil
	}
	defer source.Close()
	s := newScanner(source, f.offset)
	for f.next < end && s.next() {
		if err := r.restoreLine(ctx, f, source, s); err != nil {
			return err
		}
		f.offset, f.line = s.end(), f.line+1
	}
	if s.err != nil {
		r.note(wrap(s.err))
	} else if f.next < end && f.damage == nil {
		// A line says so from now on, because the next file may be gone when this one is read again.
		why := fmt.Sprintf("letters %d to %d are missing", f.next, end-1)
		if _, err = source.WriteAt([]byte(why+"\n"), s.end()); err == nil {
			f.damaged(why)
		}
	}
	return wrap(err)
}

// restoreLine restores the letter of a line that waits.
func (r *restoration[V]) restoreLine(
	ctx context.Context, f *file, source handle, s *scanner,
) error {
	if f.line == 1 {
		if string(s.line) != header {
			f.damaged(fmt.Sprintf("%.30q is not %q", s.line, header))
		}
		return nil
	}
	number, body, ok := parseLine(s.line)
	switch {
	case !ok:
		f.damaged(fmt.Sprintf("%.30q is no letter", s.line))
		return nil
	case number != f.next:
		f.damaged(fmt.Sprintf("it has letter %d, and not %d", number, f.next))
		if number < f.next {
			return nil
		}
	}
	if s.line[0] == waiting {
		if err := r.restoreLetter(ctx, body); err != nil {
			return err
		}
		if _, err := source.WriteAt([]byte{done}, s.offset); err != nil {
			return wrap(err)
		}
	}
	f.next = number + 1
	return nil
}

// damaged notes why the line that is read is damaged, unless an earlier one was.
func (f *file) damaged(why string) {
	if f.damage == nil {
		f.damage = fmt.Errorf("%w: %s, line %d: %s", ErrDamaged, f.name, f.line, why)
	}
}

// restoreLetter hands one letter to the sink; if the sink refuses it, restoreLetter appends it to
// the spill again. On nil the line may be deleted.
func (r *restoration[V]) restoreLetter(ctx context.Context, body []byte) error {
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
	if err := r.dir.append(body, unlimited); err != nil {
		return err
	}
	r.refused++
	return nil
}

// guard calls a user's function. It turns a panic into an error that names the function.
func guard(name string, f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &task.PanicError{Func: name, Value: v, Stack: debug.Stack()}
		}
	}()
	return f()
}

// Into returns a sink for Restore that puts letters into a queue. below is a part of the queue's
// capacity, 0 < below <= 1, otherwise Into panics. When the queue is filled to that part, the sink
// returns a [*fairq.FullError].
//
// The task keeps its key, kind, unique key, priority, cost, metadata, MaxAttempts and deadline,
// and the rest of its delay and of its time to live. Without a MaxAttempts or a time to live it
// has none now either; but a task that was in no queue gets those of this queue. The task has all
// attempts again, and the time to run of this queue. It is in its group only if the group held it.
//
// The sink refuses a letter (see [ErrRefused]) if its task has expired, or if the error of the
// queue is about this task alone: [task.ErrDuplicate], [task.ErrGroupCancelled],
// [task.ErrInvalid], [task.ErrPanic], [fairq.ErrKeyFull], [fairq.ErrWeight] and [fairq.ErrCost].
// It always refuses an expired letter; the example shows how to drop it.
func Into[V any](queue *task.Queue[V], below float64) pool.Handler[*pool.DeadLetter[V]] {
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
	t, p := &letter.Task, letter.PutOptions(now).PutOptions
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
