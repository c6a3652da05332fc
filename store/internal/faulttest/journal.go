package faulttest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/driver"
)

// journal is a file of several processes. Its lines have one order for all: all lines above a line
// were written before it.
type journal struct {
	file *os.File
	by   string
	call atomic.Int64
}

// line is a line of a journal.
type line struct {
	At    int64  // nanoseconds since 1970
	By    string // a process
	Op    string // operation
	Queue string `json:",omitempty"`
	Call  int64  `json:",omitempty"` // the number of an operation with a line for its begin and end
	Done  bool   `json:",omitempty"` // the operation has ended
	Err   string `json:",omitempty"` // its error; see class

	Name  string      `json:",omitempty"` // of a task, or a group
	ID    driver.ID   `json:",omitempty"`
	Puts  []putTask   `json:",omitempty"`
	IDs   []driver.ID `json:",omitempty"`
	Took  *took       `json:",omitempty"`
	Take  int64       `json:",omitempty"` // the number of the take that the lease is from
	Until int64       `json:",omitempty"` // of a lease
}

// putTask is a task that is put. Its name is the payload; no two have the same.
type putTask struct {
	Name, Key   string
	Kind        string        `json:",omitempty"`
	Priority    int           `json:",omitempty"`
	Delay       time.Duration `json:",omitempty"`
	TTR         time.Duration `json:",omitempty"`
	MaxAttempts int           `json:",omitempty"`
	UniqueKey   string        `json:",omitempty"`
	Group       string        `json:",omitempty"`
	Role        driver.Role   `json:",omitempty"`
}

// took is the result of Take.
type took struct {
	Key              string
	Attempts         int
	Created, ReadyAt int64
}

func openJournal(path, by string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	return &journal{file: f, by: by}, err
}

// newJournal makes one for a test.
func newJournal(t testing.TB) (j *journal, path string) {
	path = filepath.Join(t.TempDir(), "journal")
	j, err := openJournal(path, "test")
	require.NoError(t, err)
	t.Cleanup(func() { j.file.Close() })
	return j, path
}

// write writes a line. It begins with a newline, because a process may have been killed in the
// line before.
func (j *journal) write(l line) {
	l.At, l.By = time.Now().UnixNano(), j.by
	text, err := json.Marshal(l)
	if err == nil {
		_, err = j.file.Write(append(append([]byte{'\n'}, text...), '\n'))
	}
	if err != nil {
		panic(err)
	}
}

// begin writes the begin of a call, and returns the function that writes its end.
func (j *journal) begin(l line) func(line) {
	call := j.call.Add(1)
	l.Call = call
	j.write(l)
	return func(end line) {
		end.Op, end.Queue, end.Name, end.ID, end.Take, end.Call, end.Done = l.Op, l.Queue, l.Name,
			l.ID, l.Take, call, true
		j.write(end)
	}
}

// readJournal returns the lines. It leaves out lines in which a process was killed.
func readJournal(t testing.TB, path string) (lines []line) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for one := range bytes.Lines(text) {
		var l line
		if json.Unmarshal(one, &l) == nil {
			lines = append(lines, l)
		}
	}
	return lines
}

// class returns the class of an error: an error by the rules of the queue, or its text.
func class(err error) string {
	if err == nil {
		return ""
	}
	for name, rule := range ruleErrors {
		if errors.Is(err, rule) {
			return name
		}
	}
	return fmt.Sprintf("error: %v", err)
}

var ruleErrors = map[string]error{
	"lost": driver.ErrLeaseLost, "duplicate": driver.ErrDuplicate, "full": fairq.ErrFull,
	"not found": driver.ErrNotFound,
	"cancelled": driver.ErrGroupCancelled, "taken": driver.ErrTaken, "blocked": driver.ErrBlocked,
}
