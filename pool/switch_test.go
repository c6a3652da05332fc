package pool_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata" // for machines without zones

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// zone loads a time zone.
func zone(t *testing.T, name string) *time.Location {
	l, err := time.LoadLocation(name)
	require.NoError(t, err)
	return l
}

// sleepUntil lets the time pass, and what is to happen then happen.
func sleepUntil(at time.Time) {
	time.Sleep(time.Until(at))
	synctest.Wait()
}

// anyDay returns ranges that follow each other, with a different Max each, and the Max that
// applies at a time that a clock shows, as text.
func anyDay(r *rand.Rand) (ranges []pool.Range, most func(clock string) int) {
	// in seconds, whole minutes, most of them in the hours in which clocks are changed
	var cuts []int
	for at := r.IntN(60); at < 24*60 && len(cuts) < 8; at += 1 + r.IntN(120) {
		cuts = append(cuts, 60*at)
	}
	text := func(s int) string { return fmt.Sprintf("%02d:%02d:%02d", s/3600, s/60%60, s%60) }
	for i, begin := range cuts[1:] {
		ranges = append(ranges, pool.Range{Time: text(cuts[i]) + "-" + text(begin), Scale: pool.Scale{Min: r.IntN(3), Max: 100 + i}})
	}
	last := cuts[len(cuts)-1]
	// across midnight
	ranges = append(ranges, pool.Range{Time: text(last) + ".500-" + text(cuts[0]), Scale: pool.Scale{Max: 99}})
	return ranges, func(clock string) int {
		switch {
		case clock < text(cuts[0]) || clock >= text(last)+".500":
			return 99
		case clock >= text(last):
			return 7 // none, half a second long
		}
		for i, begin := range cuts[1:] {
			if clock < text(begin) {
				return 100 + i
			}
		}
		panic("there is none")
	}
}

// TestSchedule compares with what a clock on the wall shows, in zones and on days in which clocks
// are changed.
func TestSchedule(t *testing.T) {
	for name, days := range map[string][]string{
		"Europe/Berlin":       {"2000-03-26", "2000-10-29"},
		"America/New_York":    {"2000-04-02", "2000-10-29"},
		"Australia/Lord_Howe": {"2000-03-26", "2000-08-27"}, // by half an hour
		"UTC":                 {"2000-01-02", "2000-02-29"},
	} {
		t.Run(name, func(t *testing.T) {
			r := chance(t)
			inBubble(t, func(t *testing.T, ctx context.Context) {
				location := zone(t, name)
				for _, date := range days {
					day, err := time.ParseInLocation(time.DateOnly, date, location)
					require.NoError(t, err)
					sleepUntil(day.Add(-time.Duration(r.Int64N(int64(time.Hour)))))
					ranges, most := anyDay(r)
					p := openFunc(t, newGate().handle, pool.Options[int]{
						Workers: 7, Schedule: pool.Schedule{Location: location, Ranges: ranges},
					})
					clock := func(at time.Time) string { return at.In(location).Format("15:04:05.000000000") }
					for i := range 26 * 60 * 2 { // each full minute, and half a second later
						at := day.Add(time.Duration(i/2)*time.Minute + time.Duration(i%2)*500*time.Millisecond)
						if most(clock(at)) == most(clock(at.Add(-1))) {
							continue
						}
						sleepUntil(at.Add(-1))
						require.Equal(t, most(clock(at.Add(-1))), p.Stats().Max, "before %v", at)
						sleepUntil(at)
						require.Equal(t, most(clock(at)), p.Stats().Max, "at %v", at)
					}
					end(t, ctx, p)
				}
			})
		})
	}
}

// TestScheduleOfWeekdays has a pool that works on Saturday, the first day of 2000, and on Monday.
func TestScheduleOfWeekdays(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		p := openFunc(t, newGate().handle, pool.Options[int]{Workers: 1, Schedule: pool.Schedule{Location: time.UTC, Ranges: []pool.Range{
			{Time: "22:00-06:00", Days: []time.Weekday{time.Saturday, time.Monday}, Scale: pool.Scale{Min: 2, Max: 3}},
		}}})
		begin := time.Now()
		for hour := range 24 * 14 {
			sleepUntil(begin.Add(time.Duration(hour) * time.Hour))
			day := (hour / 24) % 7 // from Saturday on
			hours := hour % 24
			on := hours >= 22 && (day == 0 || day == 2) || hours < 6 && (day == 1 || day == 3)
			if on {
				require.Equal(t, [2]int{2, 3}, [2]int{p.Stats().Min, p.Stats().Max}, time.Now())
			} else {
				require.Equal(t, [2]int{1, 1}, [2]int{p.Stats().Min, p.Stats().Max}, time.Now())
			}
		}
		end(t, ctx, p)
	})
}

