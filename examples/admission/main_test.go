package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		_, p99, err := run(&out, 10*time.Second)
		require.NoError(t, err)
		t.Log("\n" + out.String())
		require.Greater(t, p99[1], 100*p99[2], "the semaphore and admit")
		// A light request waits for one heavy request to end, and others share its turn.
		require.Less(t, p99[2], 30.0)
	})
}
