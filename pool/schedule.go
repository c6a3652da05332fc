package pool

import (
	"cmp"
	"fmt"
	"slices"
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
	// Time is of the form "08:00-12:00"; seconds and fractions may follow: "08:00:30.500-12:00". The
	// range is half-open: [start, end). "24:00" is the end of the day. A range that ends before it
	// begins, as in "22:00-06:00", goes on after midnight. It is wall-clock time: hours skipped when
	// clocks go forward never apply, repeated ones apply twice.
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

// timetable is a Schedule as parts of a week on a wall clock. It is immutable.
type timetable struct {
	location *time.Location
	ranges   []Range // with complete scales
	spans    []span  // in order of time
}

// span is a part of a range within a week, from Sunday 00:00 on.
type span struct {
	begin, end time.Duration
	index      int // of its range
}

// compile checks the schedule. It keeps nothing of Ranges.
func (s *Schedule) compile(base Scale) (*timetable, error) {
	t := &timetable{location: cmp.Or(s.Location, time.Local), ranges: slices.Clone(s.Ranges)}
	for i := range t.ranges {
		r := &t.ranges[i]
		if r.Pause == (r.Scale.Max > 0) {
			return nil, invalid("%s: Max is %d; with Pause it must be 0, otherwise 1 to %d", s.name(i),
				r.Scale.Max, MaxWorkers)
		}
		if err := r.Scale.complete(s.name(i), base.IdleTimeout); err != nil {
			return nil, err
		}
		spans, err := r.spans(i)
		if err != nil {
			return nil, invalid("%s: %w", s.name(i), err)
		}
		t.spans = append(t.spans, spans...)
	}
	slices.SortStableFunc(t.spans, func(a, b span) int { return cmp.Compare(a.begin, b.begin) })
	for i, next := range t.spans[min(1, len(t.spans)):] {
		if sp := t.spans[i]; next.begin < sp.end {
			a, b := sp.index, next.index
			return nil, invalid("%s and %s overlap on %v", s.name(min(a, b)), s.name(max(a, b)),
				time.Weekday(next.begin/day))
		}
	}
	return t, nil
}

// name is the name of a range in errors.
func (s *Schedule) name(i int) string {
	return fmt.Sprintf("Schedule.Ranges[%d] %q", i, s.Ranges[i].Time)
}

// spans returns the range as parts of a week: one for each weekday, or two if it continues from
// Saturday to Sunday.
func (r *Range) spans(index int) ([]span, error) {
	first, second, _ := strings.Cut(r.Time, "-")
	begin, err := parseClock(first)
	end, bad := parseClock(second)
	switch {
	case err != nil || bad != nil || begin == day:
		return nil, fmt.Errorf("it must be of the form %q, %q or %q, from 00:00 to 24:00", "08:00-12:00",
			"08:00:30-12:00", "08:00:30.500-12:00")
	case begin == end:
		return nil, fmt.Errorf("it is empty; %q is the whole day", "00:00-24:00")
	case end < begin:
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
		midnight := time.Duration(d) * day
		spans = append(spans, span{midnight + begin, min(midnight+end, week), index})
		if midnight+end > week {
			spans = append(spans, span{0, midnight + end - week, index})
		}
	}
	return spans, nil
}

// parseClock returns a time of the day, 24:00 at most.
func parseClock(text string) (time.Duration, error) {
	if text == "24:00" {
		return day, nil
	}
	at, err := time.Parse("15:04", text)
	if err != nil {
		at, err = time.Parse("15:04:05", text)
	}
	return at.Sub(at.Truncate(day)), err
}

// at returns the range that applies now, -1 if none does, and until when that is certain: until a
// range begins or ends, and for at most a quarter of an hour of UTC, because zones change their
// clocks only at such times.
func (t *timetable) at(now time.Time) (index int, until time.Time) {
	now = now.In(t.location)
	wall, _ := parseClock(now.Format("15:04:05.999999999"))
	wall += time.Duration(now.Weekday()) * day
	index, until = -1, now.Truncate(time.Hour/4).Add(time.Hour/4)
	for _, s := range t.spans {
		if s.begin <= wall && wall < s.end {
			index = s.index
		}
		for _, edge := range []time.Duration{s.begin, s.end} {
			if next := now.Add((edge - wall + week) % week); next.After(now) && next.Before(until) {
				until = next
			}
		}
	}
	return index, until
}

// followSchedule sets the scale of the schedule, now and whenever it changes.
func (ws *workerSet) followSchedule() {
	s, name, now, until := ws.base, "", time.Now(), time.Time{}
	if t := ws.timetable; t != nil {
		var index int
		if index, until = t.at(now); index >= 0 {
			s, name = t.ranges[index].Scale, t.ranges[index].Time
		}
	}
	ws.mu.Lock()
	changed := name != ws.inRange
	ws.inRange = name
	if !ws.manual {
		ws.setScaleLocked(s)
	}
	if !until.IsZero() && ws.done.Err() == nil {
		resetTimer(&ws.scheduleTimer, until.Sub(now), ws.followSchedule)
	}
	ws.mu.Unlock()
	if changed {
		ws.log.Debug("pool: schedule", "range", name, "min", s.Min, "max", s.Max)
	}
	ws.wake()
}

// resetTimer sets a timer, and makes it the first time.
func resetTimer(timer **time.Timer, after time.Duration, f func()) {
	if *timer == nil {
		*timer = time.AfterFunc(after, f)
	} else {
		(*timer).Reset(after)
	}
}
