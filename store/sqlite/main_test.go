package sqlite

import (
	"flag"
	"os"
	"testing"
	"time"
)

// patient is for contenders for a lock, which does not go to the longest waiter.
var patient = options{busyTimeout: time.Minute}

// With the race detector SQLite, which is Go too, takes ten times as long, so the tests run as
// with -short.
func TestMain(m *testing.M) {
	flag.Parse()
	if raced {
		_ = flag.Set("test.short", "true")
	}
	os.Exit(m.Run())
}