// TestSwitchingDown has 4 tasks running when there may be 2, and then none, and then 3.
func TestSwitchingDown(t *testing.T) {
	forRigs(t, 1, func(t *testing.T, _ *rand.Rand, open func(*testing.T, int, pool.Options[int]) *rig) {
		begin := time.Now()
		rig := open(t, 0, pool.Options[int]{Workers: 4, Schedule: pool.Schedule{Location: time.UTC, Ranges: []pool.Range{
			{Time: "01:00-02:00", Scale: pool.Scale{Min: 1, Max: 2}},
			{Time: "02:00-03:00", Pause: true},
			{Time: "03:00-04:00", Scale: pool.Scale{Max: 3}},
		}}})
		for i := range 30 {
			require.NoError(t, rig.submit(t.Context(), i))
		}
		expect := func(runs, started int) {
			t.Helper()
			synctest.Wait()
			running, all := rig.now()
			require.Equal(t, [2]int{runs, started}, [2]int{running, len(all)})
			require.Equal(t, runs, rig.stats().Running)
		}
		expect(4, 4)
		sleepUntil(begin.Add(time.Hour - 1))
		rig.let(1)
		expect(4, 5)
		sleepUntil(begin.Add(time.Hour))
		expect(4, 5) // they go on
		rig.let(2)
		expect(2, 5) // and are not replaced
		rig.let(1)
		expect(2, 6)
		sleepUntil(begin.Add(2 * time.Hour))
		expect(2, 6)
		rig.let(2)
		expect(0, 6)
		require.Zero(t, rig.stats().Workers)
		require.NoError(t, rig.submit(t.Context(), 30))
		sleepUntil(begin.Add(3*time.Hour - 1))
		expect(0, 6)
		sleepUntil(begin.Add(3 * time.Hour))
		expect(3, 9)
		rig.let(25)
		expect(0, 31)
		require.Equal(t, uint64(31), rig.stats().Succeeded)
		require.NoError(t, rig.end(t.Context()))
	})
}

// TestSetWorkersOverridesSchedule sets a number of workers across a switch, and takes it back
// after that.
func TestSetWorkersOverridesSchedule(t *testing.T) {
	forRigs(t, 1, func(t *testing.T, _ *rand.Rand, open func(*testing.T, int, pool.Options[int]) *rig) {
		begin := time.Now()
		rig := open(t, 0, pool.Options[int]{Scale: pool.Scale{Min: 1, Max: 9}, Schedule: pool.Schedule{Location: time.UTC, Ranges: []pool.Range{
			{Time: "01:00-02:00", Scale: pool.Scale{Min: 2, Max: 8}},
		}}})
		scale := func() [2]int { return [2]int{rig.stats().Min, rig.stats().Max} }
		require.Equal(t, [2]int{1, 9}, scale())
		require.NoError(t, rig.set(3, 4))
		require.Equal(t, [2]int{3, 4}, scale())
		sleepUntil(begin.Add(90 * time.Minute))
		require.Equal(t, [2]int{3, 4}, scale())
		require.NoError(t, rig.set(0, 0))
		require.Equal(t, [2]int{2, 8}, scale())
		require.NoError(t, rig.set(0, 1))
		require.Equal(t, [2]int{0, 1}, scale())
		sleepUntil(begin.Add(3 * time.Hour))
		require.Equal(t, [2]int{0, 1}, scale())
		require.NoError(t, rig.set(0, 0))
		require.Equal(t, [2]int{1, 9}, scale())
		sleepUntil(begin.Add(25 * time.Hour))
		require.Equal(t, [2]int{2, 8}, scale())
		require.NoError(t, rig.end(t.Context()))
	})
}

// TestRangeHasFactorsOfPool has a range that names none.
func TestRangeHasFactorsOfPool(t *testing.T) {
	forRigs(t, 1, func(t *testing.T, _ *rand.Rand, open func(*testing.T, int, pool.Options[int]) *rig) {
		rig := open(t, 10, pool.Options[int]{
			Scale:    pool.Scale{Max: 9, WakeFactor: 0.2, IdleTimeout: time.Second},
			Schedule: pool.Schedule{Ranges: []pool.Range{{Time: "00:00-24:00", Scale: pool.Scale{Max: 2}}}},
		})
		for i, workers := range []int{1, 1, 2, 2} { // from 2 of 10 on
			require.NoError(t, rig.submit(t.Context(), i))
			synctest.Wait()
			require.Equal(t, workers, rig.stats().Workers)
		}
		rig.let(4)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Zero(t, rig.stats().Workers)
		require.NoError(t, rig.end(t.Context()))
	})
}

// TestSetWorkersTakesEffectAtOnce goes up and down while tasks run.
func TestSetWorkersTakesEffectAtOnce(t *testing.T) {
	forRigs(t, 20, func(t *testing.T, r *rand.Rand, open func(*testing.T, int, pool.Options[int]) *rig) {
		rig := open(t, 0, pool.Options[int]{Workers: 3})
		for i := range 100 {
			require.NoError(t, rig.submit(t.Context(), i))
		}
		synctest.Wait()
		runs := 3
		for left := 100; left > 20; {
			most := 1 + r.IntN(10)
			require.NoError(t, rig.set(0, most))
			synctest.Wait()
			runs = max(runs, most)
			require.Equal(t, runs, rig.stats().Running)
			done := r.IntN(3)
			rig.let(done)
			runs = max(runs-done, most)
			left -= done
			require.Equal(t, runs, rig.stats().Running)
		}
	})
}

