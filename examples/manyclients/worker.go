package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/fairq/fairq/store/etcd"
	"github.com/fairq/fairq/task"
)

// workerEnv makes the program the worker that it holds as JSON.
const workerEnv = "FAIRQ_MANYCLIENTS_WORKER"

// worker is the work of a process: it puts tasks, or with a Batch takes that many at a time.
type worker struct {
	Name    string
	Servers string
	Taking  etcd.Taking
	Batch   int
}

// counts are how many tasks a process has put or done, and how often it had to try again.
type counts struct{ Tasks, Conflicts int64 }

func (c *counts) add(other counts) {
	c.Tasks += other.Tasks
	c.Conflicts += other.Conflicts
}

// process is a started worker.
type process struct {
	worker
	cmd   *exec.Cmd
	stdin io.Closer // which the worker reads until its end
	done  chan struct{}

	mu    sync.Mutex // protects last
	last  counts
	ended atomic.Bool
}

// start starts a worker.
func start(w worker, errOut io.Writer) (*process, error) {
	text, err := json.Marshal(w)
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{worker: w, cmd: exec.Command(program), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
	p.cmd.Stderr = errOut
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	go func() {
		defer close(p.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.mu.Lock()
			_ = json.Unmarshal(lines.Bytes(), &p.last)
			p.mu.Unlock()
		}
		p.ended.Store(true)
		_ = p.cmd.Wait() // it has printed its error
	}()
	return p, nil
}

// counts returns the last counts of the worker, and whether it has ended.
func (p *process) counts() (counts, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last, p.ended.Load()
}

// stop lets the worker hand its tasks back, and end.
func (p *process) stop() {
	_ = p.stdin.Close()
	<-p.done
}

// work runs a worker.
func work(ctx context.Context, text string) int {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until its parent process is gone
		cancel()
	}()
	var w worker
	err := json.Unmarshal([]byte(text), &w)
	if err == nil {
		err = w.work(ctx)
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", w.Name, err)
		return 1
	}
	return 0
}

func (w *worker) work(ctx context.Context) (err error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: strings.Split(w.Servers, ","), Logger: zap.NewNop(),
		DialKeepAliveTime: 2 * time.Second, DialKeepAliveTimeout: 2 * time.Second,
	})
	if err != nil {
		return err
	}
	defer client.Close()
	store, err := etcd.Open(ctx, client, &etcd.Options{MaxOps: maxOps, Taking: w.Taking})
	if err != nil {
		return err
	}
	defer store.Close()
	queue, err := task.Open(ctx, store, "tasks", &task.Options[string]{Grace: 10 * time.Second})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, queue.Close(context.Background())) }()
	var tasks atomic.Int64
	tell := time.NewTicker(200 * time.Millisecond)
	defer tell.Stop()
	go func() {
		for range tell.C {
			_ = json.NewEncoder(os.Stdout).Encode(counts{tasks.Load(), store.Conflicts()})
		}
	}()
	if w.Batch > 0 {
		return w.consume(ctx, queue, &tasks)
	}
	return w.produce(ctx, queue, &tasks)
}

// maxReady is how many tasks may be ready, so that the producers do not run away.
const maxReady = 2000

// produce puts tasks of many tenants, some of them far more often than others.
func (w *worker) produce(ctx context.Context, queue *task.Queue[string],
	tasks *atomic.Int64,
) error {
	for ctx.Err() == nil {
		stats, err := queue.Stats(ctx)
		if err != nil {
			return err
		}
		if stats.Ready > maxReady {
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		for range 20 {
			var batch []task.Entry[string]
			for range 10 {
				tenant := fmt.Sprint("tenant ", rand.IntN(1+rand.IntN(100)))
				batch = append(batch, task.Entry[string]{Key: tenant, Payload: "from " + w.Name})
			}
			if _, err := queue.PutBatch(ctx, batch); err != nil {
				return err
			}
			tasks.Add(int64(len(batch)))
		}
	}
	return nil
}

// consume takes tasks and does them, which takes no time.
func (w *worker) consume(ctx context.Context, queue *task.Queue[string],
	tasks *atomic.Int64,
) error {
	for {
		taken, err := queue.TakeBatch(ctx, w.Batch)
		if err != nil {
			return err
		}
		failures := make(chan error, len(taken))
		for _, t := range taken { // tasks acked at the same time share a transaction
			go func() { failures <- t.Ack(context.WithoutCancel(ctx)) }()
		}
		for range taken {
			if err := <-failures; err != nil && !errors.Is(err, task.ErrLeaseLost) {
				return err
			}
		}
		tasks.Add(int64(len(taken)))
	}
}
