package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		main()
	}
	os.Exit(m.Run())
}

func TestRun(t *testing.T) {
	var out bytes.Buffer
	// a file, because all processes write to it
	errOut, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	require.NoError(t, err)
	defer errOut.Close()
	status := run(t.Context(),
		[]string{"-producers", "1", "-consumers", "2", "-taking", "staged", "-time", "5500ms"}, &out,
		errOut)
	told, err := os.ReadFile(errOut.Name())
	require.NoError(t, err)
	require.Empty(t, string(told))
	require.Zero(t, status)
	last := regexp.MustCompile(`all taken +\d+ +(\d+) `).FindAllStringSubmatch(out.String(), -1)
	require.NotEmpty(t, last, &out)
	taken, err := strconv.Atoi(last[len(last)-1][1])
	require.NoError(t, err)
	require.NotZero(t, taken, &out)
	require.Contains(t, out.String(), "producer 1")
	require.Contains(t, out.String(), "consumer 2")
}

func TestBadFlags(t *testing.T) {
	for want, args := range map[string][]string{
		`-taking is "x", must be apart, staged or strict`: {"-taking", "x"},
		"-batch is 0, must be 1 to 1000":                  {"-batch", "0"},
		"at least one process is needed":                  {"-producers", "0", "-consumers", "0"},
		"-time is -1s, must not be negative":              {"-time", "-1s"},
		`"x" is no flag`:                                  {"x"},
		"flag provided but not defined: -x":               {"-x"},
	} {
		var out, errOut bytes.Buffer
		require.Equal(t, 2, run(t.Context(), args, &out, &errOut))
		require.Contains(t, errOut.String(), want)
	}
	var out, errOut bytes.Buffer
	require.Zero(t, run(t.Context(), []string{"-h"}, &out, &errOut))
	require.Contains(t, errOut.String(), "-consumers")
}
