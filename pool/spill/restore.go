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

// Restore hands the letters that are there when it begins to a sink, the oldest first, and forgets
// those that it takes. It returns how many these are. When the sink returns an error that is not
// an [ErrRefused], or panics, or ctx is done, Restore stops, and returns that error; the next call
// goes on with this letter. It does not wait for anything but another Restore.
//
// The error may also tell, as [errors.Is] reports, what was set aside ([ErrDamaged]), refused
// ([ErrRefused]) or passed over ([ErrVersion], and files that the system cannot read). If it is
// nil, nothing is left of what there was.
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
	for _, s := range d.sections() {
		if err = r.file(ctx, s.file, s.end); err != nil {
			break
		}
	}
	if err != nil && d.ending.Err() != nil {
		err = errors.Join(ErrClosed, err)
	}
	return r.taken, errors.Join(err, r.refusal(), errors.Join(r.failures...))
}

// section is a part of a file: all before end.
type section struct {
	file *file
	end  int64
}

// sections returns all that is there now. So what is written from now on, what is refused too, is
// not for this Restore.
func (d *Dir[V]) sections() []section {
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
	first    error   // of those that were refused
	failures []error // that concern one file
}

func (r *restoration[V]) refusal() error {
	if r.refused == 0 {
		return nil
	}
	return fmt.Errorf("spill: %d letters are kept behind the others, the first because: %w", r.refused, r.first)
}

// file restores the letters of a file, up to an offset. It returns an error if those behind it
// must wait.
func (r *restoration[V]) file(ctx context.Context, f *file, end int64) error {
	d := r.dir
	d.mu.Lock()
	var err error
	if d.active == f {
		// Only now, so that who calls often does not make many small files.
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
	read, err := r.lines(ctx, f, end, &damage)
	if bad := damage.close(); bad != nil {
		f.offset = 0 // to set it aside again
		return errors.Join(err, fmt.Errorf("spill: %w", bad))
	}
	if damage.lines > 0 {
		r.failures = append(r.failures, fmt.Errorf("%w: %d lines of %s, from byte %d on, with %d bytes; they are in %s now",
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

// lines tells whether it has read all lines up to an offset. If it has not, and returns no error,
// the file is passed over.
func (r *restoration[V]) lines(ctx context.Context, f *file, end int64, damage *quarantine) (bool, error) {
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
				r.failures = append(r.failures, fmt.Errorf("%w: %s is of version %s", ErrVersion, f.name, version))
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
			err = r.letter(ctx, s.line, body)
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

// letter returns nil if a letter is in other hands.
func (r *restoration[V]) letter(ctx context.Context, line, body []byte) error {
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

// guard calls a function of the user's. If it panics, that is an error, which names the function.
func guard(name string, f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &pool.PanicError{Func: name, Value: v, Stack: debug.Stack()}
		}
	}()
	return f()
}

// Into returns a sink for Restore that puts letters into a queue as long as fewer tasks count in its
// capacity than below times that; then it returns a [*fairq.FullError]. It panics if below is not
// more than 0 and at most 1.
//
// The task has its key, kind, unique key, priority, cost and metadata, its MaxAttempts, its
// deadline, and what is left of its delay and of its time to live. If it had no such limit in a
// queue, it has none now; if it was in no queue, it has this queue's. Its attempts begin anew, its
// time to run is this queue's. It is in its group only if it was waiting for that.
//
// A letter is refused (see [ErrRefused]) if its task has expired or what the queue says is about
// this task alone: [task.ErrDuplicate], [task.ErrGroupCancelled], [task.ErrInvalid],
// [task.ErrPanic], [fairq.ErrKeyFull], [fairq.ErrWeight] and [fairq.ErrCost]. One that has expired
// is refused for ever; the example shows how to get rid of it.
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
			task.ErrDuplicate, task.ErrGroupCancelled, task.ErrInvalid, task.ErrPanic, fairq.ErrKeyFull, fairq.ErrWeight,
			fairq.ErrCost,
		} {
			if errors.Is(err, own) {
				return fmt.Errorf("%w: key %q: %w", ErrRefused, letter.Task.Key, err)
			}
		}
		return err
	}
}

// putOptions returns how a task is put again. It returns [task.ErrExpired] if that is of no use
// any more.
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
