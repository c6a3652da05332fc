package pool

import (
	"fmt"
	"math/rand/v2"
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

// oracle formats the local time, and returns the ranges that apply according to that text.
func oracle(ranges []wallRange, now time.Time) (indices []int) {
	today, clock, _ := strings.Cut(now.Format("Mon 15:04:05.000"), " ")
	for i, w := range ranges {
		if w.covers(clock, today, dayBefore[today]) {
			indices = append(indices, i)
		}
	}
	return indices
}

// clockText returns a time of the day in full, and as a user may write it.
func clockText(r *rand.Rand, ms int) (full, text string) {
	full = fmt.Sprintf("%02d:%02d:%02d.%03d", ms/3_600_000, ms/60_000%60, ms/1000%60, ms%1000)
	text = full
	if r.IntN(2) == 0 {
		if short := strings.TrimRight(text[8:], ".0"); short != "" {
			text = text[:8] + short
		} else {
			text = strings.TrimSuffix(text[:8], ":00")
		}
	}
	return full, text
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
	w.begin, x.Time = clockText(r, begin)
	full, text := clockText(r, end)
	w.end, x.Time = full, x.Time+"-"+text
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
func anySchedule(t *testing.T, r *rand.Rand, location *time.Location) (*timetable, []wallRange) {
	s := &Schedule{Location: location}
	var walls []wallRange
	compiled, err := s.compile()
	require.NoError(t, err)
	steps := []int{3_600_000, 1_800_000, 900_000, 60_000, 1000, 1}
	for range 1 + r.IntN(20) {
		x, w := anyRange(r, steps[r.IntN(len(steps))])
		s.Ranges = append(s.Ranges, x)
		if more, err := s.compile(); err == nil {
			compiled, walls = more, append(walls, w)
		} else { // TestOverlap says whether it is right
			s.Ranges = s.Ranges[:len(walls)]
		}
		if len(walls) == 5 {
			break
		}
	}
	t.Logf("%v: %+v", location, s.Ranges)
	return compiled, walls
}

// walk goes on in steps, and compares with the oracle at each, and at the instants that are
// returned.
func walk(t *testing.T, table *timetable, walls []wallRange, now, end time.Time,
	step time.Duration,
) {
	index, until := -2, now
	for ; now.Before(end); now = now.Add(step) {
		for !until.IsZero() && !until.After(now) {
			look := until
			if index == -2 {
				look = now
			}
			before := index
			index, until = table.at(look)
			if !until.IsZero() && !until.After(look) {
				require.Failf(t, "until is not later", "at %v: %v", look, until)
			}
			check(t, walls, look, index)
			if !until.IsZero() {
				check(t, walls, until.Add(-1), index)
			}
			// In years that a rule stands for, ZoneBounds also has the end of the year, or the day
			// before.
			const zone, date = "MST -0700 ", "01-02 15:04"
			if utc := look.UTC().Format(date); before == index && utc != "12-31 00:00" &&
				utc != "01-01 00:00" {
				require.NotEqual(t, look.Add(-1).Format(zone), look.Format(zone), "%v is needless", look)
			}
		}
		check(t, walls, now.In(table.location), index)
		if i, u := table.at(now.UTC()); i != index || !u.Equal(until) {
			require.Failf(t, "differs", "at %v: %d until %v, before: %d until %v", now, i, u, index, until)
		}
	}
}

func check(t *testing.T, walls []wallRange, now time.Time, index int) {
	want := oracle(walls, now)
	if index == -1 && len(want) > 0 || index >= 0 && (len(want) != 1 || want[0] != index) {
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
		{"Africa/Monrovia", 1972, 1}, // by 44 minutes and 30 seconds
		{"Europe/Amsterdam", 1937, 3},
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

// TestScheduleOverYears follows the instants that are returned, through half a century, listed in
// zone files and not.
func TestScheduleOverYears(t *testing.T) {
	r := seeded(t)
	for _, name := range []string{
		"Europe/Berlin", "America/Santiago", "Africa/Cairo",
		"Australia/Lord_Howe",
	} {
		location, err := time.LoadLocation(name)
		require.NoError(t, err)
		table, walls := anySchedule(t, r, location)
		instants := 0
		for now := time.Date(2010, 1, 1, 0, 0, 0, 0, time.UTC); now.Year() < 2060; instants++ {
			index, until := table.at(now)
			check(t, walls, now.In(location), index)
			if until.IsZero() {
				break
			}
			require.True(t, until.After(now), "%v, %v", now, until)
			check(t, walls, until.Add(-1), index)
			check(t, walls, until.Add(-upTo(r, until.Sub(now))), index)
			now = until
		}
		require.Less(t, instants, 50*(366*2*len(walls)+6))
	}
}

// TestScheduleInLeapYear looks on a day for which ZoneBounds is wrong, golang/go#81583.
func TestScheduleInLeapYear(t *testing.T) {
	location, err := time.LoadLocation("America/New_York")
	require.NoError(t, err)
	table, err := (&Schedule{
		location,
		[]Range{{Time: "00:00-24:00", Days: []time.Weekday{time.Sunday}}},
	}).compile()
	require.NoError(t, err)
	now := time.Date(2040, 12, 31, 12, 0, 0, 0, time.UTC) // a Monday
	index, until := table.at(now)
	require.Equal(t, -1, index)
	require.True(t, until.After(now), until)
	_, until = table.at(time.Date(2041, 1, 1, 12, 0, 0, 0, time.UTC))
	require.Equal(t, time.Date(2041, 1, 6, 0, 0, 0, 0, location), until)
}

// ruled returns a zone that has only a rule, as in RFC 9636.
func ruled(t *testing.T, rule string) *time.Location {
	block := func(version, types string) string {
		return "TZif" + version + strings.Repeat("\x00", 15+4*4) + types
	}
	name := "\x00\x00\x00\x01\x00\x00\x00\x04" // one type of time, four bytes of names
	data := block("2", name+"\x00\x00\x00\x00\x00\x00STD\x00")
	location, err := time.LoadLocationFromTZData(rule, []byte(data+data+"\n"+rule+"\n"))
	require.NoError(t, err)
	return location
}

// TestScheduleAfterLeapYear has a change of clocks that comes before the next range, and whose end
// of the year is wrong.
func TestScheduleAfterLeapYear(t *testing.T) {
	location := ruled(t, "STD0DST,J3/0,J200/0")
	s := &Schedule{location, []Range{{Time: "12:00-13:00", Days: []time.Weekday{time.Friday}}}}
	table, err := s.compile()
	require.NoError(t, err)
	walls := []wallRange{{"12:00:00.000", "13:00:00.000", "Fri"}}
	for year := 2020; year < 2050; year++ {
		instant := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
		_, offset := instant.Add(2 * day).In(location).Zone()
		require.Equal(t, 3600, offset)
		walk(t, table, walls, instant.Add(-day), instant.Add(4*day), 10*time.Minute)
	}
}

func TestScheduleThatNeverChanges(t *testing.T) {
	location, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	now := time.Date(2026, 10, 24, 0, 0, 0, 0, time.UTC)
	for want, s := range []*Schedule{
		{location, []Range{{Time: "00:00-24:00"}}},
		{Location: location},
	} {
		table, err := s.compile()
		require.NoError(t, err)
		index, until := table.at(now)
		require.Equal(t, -want, index)
		require.Zero(t, until)
	}
	table, err := (&Schedule{}).compile()
	require.NoError(t, err)
	require.Equal(t, time.Local, table.location)

	// Weekdays that touch are one time.
	days := []time.Weekday{time.Sunday, time.Monday, time.Saturday}
	table, err = (&Schedule{time.UTC, []Range{{Time: "00:00-24:00", Days: days}}}).compile()
	require.NoError(t, err)
	require.Equal(t, []change{{2 * day, -1}, {6 * day, 0}}, table.changes)
}

// TestOverlap finds overlaps by looking at every half hour of a week.
func TestOverlap(t *testing.T) {
	r := seeded(t)
	overlaps := 0
	for range 1000 {
		var s Schedule
		var walls []wallRange
		for range 2 + r.IntN(2) {
			x, w := anyRange(r, 1_800_000)
			s.Ranges, walls = append(s.Ranges, x), append(walls, w)
		}
		both := map[string]bool{} // what an error may say
		start := time.Date(2026, 10, 4, 0, 0, 0, 0, time.UTC)
		for now := start; now.Before(start.Add(week)); now = now.Add(30 * time.Minute) {
			indices := oracle(walls, now)
			for k, j := range indices {
				for _, i := range indices[:k] {
					both[fmt.Sprintf("pool: invalid: Schedule.Ranges[%d] %q and "+
						"Schedule.Ranges[%d] %q overlap on %v",
						i, s.Ranges[i].Time, j, s.Ranges[j].Time, now.Weekday())] = true
				}
			}
		}
		_, err := s.compile()
		if len(both) == 0 {
			require.NoError(t, err, "%+v", s.Ranges)
			continue
		}
		overlaps++
		require.ErrorIs(t, err, task.ErrInvalid, "%+v", s.Ranges)
		require.Contains(t, both, err.Error())
	}
	require.InDelta(t, 845, overlaps, 75)
}

func TestScheduleErrors(t *testing.T) {
	const form = `; it must be of the form "08:00", "08:00:30" or "08:00:30.500"`
	for text, want := range map[string]string{
		"":                      `it must be of the form "08:00-12:00"`,
		"08:00":                 `it must be of the form "08:00-12:00"`,
		"08:00–12:00":           `it must be of the form "08:00-12:00"`, // a dash of another kind
		"8:00-12:00":            `the begin is "8:00"` + form,
		"08:00-12":              `the end is "12"` + form,
		"08:00-12:00-13:00":     `the end is "12:00-13:00"` + form,
		"08:00 -12:00":          `the begin is "08:00 "` + form,
		"08:00-12:00\n":         `the end is "12:00\n"` + form,
		"08:00:30.-12:00":       `the begin is "08:00:30."` + form,
		"08:00.5-12:00":         `the begin is "08:00.5"` + form,
		"08:00:30,5-12:00":      `the begin is "08:00:30,5"` + form,
		"٠٨:00-12:00":           `the begin is "٠٨:00"` + form,
		"25:00-12:00":           `the begin is "25:00"; its hour must be 0 to 24`,
		"08:00-12:60":           `the end is "12:60"; its minute must be 0 to 59`,
		"08:00-12:00:60":        `the end is "12:00:60"; its second must be 0 to 59`,
		"08:00:00.1234-12:00":   `the begin is "08:00:00.1234"; it must have 3 decimals at most`,
		"08:00-08:00:00.0":      `it is empty; "00:00-24:00" is the whole day`,
		"00:00-00:00":           `it is empty; "00:00-24:00" is the whole day`,
		"24:00-06:00":           `the begin is "24:00"; it must be before 24:00`,
		"24:00-24:00":           `the begin is "24:00"; it must be before 24:00`,
		"08:00-24:01":           `the end is "24:01"; it must be 24:00 at most`,
		"08:00-24:00:00.001":    `the end is "24:00:00.001"; it must be 24:00 at most`,
		"24:59:59.999-24:00:00": `the begin is "24:59:59.999"; it must be 24:00 at most`,
	} {
		_, err := (&Schedule{Ranges: []Range{
			{Time: "00:00-00:01", Days: []time.Weekday{6}},
			{Time: text},
		}}).compile()
		require.ErrorIs(t, err, task.ErrInvalid)
		require.EqualError(t, err, fmt.Sprintf("pool: invalid: Schedule.Ranges[1] %q: %s", text, want))
	}
	sunday, monday, saturday := []time.Weekday{0}, []time.Weekday{1}, []time.Weekday{6}
	for want, ranges := range map[string][]Range{
		`Schedule.Ranges[0] "01:00-02:00": its Days[1] is 7; it must be 0 to 6`: {
			{Time: "01:00-02:00", Days: []time.Weekday{1, 7}},
		},
		`Schedule.Ranges[0] "01:00-02:00": its Days[0] is -1; it must be 0 to 6`: {
			{Time: "01:00-02:00", Days: []time.Weekday{-1}},
		},
		`Schedule.Ranges[0] "01:00-02:00": its Days[2] is Monday, which is there twice`: {
			{Time: "01:00-02:00", Days: []time.Weekday{1, 2, 1}},
		},
		`Schedule.Ranges[0] "08:00-12:00" and Schedule.Ranges[1] ` +
			`"11:59:59.999-13:00" overlap on Sunday`: {
			{Time: "08:00-12:00"},
			{Time: "11:59:59.999-13:00"},
		},
		`Schedule.Ranges[0] "06:00-07:00" and Schedule.Ranges[2] ` +
			`"05:00-06:00:00.001" overlap on Sunday`: {
			{Time: "06:00-07:00"},
			{Time: "08:00-09:00"},
			{Time: "05:00-06:00:00.001"},
		},
		`Schedule.Ranges[0] "05:00-07:00" and Schedule.Ranges[1] "22:00-06:00" overlap on Monday`: {
			{Time: "05:00-07:00", Days: monday},
			{Time: "22:00-06:00", Days: sunday},
		},
		`Schedule.Ranges[0] "22:00-06:00" and Schedule.Ranges[1] "05:00-07:00" overlap on Sunday`: {
			{Time: "22:00-06:00", Days: saturday},
			{Time: "05:00-07:00", Days: sunday},
		},
		`Schedule.Ranges[0] "08:00-12:00" and Schedule.Ranges[1] "08:00-12:00" overlap on Saturday`: {
			{Time: "08:00-12:00", Days: saturday},
			{Time: "08:00-12:00"},
		},
	} {
		_, err := (&Schedule{Ranges: ranges}).compile()
		require.EqualError(t, err, "pool: invalid: "+want)
	}
}
