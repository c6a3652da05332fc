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

// The main claim, on the whole log: light users wait minutes instead of hours.
func TestBuiltInReplay(t *testing.T) {
	s, err := parse(nil, io.Discard)
	require.NoError(t, err)
	w, err := s.read()
	require.NoError(t, err)
	weights, err := s.weightsOf(w)
	require.NoError(t, err)
	before, after, err := s.compare(w, weights, nil)
	require.NoError(t, err)

	light := w.order[:w.light()]
	require.InDelta(t, 2*3600, before.waitsOf(light).median(), 600)
	require.Less(t, after.waitsOf(light).median(), int64(5*60))
	require.Len(t, after.waitsOf(w.order), len(w.jobs), "every job has a wait")
	for _, pair := range [][2]tally{{before.own, after.own}, {before.all, after.all}} {
		first, _ := pair[0].jain()
		second, _ := pair[1].jain()
		require.Greater(t, second, 2*first)
	}
}

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
	name := filepath.Join(t.TempDir(), "small.csv")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

const small = "submit_s,user,run_s\n0,ann,10\n0,ann,10\n0,ann,10\n5,<b&ob>,10\n"

// FIFO starts ann's jobs at 0, 10 and 20, and bob's at 30. The fair queue starts bob's at 20,
// ann's last at 30.
//
//	            due           FIFO          fair
//	0 to 5      ann 1         ann 1         ann 1
//	5 to 20     each 0.5      ann 1         ann 1
//	20 to 30    each 0.5      ann 1         bob 1
//
// While anybody waits, ann holds 30/17.5 and bob 0/12.5 of what they are due with FIFO, 20/17.5
// and 10/12.5 with the fair queue.
func TestTable(t *testing.T) {
	in := file(t, small)
	status, out, errOut := cli(t, "-in", in, "-servers", "1")
	require.Zero(t, status, errOut)
	require.Empty(t, errOut)
	require.Equal(t, strings.TrimPrefix(`
small.csv: 4 jobs of 2 users on 1 server, 800 % load

Waiting time                            FIFO                      FairQueue
                    jobs     median      p95     mean     median      p95     mean
all users              4        10s      25s      14s        10s      30s      14s
light users            4        10s      25s      14s        10s      30s      14s
heaviest user          3        10s      20s      10s        10s      30s      13s

Fairness, as Jain's index of shares served                FIFO         FairQueue
  to each user while it waits                      0.500 (n=2)       0.500 (n=2)
  to each user while anybody waits                 0.500 (n=2)       0.970 (n=2)
`, "\n"), out[:strings.Index(out, "\nLight users")])
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
		require.Contains(t, out, "\nNobody waited, so no line can make a difference. About 8 servers would be busy all the time: "+
			"try -servers auto.\n")
		require.NotContains(t, out, "picture")
		left, err := os.ReadDir(".")
		require.NoError(t, err)
		require.Empty(t, left)
	}
	_, out, _ := cli(t, "-in", in, "-servers", "auto")
	require.Contains(t, out, "on 8 servers, 100 % load")
	heaviest := func(args ...string) string {
		status, out, errOut := cli(t, append(args, "-in", in, "-servers", "1", "-svg", "none")...)
		require.Zero(t, status, errOut)
		return strings.Join(strings.Fields(out[strings.Index(out, "heaviest"):])[6:9], " ")
	}
	require.Equal(t, "10s 30s 13s", heaviest("-newcomers", "next"))
	require.Equal(t, "20s 30s 17s", heaviest("-newcomers", "this"))
	require.Equal(t, "10s 20s 10s", heaviest("-weights", "ann=2, <b&ob>=1"))
}

