package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The flood is there, and most of it is refused, while others are served.
func TestDashboard(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, settings{
			log: "../replay/testdata/lcg-2005.csv.gz", addr: "localhost:0", flood: 3000,
			every: 20 * time.Millisecond,
		}, w)
	}()
	line, err := bufio.NewReader(r).ReadString('\n')
	require.NoError(t, err)
	page := regexp.MustCompile(`http://[0-9.:]+/`).FindString(line)

	require.Eventually(t, func() bool {
		response, err := http.Get(page + "v1/queues/grid/keys?limit=100")
		require.NoError(t, err)
		defer response.Body.Close()
		var answer struct {
			Keys []struct {
				Key   string
				Total struct{ Served, Refused int }
			}
		}
		require.NoError(t, json.NewDecoder(response.Body).Decode(&answer))
		others, refused := 0, 0
		for _, k := range answer.Keys {
			if k.Key == "mallory" {
				refused = k.Total.Refused
			} else {
				others += k.Total.Served
			}
		}
		return refused > 1000 && others > 20
	}, 30*time.Second, 100*time.Millisecond)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}
