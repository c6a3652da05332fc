//go:build unix

package bolt_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/faulttest"
	"github.com/fairq/fairq/task"
)

func init() { roles["limited"] = limited }

// TestFull lets writes fail at all sorts of sizes of the file, as on a disk that is full. The
// system does that if a process has a limit for the size of its files, so it is another process
// that has.
func TestFull(t *testing.T) {
	dir := t.TempDir()
	p := faulttest.Start(t, faulttest.Job{
		Role: "limited", Name: "limited", Where: filepath.Join(dir, "tasks.db"),
		Journal: filepath.Join(dir, "journal"),
	})
	t.Log(p.Await())
	p.Stop()
	s, q := open(t, filepath.Join(dir, "tasks.db"))
	require.Equal(t, limitedPuts, ready(t, q))
	for range limitedPuts / 10 {
		taken, err := q.TakeBatch(t.Context(), 10)
		require.NoError(t, err)
		require.Len(t, taken, 10)
	}
	closeBoth(t, s, q)
}

const limitedPuts = 400

// limited puts tasks. Each time there is no room in the file it tries again with somewhat more.
func limited(self *faulttest.Self) error {
	signal.Ignore(syscall.SIGXFSZ) // it would end the process
	ctx := context.Background()
	q, err := task.Open[string](ctx, self.Store, "queue", nil)
	if err != nil {
		return err
	}
	failures := 0
	for n := 0; n < limitedPuts; {
		info, err := os.Stat(self.Where)
		if err != nil {
			return err
		}
		for more := int64(-8192); ; more += 4099 {
			if err := faulttest.LimitFiles(uint64(info.Size() + more)); err != nil {
				return err
			}
			batch := make([]task.Batch[string], 10)
			for i := range batch {
				batch[i] = task.Batch[string]{Key: fmt.Sprint(n % 7), Payload: strings.Repeat("x", 500)}
			}
			_, failed := q.PutBatch(ctx, batch)
			if err := faulttest.LimitFiles(math.MaxInt64); err != nil {
				return err
			}
			if failed == nil {
				n += len(batch)
				break
			}
			failures++
			if !strings.Contains(failed.Error(), "bolt: "+self.Where+": commit: ") {
				return fmt.Errorf("the error does not say in what: %w", failed)
			}
			if stats, err := q.Stats(ctx); err != nil || stats.Ready != n {
				return fmt.Errorf("%d tasks are there, want %d, after %w; %w", stats.Ready, n, failed, err)
			}
		}
	}
	if failures < 20 {
		return fmt.Errorf("there were only %d failures", failures)
	}
	self.Say(fmt.Sprint(failures, " failures"))
	return q.Close(ctx)
}
