// Package printable shows text that others have chosen to people: keys, kinds, errors.
package printable

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns a text that has something to see, and nothing that is not what it seems to be: the
// same one, or if that is not so, the same one in quotes, with escapes as in Go. Different texts
// stay different: one that begins with a quote is always one that was quoted here.
func Text(text string) string {
	hidden := func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }
	if text == "" || text[0] == '"' || strings.TrimSpace(text) != text || strings.ContainsFunc(text, hidden) {
		return strconv.Quote(text)
	}
	return text
}

// Parse returns the text that Text shows like that.
func Parse(shown string) (string, error) {
	if !strings.HasPrefix(shown, `"`) {
		return shown, nil
	}
	text, err := strconv.Unquote(shown)
	if err != nil {
		return "", fmt.Errorf("%s begins with a quote, but is not a text in quotes with escapes as in Go", Text(shown))
	}
	return text, nil
}
