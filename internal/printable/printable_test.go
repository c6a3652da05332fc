package printable_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/printable"
)

func TestFields(t *testing.T) {
	type counts struct{ Served, Refused int }
	type stat struct {
		Key      any
		Len      int
		Closed   bool
		Capacity int
		Oldest   time.Duration
		Total    counts
	}
	require.Equal(t, `Key:"" Len:3 Capacity:128`,
		printable.Fields(stat{Key: "", Len: 3, Capacity: 128}))
	require.Equal(t, "Key:7 Closed:true Capacity:unlimited Oldest:2s Total:{Refused:1}",
		printable.Fields(stat{
			Key: 7, Closed: true, Capacity: fairq.MaxLen, Oldest: 2 * time.Second,
			Total: counts{Refused: 1},
		}))
}

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"alice": "alice", "größe 1%": "größe 1%", "": `""`, `"a"`: `"\"a\""`,
		"a\x1b[31m": `"a\x1b[31m"`, " a": `" a"`,
		"a\u202eb": `"a\u202eb"`, "\xff": `"\xff"`, "\ufffd": `"�"`, "a\nb": `"a\nb"`,
		"a\u00a0b": `"a\u00a0b"`,
	} {
		require.Equal(t, want, printable.Text(text))
		back, err := printable.Parse(want)
		require.NoError(t, err)
		require.Equal(t, text, back)
	}
	for _, text := range []string{`"`, `"a`, `"a"b`, `"\x"`} {
		_, err := printable.Parse(text)
		require.ErrorContains(t, err, "is not a text in quotes", text)
	}
}

type named struct{ name string }

func (n *named) String() string { return "named " + n.name }

func TestKey(t *testing.T) {
	secret := &struct{ n int }{1}
	require.Equal(t, fmt.Sprintf("%p", secret), printable.Key(secret),
		"what a key points to is not read")
	for want, key := range map[string]any{
		"a b": "a b", "7": 7, "{1 x}": struct {
			n int
			s string
		}{1, "x"}, "named x": &named{"x"}, "EOF": io.EOF, "<nil>": nil,
	} {
		require.Equal(t, want, printable.Key(key))
	}
}

func TestCheckName(t *testing.T) {
	require.NoError(t, printable.CheckName("größe 1%/"))
	require.NoError(t, printable.CheckName(strings.Repeat("a", 100)))
	for name, want := range map[string]string{
		"": `is ""; it must not be empty, . or .., and it must print`, ".": `is "."`, "..": `is ".."`,
		"a\nb":                   `is "a\nb"`,
		strings.Repeat("a", 101): "has 101 bytes; the limit is 100",
	} {
		require.ErrorContains(t, printable.CheckName(name), want)
	}
}
