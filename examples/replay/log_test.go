package main

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const head = "submit_s,user,run_s\n"

func pack(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(text)) // a bytes.Buffer takes everything
	z.Close()
	return b.String()
}

func TestRead(t *testing.T) {
	for _, text := range []string{
		head + "0,ann,9\n5,bob,0\n5,ann,3\n",
		"submit_s,user,run_s\r\n0,ann,9\r\n5,\"bob\",0\r\n5,ann,3",
		pack(head + "0,ann,9\n5,bob,0\n5,ann,3\n"),
		head + "5,bob,0\n5,ann,3\n0,ann,9\n", // not in submit order
	} {
		w, err := readWorkload(strings.NewReader(text), "log")
		require.NoError(t, err)
		bob := w.jobs[1].user
		require.Equal(t, "bob", w.names[bob])
		require.Equal(t, []job{{1 - bob, 0, 9}, {bob, 5, 0}, {1 - bob, 5, 3}}, w.jobs)
	}
}

func TestReadErrors(t *testing.T) {
	const limits = "must be a whole number of seconds from 0 to 10000000000"
	packed := pack(head + strings.Repeat("0,ann,9\n", 1000))
	for text, want := range map[string]string{
		"":                           "log: there are no jobs in it",
		head:                         "log: there are no jobs in it",
		"0,ann,9\n1,ann,9\n":         `log: the header is ["0" "ann" "9"], must be ["submit_s"`,
		head + "0,ann,9\n1,ann":      "log: record on line 3: wrong number of fields",
		head + "-1,ann,9\n":          `log: record 2: submit_s is "-1", ` + limits,
		head + "0,ann,1.5\n":         `log: record 2: run_s is "1.5", ` + limits,
		head + "10000000001,ann,1\n": `log: record 2: submit_s is "10000000001", ` + limits,
		packed[:len(packed)-9]:       "log: unexpected EOF",
		"\x1f\x8bnonsense-bytes":     "log: gzip: invalid header",
	} {
		_, err := readWorkload(strings.NewReader(text), "log")
		require.ErrorContains(t, err, want, "%.60q", text)
	}
}

func TestBuiltInLog(t *testing.T) {
	w, err := (&settings{}).read()
	require.NoError(t, err)
	require.InDelta(t, 1581, w.load(1), 1, "busy servers on average, as its README says")
	require.Equal(t, 1581, w.leastServers())
	var sizes []string
	for _, g := range w.groups() {
		sizes = append(sizes, g.size())
	}
	require.Equal(t, []string{
		"216 users, 188,041 jobs", "136 users, 2,613 jobs", "139 users, 10,506 jobs",
		"7 users, 95,777 jobs",
	}, sizes)
}

// All work is 2,000, so a tenth of a fair share is 40.
func TestGroups(t *testing.T) {
	jobs := func(n int, rest string) string { return strings.Repeat("0,"+rest+"\n", n) }
	w, err := readWorkload(strings.NewReader(head+jobs(fewJobs, "cid,0")+jobs(1, "dan,40")+
		jobs(fewJobs, "ann,10")+jobs(1, "bob,960")+jobs(fewJobs-1, "eve,0")), "log")
	require.NoError(t, err)
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
}
