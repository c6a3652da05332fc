package pool

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // for machines without zones

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/task"
)

// wallRange is a range as its oracle reads it: the times in full, to be compared as text.
type wallRange struct {
	begin, end string
	days       string // "SunMon..."
}

func (w wallRange) covers(clock, today, yesterday string) bool {
	if w.begin < w.end {
		return w.begin <= clock && clock < w.end && strings.Contains(w.days, today)
	}
	return w.begin <= clock && strings.Contains(w.days, today) || clock < w.end &&
		strings.Contains(w.days, yesterday)
}

var dayBefore = map[string]string{
	"Sun": "Sat", "Mon": "Sun", "Tue": "Mon", "Wed": "Tue", "Thu": "Wed", "Fri": "Thu", "Sat": "Fri",
}

// oracle formats the local time, and returns the first range that applies according to that text.
func oracle(ranges []wallRange, now time.Time) int {
	today, clock, _ := strings.Cut(now.Format("Mon 15:04:05.000"), " ")
	return slices.IndexFunc(ranges, func(w wallRange) bool {
		return w.covers(clock, today, dayBefore[today])
	})
}

// clockText returns a time of the day.
func clockText(ms int) string {
	if ms == 86_400_000 {
		return "24:00"
	}
	return time.UnixMilli(int64(ms)).UTC().Format("15:04:05.000")
}

// anyRange has its ends on a multiple of step, in milliseconds, and more often in the first hours,
// when clocks change.
func anyRange(r *rand.Rand, step int) (Range, wallRange) {
	pick := func(least, most int) int {
		if r.IntN(2) == 0 {
			most = min(most, 4*3_600_000)
		}
		return (least + r.IntN(most-least+1)) / step * step
	}
	begin, end := pick(0, 86_400_000-step), pick(0, 86_400_000)
	for begin == end {
		end = pick(0, 86_400_000)
	}
	var x Range
	var w wallRange
	w.begin, w.end = clockText(begin), clockText(end)
	x.Time, _ = strings.CutSuffix(w.begin+"-"+w.end, ":00.000")
	x.Scale.Max = 1
	for _, d := range r.Perm(7) {
		if r.IntN(2) == 0 {
			x.Days = append(x.Days, time.Weekday(d))
			w.days += time.Weekday(d).String()[:3]
		}
	}
	if x.Days == nil {
		w.days = "SunMonTueWedThuFriSat"
	}
	return x, w
}

// anySchedule has up to five ranges.
func anySchedule(t *testing.T, r *rand.Rand, location *time.Location) ([]clockRange, []wallRange) {
	var schedule []Range
	var walls []wallRange
	steps := []int{3_600_000, 1_800_000, 900_000, 60_000, 1000, 1}
	for range 1 + r.IntN(5) {
		x, w := anyRange(r, steps[r.IntN(len(steps))])
		x.Location = location
		schedule, walls = append(schedule, x), append(walls, w)
	}
	t.Logf("%v: %+v", location, schedule)
	table, err := compile(schedule, Scale{})
	require.NoError(t, err)
	return table, walls
}

// walk goes on in steps, and compares with the oracle at each, and at the instants that are
// returned.
func walk(t *testing.T, table []clockRange, walls []wallRange, now, end time.Time,
	step time.Duration,
) {
	index, until := -1, now
	at := func(now time.Time) (int, time.Time) {
		in, until := rangeAt(table, now)
		for i := range table {
			if in == &table[i].Range {
				return i, until
			}
		}
		return -1, until
	}
	for ; now.Before(end); now = now.Add(step) {
		for !until.After(now) {
			look := until
			index, until = at(look)
			require.True(t, until.After(look), "%v, %v", look, until)
			check(t, walls, look.In(table[0].Location), index)
			check(t, walls, until.Add(-1).In(table[0].Location), index)
		}
		check(t, walls, now.In(table[0].Location), index)
		if i, u := at(now.UTC()); i != index || !u.Equal(until) {
			require.Failf(t, "differs", "at %v: %d until %v, before: %d until %v", now, i, u, index, until)
		}
	}
}

func check(t *testing.T, walls []wallRange, now time.Time, index int) {
	if want := oracle(walls, now); index != want {
		require.Failf(t, "wrong range", "at %v: %d, not %v", now.Format("Mon "+time.RFC3339Nano), index,
			want)
	}
}

