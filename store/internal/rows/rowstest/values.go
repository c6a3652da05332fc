package rowstest

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/life"
	"github.com/fairq/fairq/store/internal/rows"
)

// strange has strings that a database may take for each other, for invalid text, or for a part of
// a statement. Strings that a database may take for each other are neighbours.
var strange = []string{
	"a ", "A", "a", "a\x00", "a\x00b", "\x00", "\xff\xfe", "\xff", "\xc3\x28",
	"'; DROP TABLE tasks; --", "' OR 1=1 --", `"`, `\`, `\x61`, "a%", "%",
	"_", "b", "ключ", "🙂", " ", "\u00e9", "e\u0301", "null", "?1", "$1", ":k", "0", "00", "1e1",
	strings.Repeat("k", driver.MaxName),
}

// values makes random values, few different ones, so that they meet again.
type values struct {
	rnd        *rand.Rand
	keys       []string
	kinds      []string
	uniqueKeys []string // no "", as groups
	groups     []string
	consumers  []string
}

func newValues(rnd *rand.Rand) values {
	some := func(n int) []string {
		if rnd.IntN(2) == 0 { // neighbours
			first := rnd.IntN(len(strange) - n)
			return slices.Clone(strange[first : first+n])
		}
		var list []string
		for _, i := range rnd.Perm(len(strange))[:n] {
			list = append(list, strange[i])
		}
		return list
	}
	return values{
		rnd: rnd, keys: append(some(3), ""), kinds: append(some(2), ""),
		uniqueKeys: some(5), groups: some(2),
		consumers: append(some(5), ""),
	}
}

func pick[T any](rnd *rand.Rand, list ...T) T { return list[rnd.IntN(len(list))] }

// of returns an element of one of its lists.
func (v values) of(list []string) string { return pick(v.rnd, list...) }

func (v values) chance(n int) bool { return v.rnd.IntN(n) == 0 }

func (v values) priority() int { return pick(v.rnd, 0, 0, 1, driver.MaxPriority) }

func (v values) line() rows.Line { return rows.Line{Key: v.of(v.keys), Priority: v.priority()} }

// count returns a number of rows to ask for.
func (v values) count() int { return pick(v.rnd, 1, 1, 2, 3, 1000) }

// time returns a time, few different ones, some of them 0.
func (v values) time() int64 {
	switch v.rnd.IntN(10) {
	case 0, 1:
		return 0
	case 2:
		return math.MaxInt64 - int64(v.rnd.IntN(2))
	case 3:
		return time.Date(2030, 1, 1, 0, 0, 0, v.rnd.IntN(3), time.UTC).UnixNano()
	}
	return v.now()
}

// now returns a time that some others are before and some are after, and some are the same.
func (v values) now() int64 { return 1 + v.rnd.Int64N(20) }

// round returns the number of a round, perhaps 0.
func (v values) round() uint64 {
	return pick[uint64](v.rnd, 0, 1, 2, 3, 1<<31, 1<<32, 1<<40-1, 1<<40, 1<<40+1, 1<<62)
}

// place returns a number that a row has for its order, few different ones.
func (v values) place() uint64 {
	return pick[uint64](v.rnd, 0, 1<<40, 1<<62) + uint64(v.rnd.IntN(10))
}

func (v values) bytes() []byte {
	return pick(v.rnd, []byte{}, []byte{0}, []byte("{}"), []byte("\xff\x00'"), []byte("some"))
}

func (v values) payload() []byte {
	switch {
	case v.chance(200):
		big := make([]byte, 1<<20)
		for i := range big {
			big[i] = byte(v.rnd.Uint32())
		}
		return big
	case v.chance(8):
		return nil
	}
	return v.bytes()
}

// reason returns an error, perhaps nil.
func (v values) reason() *driver.Error {
	if v.chance(2) {
		return nil
	}
	return v.failure()
}

func (v values) failure() *driver.Error {
	return &driver.Error{
		Code:    pick(v.rnd, 0, 0, 1, -1, math.MaxInt, math.MinInt),
		Message: pick(v.rnd, "", v.of(strange)),
	}
}

// limits returns the limits of a key, perhaps nil.
func (v values) limits() *driver.KeyLimits {
	if v.chance(2) {
		return nil
	}
	return &driver.KeyLimits{
		Weight: pick(v.rnd, 0, 1, fairq.MaxWeight), MaxInFlight: pick(v.rnd, -1, 0, 1, fairq.MaxLen),
		Rate: driver.Rate{
			Limit: pick(v.rnd, -1, 0, 1e-300, 1.0/3, driver.MaxRate),
			Burst: pick(v.rnd, 0, 1, driver.MaxRate),
		},
	}
}

func (v values) filter() rows.Filter {
	f := rows.Filter{
		MaxPriority: pick(v.rnd, driver.MaxPriority, driver.MaxPriority, driver.MaxPriority, 0, 1, -1),
	}
	switch v.rnd.IntN(6) {
	case 0:
		f.Kinds = []string{}
	case 1:
		f.Kinds = []string{""}
	case 2:
		f.Kinds = []string{v.of(v.kinds), v.of(v.kinds), "no such kind"}
	}
	return f
}

// row returns a row with an ID and unique key given.
func (v values) row(id uint64, uniqueKey string, consumers []uint64) *rows.Row {
	r := &rows.Row{
		ID: id, Key: v.of(v.keys), Kind: v.of(v.kinds), UniqueKey: uniqueKey,
		Weight: pick(v.rnd, 1, 2, fairq.MaxWeight), Cost: pick[int64](v.rnd, 1, 2, fairq.MaxCost),
		Payload: v.payload(), TTR: time.Duration(v.time()),
		MaxAttempts: pick(v.rnd, 0, 1, fairq.MaxLen), Created: v.time(), Deadline: v.time(),
		Metadata: pick(v.rnd, "", v.of(strange)),
	}
	v.change(r, consumers)
	if r.Group != "" {
		r.Role = pick(v.rnd, driver.Member, driver.AtEnd, driver.AtAbort)
	}
	return r
}

// change changes all fields of a row that may change.
func (v values) change(r *rows.Row, consumers []uint64) {
	r.State = pick(v.rnd, driver.Ready, driver.Ready, driver.Ready, driver.Delayed, driver.Taken,
		driver.Buried, driver.Held)
	// A ready row that is not InLine becomes taken by take, which changes fewer fields.
	if r.State == driver.Taken && (len(consumers) == 0 || r.Was == driver.Ready && !r.InLine) {
		r.State = driver.Buried
	}
	if r.State != driver.Taken || r.Was != driver.Ready {
		r.InLine = v.chance(2)
	}
	if r.Was == 0 || r.Was == driver.Taken {
		r.Priority = v.priority()
	}
	r.Group = pick(v.rnd, "", "", v.of(v.groups))
	r.Round, r.Place, r.Since = pick(v.rnd, 0, v.round(), v.round()), v.place(), v.place()
	r.Used = v.round()
	r.Takeable = r.State == driver.Ready && r.Round != 0 && !r.InLine && !v.chance(4)
	r.Gap, r.Returned, r.Untried = v.chance(4), v.chance(4), v.chance(4)
	if r.Consumer = 0; r.Was != 0 {
		r.Follower = v.place()
	}
	if r.State == driver.Taken {
		r.Consumer = pick(v.rnd, consumers...)
	}
	r.Attempts = pick(v.rnd, 0, 1, 2, fairq.MaxLen)
	r.ReadyAt, r.Until, r.Expires, r.Latest = v.time(), v.time(), v.time(), v.time()
	r.Wake, r.Err = v.time(), v.reason()
}

// take changes the fields of a row that Row.SetTaken sets, and others, which must stay unless the
// row is InLine.
func (v values) take(r *rows.Row, consumer uint64) {
	r.State, r.Takeable, r.Consumer = driver.Taken, false, consumer
	r.Since, r.Until, r.Wake = v.place(), v.time(), v.time()
	r.Attempts++
	r.Round, r.Gap = v.round(), !r.Gap
}

func (v values) key() *rows.Key {
	k := &rows.Key{
		Key: v.of(v.keys), Paused: v.chance(2), Limits: v.limits(),
		Wait: life.Wait{
			Hold: v.time(), By: driver.ID(v.rnd.IntN(3)), Full: v.time(), Until: v.time(),
			Waits: v.chance(2),
		},
	}
	for range v.rnd.IntN(3) {
		n := pick(v.rnd, 1, 1<<29)
		k.Tasks[pick(v.rnd, driver.Ready, driver.Delayed, driver.Taken, driver.Buried, driver.Held)] += n
		k.Tasks[0] += n
	}
	return k
}

func (v values) served() *rows.Served {
	return &rows.Served{Line: v.line(), Round: max(1, v.round()), Used: v.round()}
}

func (v values) group() *rows.Group {
	return &rows.Group{Name: v.of(v.groups), Group: life.Group{
		Started: v.chance(2), Cancelled: v.chance(2), Tasks: v.rnd.IntN(3), Members: v.rnd.IntN(3),
	}}
}

// outcome returns an outcome of a task.
func (v values) outcome(id uint64) *rows.Outcome {
	o := &rows.Outcome{
		UniqueKey: v.of(v.uniqueKeys), ID: id, Result: rows.Result(v.rnd.IntN(5)), Until: v.now(),
	}
	if o.Result == rows.Failed {
		o.Err = v.failure()
	}
	return o
}

// turn returns a turn.
func (v values) turn() *rows.Turn {
	return &rows.Turn{
		Line: v.line(), Kind: v.of(v.kinds), Task: pick[uint64](v.rnd, 0, 0, 1, 1<<62),
		Round: max(1, v.round()), Used: v.round(), Place: v.place(), Leads: v.chance(2),
		Takeable: !v.chance(4),
	}
}
