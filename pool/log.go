package pool

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/fairq/fairq/task"
)

// logAttrs returns the attributes of a log line: the task, further attributes, and its error, with
// the stack of a panic.
func logAttrs[V any](class string, t *task.Task[V], err error, more ...any) (args []any) {
	if t.ID != 0 {
		args = append(args, "task", t.ID)
	}
	if t.Key != "" {
		args = append(args, "key", t.Key)
	}
	if class != "" {
		args = append(args, "class", class)
	}
	args = append(append(args, more...), "error", err)
	if panicked, ok := errors.AsType[*task.PanicError](err); ok {
		args = append(args, "stack", string(panicked.Stack))
	}
	return args
}

// warning counts tasks for the next line of a message, and has the attributes of the last one.
type warning struct {
	tasks int
	attrs []any
}

// warn logs a message for a number of tasks, at most once a second: the next line counts them.
func (ws *workerSet) warn(message string, tasks int, attrs []any) {
	ws.mu.Lock()
	w := ws.warnings[message]
	if w == nil {
		ws.warnings[message] = new(warning)
	} else {
		w.tasks, w.attrs = w.tasks+tasks, attrs
	}
	ws.mu.Unlock()
	if w == nil {
		ws.log.Warn(message, append(attrs, "tasks", tasks)...)
		time.AfterFunc(time.Second, func() { ws.warnAgain(message) })
	}
}

// warnAgain logs the line for the tasks since the last line of a message.
func (ws *workerSet) warnAgain(message string) {
	ws.mu.Lock()
	w := ws.warnings[message]
	delete(ws.warnings, message)
	ws.mu.Unlock()
	if w != nil && w.tasks > 0 {
		ws.warn(message, w.tasks, w.attrs)
	}
}

// warnRest logs the lines that are not due yet.
func (ws *workerSet) warnRest() {
	ws.mu.Lock()
	all := slices.Collect(maps.Keys(ws.warnings))
	ws.mu.Unlock()
	for _, message := range all {
		ws.warnAgain(message)
	}
}