func upTo(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

// transitions finds the changes of the clocks in a year, without ZoneBounds.
func transitions(year int, location *time.Location) (at []time.Time) {
	offset := func(now time.Time) int { _, o := now.Zone(); return o }
	end := time.Date(year+1, 1, 1, 0, 0, 0, 0, location)
	begin := time.Date(year, 1, 1, 0, 0, 0, 0, location)
	for now := begin; now.Before(end); now = now.Add(6 * time.Hour) {
		low, high := now, now.Add(6*time.Hour)
		if offset(low) == offset(high) {
			continue
		}
		for high.Sub(low) > time.Second {
			if middle := low.Add(high.Sub(low) / 2).Truncate(time.Second); offset(middle) == offset(low) {
				low = middle
			} else {
				high = middle
			}
		}
		at = append(at, high)
	}
	return at
}

func TestScheduleAgainstWallClock(t *testing.T) {
	for _, zone := range []struct {
		name    string
		year    int
		changes int
	}{
		{"UTC", 2026, 0},
		{"Asia/Kathmandu", 2026, 0},
		{"America/New_York", 2026, 2},
		{"America/New_York", 2040, 2}, // after those the zone files list
		{"Europe/Dublin", 2026, 2},
		{"Australia/Lord_Howe", 2026, 2},
		{"Antarctica/Troll", 2026, 2},
		{"Pacific/Apia", 2011, 3}, // there was no 30 December
		{"Pacific/Kwajalein", 1993, 1},
		{"America/Sao_Paulo", 2018, 2},
		{"Asia/Beirut", 2026, 2},
		{"Africa/Casablanca", 2026, 2},
		{"America/Nuuk", 2026, 2},
		{"America/Caracas", 2016, 1},
		{"Asia/Pyongyang", 2018, 1},
	} {
		t.Run(fmt.Sprint(zone.name, " ", zone.year), func(t *testing.T) {
			t.Parallel()
			location, err := time.LoadLocation(zone.name)
			require.NoError(t, err)
			r := seeded(t)
			instants := transitions(zone.year, location)
			require.Len(t, instants, zone.changes)
			instants = append(instants,
				time.Date(zone.year, 1, 1, 0, 0, 0, 0, location).Add(upTo(r, 300*day)))
			instants = append(instants, time.Date(zone.year+1, 1, 1, 0, 0, 0, 0, location))
			for _, instant := range instants {
				table, walls := anySchedule(t, r, location)
				walk(t, table, walls, instant.Add(-upTo(r, 4*day)), instant.Add(4*day), time.Minute)
				walk(t, table, walls, instant.Add(-40*time.Minute), instant.Add(40*time.Minute), time.Second)
			}
		})
	}
}

func TestScheduleErrors(t *testing.T) {
	const form = `it must be of the form "08:00-12:00", "08:00:30-12:00" or "08:00:30.500-12:00", ` +
		"from 00:00 to 24:00"
	const empty = `it is empty; "00:00-24:00" is the whole day`
	for text, want := range map[string]string{
		"": form, "08:00": form, "08:00–12:00": form, "08:00-12": form, "08:00-12:00-13:00": form,
		"08:00 -12:00": form, "08:00-12:00\n": form, "08:00:30.-12:00": form, "٠٨:00-12:00": form,
		"25:00-12:00": form, "08:00-12:60": form, "08:00-12:00:60": form, "24:00-06:00": form,
		"24:00-24:00": form, "08:00-24:01": form, "08:00-08:00:00.0": empty, "00:00-00:00": empty,
	} {
		_, err := compile([]Range{
			{Time: "00:00-00:01", Days: []time.Weekday{6}, Scale: Scale{Max: 1}}, {Time: text},
		}, Scale{})
		require.ErrorIs(t, err, task.ErrInvalid)
		require.EqualError(t, err, fmt.Sprintf("pool: invalid: Options.Schedule[1] %q: %s", text, want))
	}
	for want, ranges := range map[string][]Range{
		`Options.Schedule[0] "01:00-02:00": a day is 7; the limits are 0 and 6`: {
			{Time: "01:00-02:00", Days: []time.Weekday{1, 7}},
		},
		`Options.Schedule[0] "01:00-02:00": a day is -1; the limits are 0 and 6`: {
			{Time: "01:00-02:00", Days: []time.Weekday{-1}},
		},
	} {
		_, err := compile(ranges, Scale{})
		require.EqualError(t, err, "pool: invalid: "+want)
	}
}
