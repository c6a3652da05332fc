package main

import (
	"bytes"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// replay runs the command on a log, in an empty folder.
func replay(t *testing.T, text string, servers int) (out string, err error) {
	t.Helper()
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("small&.csv", []byte(text), 0o600))
	var b bytes.Buffer
	err = run(settings{servers: servers, in: "small&.csv", svg: "replay.svg", quantum: 0.001}, &b)
	return b.String(), err
}

// When the jobs of ann, 10 seconds each, and of bob, 1 second each, start on one server:
//
//	FIFO      1 11 21    0 31 32 33
//	by count  1 11 22    0 21 32 33
//	by time   1 14 24    0 11 12 13
//	known     1 14 24    0 11 12 13
//
// If times are known, a round has a second for each. Then ann's jobs are in the rounds 2, 12 and
// 22, and bob's last three in 3, 4 and 5.
func TestTable(t *testing.T) {
	out, err := replay(t,
		head+"0,bob,1\n0,ann,10\n0,ann,10\n0,ann,10\n5,bob,1\n5,bob,1\n5,bob,1\n", 1)
	require.NoError(t, err)
	require.Equal(t, strings.TrimPrefix(`
small&.csv: 7 jobs of 2 users on 1 server, 680 % load

Waiting time                median       p95      mean
All users: 2 users, 7 jobs
  FIFO                         21s       28s       16s
  fair by count                16s       28s       15s
  fair by time                  7s       21s        9s
  run times known               7s       21s        9s
Users with few jobs, fewer than 100 each: 2 users, 7 jobs
  FIFO                         21s       28s       16s
  fair by count                16s       28s       15s
  fair by time                  7s       21s        9s
  run times known               7s       21s        9s
The heaviest users, who have half of all work: 1 user, 3 jobs
  FIFO                         11s       20s       11s
  fair by count                11s       21s       11s
  fair by time                 14s       23s       13s
  run times known              14s       23s       13s
`, "\n"), out[:strings.Index(out, "\nFair by time is")])
	require.Contains(t, out, "The picture is in replay.svg")
}

func TestSettings(t *testing.T) {
	out, err := replay(t, head+"0,ann,10\n0,ann,10\n5,bob,10\n", 0)
	require.NoError(t, err)
	require.Contains(t, out, "on 6 servers, 100 % load")
	_, err = replay(t, head, 1)
	require.EqualError(t, err, "small&.csv: there are no jobs in it")
	missing := filepath.Join("missing", "x")
	for want, s := range map[string]settings{
		"-servers is -1; it must not be negative":      {servers: -1},
		"-quantum is 0; the limits are 0.001 and 1000": {},
		"open missing.csv: ":                           {in: "missing.csv", quantum: 1},
		"the picture: open " + missing:                 {svg: missing, quantum: 1},
	} {
		require.ErrorContains(t, run(s, &bytes.Buffer{}), want)
	}
}

// The picture is well-formed, has bars for three lines in two panels, and no bar lies outside.
func TestPicture(t *testing.T) {
	for _, text := range []string{"0,ann,1\n", strings.Repeat("0,ann,0\n", fewJobs)} {
		_, err := replay(t, head+text, 1)
		require.NoError(t, err)
		svg, err := os.ReadFile("replay.svg")
		require.NoError(t, err)
		require.NotContains(t, string(svg), "%!")
		var picture struct {
			Width  int `xml:"width,attr"`
			Height int `xml:"height,attr"`
			Bars   []struct {
				X      int `xml:"x,attr"`
				Y      int `xml:"y,attr"`
				Width  int `xml:"width,attr"`
				Height int `xml:"height,attr"`
			} `xml:"rect"`
		}
		require.NoError(t, xml.Unmarshal(svg, &picture))
		require.Len(t, picture.Bars, 1+2*3, "and the ground")
		for _, b := range picture.Bars {
			require.LessOrEqual(t, b.X+b.Width, picture.Width)
			require.LessOrEqual(t, b.Y+b.Height, picture.Height)
		}
	}
}

func TestWords(t *testing.T) {
	for seconds, want := range map[int64]string{
		59: "59s", 60: "1m 00s", 3599: "59m 59s", 3600: "1h 00m", 172799: "47h 59m",
		172800: "2d 00h",
	} {
		require.Equal(t, want, human(seconds))
	}
	require.Equal(t, "1,002,003", thousands(1002003))
}
