package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
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
		return
	}
	pgtest.Main(m)
}

// process is the program as its users run it.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	url string
}

func launch(t *testing.T, db ...string) *process {
	program, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(program, append(db, "-addr", "localhost:0")...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	output, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	reader := bufio.NewReader(output)
	line, err := reader.ReadString('\n')
	require.NoError(t, err, line)
	go func() { _, _ = io.Copy(os.Stderr, reader) }()
	return &process{t, cmd, line[strings.Index(line, "http:") : len(line)-1]}
}

// end is kill -9, or an interrupt if the program is to end by itself.
func (p *process) end(how os.Signal) {
	require.NoError(p.t, p.cmd.Process.Signal(how))
	_, err := p.cmd.Process.Wait()
	require.NoError(p.t, err)
}

// request returns a status of 0 if there was no answer.
func (p *process) request(method, tenant, job string) (status int, o outcome) {
	r, err := http.NewRequest(method, p.url+"/jobs/"+job, strings.NewReader(job))
	require.NoError(p.t, err)
	r.Header.Set("X-Tenant", tenant)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, o
	}
	defer answer.Body.Close()
	_ = json.NewDecoder(answer.Body).Decode(&o) // only an outcome is JSON
	return answer.StatusCode, o
}

func (p *process) put(tenant string, i int) (status int) {
	status, _ = p.request(http.MethodPut, tenant, fmt.Sprint("job-", i))
	return status
}

// await waits until a job is done, and returns when that was.
func (p *process) await(tenant string, i int) (finished int64) {
	p.t.Helper()
	job := fmt.Sprint("job-", i)
	status, o := p.request(http.MethodGet, tenant, job)
	for status == http.StatusAccepted {
		status, o = p.request(http.MethodGet, tenant, job)
	}
	require.Equal(p.t, http.StatusOK, status)
	require.Len(p.t, o.Digest, 64)
	return o.Finished
}

// While alice orders a lot, the process, or one of two, is killed. Every accepted job is done, by
// any process, and bob does not wait for alice.
func nothingIsLost(t *testing.T, processes int, db ...string) {
	const alices, bobs = 60, 3
	p := launch(t, db...)
	q := p
	if processes == 2 {
		q = launch(t, db...)
	}
	var status [alices]int
	for i := range alices / 2 {
		status[i] = p.put("alice", i)
	}
	require.NotZero(t, q.await("alice", 0))
	var clients sync.WaitGroup
	for i := alices / 2; i < alices; i++ {
		clients.Go(func() { status[i] = p.put("alice", i) })
	}
	p.end(os.Kill)
	clients.Wait()
	if processes == 1 {
		q = launch(t, db...)
	}
	for i, before := range status {
		if again := q.put("alice", i); before == http.StatusCreated {
			require.Equal(t, http.StatusOK, again, "alice's order %d is lost", i)
		} // without an answer the outcome was unknown
	}

	began, bob, before := time.Now().UnixNano(), int64(0), 0
	for i := range bobs {
		require.Equal(t, http.StatusCreated, q.put("bob", i))
	}
	for i := range bobs {
		bob = max(bob, q.await("bob", i))
	}
	for i := range alices {
		if at := q.await("alice", i); began < at && at < bob {
			before++
		}
	}
	// Alice has a turn for each of bob's. Interrupted jobs are first, and as many run here.
	require.LessOrEqual(t, before, 2*(bobs+1)+2*workers)
	q.end(syscall.SIGTERM)
}

func TestSQLite(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no SIGTERM")
	}
	nothingIsLost(t, 1, "-db", filepath.Join(t.TempDir(), "a b%41?#.db"))
}

func TestTwoProcessesWithPostgres(t *testing.T) {
	nothingIsLost(t, 2, "-postgres", pgtest.Shared(t).Database(t))
}

func TestBadRequests(t *testing.T) {
	p := launch(t, "-db", filepath.Join(t.TempDir(), "jobs.db"))
	status, _ := p.request(http.MethodGet, "alice", "1")
	require.Equal(t, http.StatusNotFound, status)
	status, _ = p.request(http.MethodPut, "a/b", "1")
	require.Equal(t, http.StatusBadRequest, status)
}
