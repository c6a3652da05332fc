package rowstest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairq/fairq/store/internal/rows"
)

// pair makes the same calls to a driver and to a model. Where a driver may choose numbers, the
// model takes the driver's.
type pair struct {
	t       *testing.T
	seed    uint64
	rnd     *rand.Rand
	handles []*handle
	values  values
	names   []string // of queues
	calls   []string // the last ones
	quiet   bool     // calls are not noted
	made    int      // random calls in all; some are several calls

	ids     map[uint64]bool            // of queues: all there have been
	numbers map[uint64]map[uint64]bool // by queue: all there have been
}

// handle is a handle on the driver's database and one on the model's.
type handle struct {
	name    int
	got     rows.DB
	want    *DB
	heads   map[uint64][2]*rows.Head // by queue, those returned last
	numbers map[uint64]uint64        // by queue, the last one
}

func newPair(t *testing.T, db rows.DB, seed uint64) *pair {
	rnd := rand.New(rand.NewPCG(seed, 0))
	p := &pair{
		t: t, seed: seed, rnd: rnd, values: newValues(rnd), ids: map[uint64]bool{},
		numbers: map[uint64]map[uint64]bool{},
		names:   []string{"", "q\x00'; DROP TABLE queues; --", "q\x00\xff"},
	}
	p.handle(db, NewDB(time.Now))
	if r, ok := db.(reopener); ok {
		p.handle(r.Reopen(t), p.handles[0].want.Reopen())
	}
	return p
}

func (p *pair) handle(got rows.DB, want *DB) {
	p.handles = append(p.handles, &handle{
		name: len(p.handles), got: got, want: want, heads: map[uint64][2]*rows.Head{},
		numbers: map[uint64]uint64{},
	})
}

// run makes calls.
func (p *pair) run() {
	h := p.handles[0]
	for p.made < seedCall {
		if p.chance(4) {
			h = p.handles[p.rnd.IntN(len(p.handles))]
		}
		if p.chance(3) {
			p.changed(h)
		}
		p.transaction(h)
	}
	for _, h := range p.handles {
		p.compareAll(h)
	}
}

// chance is true once in n times.
func (p *pair) chance(n int) bool { return p.rnd.IntN(n) == 0 }

// changed calls Changed. A driver may return true where nothing has changed.
func (p *pair) changed(h *handle) {
	got, err := h.got.Changed(context.Background())
	p.must("Changed", err)
	want, err := h.want.Changed(context.Background())
	p.must("Changed of the model", err)
	if t, ok := h.got.(reporter); want && !got && (!ok || !t.ReportsChanges()) {
		p.fail("Changed of handle %d is false, but another handle has written", h.name)
	}
}

// transaction makes one transaction.
func (p *pair) transaction(h *handle) {
	tx := p.begin(h)
	tx.enter()
	for range 1 + p.rnd.IntN(30) {
		p.made++
		if left := tx.left(); len(left) > 0 {
			left[p.rnd.IntN(len(left))].random()
		}
	}
	for _, v := range tx.left() {
		v.compareHead()
	}
	if p.chance(5) {
		tx.rollback()
	} else {
		p.note("Commit")
		p.must("Commit", tx.got.Commit())
		p.must("Commit of the model", tx.want.Commit())
	}
	if p.chance(4) {
		p.compareAll(h)
	}
}

// compareAll compares all that is in all queues, as a handle sees it.
func (p *pair) compareAll(h *handle) {
	p.note("compare all")
	p.quiet = true
	tx := p.begin(h)
	var all []uint64
	for _, name := range p.names {
		if id, ok := tx.queue(name, nil); ok {
			all = append(all, id)
		}
	}
	slices.Sort(all)
	for _, id := range all {
		if v := tx.view(id); v != nil {
			v.compareAll()
		}
	}
	p.quiet = false
	p.must("Commit", tx.got.Commit())
	p.must("Commit of the model", tx.want.Commit())
}

// note notes a call for the report of a failure, and returns it as a string.
func (p *pair) note(format string, args ...any) string {
	call := fmt.Sprintf(format, args...)
	if len(call) > 800 {
		call = call[:800] + "..."
	}
	switch {
	case p.quiet:
		return call
	case len(p.calls) == 40:
		p.calls = p.calls[1:]
	}
	p.calls = append(p.calls, call)
	return call
}

func (p *pair) fail(format string, args ...any) {
	p.t.Helper()
	p.t.Fatalf("%s\n\n%s=%d makes these calls again; the last ones:\n%s",
		fmt.Sprintf(format, args...), seedEnv, p.seed,
		strings.Join(p.calls, "\n"))
}

func (p *pair) must(what string, err error) {
	p.t.Helper()
	if err != nil {
		p.fail("%s: %v", what, err)
	}
}
