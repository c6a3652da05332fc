package monitor_test

import (
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/monitor"
)

var hostile = []string{
	"", " ", "a ", `"`, `""`, `"a"`, "<script>alert(1)</script>", "a&b", "a\nb", "a\x00b", `a\x00b`,
	"\xff\xfe", "é", "e\u0301",
	"\u202egnp.exe", "\u200b", "\ufffd", "\U0010ffff", "../../etc", "a\u2028b", "data: x\n\ndata: y",
	strings.Repeat("a", 100), strings.Repeat("a", 101), strings.Repeat("a", 1<<20),
	strings.Repeat("a", 1<<20-1) + "b",
	strings.Repeat("\xff", 1<<20), strings.Repeat("ä", 300), strings.Repeat("<", 300),
}

func TestKeyText(t *testing.T) {
	seen := map[string]string{}
	for _, key := range hostile {
		text := monitor.KeyText(key)
		require.NotContains(t, seen, text, "%q", key)
		seen[text] = key
		require.True(t, utf8.ValidString(text))
		require.LessOrEqual(t, len(text), 100*4+60)
		for _, r := range text {
			require.True(t, unicode.IsPrint(r), "%q", text)
		}
		back, ok := monitor.KeyOf[string](text)
		require.Equal(t, len(key) <= 100, ok, "%.200q", key)
		if ok {
			require.Equal(t, key, back)
		}
	}
	require.Equal(t, "<script>alert(1)</script>", monitor.KeyText("<script>alert(1)</script>"),
		"it is the page's affair")
	require.Equal(t, `"a\x00b"`, monitor.KeyText("a\x00b"))
	require.Regexp(t, `^"a{100}"… of 1048576 bytes, [0-9a-f]{16}$`,
		monitor.KeyText(strings.Repeat("a", 1<<20)))
	require.LessOrEqual(t, len(monitor.Shown(strings.Repeat("\xff", 1<<20))), 200*4+30)
}

type (
	named    string
	numbered int8
	place    struct{ x, y int }
)

func (n numbered) String() string { return "number " + fmt.Sprint(int(n)) }

type failing struct{ int }

func (failing) String() string { panic("no") }

func TestKeysOfOtherTypes(t *testing.T) {
	check := func(want string, ok bool) func(text string, back any, isKnown bool) {
		return func(text string, _ any, isKnown bool) {
			require.Equal(t, want, text)
			require.Equal(t, ok, isKnown)
		}
	}
	check("a", true)(of(named("a")))
	check("-7", true)(of(-7))
	check("7", true)(of(uint16(7)))
	check("number 7", false)(of(numbered(7)))
	check("{1 2}", false)(of(place{1, 2}))
	check("NaN", false)(of(math.NaN()))
	text, _, known := of(&place{1, 2})
	require.Regexp(t, "^0x[0-9a-f]+$", text, "it is not read")
	require.False(t, known)
	text, _, _ = of(failing{1})
	require.Contains(t, text, "PANIC")
	_, known = monitor.KeyOf[int8]("300")
	require.False(t, known)
}

func of[K comparable](key K) (text string, back any, known bool) {
	text = monitor.KeyText(key)
	back, known = monitor.KeyOf[K](text)
	return text, back, known
}

// With any keys, every path answers with JSON that has all of them, and is not much longer.
func TestHostileKeys(t *testing.T) {
	q := fairq.New(func(key string) string { return key },
		&fairq.Options[string, string]{Capacity: 1000, CountKeys: 10})
	for _, key := range hostile {
		require.NoError(t, q.Push(key))
		require.NoError(t, q.Push(key))
	}
	for range 5 {
		q.Pop()
	}
	m := monitor.New(&monitor.Options{Actions: everything, Logger: slog.New(slog.DiscardHandler)},
		monitor.FairQueue("jobs", q, func(item string) string { return item }))
	for _, path := range []string{
		"keys?limit=100", "snapshot?limit=1000", "search?key=%ff", "tasks",
	} {
		w := httptest.NewRecorder()
		m.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/queues/jobs/"+path, nil))
		require.Equal(t, http.StatusOK, w.Code, "%s", w.Body)
		require.Less(t, w.Body.Len(), 100_000)
		require.NotContains(t, w.Body.String(), "<")
	}
	_, answer := get(t, m, "/v1/queues/jobs/keys?limit=100")
	rows := answer["keys"].([]any)
	require.Len(t, rows, len(hostile))
	for i, row := range rows {
		text := row.(map[string]any)["key"].(string)
		status, answer := act(t, m, "jobs", "drop-key", map[string]string{"key": text})
		require.Equal(t, http.StatusOK, status, "%v", answer)
		require.Contains(t, []any{1.0, 2.0}, answer["done"], "%d: %q", i, text)
	}
	require.Zero(t, q.Len())
}

// A key that is not equal to itself has one row.
func TestNaN(t *testing.T) {
	q := fairq.New(func(key float64) float64 { return key },
		&fairq.Options[float64, float64]{CountKeys: 10})
	for range 10 {
		require.NoError(t, q.Push(math.NaN()))
	}
	q.Pop()
	m := monitor.New(nil, monitor.FairQueue("jobs", q, func(float64) string { panic("no") }))
	_, answer := get(t, m, "/v1/queues/jobs/keys")
	require.Len(t, answer["keys"], 1)
	row := answer["keys"].([]any)[0].(map[string]any)
	require.EqualValues(t, 9, row["backlog"])
	_, answer = get(t, m, "/v1/queues/jobs/snapshot?limit=1")
	require.Equal(t, "describe panicked: no",
		answer["upcoming"].([]any)[0].(map[string]any)["payload"])
}
