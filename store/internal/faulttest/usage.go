//go:build unix

package faulttest

import (
	"context"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/task"
)

// LimitFiles makes writes of this process fail that would make a file longer than size, in bytes,
// as on a full disk.
func LimitFiles(size uint64) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	limit.Cur = min(size, limit.Max)
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
}

// Puts counts the processor time of this process for each Put of a single caller, once with a
// context without an end, and once with a context that can end.
func Puts(b *testing.B, open Opener, where string) {
	ends, cancel := context.WithCancel(context.Background())
	defer cancel()
	for name, ctx := range map[string]context.Context{"Never": context.Background(), "Ends": ends} {
		b.Run(name, func(b *testing.B) {
			s, err := open(b.Context(), where)
			require.NoError(b, err)
			q, err := task.Open[int](b.Context(), s, b.Name(), nil)
			require.NoError(b, err)
			used := func() (nanoseconds int64) {
				var r syscall.Rusage
				require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &r))
				return r.Utime.Nano() + r.Stime.Nano()
			}
			before := used()
			for i := range b.N {
				_, err := q.Put(ctx, "a", i, task.PutOptions{})
				require.NoError(b, err)
			}
			b.ReportMetric(float64(used()-before)/1000/float64(b.N), "cpu-us/op")
			require.NoError(b, q.Drop(context.Background()))
			require.NoError(b, s.Close())
		})
	}
}
