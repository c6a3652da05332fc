package pool

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Schedule replaces a pool's Scale at certain times of the day. Where no range applies, the pool's
// own Scale does.
type Schedule struct {
	// Location is the time zone; nil means [time.Local].
	Location *time.Location

	// Ranges may touch, but not overlap.
	Ranges []Range
}

// Range is a time of the day with its own Scale.
type Range struct {
	// Time is of the form "08:00-12:00"; seconds and fractions down to milliseconds may follow:
	// "08:00:30.500-12:00". The range is half-open: [start, end). "24:00" is the end of the day. A
	// range that ends before it begins, as in "22:00-06:00", goes on after midnight. It is
	// wall-clock time: hours skipped when clocks go forward never apply, repeated ones apply
	// twice.
	Time string

	// Days are the weekdays on which the range begins; none means all.
	Days []time.Weekday

	// Scale replaces that of the pool. An IdleTimeout of 0 means that of the pool.
	Scale Scale

	// Pause, instead of a Scale, stops taking tasks. Running tasks go on.
	Pause bool
}

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// timetable maps the readings of a wall clock with weekdays to ranges. It is immutable.
type timetable struct {
	location *time.Location

	// turns are in order of time, and each differs from the one before, the first from the last: a
	// week is a circle. There is exactly one if the range never changes.
	changes []change
}

// turn is the time of the week, from Sunday 00:00, from which on a range applies.
type change struct {
	at    time.Duration
	index int // in Schedule.Ranges; -1 means none
}

// span is a part of a range within a week.
type span struct {
	begin, end time.Duration
	index      int
}

// compile checks the schedule, except the scales, and returns its week. It keeps nothing of
// Ranges.
func (s *Schedule) compile() (*timetable, error) {
	var spans []span
	for i, r := range s.Ranges {
		added, err := r.spans(i)
		if err != nil {
			return nil, invalid("%s: %w", s.name(i), err)
		}
		spans = append(spans, added...)
	}
	slices.SortStableFunc(spans, func(a, b span) int { return cmp.Compare(a.begin, b.begin) })

	var turns []change
	var end time.Duration
	for i, sp := range spans {
		if sp.begin < end {
			a, b := spans[i-1].index, sp.index
			return nil, invalid("%s and %s overlap on %v", s.name(min(a, b)), s.name(max(a, b)),
				time.Weekday(sp.begin/day))
		}
		if sp.begin > end {
			turns = append(turns, change{end, -1})
		}
		turns = append(turns, change{sp.begin, sp.index})
		end = sp.end
	}
	if end < week {
		turns = append(turns, change{end, -1})
	}
	turns = slices.CompactFunc(turns, func(a, b change) bool { return a.index == b.index })
	if last := len(turns) - 1; last > 0 && turns[0].index == turns[last].index {
		turns = turns[1:]
	}
	location := s.Location
	if location == nil {
		location = time.Local
	}
	return &timetable{location, turns}, nil
}

// name is the name of a range in errors.
func (s *Schedule) name(i int) string {
	return fmt.Sprintf("Schedule.Ranges[%d] %q", i, s.Ranges[i].Time)
}

// spans returns the range as parts of a week: one for each weekday, or two if it continues from
// Saturday to Sunday.
func (r *Range) spans(index int) ([]span, error) {
	begin, end, err := parseRange(r.Time)
	if err != nil {
		return nil, err
	}
	if end < begin {
		end += day
	}
	days := r.Days
	if len(days) == 0 {
		days = []time.Weekday{0, 1, 2, 3, 4, 5, 6}
	}
	var spans []span
	for i, d := range days {
		if d < time.Sunday || d > time.Saturday {
			return nil, fmt.Errorf("its Days[%d] is %d; it must be %d to %d", i, d, time.Sunday,
				time.Saturday)
		}
		if slices.Contains(days[:i], d) {
			return nil, fmt.Errorf("its Days[%d] is %v, which is there twice", i, d)
		}
		midnight := time.Duration(d) * day
		spans = append(spans, span{midnight + begin, min(midnight+end, week), index})
		if midnight+end > week {
			spans = append(spans, span{0, midnight + end - week, index})
		}
	}
	return spans, nil
}

// parseRange returns the begin and the end as times of the day.
func parseRange(text string) (begin, end time.Duration, err error) {
	first, second, ok := strings.Cut(text, "-")
	if !ok {
		return 0, 0, fmt.Errorf("it must be of the form %q", "08:00-12:00")
	}
	if begin, err = parseClock(first); err != nil {
		return 0, 0, fmt.Errorf("the begin %w", err)
	}
	if end, err = parseClock(second); err != nil {
		return 0, 0, fmt.Errorf("the end %w", err)
	}
	switch begin {
	case day:
		err = fmt.Errorf("the begin is %q; it must be before 24:00", first)
	case end:
		err = fmt.Errorf("it is empty; %q is the whole day", "00:00-24:00")
	}
	return begin, end, err
}

var clockForm = regexp.MustCompile(`^(\d\d):(\d\d)(?::(\d\d)(?:\.(\d+))?)?$`)

// parseClock returns a time of the day, 24:00 at most. Its errors begin with "is".
func parseClock(text string) (time.Duration, error) {
	m := clockForm.FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("is %q; it must be of the form %q, %q or %q", text, "08:00", "08:00:30",
			"08:00:30.500")
	}
	if len(m[4]) > 3 {
		return 0, fmt.Errorf("is %q; it must have 3 decimals at most", text)
	}
	m[4] = (m[4] + "000")[:3]
	var t time.Duration
	for i, part := range []struct {
		name string
		most int
		unit time.Duration
	}{
		{"hour", 24, time.Hour},
		{"minute", 59, time.Minute},
		{"second", 59, time.Second},
		{"", 999, time.Millisecond},
	} {
		n, _ := strconv.Atoi(m[i+1]) // it is digits, or nothing, which makes 0
		if n > part.most {
			return 0, fmt.Errorf("is %q; its %s must be 0 to %d", text, part.name, part.most)
		}
		t += time.Duration(n) * part.unit
	}
	if t > day {
		return 0, fmt.Errorf("is %q; it must be 24:00 at most", text)
	}
	return t, nil
}

// at returns the range that applies now, -1 if none does, and until when that is certain. The same
// range may apply after that. If it always applies, until is zero; otherwise it is after now. The
// cost is a search in the turns of a week.
func (t *timetable) at(now time.Time) (index int, until time.Time) {
	if len(t.changes) == 1 {
		return t.changes[0].index, time.Time{}
	}
	now = now.In(t.location)
	hour, minute, second := now.Clock()
	wall := time.Duration(now.Weekday())*day + time.Duration(hour)*time.Hour +
		time.Duration(minute)*time.Minute +
		time.Duration(second)*time.Second + time.Duration(now.Nanosecond())

	next, found := slices.BinarySearchFunc(t.changes, wall,
		func(u change, wall time.Duration) int { return cmp.Compare(u.at, wall) })
	if found {
		next++
	}
	n := len(t.changes)
	turnAt := t.changes[next%n].at
	if next == n {
		turnAt += week
	}
	index = t.changes[(next+n-1)%n].index
	until = now.Add(turnAt - wall)

	// Until the next zone transition the wall clock runs evenly.
	if _, end := now.ZoneBounds(); !end.IsZero() && end.Before(until) {
		if !end.After(now) {
			// On the last day of a leap year the end may be at its begin, golang/go#81583.
			// Transitions that are known by a rule only are sought within a year of UTC, so look
			// again in the next one.
			end = now.Truncate(day).Add(day)
		}
		if end.Before(until) {
			until = end
		}
	}
	return index, until
}