func TestPause(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		begin, g := time.Now(), newGate()
		p := openFunc(t, g.handle, pool.Options[int]{Workers: 2, Schedule: pool.Schedule{Location: time.UTC, Ranges: []pool.Range{
			{Time: "01:00-02:00", Scale: pool.Scale{Max: 5}},
		}}})
		for i := range 10 {
			require.NoError(t, p.Submit(ctx, "a", i))
		}
		synctest.Wait()
		p.Pause()
		require.True(t, p.Stats().Paused)
		g.let(2) // they are not disturbed
		require.Equal(t, uint64(2), p.Stats().Succeeded)
		require.Zero(t, p.Stats().Running)
		require.NoError(t, p.Submit(ctx, "b", 10))
		require.NoError(t, p.SetWorkers(4, 4))
		sleepUntil(begin.Add(90 * time.Minute))
		require.Zero(t, p.Stats().Running)
		require.NoError(t, p.SetWorkers(0, 0))
		synctest.Wait()
		require.Zero(t, p.Stats().Running)
		p.Resume()
		synctest.Wait()
		require.Equal(t, 5, p.Stats().Running)
		require.False(t, p.Stats().Paused)
		g.let(9)
		end(t, ctx, p)
	})
}

// TestScheduleErrorsNameTheRange has errors of the times, and of the scales.
func TestScheduleErrorsNameTheRange(t *testing.T) {
	for want, ranges := range map[string][]pool.Range{
		`pool: invalid: Schedule.Ranges[1] "9:00-10:00": the begin is "9:00"; it must be of the form "08:00", "08:00:30" or "08:00:30.500"`: {
			{Time: "00:00-01:00", Scale: pool.Scale{Max: 1}}, {Time: "9:00-10:00", Scale: pool.Scale{Max: 1}},
		},
		`pool: invalid: Schedule.Ranges[0] "00:00-08:00" and Schedule.Ranges[1] "07:00-09:00" overlap on Sunday`: {
			{Time: "00:00-08:00", Scale: pool.Scale{Max: 1}}, {Time: "07:00-09:00", Pause: true},
		},
		`pool: invalid: Options.Schedule: the scale of "00:00-08:00": Min and Max are 2 and 1; the limits are 0 and 1048576, and Min must not be greater`: {
			{Time: "00:00-08:00", Scale: pool.Scale{Min: 2, Max: 1}},
		},
		`pool: invalid: Options.Schedule: the scale of "08:00-09:00": WakeFactor is 1.5; the limits are 0 and 1`: {
			{Time: "08:00-09:00", Scale: pool.Scale{Max: 1, WakeFactor: 1.5}},
		},
	} {
		err := pool.Options[int]{Schedule: pool.Schedule{Ranges: ranges}}.Validate()
		require.ErrorIs(t, err, pool.ErrInvalid)
		require.EqualError(t, err, want)
	}
}

// TestScheduleIsLogged has a line for each switch, and one for the range that applies from the
// start.
func TestScheduleIsLogged(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		var out lockedBuffer
		log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
		p := openFunc(t, newGate().handle, pool.Options[int]{Workers: 3, Logger: log, Schedule: pool.Schedule{
			Location: time.UTC, Ranges: []pool.Range{{Time: "23:00-02:00", Scale: pool.Scale{Min: 1, Max: 2}}},
		}})
		time.Sleep(48 * time.Hour)
		synctest.Wait()
		on, off := `level=DEBUG msg="pool: schedule" range=23:00-02:00 min=1 max=2`+"\n", `level=DEBUG msg="pool: schedule" range=none min=3 max=3`+"\n"
		require.Equal(t, strings.Repeat(on+off, 2)+on, out.String())
		end(t, ctx, p)
	})
}

// lockedBuffer is a buffer for many goroutines.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// TestShutdownInPause has a handler that waits for another task when a range begins in which
// nothing is taken, and then the pool is shut down: that task is done nevertheless.
func TestShutdownInPause(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		var p *pool.Pool[int]
		p = openFunc(t, func(ctx context.Context, tk *task.Task[int]) error {
			if time.Sleep(2 * time.Hour); tk.Payload == 0 {
				return nil
			}
			return p.Do(ctx, "a", tk.Payload-1, pool.PutOptions{})
		}, pool.Options[int]{Workers: 1, Schedule: pool.Schedule{
			Location: time.UTC, Ranges: []pool.Range{{Time: "01:00-24:00", Pause: true}},
		}})
		begin := time.Now()
		require.NoError(t, p.Submit(ctx, "a", 2))
		time.Sleep(time.Hour)
		require.NoError(t, p.Shutdown(ctx))
		require.Equal(t, 6*time.Hour, time.Since(begin))
		require.Equal(t, uint64(3), p.Stats().Succeeded)
		require.Empty(t, p.Leftovers())
	})
}
