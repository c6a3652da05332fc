package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/faulttest"
)

// TestDiskFull fills the disk of the database, for a while.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=100m")
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) { // AppArmor says the latter
		t.Skip("no disk can be mounted")
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	filler := filepath.Join(dir, "filler")
	faulttest.Outages(t, openFaulty, filepath.Join(dir, impatient),
		[]faulttest.Outage{{Name: "full", Run: func(t *testing.T) {
			f, err := os.Create(filler)
			require.NoError(t, err)
			_, err = f.Write(make([]byte, 100<<20))
			require.ErrorIs(t, err, syscall.ENOSPC)
			page := make([]byte, 4096)
			for until := time.Now().Add(5 * busyTimeout); time.Now().Before(until); {
				if _, err = f.Write(page); err != nil {
					require.ErrorIs(t, err, syscall.ENOSPC)
					time.Sleep(time.Millisecond) // freed space is filled too
				}
			}
			require.NoError(t, f.Close())
			require.NoError(t, os.Remove(filler))
		}}})
}
