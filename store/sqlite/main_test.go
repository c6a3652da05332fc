package sqlite

import (
	"flag"
	"os"
	"testing"
	"time"
)

// patient is for those who contend for a lock, which does not go to who has waited longest.
var patient = options{busyTimeout: time.Minute}

// With the race detector SQLite, which is Go too, takes ten times as long; then the tests are those
// of -short.
func TestMain(m *testing.M) {
	flag.Parse()
	if raced {
		_ = flag.Set("test.short", "true")
	}
	os.Exit(m.Run())
}
