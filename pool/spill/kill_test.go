package spill_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
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

// The test binary is also the process that is killed: with these in its environment it writes and
// restores letters until the kill.
const (
	envPath = "SPILL_TEST_PATH"
	envFrom = "SPILL_TEST_FROM" // the number of the first letter
)

func TestMain(m *testing.M) {
	if path := os.Getenv(envPath); path != "" {
		if err := victim(path); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// victim logs on standard output, a line each: the letter that it begins to write, has written, or
// its sink has taken.
func victim(path string) error {
	from, err := strconv.Atoi(os.Getenv(envFrom))
	if err != nil {
		return err
	}
	ctx := context.Background()
	d, err := spill.Open(path, &spill.Options[item]{MaxFileBytes: 100_000})
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(uint64(from), 3))
	for n := from; ; n++ {
		it := item{N: n}
		if r.IntN(20) == 0 { // a kill hits the write of a large one more often
			it.Text = strings.Repeat("x", r.IntN(1<<19))
		}
		fmt.Println("begun", n)
		if err := d.Write(ctx, letter(it)); err != nil {
			return err
		}
		fmt.Println("written", n)
		if r.IntN(10) > 0 {
			continue
		}
		left := r.IntN(20)
		_, err := d.Restore(ctx, func(_ context.Context, l *pool.DeadLetter[item]) error {
			if left--; left < 0 {
				return errStop
			}
			if r.IntN(10) == 0 {
				return spill.ErrRefused
			}
			fmt.Println("taken", l.Payload.N)
			return nil
		})
		if errors.Is(err, spill.ErrDamaged) {
			fmt.Println("damaged", 0)
		} else if err != nil && !errors.Is(err, errStop) && !errors.Is(err, spill.ErrRefused) {
			return err
		}
	}
}

// A process is killed again and again. No letter that it had written is lost, and each kill
// repeats one at most.
func TestKill(t *testing.T) {
	rounds := 30
	if testing.Short() {
		rounds = 5
	}
	path := t.TempDir()
	r := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	written, begun, taken := map[int]bool{}, map[int]bool{}, map[int]int{}
	next, torn := 1, 0
	tell := func(line string) {
		what, number, _ := strings.Cut(line, " ")
		n, err := strconv.Atoi(number)
		require.NoError(t, err, line)
		switch what {
		case "begun":
			begun[n] = true
			next = n + 1
		case "written":
			written[n] = true
			require.True(t, begun[n])
		case "taken":
			taken[n]++
		case "damaged":
			torn++
		default:
			require.Fail(t, "the process failed", line)
		}
	}
	for range rounds {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), envPath+"="+path, envFrom+"="+strconv.Itoa(next))
		out, err := c.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, c.Start())
		lines := bufio.NewScanner(out)
		for range 1 + r.IntN(300) {
			require.True(t, lines.Scan())
			tell(lines.Text())
		}
		_, err = spill.Open[item](path, nil)
		require.ErrorIs(t, err, spill.ErrInUse)
		require.NoError(t, c.Process.Kill())
		for lines.Scan() { // its log until then
			tell(lines.Text())
		}
		require.NoError(t, lines.Err())
		_, _ = io.Copy(io.Discard, out)
		require.Error(t, c.Wait())
	}

	d := open[item](t, path, nil)
	_, err := d.Restore(t.Context(), func(_ context.Context, l *pool.DeadLetter[item]) error {
		taken[l.Payload.N]++
		return nil
	})
	if errors.Is(err, spill.ErrDamaged) {
		torn++
	} else {
		require.NoError(t, err)
	}
	again, unknown := 0, 0
	for n, times := range taken {
		require.True(t, begun[n], n)
		again += times - 1
		if !written[n] {
			unknown++
		}
	}
	for n := range written {
		require.Positive(t, taken[n], "letter %d is lost", n)
	}
	require.LessOrEqual(t, again, rounds)
	require.LessOrEqual(t, unknown, rounds)
	for _, name := range files(t, path) {
		require.Contains(t, name, ".damaged")
	}
	t.Logf("%d letters; %d repeated, %d restored that had not been acknowledged, %d times a "+
		"torn one was set aside",
		len(written), again, unknown, torn)
}
