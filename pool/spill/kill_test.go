package spill_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/pool/spill"
)

// The test binary is also the process that is killed.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "victim" {
		from, _ := strconv.Atoi(os.Args[3])
		victim(os.Args[2], from)
		return
	}
	os.Exit(m.Run())
}

// victim writes and restores letters until the kill. It logs on standard output, a line each: the
// letter that it begins to write, has written, or its sink has taken.
func victim(path string, from int) {
	ctx := context.Background()
	d, err := spill.Open(path, &spill.Options[item]{MaxFileBytes: 100_000})
	r := rand.New(rand.NewPCG(uint64(from), 3))
	for n := from; err == nil; n++ {
		it := item{N: n}
		if r.IntN(20) == 0 { // a kill hits the write of a large one more often
			it.Text = strings.Repeat("x", r.IntN(1<<19))
		}
		fmt.Println("begun", n)
		if err = d.Write(ctx, letter(it)); err != nil {
			break
		}
		fmt.Println("written", n)
		if r.IntN(10) > 0 {
			continue
		}
		left := r.IntN(20)
		_, err = d.Restore(ctx, func(_ context.Context, l *pool.DeadLetter[item]) error {
			if left--; left < 0 {
				return errStop
			}
			if r.IntN(10) == 0 {
				return spill.ErrRefused
			}
			fmt.Println("taken", l.Payload.N)
			return nil
		})
		if errors.Is(err, errStop) || errors.Is(err, spill.ErrRefused) {
			err = nil
		}
	}
	fmt.Println("error", err)
}

// A process is killed again and again. No letter that it had written is lost, and each kill
// repeats one at most. Half a line at the end of a file is no damage.
func TestKill(t *testing.T) {
	rounds, path, last := few(30), t.TempDir(), 0
	log := map[string]map[int]int{"begun": {}, "written": {}, "taken": {}}
	read := func(lines *bufio.Scanner) bool {
		if !lines.Scan() {
			return false
		}
		what, number, _ := strings.Cut(lines.Text(), " ")
		require.Contains(t, log, what, number)
		n, err := strconv.Atoi(number)
		require.NoError(t, err)
		log[what][n]++
		last = max(last, n)
		return true
	}
	for range rounds {
		c := exec.Command(os.Args[0], "victim", path, strconv.Itoa(last+1))
		out, err := c.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, c.Start())
		lines := bufio.NewScanner(out)
		for range 1 + rand.IntN(300) {
			require.True(t, read(lines))
		}
		_, err = spill.Open[item](path, nil)
		require.ErrorIs(t, err, spill.ErrInUse)
		require.NoError(t, c.Process.Kill())
		for read(lines) { // its log until then
		}
		require.Error(t, c.Wait())
	}

	d := open[item](t, path, nil)
	_, err := d.Restore(t.Context(), func(_ context.Context, l *pool.DeadLetter[item]) error {
		log["taken"][l.Payload.N]++
		return nil
	})
	require.NoError(t, err)
	again, unknown := 0, 0
	for n, times := range log["taken"] {
		require.Positive(t, log["begun"][n], n)
		again += times - 1
		unknown += 1 - log["written"][n]
	}
	for n := range log["written"] {
		require.Positive(t, log["taken"][n], "letter %d is lost", n)
	}
	require.LessOrEqual(t, again, rounds)
	require.LessOrEqual(t, unknown, rounds)
}
