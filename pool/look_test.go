package pool

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// chosenSource is a source whose watch is armed by who takes the last task, and which calls a
// function before it is disarmed.
type chosenSource struct {
	set          *workerSet
	tasks        atomic.Int32
	armed        atomic.Bool
	beforeDisarm func()
	do           func()
}

type chosenJob func()

func (f chosenJob) do(*worker) { f() }

func (s *chosenSource) put() {
	s.tasks.Add(1)
	if s.armed.Swap(false) {
		s.set.wake()
	}
}

func (s *chosenSource) takeOrWatch() (job, error) {
	s.armed.Store(true)
	if n := s.tasks.Load(); n == 0 {
		return nil, nil
	}
	s.tasks.Add(-1)
	return chosenJob(s.do), nil
}

func (s *chosenSource) runNext(*worker) (bool, error) { return false, nil }
func (s *chosenSource) watches() bool                 { return s.armed.Load() }
func (s *chosenSource) watchLoad(float64) bool        { return true }
func (s *chosenSource) loadBelow(float64) bool        { return false }
func (s *chosenSource) addRunning(int64)              {}
func (s *chosenSource) disarm(bool) {
	if s.beforeDisarm != nil {
		s.beforeDisarm()
	}
	s.armed.Store(false)
}

// A worker that goes idle, or is woken, while another goroutine dispatches, must not rely on a
// watch that is just about to be disarmed.
func TestNobodySleepsBesideDisarm(t *testing.T) {
	for _, woken := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			setup, err := (&Options[int]{Scale: Scale{Min: 1, Max: 2}, Logger: slog.New(slog.DiscardHandler)}).completeForItems()
			require.NoError(t, err)
			ws := &workerSet{workerSettings: *setup}
			done, release := 0, make(chan struct{})
			s := &chosenSource{set: ws, do: func() { <-release; done++ }}
			ws.start(s)
			s.put()
			synctest.Wait()
			s.armed.Store(true) // as by a worker that was woken and has taken the last task
			s.beforeDisarm = func() {
				s.beforeDisarm = nil
				release <- struct{}{}
				synctest.Wait() // by now it is idle
				if woken {
					s.put()
					synctest.Wait()
				}
			}
			ws.dispatch()
			require.Nil(t, s.beforeDisarm)
			if !woken {
				s.put()
			}
			synctest.Wait()
			close(release)
			synctest.Wait()
			require.Equal(t, 2, done)
			require.NoError(t, ws.shutdown(t.Context()))
		})
	}
}
