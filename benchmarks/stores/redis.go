package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	goredis "github.com/redis/go-redis/v9"

	"github.com/fairq/fairq/store/redis"
	"github.com/fairq/fairq/task"
)

// startRedis starts a Redis server of our own, which writes its log to the disk each second.
func startRedis(ctx context.Context, _ bool) (*server, error) {
	dir, err := os.MkdirTemp("", "fairq-stores-")
	port := strconv.Itoa(20_000 + rand.IntN(10_000))
	process := exec.Command("redis-server", "--port", port, "--dir", dir, "--save", "",
		"--appendonly", "yes", "--appendfsync", "everysec")
	if err = errors.Join(err, process.Start()); err != nil {
		return nil, err
	}
	client := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:" + port})
	defer client.Close()
	version, databases := "", 0
	for version == "" && ctx.Err() == nil {
		_, version, _ = strings.Cut(client.Info(ctx, "server").Val(), "redis_version:")
	}
	version, _, _ = strings.Cut(version, "\r")
	return &server{
		version: "Redis " + version,
		create: func(context.Context, string) (string, error) {
			databases++
			return fmt.Sprintf("redis://127.0.0.1:%s/%d", port, databases), nil
		},
		settle: func(context.Context, string) error { return nil },
		stop: func() {
			_ = process.Process.Kill()
			_ = process.Wait()
			os.RemoveAll(dir)
		},
	}, ctx.Err()
}

func openOurRedis(ctx context.Context, url string) (queue, error) {
	s, err := redis.Open(ctx, url, nil)
	if err != nil {
		return nil, err
	}
	q, err := task.Open[string](ctx, s, "bench", nil)
	return &ourQueue{q, s.Close}, err
}

// takeOrWork is takeAndAck, or work for a contestant whose own workers alone can take tasks.
func takeOrWork(
	ctx context.Context, o *options, e *entrant, callers int,
) (int, time.Duration, error) {
	if _, ok := e.queue.(taker); ok {
		return takeAndAck(ctx, o, e, callers)
	}
	return work(ctx, o, e, callers)
}

// asynqQueue is a queue of github.com/hibiken/asynq, alone in its database.
type asynqQueue struct {
	db     *goredis.Client
	client *asynq.Client
}

func openAsynq(_ context.Context, url string) (queue, error) {
	o, err := goredis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	db := goredis.NewClient(o)
	return &asynqQueue{db, asynq.NewClientFromRedisClient(db)}, nil
}

func (q *asynqQueue) put(ctx context.Context, t item) error {
	body, err := json.Marshal(t)
	if err == nil {
		_, err = q.client.EnqueueContext(ctx, asynq.NewTask("bench", body))
	}
	return err
}

// putBatch puts one task after the other, because asynq has no batches.
func (q *asynqQueue) putBatch(ctx context.Context, ts []item) error {
	for _, t := range ts {
		if err := q.put(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

func (q *asynqQueue) clear(ctx context.Context) error { return q.db.FlushDB(ctx).Err() }

// work counts a task when its handler returns: up to one for each worker is not deleted yet.
func (q *asynqQueue) work(
	_ context.Context, workers int, w worker,
) (stop func() error, err error) {
	s := asynq.NewServerFromRedisClient(q.db,
		asynq.Config{Concurrency: workers, LogLevel: asynq.FatalLevel})
	err = s.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		var i item
		if err := json.Unmarshal(t.Payload(), &i); err != nil {
			return err
		}
		w.begin(i.Payload)
		w.done()
		return nil
	}))
	return func() error { s.Shutdown(); return nil }, err
}

func (q *asynqQueue) close() error { return q.db.Close() }
