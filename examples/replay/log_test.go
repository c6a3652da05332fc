package main

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func pack(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return b.String()
}

// read returns the jobs with their users' names, as "submit user run", and the workload.
func read(t *testing.T, text string) ([]string, *workload) {
	t.Helper()
	w, err := readWorkload(strings.NewReader(text), "log")
	require.NoError(t, err)
	var lines []string
	for _, j := range w.jobs {
		lines = append(lines,
			strings.Join([]string{human(j.submit), w.names[j.user], human(j.run)}, " "))
	}
	return lines, w
}

func TestReadCSV(t *testing.T) {
	want := []string{"0s ann 9s", "5s bob 0s", "5s ann 3s"}
	for name, text := range map[string]string{
		"plain":               "submit_s,user,run_s\n0,ann,9\n5,bob,0\n5,ann,3\n",
		"no line end":         "submit_s,user,run_s\n0,ann,9\n5,bob,0\n5,ann,3",
		"Windows":             "\ufeffsubmit_s,user,run_s\r\n0,ann,9\r\n5,bob,0\r\n5,ann,3\r\n",
		"blanks and quotes":   "submit_s, user, run_s\n\n0, ann ,9 \n5,\"bob\",0\n5,ann,3\n\n",
		"not in submit order": "submit_s,user,run_s\n5,bob,0\n5,ann,3\n0,ann,9\n",
		"packed":              pack(t, "submit_s,user,run_s\n0,ann,9\n5,bob,0\n5,ann,3\n"),
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := read(t, text)
			require.Equal(t, want, got)
		})
	}
}

func TestReadErrors(t *testing.T) {
	const (
		header = "submit_s,user,run_s\n"
		whole  = ", must be a whole number of seconds from 0 to 10000000000"
	)
	packed := pack(t, header+strings.Repeat("0,ann,9\n", 1000))
	for text, want := range map[string]string{
		"":          "log: there are no jobs in it",
		header:      "log: there are no jobs in it",
		"0,ann,9\n": `log:1: the header is "0,ann,9", must be "submit_s,user,run_s"`,
		"user,submit_s,run_s\nann,0,9\n": `log:1: the header is "user,submit_s,run_s", must ` +
			`be "submit_s,user,run_s"`,
		header + "0,ann,9\n\n1,ann\n":         "log:4: 2 fields, must be 3 (submit_s,user,run_s)",
		header + "0,ann,9,1\n":                "log:2: 4 fields, must be 3 (submit_s,user,run_s)",
		header + "x,ann,9\n":                  `log:2: the submit time is "x"` + whole,
		header + "-1,ann,9\n":                 `log:2: the submit time is "-1"` + whole,
		header + "0,ann,9\n1,ann,1.5\n":       `log:3: the run time is "1.5"` + whole,
		header + "0,ann,-1\n":                 `log:2: the run time is "-1"` + whole,
		header + "0,ann,10000000001\n":        `log:2: the run time is "10000000001"` + whole,
		header + "0,ann,99999999999999999999": `log:2: the run time is "99999999999999999999"` + whole,
		header + "0, ,9\n":                    "log:2: the user is empty",
		header + "0,\"ann,9\n1,ann,9\n":       `log:3: extraneous or missing " in quoted-field`,
		packed[:len(packed)-9]:                "log:1002: unexpected EOF",
		"\x1f\x8bnonsense":                    "log: gzip: invalid header",
	} {
		_, err := readWorkload(strings.NewReader(text), "log")
		require.EqualError(t, err, want, "%.60q", text)
	}
}

func TestBuiltInLog(t *testing.T) {
	w, err := (&settings{}).read()
	require.NoError(t, err)
	require.Len(t, w.jobs, 188_041)
	require.Len(t, w.names, 216)
	require.InDelta(t, 1581, w.load(1), 1, "busy servers on average, as its README says")
	require.InDelta(t, 7990, w.meanRun(), 1)
	users, jobs := []int{}, []int{}
	for _, g := range w.groups() {
		users, jobs = append(users, len(g.users)), append(jobs, g.jobs)
	}
	require.Equal(t, []int{216, 136, 139, 7}, users)
	require.Equal(t, []int{188_041, 2_613, 10_506, 95_777}, jobs)
}

// All work is 2,000, so a tenth of a fair share is 40.
func TestGroups(t *testing.T) {
	jobs := func(n int, rest string) string { return strings.Repeat("0,"+rest+"\n", n) }
	_, w := read(t, "submit_s,user,run_s\n"+jobs(fewJobs, "cid,0")+jobs(1, "dan,40")+
		jobs(fewJobs, "ann,10")+jobs(1, "bob,960")+jobs(fewJobs-1, "eve,0"))
	require.Zero(t, w.load(1), "no time passes")
	got := map[string][]string{}
	for _, g := range w.groups() {
		for _, u := range g.users {
			got[g.name] = append(got[g.name], w.names[u])
		}
	}
	require.Equal(t, map[string][]string{
		"All users":              {"cid", "dan", "ann", "bob", "eve"},
		"Users with few jobs":    {"dan", "bob", "eve"},
		"Users with little work": {"cid", "eve"},
		"The heaviest users":     {"ann"},
	}, got)
	_, w = read(t, "submit_s,user,run_s\n"+jobs(fewJobs, "ann,0"))
	require.Len(t, w.groups(), 2, "all, and the heaviest")
}
