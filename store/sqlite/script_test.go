package sqlite_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/fairq/fairq/store/sqlite"
	"github.com/fairq/fairq/task"
)

// script is work of all kinds, each step one transaction.
type script struct {
	store *sqlite.Store
	queue *task.Queue[string]
	tasks []*task.Task[string]
	puts  int
}

func newScript(path string) (*script, error) {
	store, err := sqlite.Open(context.Background(), path,
		&sqlite.Options{Synchronous: sqlite.Normal, History: time.Hour})
	if err != nil {
		return nil, err
	}
	queue, err := task.Open[string](context.Background(), store, "queue",
		&task.Options[string]{MaxInFlightPerKey: 2, Capacity: 1000, TTR: time.Hour})
	return &script{store: store, queue: queue}, err
}

func (s *script) put(o task.PutOptions) error {
	_, err := s.queue.Put(context.Background(), fmt.Sprint("key", s.puts%3),
		strings.Repeat("payload", 200), o)
	if err == nil {
		s.puts++
	}
	return err
}

func (s *script) take() error {
	t, ok, err := s.queue.TryTake(context.Background())
	if ok {
		s.tasks = append(s.tasks, t)
	}
	return err
}

// with settles the last taken task.
func (s *script) with(f func(context.Context, *task.Task[string]) error) error {
	last := len(s.tasks) - 1
	err := f(context.Background(), s.tasks[last])
	if err == nil {
		s.tasks = s.tasks[:last]
	}
	return err
}

// steps returns the script.
func (s *script) steps() []func() error {
	ctx, group := context.Background(), task.PutOptions{Group: "group"}
	end := task.PutOptions{Group: "group", Role: task.AtEnd}
	ack := func() error {
		return s.with(func(ctx context.Context, t *task.Task[string]) error { return t.Ack(ctx) })
	}
	return []func() error{
		func() error { return s.put(task.PutOptions{}) },
		func() error { return s.put(task.PutOptions{UniqueKey: "unique key", Kind: "kind"}) },
		func() error { return s.put(task.PutOptions{Delay: time.Hour}) },
		func() error {
			_, err := s.queue.PutBatch(ctx, make([]task.Entry[string], 20))
			return err
		},
		func() error { return s.put(group) },
		func() error { return s.put(end) },
		func() error { return s.queue.StartGroup(ctx, "group") },
		s.take, s.take, ack, s.take,
		func() error {
			return s.with(func(ctx context.Context, t *task.Task[string]) error {
				return t.Release(ctx, 0)
			})
		},
		s.take, s.take,
		func() error {
			return s.with(func(ctx context.Context, t *task.Task[string]) error { return t.Bury(ctx, nil) })
		},
		func() error { return s.tasks[0].Touch(ctx, time.Hour) },
		ack,
		func() error { return s.queue.PauseKey(ctx, "key1") },
		func() error {
			_, err := s.queue.Kick(ctx, task.ListOptions{Limit: 10})
			return err
		},
		s.take, ack, s.take, ack,
		func() error { return s.put(task.PutOptions{Group: "group", Role: task.AtAbort}) },
		func() error { return s.put(group) },
		func() error { return s.queue.CancelGroup(ctx, "group") },
		func() error {
			_, err := s.queue.Truncate(ctx)
			return err
		},
	}
}

// dump returns the contents of all tables of a database.
func dump(path string) (string, error) {
	db, err := sql.Open("sqlite", path+"?_pragma=synchronous(off)")
	if err != nil {
		return "", err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	var out strings.Builder
	for _, table := range []string{
		"tasks", "queues", "rounds", "keys", "groups", "outcomes",
		"history", "served",
	} {
		rows, err := db.Query("SELECT * FROM fairq_" + table + " ORDER BY 1, 2, 3")
		if err != nil {
			return "", err
		}
		columns, err := rows.Columns()
		if err != nil {
			return "", err
		}
		for rows.Next() {
			values, targets := make([]any, len(columns)), make([]any, len(columns))
			for i := range values {
				targets[i] = &values[i]
			}
			if err := rows.Scan(targets...); err != nil {
				return "", err
			}
			text, err := json.Marshal(values)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&out, "%s %s\n", table, text)
		}
		if err := rows.Err(); err != nil {
			return "", err
		}
	}
	return out.String(), nil
}
