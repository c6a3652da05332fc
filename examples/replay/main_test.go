package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// cli runs the command in an empty folder.
func cli(t *testing.T, args ...string) (status int, out, errOut string) {
	t.Helper()
	t.Chdir(t.TempDir())
	var o, e bytes.Buffer
	status = run(args, &o, &e)
	return status, o.String(), e.String()
}

func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "small&.csv")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

const small = "submit_s,user,run_s\n0,ann,10\n0,ann,10\n0,ann,10\n5,bob,10\n"

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
	in := file(t,
		"submit_s,user,run_s\n0,bob,1\n0,ann,10\n0,ann,10\n0,ann,10\n5,bob,1\n5,bob,1\n5,bob,1\n")
	status, out, errOut := cli(t, "-in", in, "-servers", "1")
	require.Zero(t, status, errOut)
	require.Empty(t, errOut)
	require.Equal(t, strings.TrimPrefix(`
small&.csv: 7 jobs of 2 users on 1 server, 680 % load

Waiting time                median       p95      mean
All users: 2 users, 7 jobs
  FIFO                         21s       28s       16s
  fair by count                16s       28s       15s
  fair by time                  7s       24s        9s
  run times known               7s       24s        9s
Users with few jobs, fewer than 100 each: 2 users, 7 jobs
  FIFO                         21s       28s       16s
  fair by count                16s       28s       15s
  fair by time                  7s       24s        9s
  run times known               7s       24s        9s
The heaviest users, who have half of all work: 1 user, 3 jobs
  FIFO                         11s       21s       11s
  fair by count                11s       22s       11s
  fair by time                 14s       24s       13s
  run times known              14s       24s       13s
`, "\n"), out[:strings.Index(out, "\nFair by time is")])
	require.FileExists(t, "replay.svg")
	require.Contains(t, out, "The picture is in replay.svg")

	_, again, _ := cli(t, "-in", in, "-servers", "1")
	require.Equal(t, out, again)
}

func TestFlags(t *testing.T) {
	in := file(t, small)
	for _, none := range []string{"", "none"} {
		status, out, _ := cli(t, "-in", in, "-svg", none)
		require.Zero(t, status)
		require.Contains(t, out, "on 1,600 servers")
		require.Contains(t, out,
			"\nNobody waited, so no line can make a difference. About 8 servers would be busy all "+
				"the time: try -servers auto.\n")
		require.NotContains(t, out, "picture")
		left, err := os.ReadDir(".")
		require.NoError(t, err)
		require.Empty(t, left)
	}
	_, out, _ := cli(t, "-in", in, "-servers", "auto")
	require.Contains(t, out, "on 8 servers, 100 % load")
	heaviest := func(line string, args ...string) string {
		status, out, errOut := cli(t, append(args, "-in", in, "-servers", "1", "-svg", "none")...)
		require.Zero(t, status, errOut)
		_, out, _ = strings.Cut(out, "heaviest")
		_, out, _ = strings.Cut(out, line)
		return strings.Join(strings.Fields(out)[:3], " ")
	}
	require.Equal(t, "10s 30s 13s", heaviest("times known", "-quantum", "0.1"))
	require.Equal(t, "10s 20s 10s", heaviest("times known", "-quantum", "3"))
}

func TestHelp(t *testing.T) {
	status, out, errOut := cli(t, "-h")
	require.Zero(t, status)
	require.Empty(t, errOut)
	for _, name := range []string{"-servers", "-in", "-svg", "-quantum"} {
		require.Contains(t, out, "\n  "+name+" ")
	}
}

