package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRun(t *testing.T) {
	var out strings.Builder
	p99, err := run(&out, time.Second)
	require.NoError(t, err)
	t.Log("\n" + out.String())
	require.Greater(t, p99[1], 4*p99[2], "the semaphore and admit")
}
