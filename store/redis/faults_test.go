package redis

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/fairq/fairq/store/internal/faulttest"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest/kvtest"
)

// TestChild is the main function of processes that other tests start.
func TestChild(*testing.T) { faulttest.Child(openFaulty, nil) }

func openFaulty(ctx context.Context, where string) (faulttest.Store, error) {
	client, prefix := dial(where)
	prefix, fault, _ := strings.Cut(prefix, "?")
	o := &Options{Prefix: prefix, History: time.Hour, Poll: time.Hour, Skew: time.Millisecond}
	s, err := open(ctx, kvtest.Faulty{Map: newEngine(client, o), Fault: fault}, o)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	s.client = client
	return s, nil
}

func TestKill(t *testing.T) {
	t.Parallel()
	faulttest.Kill(t, openFaulty, newDatabase(t))
}

// TestKillUnknown does the same, with one commit in ten done and reported as unknown.
func TestKillUnknown(t *testing.T) {
	t.Parallel()
	faulttest.Kill(t, openFaulty, newDatabase(t)+"?"+kvtest.Unknown)
}

func TestUnguarded(t *testing.T) {
	kvtest.Finds(t, openFaulty, func() string { return newDatabase(t) + "?" + kvtest.Unguarded })
}

func TestWake(t *testing.T) { faulttest.Wake(t, openFaulty, newDatabase(t)) }

// TestKillServer kills processes, and at the same time the server, which writes before it answers.
func TestKillServer(t *testing.T) {
	s := newServer(t, t.TempDir(), "--appendonly", "yes", "--appendfsync", "always")
	defer s.kill()
	ctx, stop := context.WithCancel(t.Context())
	killed := make(chan int)
	go func() {
		n := 0
		for ; rows.Pause(ctx, 100*time.Millisecond+rand.N(400*time.Millisecond)) == nil; n++ {
			s.kill()
			if err := s.start(); err != nil {
				t.Error(err)
			}
		}
		killed <- n
	}()
	faulttest.KillLate(t, openFaulty, s.url("{kill}"))
	stop()
	t.Log("servers killed:", <-killed)
}