func TestErrors(t *testing.T) {
	in := file(t, small)
	bad := file(t, "submit_s,user,run_s\n0,ann,soon\n")
	once := file(t, "submit_s,user,run_s\n7,ann,1\n7,bob,1\n")
	for _, c := range []struct {
		status int
		args   []string
		want   string
	}{
		{
			2,
			[]string{"-servers", "0"},
			`invalid value "0" for flag -servers: must be 1 or more, or auto`,
		},
		{
			2,
			[]string{"-servers", "-3"},
			`invalid value "-3" for flag -servers: must be 1 or more, or auto`,
		},
		{2, []string{"-servers", "many"}, `invalid value "many" for flag -servers`},
		{
			2,
			[]string{"-servers", "auto", "-in", once},
			"-servers auto: all jobs come in the same second",
		},
		{
			2,
			[]string{"-quantum", "0"},
			`invalid value "0" for flag -quantum: must be a number from 0.001 to 1000`,
		},
		{
			2,
			[]string{"-quantum", "NaN"},
			`invalid value "NaN" for flag -quantum: must be a number from 0.001 to 1000`,
		},
		{2, []string{"-colour"}, "flag provided but not defined: -colour"},
		{2, []string{in}, "There are flags only"},
		{1, []string{"-in", "missing.csv"}, "open missing.csv:"},
		{1, []string{"-in", bad}, bad + `:2: the run time is "soon", must be`},
		{1, []string{"-in", in, "-svg", "missing/x.svg"}, "the picture: open missing/x.svg:"},
	} {
		status, _, errOut := cli(t, c.args...)
		require.Equal(t, c.status, status, c.args)
		require.Contains(t, errOut, c.want)
		require.True(t, strings.HasPrefix(errOut, "replay: "), errOut)
		require.Equal(t, 1, strings.Count(errOut, "\n"), errOut)
	}
}

type deadPipe struct{}

func (deadPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestOutputError(t *testing.T) {
	var errOut bytes.Buffer
	require.Equal(t, 1, run([]string{"-in", file(t, small), "-svg", "none"}, deadPipe{}, &errOut))
	require.Equal(t, "replay: broken pipe\n", errOut.String())
}

// The picture is well-formed, has a bar for each line in a panel for each group of users, and
// nothing lies outside of it.
func TestPicture(t *testing.T) {
	heavy := "submit_s,user,run_s\n" + strings.Repeat("0,ann,100000000\n", fewJobs) + "0,bob,1\n"
	for name, c := range map[string]struct {
		text   string
		panels int
	}{
		"small":    {small, 3},
		"one user": {"submit_s,user,run_s\n0,ann,1\n", 3},
		"no light": {"submit_s,user,run_s\n" + strings.Repeat("0,ann,0\n", fewJobs), 2},
		"ages":     {heavy, 4},
	} {
		t.Run(name, func(t *testing.T) {
			status, _, errOut := cli(t, "-in", file(t, c.text), "-servers", "1", "-svg", "x.svg")
			require.Zero(t, status, errOut)
			svg, err := os.ReadFile("x.svg")
			require.NoError(t, err)
			require.NotContains(t, string(svg), "%!")
			bars, limit := 0, map[string]int{}
			for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
				token, err := d.Token()
				if errors.Is(err, io.EOF) {
					break
				}
				require.NoError(t, err)
				element, ok := token.(xml.StartElement)
				if !ok {
					continue
				}
				at := map[string]int{}
				for _, a := range element.Attr {
					at[a.Name.Local], _ = strconv.Atoi(a.Value)
				}
				switch element.Name.Local {
				case "svg":
					limit = at
				case "rect":
					bars++
				}
				for _, span := range [][2]string{{"x", "width"}, {"y", "height"}} {
					require.GreaterOrEqual(t, at[span[0]], 0)
					require.LessOrEqual(t, at[span[0]]+at[span[1]], limit[span[1]])
				}
			}
			require.Equal(t, 1+4*c.panels, bars, "and the ground")
		})
	}
}

func TestWords(t *testing.T) {
	for seconds, want := range map[int64]string{
		0: "0s", 59: "59s", 60: "1m 00s", 3599: "59m 59s", 3600: "1h 00m", 7505: "2h 05m",
		172799: "47h 59m", 172800: "2d 00h",
		31536000: "365d 00h",
	} {
		require.Equal(t, want, human(seconds))
	}
	for n, want := range map[int]string{
		0: "0", 999: "999", 1000: "1,000", 60658: "60,658",
		1002003: "1,002,003",
	} {
		require.Equal(t, want, thousands(n))
	}
	require.Equal(t, "1 job", plural(1, "job"))
	require.Equal(t, "0 jobs", plural(0, "job"))
}

func TestQuantile(t *testing.T) {
	var s sorted
	for i := range int64(20) {
		s = append(s, i+1)
	}
	require.EqualValues(t, 10, median.of(s))
	require.EqualValues(t, 19, s.quantile(0.95))
	require.EqualValues(t, 20, s.quantile(1))
	require.EqualValues(t, 1, s.quantile(0))
	require.EqualValues(t, 11, s.mean())
	require.EqualValues(t, 7, median.of(sorted{7}))
}
