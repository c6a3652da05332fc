package sqlite

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/rows"
)

const (
	helperEnv    = "FAIRQ_SQLITE_HELPER" // what to do
	helperPath   = "FAIRQ_SQLITE_PATH"
	transactions = 100 // of each process
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
	what := os.Getenv(helperEnv)
	if what == "" {
		os.Exit(m.Run())
	}
	d, err := openDB(context.Background(), os.Getenv(helperPath), patient)
	if err == nil && what == "work" {
		fmt.Println("begun")
		err = work(d)
	} else if err == nil {
		err = hang(d)
	}
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

// work inserts rows, and prints their ids.
func work(d *db) error {
	for range transactions {
		x, err := d.Begin(context.Background())
		if err != nil {
			return err
		}
		v, err := enter(x, &rows.Plan{})
		if err != nil {
			return err
		}
		id, err := v.Number()
		if err != nil {
			return err
		}
		r := &rows.Row{ID: id, Key: "k", State: 1}
		if err := v.Put(r); err != nil {
			return err
		}
		v.Head().Rounds[0]++
		if err := v.Save(); err != nil {
			return err
		}
		if err := x.Commit(); err != nil {
			return err
		}
		fmt.Println(id)
	}
	return d.close()
}

// hang writes something, does not commit it, and waits to be killed.
func hang(d *db) error {
	x, err := d.Begin(context.Background())
	if err != nil {
		return err
	}
	v, err := enter(x, &rows.Plan{})
	if err != nil {
		return err
	}
	for range 1000 { // more than the cache has room for, so that some of it gets into the WAL
		id, err := v.Number()
		if err == nil {
			err = v.Put(&rows.Row{ID: id, State: 1, Payload: make([]byte, 50_000)})
		}
		if err != nil {
			return err
		}
	}
	fmt.Println("begun")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func helper(t *testing.T, what, path string) (*exec.Cmd, *bufio.Scanner) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"="+what, helperPath+"="+path)
	cmd.Stderr = os.Stderr
	_, err := cmd.StdinPipe() // open as long as this process runs
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	require.Equal(t, "begun", lines.Text())
	return cmd, lines
}

// TestProcesses writes from several processes at once, of which this is one.
func TestProcesses(t *testing.T) {
	d := openHandle(t, file(t), patient).db
	makeQueue(t, d)
	seen := make(map[string]bool)
	for range 3 {
		cmd, lines := helper(t, "work", d.path)
		defer func() {
			for lines.Scan() {
				require.False(t, seen[lines.Text()] || strings.HasPrefix(lines.Text(), "error"), lines.Text())
				seen[lines.Text()] = true
			}
			require.NoError(t, cmd.Wait())
			require.Zero(t, len(seen)%transactions)
			if len(seen) == 3*transactions {
				require.Equal(t, 4*transactions, total(t, d))
				in(t, d, func(v rows.Calls) { require.EqualValues(t, 4*transactions, v.Head().Rounds[0]) })
			}
		}()
	}
	for range transactions {
		in(t, d, func(v rows.Calls) {
			add(t, v, rows.Row{Key: "k"})
			v.Head().Rounds[0]++
			require.NoError(t, v.Save())
		})
	}
}

// TestKilled kills a process in the middle of a transaction.
func TestKilled(t *testing.T) {
	d := openHandle(t, file(t), options{}).db
	makeQueue(t, d)
	in(t, d, func(v rows.Calls) { add(t, v, rows.Row{}) })
	for range 2 {
		cmd, _ := helper(t, "hang", d.path)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
		require.Equal(t, 1, total(t, d))
	}
	in(t, d, func(v rows.Calls) { require.EqualValues(t, 2, add(t, v, rows.Row{})) })
}
