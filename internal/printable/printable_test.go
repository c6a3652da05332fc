package printable_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/printable"
)

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"alice": "alice", "größe 1%": "größe 1%", "": `""`, `"a"`: `"\"a\""`, "a\x1b[31m": `"a\x1b[31m"`, " a": `" a"`,
		"a\u202eb": `"a\u202eb"`, "\xff": `"\xff"`, "\ufffd": `"�"`, "a\nb": `"a\nb"`, "a\u00a0b": `"a\u00a0b"`,
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
