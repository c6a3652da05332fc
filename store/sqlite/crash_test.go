package sqlite_test

import (
	"bytes"
	"database/sql"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// What SQLite writes into its write-ahead log.
const (
	walHeader = 32
	walFrame  = 24 + 4096
)

// state is what must be in the database as soon as that much of the write-ahead log is there.
type state struct {
	log  int
	dump string
}

// runScript runs the script, and returns the states that the database was in, and its files as they
// are in the end. A checkpoint was not made.
func runScript(t *testing.T) (states []state, database, log []byte) {
	path := newFile(t)
	s, err := newScript(path)
	require.NoError(t, err)
	defer s.store.Close()
	note := func() {
		info, err := os.Stat(path + "-wal")
		require.NoError(t, err)
		text, err := dump(path)
		require.NoError(t, err)
		states = append(states, state{int(info.Size()), text})
	}
	note()
	for _, step := range s.steps() {
		require.NoError(t, step())
		note()
	}
	database, err = os.ReadFile(path)
	require.NoError(t, err)
	log, err = os.ReadFile(path + "-wal")
	require.NoError(t, err)
	return states, database, log
}

// after returns what is in a database of which these are the files.
func after(t *testing.T, path string, database, log []byte) string {
	t.Helper()
	require.NoError(t, os.WriteFile(path, database, 0o600))
	require.NoError(t, os.WriteFile(path+"-wal", log, 0o600))
	os.Remove(path + "-shm") // it is made anew, as after a crash of the system
	text, err := dump(path)
	require.NoError(t, err)
	return text
}

// all is set if a test is to try all that there is to try, instead of some of it.
var all = os.Getenv("FAIRQ_FAULTS") == "all"

// TestCrashWhileWriting ends the log at all sorts of places, as it is left if the process ends
// between two writes or in the middle of one: just those transactions are there of which all was
// written.
func TestCrashWhileWriting(t *testing.T) {
	t.Parallel()
	states, database, log := runScript(t)
	var ends []int
	for end := states[0].log; end <= len(log); end += walFrame {
		somewhere := [...]int{-1, 1, 24, 24 + rand.IntN(4096)}
		for _, n := range []int{0, somewhere[rand.IntN(len(somewhere))]} {
			if rand.IntN(3) == 0 || all && !testing.Short() {
				ends = append(ends, end+n)
			}
		}
	}
	for _, s := range states {
		ends = append(ends, s.log, s.log-1)
	}
	path := newFile(t)
	for i, end := range ends {
		if end < states[0].log || end > len(log) {
			continue
		}
		expected := states[0]
		for _, s := range states {
			if s.log <= end {
				expected = s
			}
		}
		rest := bytes.Clone(log[:end])
		if i%2 == 1 && (end-walHeader)%walFrame != 0 { // the rest of the page is something else
			for len(rest) < len(log) && (len(rest)-walHeader)%walFrame != 0 {
				rest = append(rest, log[len(rest)]+byte(1+rand.IntN(255)))
			}
		}
		require.Equal(t, expected.dump, after(t, path, database, rest), "%d of %d bytes", end, len(log))
	}
	t.Logf("%d transactions in %d bytes, which end at %d places", len(states)-1, len(log), len(ends))
}

// TestCrashInCheckpoint ends the copying of the log into the database after each page.
func TestCrashInCheckpoint(t *testing.T) {
	t.Parallel()
	states, database, log := runScript(t)
	last := states[len(states)-1].dump
	path := newFile(t)
	require.NoError(t, os.WriteFile(path, database, 0o600))
	require.NoError(t, os.WriteFile(path+"-wal", log, 0o600))
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	_, err = db.Exec("PRAGMA wal_checkpoint(TRUNCATE)")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	copied, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NotEqual(t, database, copied)
	path = filepath.Join(t.TempDir(), "crashed.db")
	for n := 0; n <= len(copied); n += 4096 {
		mixed := bytes.Clone(copied[:n])
		if n < len(database) {
			mixed = append(mixed, database[n:]...)
		}
		require.Equal(t, last, after(t, path, mixed, log), "%d of %d bytes", n, len(copied))
	}
}
