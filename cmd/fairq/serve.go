package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/fairq/fairq/internal/printable"
	"github.com/fairq/fairq/monitor"
	"github.com/fairq/fairq/task"
)

// serve shows queues on a page, until ctx is done.
func serve(ctx context.Context, c *call) error {
	all := map[string]*shown{}
	sources, err := c.sources(ctx, all)
	if err != nil {
		return err
	}
	o := &monitor.Options{Logger: slog.New(slog.NewTextHandler(c.errOut, nil))}
	if c.actions {
		o.Actions = func(_ *http.Request, asked []monitor.Action) []monitor.Action {
			return asked // see onlyLocal
		}
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("localhost", strconv.Itoa(c.port)))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	m := monitor.New(o, sources...)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { m.Run(ctx) })
	running.Go(func() { c.follow(ctx, m, all) })
	server := &http.Server{
		Handler:           onlyLocal(m),
		ReadHeaderTimeout: 5 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx }, // ends the pages' streams
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	page, warning := fmt.Sprintf("http://localhost:%s/", port), ""
	if c.actions {
		warning = "Each user of this computer can change the queues there.\n"
	}
	if c.json {
		err = c.print(map[string]any{"page": page, "actions": c.actions}, nil)
	} else {
		_, err = fmt.Fprintf(c.out, "The page is at %s (Ctrl-C ends it)\n%s", page, warning)
	}
	if err != nil {
		return err
	}
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// shown is a queue and what the page shows of it, nil if it shows nothing.
type shown struct {
	queue  *queue
	source *monitor.Source
}

// follow adds new queues to the page, and removes dropped ones, until ctx is done.
func (c *call) follow(ctx context.Context, m *monitor.Monitor, all map[string]*shown) {
	for len(c.args) == 0 {
		select {
		case <-time.After(10 * time.Second):
		case <-ctx.Done():
			return
		}
		if sources, err := c.sources(ctx, all); err == nil { // otherwise the page shows the error
			m.Show(sources...)
		}
	}
}

// sources returns the queues of the page, and opens queues that are not in all yet.
func (c *call) sources(ctx context.Context, all map[string]*shown) ([]*monitor.Source, error) {
	var names []string
	for _, text := range c.args {
		name, err := printable.Parse(text)
		if err != nil {
			return nil, usage("the queue %v", err)
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		var err error
		if names, err = c.store.Queues(ctx, "", 0); err != nil {
			return nil, err
		}
	}
	slices.Sort(names)
	var describe func([]byte) string
	if c.payload {
		describe = func(payload []byte) string { return string(payload) }
	}
	var sources []*monitor.Source
	names = slices.Compact(names)
	for name, one := range all {
		gone := !slices.Contains(names, name)
		if one.queue != nil && !gone {
			_, err := one.queue.Stats(ctx)
			gone = errors.Is(err, task.ErrDropped) // there may be another one of that name
		}
		if gone {
			delete(all, name)
			if one.queue != nil {
				_ = one.queue.Close(ctx)
			}
		}
	}
	for _, name := range names {
		if all[name] == nil && printable.CheckName(name) != nil {
			fmt.Fprintf(c.errOut, "fairq: queue %s is left out: a page cannot have this name\n",
				printable.Text(name))
			all[name] = &shown{}
		}
		if all[name] == nil {
			q, err := c.open(ctx, name)
			if err != nil {
				return nil, err
			}
			all[name] = &shown{q, monitor.TaskQueue(name, q, describe)}
		}
		if source := all[name].source; source != nil {
			sources = append(sources, source)
		}
	}
	return sources, nil
}

// onlyLocal refuses requests for other hosts than localhost, because the name of another site may
// point to this address.
func onlyLocal(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u := url.URL{Host: r.Host}
		if !slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, u.Hostname()) {
			http.Error(w, "the host is not localhost", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
