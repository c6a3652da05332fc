package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/pgtest"
)

// asProgram makes the test binary the program, so that the race detector checks it too.
const asProgram = "FAIRQ_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	pgtest.Main(m)
}

// timeout is long enough for some seconds of work on a very busy machine.
const timeout = time.Minute

// process is the program as its users run it.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	url   string
	log   strings.Builder // to be read when ended is closed
	ended chan struct{}
}

// launch starts the program on a free port. It is killed when the test ends, if it still runs.
func launch(t *testing.T, args ...string) *process {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("there is no SIGTERM")
	}
	program, err := os.Executable()
	require.NoError(t, err)
	p := &process{t: t, ended: make(chan struct{})}
	p.cmd = exec.Command(program, append([]string{"-addr", "localhost:0", "-keep", "2s"}, args...)...)
	p.cmd.Env = append(p.cmd.Environ(), asProgram+"=1")
	output, err := p.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Log(p.log.String())
		}
	})
	addr := make(chan string, 1)
	go func() {
		defer close(p.ended)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			p.log.WriteString(lines.Text() + "\n")
			match := regexp.MustCompile(`msg=listening addr=(\S+)`).FindStringSubmatch(lines.Text())
			if match != nil {
				addr <- match[1]
			}
		}
		_ = p.cmd.Wait() // it may be killed
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

// kill is kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// stop ends the program with an interrupt.
func (p *process) stop() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-p.ended:
	case <-time.After(timeout):
		require.Fail(p.t, "the program does not end")
	}
	require.Zero(p.t, p.cmd.ProcessState.ExitCode(), p.log.String())
}

func (p *process) request(method, tenant, path,
	body string,
) (status int, answer []byte, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("X-Tenant", tenant)
	r.Close = true
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer a.Body.Close()
	answer, err = io.ReadAll(a.Body)
	return a.StatusCode, answer, err
}

// rounds are some tens of milliseconds of work, more than it takes to put a job.
const rounds = 100_000

// put orders a job whose text is its name.
func (p *process) put(tenant string, i int) (int, error) {
	job := fmt.Sprint(tenant, "-", i)
	status, answer, err := p.request(http.MethodPut, tenant,
		fmt.Sprintf("/jobs/%s?rounds=%d", job, rounds), job)
	if err == nil && status != http.StatusCreated && status != http.StatusOK {
		err = fmt.Errorf("status %d: %s", status, answer)
	}
	return status, err
}

func (p *process) mustPut(tenant string, i, status int) {
	p.t.Helper()
	got, err := p.put(tenant, i)
	require.NoError(p.t, err)
	require.Equal(p.t, status, got)
}

// await waits until a job is done, and checks the outcome.
func (p *process) await(tenant string, i int) (o order) {
	p.t.Helper()
	job := fmt.Sprint(tenant, "-", i)
	for status := http.StatusAccepted; status == http.StatusAccepted; {
		var answer []byte
		var err error
		status, answer, err = p.request(http.MethodGet, tenant, "/jobs/"+job+"?wait=30s", "")
		require.NoError(p.t, err)
		if status == http.StatusOK {
			require.NoError(p.t, json.Unmarshal(answer, &o))
		} else {
			require.Equal(p.t, http.StatusAccepted, status, "%s: %s", job, answer)
		}
	}
	require.Equal(p.t, digest(job, rounds), o.Digest)
	return o
}

func digest(text string, rounds int) string {
	sum := []byte(text)
	for range rounds {
		next := sha256.Sum256(sum)
		sum = next[:]
	}
	return hex.EncodeToString(sum)
}

type state struct{ Ready, Delayed, Taken, Buried int }

func (p *process) state() (s state) {
	p.t.Helper()
	status, answer, err := p.request(http.MethodGet, "", "/stats", "")
	require.NoError(p.t, err)
	require.Equal(p.t, http.StatusOK, status)
	require.NoError(p.t, json.Unmarshal(answer, &s))
	return s
}

func (p *process) awaitState(what string, expected func(state) bool) {
	p.t.Helper()
	var s state
	for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if s = p.state(); expected(s) {
			return
		}
	}
	require.Fail(p.t, "never "+what, "%+v", s)
}

