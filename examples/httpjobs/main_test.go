package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// timeout is for what takes milliseconds, on a machine that is very busy.
const timeout = 20 * time.Second

// endless is a job that keeps a worker busy until its client disconnects.
const endless = maxRounds

// process is the program as its users run it.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	url    string
	client *http.Client
	log    strings.Builder // to be read when ended is closed
	ended  chan struct{}
	err    error // of the process, once it has ended
}

func build(t *testing.T) (program string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("there is no SIGTERM")
	}
	program = filepath.Join(t.TempDir(), "httpjobs")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", output)
	return program
}

// launch starts the program on a free port. It is killed when the test ends, if it still runs.
func launch(t *testing.T, program string, args ...string) *process {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	p := &process{t: t, client: &http.Client{Transport: transport}, ended: make(chan struct{})}
	ctx, kill := context.WithCancel(context.Background())
	p.cmd = exec.CommandContext(ctx, program, append([]string{"-addr", "localhost:0"}, args...)...)
	output, err := p.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		kill()
		<-p.ended
		if t.Failed() {
			t.Log(p.log.String())
		}
	})

	addr := make(chan string, 1)
	go func() {
		defer close(p.ended)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			p.log.WriteString(lines.Text() + "\n")
			if match := regexp.MustCompile(`msg=listening addr=(\S+)`).FindStringSubmatch(lines.Text()); match != nil {
				addr <- match[1]
			}
		}
		p.err = p.cmd.Wait()
	}()
	select {
	case a := <-addr:
		p.url = "http://" + a
	case <-p.ended:
		require.Fail(t, "the program did not start")
	case <-time.After(timeout):
		require.Fail(t, "the program does not say where it listens")
	}
	return p
}

func (p *process) post(tenant, text string, rounds int) request {
	return post(p.client, p.url, tenant, text, rounds)
}

// await asks for the stats until they are as expected.
func (p *process) await(what string, expected func(stats) bool) {
	p.t.Helper()
	var s stats
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		answer, err := p.client.Get(p.url + "/stats")
		require.NoError(p.t, err)
		s = stats{}
		err = json.NewDecoder(answer.Body).Decode(&s)
		answer.Body.Close()
		require.NoError(p.t, err)
		if expected(s) {
			return
		}
	}
	require.Fail(p.t, "stats are never as expected: "+what, "%+v", s)
}

// occupy gives the only worker a job that runs until its client disconnects.
func (p *process) occupy() request {
	p.t.Helper()
	q := p.post("alice", "endless", endless)
	p.await("running", func(s stats) bool { return s.Running == 1 })
	return q
}

// flood posts n jobs, and returns when the queue has taken them.
func (p *process) flood(tenant string, n int) (all []request) {
	p.t.Helper()
	before := p.pushed()
	for i := range n {
		all = append(all, p.post(tenant, tenant+strconv.Itoa(i), 10))
	}
	p.await("pushed", func(s stats) bool { return s.Queue.Pushed == before+uint64(n) })
	return all
}

func (p *process) pushed() (n uint64) {
	p.t.Helper()
	p.await("", func(s stats) bool { n = s.Queue.Pushed; return true })
	return n
}

// terminate sends SIGTERM, and returns when the program knows.
func (p *process) terminate() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.await("draining", func(s stats) bool { return s.Draining })
}

// wait waits for the end of the process and returns its exit status.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(timeout):
		require.Fail(p.t, "the program does not end")
	}
	return p.cmd.ProcessState.ExitCode()
}

// outcomes waits for all answers and counts them by status.
func outcomes(t *testing.T, all []request) map[int]int {
	t.Helper()
	n := make(map[int]int)
	for _, q := range all {
		n[q.status(t)]++
	}
	return n
}

func TestProgram(t *testing.T) {
	p := launch(t, build(t), "-workers", "1", "-capacity", "8", "-grace", "1m")

	// Alice keeps the worker busy, fills half of the queue, and is told so.
	running := p.occupy()
	alice := p.flood("alice", 4)
	for range 3 {
		refused := <-p.post("alice", "one too many", 10).response
		require.NoError(t, refused.err)
		require.Equal(t, http.StatusTooManyRequests, refused.status)
		seconds, err := strconv.Atoi(refused.retryAfter)
		require.NoError(t, err)
		require.GreaterOrEqual(t, seconds, 1)
	}

	// There is room for bob and carol, whose client disconnects.
	bob := append(p.flood("bob", 1), p.flood("bob", 1)...)
	carol := p.flood("carol", 1)
	carol[0].disconnect()
	require.ErrorIs(t, (<-carol[0].response).err, context.Canceled)
	p.await("removed", func(s stats) bool { return s.Queue.Removed == 1 && s.Queue.Len == 6 })

	// The client of the running job disconnects, and the worker goes on: alice and bob take turns,
	// whatever alice has queued.
	running.disconnect()
	for i, q := range bob {
		a := <-q.response
		require.NoError(t, a.err)
		require.Equal(t, http.StatusOK, a.status)
		require.EqualValues(t, 3+2*i, a.result.Order)
		require.Equal(t, digest("bob0", 10), a.result.Digest)
	}
	require.Equal(t, map[int]int{http.StatusOK: 4}, outcomes(t, alice))

	// SIGTERM with work queued: all of it is done.
	running = p.occupy()
	queued := append(p.flood("alice", 3), p.flood("bob", 2)...)
	p.terminate()
	require.Equal(t, http.StatusServiceUnavailable, p.post("bob", "late", 10).status(t))
	running.disconnect()
	require.Equal(t, map[int]int{http.StatusOK: 5}, outcomes(t, queued))
	require.Zero(t, p.wait())
	require.NoError(t, p.err)
	require.Contains(t, p.log.String(), "msg=stopped unfinished=0")
}

func digest(text string, rounds int) string {
	sum := []byte(text)
	for range rounds {
		next := sha256.Sum256(sum)
		sum = next[:]
	}
	return hex.EncodeToString(sum)
}

func TestCommandLine(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	tests := []struct {
		args   string
		status int
		says   string
	}{
		{"-h", 0, "-capacity"},
		{"-workers 0", 2, "-workers is 0"},
		{"-capacity -1", 2, "-capacity is -1"},
		{"-grace -1s", 2, "-grace is -1s"},
		{"-size 1", 2, "-size"},
		{"now", 2, `unexpected argument "now"`},
		{"-addr nowhere", 1, "-addr localhost:0 takes a free port"},
		{"-addr localhost:0", 0, "msg=stopped unfinished=0"},
	}
	for _, test := range tests {
		t.Run(test.args, func(t *testing.T) {
			var output strings.Builder
			require.Equal(t, test.status, run(ended, strings.Fields(test.args), &output))
			require.Contains(t, output.String(), test.says)
		})
	}
}