func TestHelp(t *testing.T) {
	status, out, errOut := cli(t, "-h")
	require.Zero(t, status)
	require.Empty(t, errOut)
	for _, name := range []string{"-servers", "-in", "-svg", "-weights", "-newcomers"} {
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
		{2, []string{"-servers", "0"}, `invalid value "0" for flag -servers: must be 1 or more, or auto`},
		{2, []string{"-servers", "-3"}, `invalid value "-3" for flag -servers: must be 1 or more, or auto`},
		{2, []string{"-servers", "many"}, `invalid value "many" for flag -servers`},
		{2, []string{"-servers", "auto", "-in", once}, "-servers auto: all jobs come in the same second"},
		{2, []string{"-newcomers", "never"}, `invalid value "never" for flag -newcomers: must be next or this`},
		{2, []string{"-weights", "ann"}, `"ann" is not of the form user=weight`},
		{2, []string{"-weights", ""}, `"" is not of the form user=weight`},
		{2, []string{"-weights", "ann=0"}, `the weight in "ann=0" must be a whole number from 1 to 1000`},
		{2, []string{"-weights", "ann=1001"}, `the weight in "ann=1001" must be a whole number from 1 to 1000`},
		{2, []string{"-weights", "ann=1,ann=2"}, `user "ann" has two weights`},
		{2, []string{"-weights", "ann=2,eve=2", "-in", in}, `-weights names user "eve", who is not in the log`},
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

func TestNoBarUnlessTerminal(t *testing.T) {
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	defer reader.Close()
	regular, err := os.Create(filepath.Join(t.TempDir(), "errors"))
	require.NoError(t, err)
	defer regular.Close()
	in := file(t, small)
	for _, w := range []*os.File{writer, regular} {
		require.Nil(t, newProgress(w, 9))
		require.Zero(t, run([]string{"-in", in, "-svg", "none"}, io.Discard, w))
	}
	require.NoError(t, writer.Close())
	said, err := io.ReadAll(reader)
	require.NoError(t, err)
	require.Empty(t, said)
	info, err := regular.Stat()
	require.NoError(t, err)
	require.Zero(t, info.Size())
	require.Nil(t, newProgress(&bytes.Buffer{}, 9))
	var none *progress
	none.say("all methods do nothing")
	none.step()
	none.clear()

	device, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer device.Close()
	require.NotNil(t, newProgress(device, 9), "a character device, as terminals are")
}

func TestBar(t *testing.T) {
	var b bytes.Buffer
	p := &progress{w: &b, total: 1000, percent: -1}
	p.say("FIFO")
	for range 1000 {
		p.step()
	}
	frames := strings.Split(b.String(), "\r")[1:]
	require.Len(t, frames, 101, "one for each percent")
	require.Equal(t, "["+strings.Repeat(".", 40)+"]   0 %  FIFO\x1b[K", frames[0])
	require.Equal(t, "["+strings.Repeat("#", 20)+strings.Repeat(".", 20)+"]  50 %  FIFO\x1b[K", frames[50])
	require.Equal(t, "["+strings.Repeat("#", 40)+"] 100 %  FIFO\x1b[K", frames[100])
	b.Reset()
	p.clear()
	require.Equal(t, "\r\x1b[K", b.String())
}

// The picture is well-formed, has two points for each user and two in the legend, and nothing lies
// outside of it.
func TestPicture(t *testing.T) {
	heavy := "submit_s,user,run_s\n" + strings.Repeat("0,ann,100000000\n", lightJobs) + "0,bob,1\n"
	for name, c := range map[string]struct {
		text  string
		users int
	}{
		"small":    {small, 2},
		"one user": {"submit_s,user,run_s\n0,ann,1\n", 1},
		"no light": {"submit_s,user,run_s\n" + strings.Repeat("0,ann,0\n", lightJobs), 1},
		"ages":     {heavy, 2},
	} {
		t.Run(name, func(t *testing.T) {
			status, _, errOut := cli(t, "-in", file(t, c.text), "-servers", "1", "-svg", "x.svg")
			require.Zero(t, status, errOut)
			svg, err := os.ReadFile("x.svg")
			require.NoError(t, err)
			require.NotContains(t, string(svg), "NaN")
			require.NotContains(t, string(svg), "Inf")
			require.NotContains(t, string(svg), "%!")
			circles, diamonds := 0, 0
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
				switch element.Name.Local {
				case "circle":
					circles++
				case "path":
					diamonds++
				}
				for _, a := range element.Attr {
					limit := map[string]float64{
						"x": picWidth, "x1": picWidth, "x2": picWidth, "cx": picWidth,
						"y": picHeight, "y1": picHeight, "y2": picHeight, "cy": picHeight,
					}[a.Name.Local]
					if limit > 0 {
						at, err := strconv.ParseFloat(a.Value, 64)
						require.NoError(t, err)
						require.GreaterOrEqual(t, at, 0.0)
						require.LessOrEqual(t, at, limit)
					}
				}
			}
			require.Equal(t, c.users+1, circles)
			require.Equal(t, c.users+1, diamonds)
		})
	}
}

func TestScale(t *testing.T) {
	p := picture{longest: 1000}
	require.InDelta(t, top, p.y(1000), 1e-9)
	require.InDelta(t, oneSecond, p.y(1), 1e-9)
	require.InDelta(t, (2*top+oneSecond)/3., p.y(100), 1e-9)
	require.Greater(t, p.y(0), p.y(1), "no wait is below all waits")
	require.Less(t, p.y(0), float64(bottom))
}

func TestWords(t *testing.T) {
	for seconds, want := range map[int64]string{
		0: "0s", 59: "59s", 60: "1m 00s", 3599: "59m 59s", 3600: "1h 00m", 7505: "2h 05m", 172799: "47h 59m", 172800: "2d 00h",
		31536000: "365d 00h",
	} {
		require.Equal(t, want, human(seconds))
	}
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 60658: "60,658", 1002003: "1,002,003"} {
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
	require.EqualValues(t, 10, s.median())
	require.EqualValues(t, 19, s.quantile(0.95))
	require.EqualValues(t, 20, s.quantile(1))
	require.EqualValues(t, 1, s.quantile(0))
	require.EqualValues(t, 11, s.mean())
	require.EqualValues(t, 7, sorted{7}.median())
}
