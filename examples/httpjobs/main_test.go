package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// timeout is long enough for milliseconds of work on a very busy machine.
const timeout = 20 * time.Second

// TestProgram sends SIGTERM while a job runs and another is queued. Both are answered, and a later
// one is refused.
func TestProgram(t *testing.T) {
	ctx, terminate := context.WithCancel(t.Context())
	output, log := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, strings.Fields("-addr localhost:0 -workers 1 -capacity 8 -grace 1m"), log)
		log.Close()
	}()
	lines := bufio.NewScanner(output)
	require.True(t, lines.Scan())
	url := "http://" +
		regexp.MustCompile(`msg=listening addr=(\S+)`).FindStringSubmatch(lines.Text())[1]
	rest := make(chan string, 1)
	go func() {
		var all strings.Builder
		for lines.Scan() {
			all.WriteString(lines.Text() + "\n")
		}
		rest <- all.String()
	}()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	await := func(expected func(stats) bool) {
		t.Helper()
		for deadline := time.Now().Add(timeout); ; time.Sleep(2 * time.Millisecond) {
			answer, err := client.Get(url + "/stats")
			require.NoError(t, err)
			var s stats
			err = json.NewDecoder(answer.Body).Decode(&s)
			answer.Body.Close()
			require.NoError(t, err)
			if expected(s) {
				return
			}
			require.True(t, time.Now().Before(deadline), "%+v", s)
		}
	}
	running := post(client, url, "alice", "endless", maxRounds)
	await(func(s stats) bool { return s.Running == 1 })
	queued := post(client, url, "bob", "bob", 10)
	await(func(s stats) bool { return s.Queue.Len == 1 })
	terminate()
	await(func(s stats) bool { return s.Draining })
	require.Equal(t, http.StatusServiceUnavailable, post(client, url, "bob", "late", 10).status(t))
	running.disconnect()
	a := <-queued.response
	require.NoError(t, a.err)
	require.Equal(t, result{"bob", digest("bob", 10), 2}, a.result)
	require.Zero(t, <-ended)
	require.Contains(t, <-rest, "msg=stopped unfinished=0")
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