// While alice orders a lot, the process, or one of two, is killed. Every accepted job is done, by
// any process, and bob does not wait for alice.
func nothingIsLost(t *testing.T, launch func() *process, others bool) {
	const alices, bobs = 100, 3
	p := launch()
	q := p
	if others {
		q = launch()
	}
	for i := range alices / 2 {
		p.mustPut("alice", i, http.StatusCreated)
	}
	// The rest is ordered while the process is killed; without an answer the outcome is unknown.
	unknown := make([]bool, alices)
	var clients sync.WaitGroup
	for i := alices / 2; i < alices; i++ {
		clients.Go(func() {
			status, err := p.put("alice", i)
			unknown[i] = err != nil || status != http.StatusCreated
		})
	}
	p.awaitState("working", func(s state) bool { return s.Taken > 0 && s.Ready > 0 })
	p.kill()
	clients.Wait()
	if !others {
		q = launch()
	}
	p = q

	for i, u := range unknown {
		if !u {
			p.mustPut("alice", i, http.StatusOK)
			continue
		}
		status, err := p.put("alice", i)
		require.NoError(t, err)
		require.Contains(t, []int{http.StatusCreated, http.StatusOK}, status)
	}
	for i := range bobs {
		p.mustPut("bob", i, http.StatusCreated)
	}
	var alice, bob []order
	for i := range bobs {
		bob = append(bob, p.await("bob", i))
	}
	for i := range alices {
		alice = append(alice, p.await("alice", i))
	}
	// While bob waits, alice has a turn for each of his. Interrupted jobs are first, and as many
	// run here.
	for _, o := range bob {
		before := 0
		for _, a := range alice {
			if a.Finished.After(o.Ordered) && a.Finished.Before(o.Finished) {
				before++
			}
		}
		require.LessOrEqual(t, before, 2*(bobs+1)+4)
	}
	p.awaitState("empty", func(s state) bool { return s == state{} })
	p.stop()
}

func TestSQLite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a b%41?#.db")
	nothingIsLost(t, func() *process { return launch(t, "-db", file) }, false)
}

func TestSeveralProcessesWithPostgres(t *testing.T) {
	database := pgtest.Shared(t).Database(t)
	nothingIsLost(t, func() *process { return launch(t, "-postgres", database) }, true)
}

func TestStopInTheMiddle(t *testing.T) {
	file := filepath.Join(t.TempDir(), "jobs.db")
	p := launch(t, "-db", file, "-grace", "10ms")
	const jobs = 10
	for i := range jobs {
		p.mustPut("alice", i, http.StatusCreated)
	}
	p.stop()
	p = launch(t, "-db", file)
	for i := range jobs {
		p.await("alice", i)
	}
	p.stop()
}

func TestInvalidRequests(t *testing.T) {
	p := launch(t, "-db", filepath.Join(t.TempDir(), "jobs.db"))
	for _, test := range []struct {
		method, tenant, path string
		status               int
	}{
		{"PUT", "", "/jobs/1", 400},
		{"PUT", "a/b", "/jobs/1", 400},
		{"PUT", "alice", "/jobs/" + url.PathEscape("a/b"), 400},
		{"PUT", "alice", "/jobs/" + strings.Repeat("a", maxName+1), 400},
		{"PUT", "alice", "/jobs/1?rounds=many", 400},
		{"PUT", "alice", "/jobs/1?rounds=0", 400},
		{"GET", "", "/jobs/1", 400},
		{"GET", "alice", "/jobs/1?wait=long", 400},
		{"GET", "alice", "/jobs/1?wait=1h", 400},
		{"GET", "alice", "/jobs/1", 404},
		{"POST", "alice", "/jobs/1", 405},
	} {
		status, answer, err := p.request(test.method, test.tenant, test.path, "text")
		require.NoError(t, err)
		require.Equal(t, test.status, status, "%s %s: %s", test.method, test.path, answer)
	}
	require.Equal(t, state{}, p.state())
	p.stop()
}

func TestCommandLine(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, test := range []struct {
		args   string
		status int
		says   string
	}{
		{"-h", 0, "-workers"},
		{"-workers 0", 2, "-workers is 0"},
		{"-keep 1ms", 2, "-keep is 1ms"},
		{"-grace -1s", 2, "-grace is -1s"},
		{"-size 1", 2, "-size"},
		{"now", 2, `unexpected argument "now"`},
		{"-addr nowhere", 1, "-addr localhost:0 takes a free port"},
		{"-addr localhost:0 -db /nowhere/jobs.db", 1, "/nowhere/jobs.db"},
		{"-addr localhost:0 -postgres postgres://127.0.0.1:1/none", 1, "postgres: "},
	} {
		var output strings.Builder
		require.Equal(t, test.status, run(ended, strings.Fields(test.args), &output), test.args)
		require.Contains(t, output.String(), test.says)
	}
}
