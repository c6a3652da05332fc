//go:build unix

package sqlite_test

import (
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/fairq/fairq/store/internal/faulttest"
)

func init() { roles["limited"] = limited }

// TestWriteFails lets writes fail at each page of the log. The system does that beyond a process's
// limit for the size of files, so another process has that limit.
func TestWriteFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := faulttest.Start(t, faulttest.Job{
		Role: "limited", Name: "limited", Where: filepath.Join(dir, "tasks.db"),
		Journal: filepath.Join(dir, "journal"),
	})
	for said := ""; !strings.HasSuffix(said, "failures"); {
		said = p.Await()
		if !strings.HasPrefix(said, "step") {
			t.Log(said)
		}
	}
	p.Stop()
}

var named = regexp.MustCompile(`^task: [A-Z]\w+, queue "queue": sqlite: ` +
	`.*/tasks\.db\.limited: [a-z ]+: `)

func limited(self *faulttest.Self) error {
	signal.Ignore(syscall.SIGXFSZ) // it would end the process
	path := self.Where + ".limited"
	s, err := newScript(path)
	if err != nil {
		return err
	}
	defer s.store.Close()
	failures := 0
	for i, step := range s.steps() {
		self.Say(fmt.Sprint("step ", i))
		before, err := dump(path)
		if err != nil {
			return err
		}
		info, err := os.Stat(path + "-wal")
		if err != nil {
			return err
		}
		for more := int64(0); ; more += 4099 {
			if err := faulttest.LimitFiles(uint64(info.Size() + more)); err != nil {
				return err
			}
			failed := step()
			if err := faulttest.LimitFiles(math.MaxInt64); err != nil {
				return err
			}
			if failed == nil {
				break
			}
			failures++
			now, err := dump(path)
			switch {
			case err != nil:
				return err
			case now != before:
				return fmt.Errorf("step %d has failed after %d bytes, with %w, but has changed\n%s\nto\n%s", i,
					more, failed, before, now)
			case !named.MatchString(failed.Error()):
				return fmt.Errorf("the error does not say in what: %w", failed)
			}
		}
	}
	if failures < 100 {
		return fmt.Errorf("there were only %d failures", failures)
	}
	self.Say(fmt.Sprint(failures, " failures"))
	return nil
}
