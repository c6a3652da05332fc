// Webhooks delivers the webhooks of some tenants to their receivers, while one of them sends
// 20,000 at once.
//
//	go run ./examples/webhooks
//
// The receivers are served by the program itself, and not all of them are well: one fails now and
// then, or says 429 and when to come back, one is slow, one is down at first, one does not answer,
// and some addresses of one are gone. So a delivery has a timeout; what fails is tried again,
// after longer and longer delays; what has failed for good becomes a letter in a file. In the end
// all receivers answer, and the letters are restored. Those whose address is gone become letters
// again.
//
// That is done twice, by the same workers. First the key of a webhook is its tenant: tenants take
// turns, and none has more than half of the workers. Then all webhooks have the same key, which
// makes the queue a FIFO. The tables tell how long it took from sending a webhook until it was
// delivered. With the FIFO everybody waits for the flood, and again with each retry. With turns a
// tenant waits for its own receiver only, and the flood for itself.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/pool/spill"
	"github.com/fairq/fairq/task"
)

const (
	workers   = 32
	perTenant = 16 // workers at most
)

// webhook is something that a tenant wants its receiver to know.
type webhook struct {
	Tenant, URL string
	Sent        time.Time
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dir, err := os.MkdirTemp("", "webhooks")
	if err == nil {
		err = compare(ctx, load{flood: 20_000, others: 100, period: 2 * time.Second}, dir)
		os.RemoveAll(dir)
	}
	if err != nil {
		log.Fatal("webhooks: ", err)
	}
}

func compare(ctx context.Context, l load, dir string) error {
	fmt.Println("Turns: the key of a webhook is its tenant.")
	if _, err := run(ctx, l, true, filepath.Join(dir, "turns"), os.Stdout); err != nil {
		return err
	}
	fmt.Println("\nFIFO: all webhooks have the same key.")
	_, err := run(ctx, l, false, filepath.Join(dir, "fifo"), os.Stdout)
	return err
}

// run sends webhooks through a pool, until each has been delivered or is a letter in dir.
func run(ctx context.Context, l load, fair bool, dir string, out io.Writer) (r *report, err error) {
	letters, err := spill.Open[webhook](dir, nil)
	if err != nil {
		return nil, err
	}
	defer letters.Close()
	receivers := openReceivers()
	defer receivers.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers}}
	defer client.CloseIdleConnections()

	r = &report{sent: map[string]int{}, attempts: map[string]int{}, delivered: map[string][]delivery{}}
	options := &pool.Options[webhook]{
		Workers:           workers,
		MaxInFlightPerKey: perTenant,
		Policy: pool.Policy{
			Timeout:     100 * time.Millisecond,
			MaxAttempts: 4,
			Backoff:     pool.Backoff{Base: 100 * time.Millisecond, Max: time.Minute, Jitter: pool.HalfJitter},
		},
		DeadLetters: letters.Write,
		Logger:      slog.New(slog.DiscardHandler), // it would be told of each letter
	}
	key := func(tenant string) string { return tenant }
	if !fair {
		key = func(string) string { return "" }
		options.MaxInFlightPerKey = 0
	}
	p := pool.Func(r.measured(deliverer(client)), options)
	defer func() { err = errors.Join(err, p.Shutdown(ctx)) }()

	var senders sync.WaitGroup
	for _, t := range tenants {
		n, pause := l.others, l.period/time.Duration(l.others)
		if t.floods {
			n, pause = l.flood, 0
		}
		r.sent[t.name] = n
		senders.Go(func() {
			for i := range n {
				w := webhook{t.name, fmt.Sprintf("%s/%s/%d", receivers.URL, t.name, i), time.Now()}
				if p.Submit(ctx, key(t.name), w) != nil {
					return // interrupted
				}
				time.Sleep(pause)
			}
		})
	}
	senders.Wait()
	if err := p.Wait(ctx); err != nil {
		return nil, err
	}
	r.print(out)
	receivers.answers.Store(true)
	before := p.Stats().Succeeded
	// as long as the queue is not full
	restored, err := letters.Restore(ctx, spill.Into(p.Queue(""), 1))
	if err != nil {
		return nil, err
	}
	if err := p.Wait(ctx); err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "%d letters restored: %d delivered after all\n", restored, p.Stats().Succeeded-before)
	return r, nil
}

// deliverer returns a handler that posts a webhook, and decides what becomes of it if that fails.
func deliverer(client *http.Client) pool.Handler[*task.Task[webhook]] {
	return func(ctx context.Context, t *task.Task[webhook]) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.Payload.URL, http.NoBody)
		if err != nil {
			return pool.Permanent(err)
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		response.Body.Close()
		code := response.StatusCode
		if code < 300 {
			return nil
		}
		err = &task.Error{Code: code, Message: http.StatusText(code)}
		if code < 500 && code != http.StatusTooManyRequests {
			return pool.Permanent(err) // it would not help to try again
		}
		if seconds, _ := strconv.Atoi(response.Header.Get("Retry-After")); seconds > 0 {
			return errors.Join(err, pool.RetryAfter(time.Duration(seconds)*time.Second))
		}
		return err
	}
}
