// Package storetest checks that a [task.Store] keeps the promises of package task.
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) task.Store { return openSomewhereNew(t) })
//	}
//
// Each case runs in a bubble of [testing/synctest], in which time passes as soon as there is
// nothing to do. So a Store must take the time from package time. All its goroutines must end when
// it is closed; the open function closes it with t.Cleanup.
package storetest

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/fairq/fairq/task"
)

// Reopener is a Store whose tasks outlive the process. There are more cases for it.
type Reopener interface {
	task.Store

	// Reopen returns the store as another process would open it: with the same queues and tasks, but
	// nothing in common that is not in the store itself. The old store stays open, unless it was
	// killed.
	Reopen(t *testing.T) task.Store

	// Kill ends the store as a crash of its process would: nothing is handed back. All calls of its
	// backends return errors from now on.
	Kill(t *testing.T)
}

// Transactor is a Store whose calls can be parts of transactions of the caller's own. There are
// more cases for it.
type Transactor interface {
	task.Store

	// InTx calls f with a context that carries such a transaction. It commits that, unless f returns
	// an error, which it returns.
	InTx(ctx context.Context, f func(ctx context.Context) error) error
}

// testCase is something that a Store might get wrong.
type testCase struct {
	name string
	why  string // what would not be true then, in words of package task, with " ... " between these
	run  func(*env)
}

// theme is cases that have something in common.
type theme struct {
	name    string
	cases   []testCase
	reopens bool // the cases are for a Reopener
}

var themes = []theme{
	{"Life", lifeCases, false},
	{"Order", orderCases, false},
	{"Cost", costCases, false},
	{"Random", randomCases, false},
	{"Attempts", attemptCases, false},
	{"TTL", ttlCases, false},
	{"Deadline", deadlineCases, false},
	{"OnExpire", expireCases, false},
	{"Lease", leaseCases, false},
	{"Settle", settleCases, false},
	{"ByID", byIDCases, false},
	{"Consumer", consumerCases, false},
	{"Key", keyCases, false},
	{"Hold", holdCases, false},
	{"Rate", rateCases, false},
	{"Limit", limitCases, false},
	{"Filter", filterCases, false},
	{"Take", takeCases, false},
	{"Room", roomCases, false},
	{"PutWait", putWaitCases, false},
	{"UniqueKey", uniqueKeyCases, false},
	{"Group", groupCases, false},
	{"View", viewCases, false},
	{"Transaction", transactionCases, false},
	{"Event", eventCases, false},
	{"End", endCases, false},
	{"AsIs", asIsCases, false},
	{"Payload", payloadCases, false},
	{"Metadata", metadataCases, false},
	{"Concurrent", concurrentCases, false},
	{"Shared", sharedCases, false},
	{"Processes", sharedCases, true},
	{"Reopen", reopenCases, true},
	{"Change", changeCases, true},
	{"HoldElsewhere", holdElsewhere, true},
	{"RateElsewhere", rateElsewhere, true},
	{"LimitElsewhere", limitElsewhere, true},
	{"AsIsElsewhere", asIsElsewhere, true},
}

// Run tests a Store. open must return a new, empty one. If it is a [Reopener], there is more
// to test.
//
// Some cases make random calls. A case that fails prints its seed. Set the environment variable
// STORETEST_SEED to it, and the case makes the same calls again.
func Run(t *testing.T, open func(t *testing.T) task.Store) {
	for _, theme := range themes {
		t.Run(theme.name, func(t *testing.T) {
			for _, c := range theme.cases {
				t.Run(c.name, func(t *testing.T) { c.test(t, open, theme.reopens) })
			}
		})
	}
}

func (c *testCase) test(t *testing.T, open func(t *testing.T) task.Store, reopens bool) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what must be true: %s", c.why)
		}
	})
	var e *env
	synctest.Test(t, func(t *testing.T) {
		e = &env{T: t, store: open(t)}
		if reopens {
			var ok bool
			if e.reopener, ok = e.store.(Reopener); !ok {
				e.skip("the store is not a Reopener")
			}
		}
		c.run(e)
	})
	if e.skipped != "" {
		t.Skip(e.skipped)
	}
}
