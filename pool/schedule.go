package pool

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Range is a time of the day with its own Scale.
type Range struct {
	// Time is of the form "08:00-12:00"; seconds and fractions may follow: "08:00:30.500-12:00". The
	// range is half-open: [start, end). "24:00" is the end of the day. A range that ends before it
	// begins, as in "22:00-06:00", goes on after midnight. It is wall-clock time: hours skipped when
	// clocks go forward never apply, repeated ones apply twice.
	Time string

	// Days are the weekdays on which the range begins; none means all.
	Days []time.Weekday

	Location *time.Location // the time zone; nil means [time.Local]

	// Scale is in force during the range, in place of the pool's Scale. An IdleTimeout of 0 means the
	// pool's. With a Max of 0 no task is taken; running tasks go on.
	Scale Scale
}

const day = 24 * time.Hour

// clockRange is a range on a wall clock, by the time since midnight. It ends on the next day if
// end is not after begin.
type clockRange struct {
	Range
	begin, end time.Duration
}

// compile checks a schedule. It keeps nothing of it.
func compile(schedule []Range, base Scale) (ranges []clockRange, err error) {
	for i, r := range schedule {
		name := fmt.Sprintf("Options.Schedule[%d] %q", i, r.Time)
		first, second, _ := strings.Cut(r.Time, "-")
		begin, bad := parseClock(first)
		end, err := parseClock(second)
		r.Days, r.Location = slices.Clone(r.Days), cmp.Or(r.Location, time.Local)
		for _, d := range r.Days {
			if err := within(name+": a day", int(d), 6); err != nil {
				return nil, err
			}
		}
		switch {
		case err != nil || bad != nil || begin == day:
			return nil, invalid("%s: it must be of the form %q, %q or %q, from 00:00 to 24:00", name,
				"08:00-12:00", "08:00:30-12:00", "08:00:30.500-12:00")
		case begin == end:
			return nil, invalid("%s: it is empty; %q is the whole day", name, "00:00-24:00")
		}
		if err := r.Scale.complete(name, base.IdleTimeout); err != nil {
			return nil, err
		}
		ranges = append(ranges, clockRange{r, begin, end})
	}
	return ranges, nil
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

// rangeAt returns the range that applies now, nil if none does, and until when that is certain.
// That is when a range begins or ends, or at the next quarter of an hour of UTC, because only then
// zones change their clocks.
func rangeAt(ranges []clockRange, now time.Time) (in *Range, until time.Time) {
	until = now.Truncate(time.Hour / 4).Add(time.Hour / 4)
	for i := range ranges {
		r := &ranges[i]
		local := now.In(r.Location)
		wall, _ := parseClock(local.Format("15:04:05.999999999"))
		today := local.Weekday()
		for _, edge := range []time.Duration{r.begin, r.end} {
			if next := now.Add((edge - wall + day) % day); next.After(now) && next.Before(until) {
				until = next
			}
		}
		is := r.begin <= wall && wall < r.end
		if r.end < r.begin {
			is = r.begin <= wall || wall < r.end
			if wall < r.end { // it has begun yesterday
				today = (today + 6) % 7
			}
		}
		if is && in == nil && (len(r.Days) == 0 || slices.Contains(r.Days, today)) {
			in = &r.Range
		}
	}
	return in, until
}

// followSchedule sets the scale of the schedule, now and whenever it changes.
func (ws *workerSet) followSchedule() {
	s, name, now, until := ws.base, "", time.Now(), time.Time{}
	if len(ws.schedule) > 0 {
		var in *Range
		if in, until = rangeAt(ws.schedule, now); in != nil {
			s, name = in.Scale, in.Time
		}
	}
	ws.mu.Lock()
	ws.inRange = name
	if !ws.manual {
		ws.setScaleLocked(s)
	}
	if !until.IsZero() && ws.done.Err() == nil {
		resetTimer(&ws.scheduleTimer, until.Sub(now), ws.followSchedule)
	}
	ws.mu.Unlock()
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
