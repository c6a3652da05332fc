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
	"time"

	"github.com/fairq/fairq/internal/printable"
	"github.com/fairq/fairq/monitor"
)

// serve shows queues on a page, until ctx is done.
func serve(ctx context.Context, c *call) error {
	sources, err := c.sources(ctx)
	if err != nil {
		return err
	}
	o := &monitor.Options{Logger: slog.New(slog.NewTextHandler(c.errOut, nil))}
	if c.actions {
		o.Actions = func(*http.Request, monitor.Action) bool { return true } // see onlyLocal
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("localhost", strconv.Itoa(c.port)))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{
		Handler:           onlyLocal(monitor.New(o, sources...)),
		ReadHeaderTimeout: 5 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx }, // ends the pages' streams
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	fmt.Fprintf(c.out, "The page is at http://localhost:%s/ (Ctrl-C ends it)\n", port)
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// sources opens the queues that are to be shown.
func (c *call) sources(ctx context.Context) ([]*monitor.Source, error) {
	var names []string
	for _, shown := range c.args {
		name, err := printable.Parse(shown)
		if err != nil {
			return nil, usage("the queue %v", err)
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		all, err := c.store.Queues(ctx, "", 0)
		if err != nil {
			return nil, err
		}
		names = all
	}
	slices.Sort(names)
	var describe func([]byte) string
	if c.payload {
		describe = func(payload []byte) string { return string(payload) }
	}
	var sources []*monitor.Source
	for _, name := range slices.Compact(names) {
		if printable.CheckName(name) != nil {
			fmt.Fprintf(c.errOut, "fairq: queue %s is left out: a page cannot have this name\n", printable.Text(name))
			continue
		}
		q, err := c.open(ctx, name)
		if err != nil {
			return nil, err
		}
		sources = append(sources, monitor.TaskQueue(name, q, describe))
	}
	return sources, nil
}

// onlyLocal refuses what does not ask for localhost by name: a page of elsewhere could have its own
// name point to this address.
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
