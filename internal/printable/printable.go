// Package printable shows text that others have chosen to people: keys, kinds, errors.
package printable

import (
	"fmt"
	"reflect"
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

// Key is fmt.Sprint, but does not read what a key points to, which others may be changing.
func Key(key any) string {
	switch k := key.(type) {
	case string:
		return k
	case fmt.Stringer, error:
	default:
		if reflect.TypeOf(key) != nil && reflect.TypeOf(key).Kind() == reflect.Pointer {
			return fmt.Sprintf("%p", key)
		}
	}
	return fmt.Sprint(key)
}

// noLimit is fairq.MaxLen, which is a Capacity without a limit.
const noLimit = 1 << 29

// Fields shows a struct as %+v does, but for those fields that are zero and have nothing to say.
func Fields(v any) string {
	var b strings.Builder
	for field, value := range reflect.ValueOf(v).Fields() {
		if value.IsZero() && field.Name != "Key" {
			continue
		}
		shown := value.Interface()
		_, prints := shown.(fmt.Stringer)
		switch {
		case field.Name == "Key":
			shown = Text(Key(shown))
		case field.Name == "Capacity" && value.Int() >= noLimit:
			shown = "unlimited"
		case value.Kind() == reflect.Struct && !prints:
			shown = "{" + Fields(shown) + "}"
		}
		fmt.Fprintf(&b, " %s:%v", field.Name, shown)
	}
	return strings.TrimPrefix(b.String(), " ")
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

// maxName is how many bytes a name has at most.
const maxName = 100

// CheckName returns an error if a source of package monitor cannot have this name, which becomes a
// part of paths.
func CheckName(name string) error {
	switch {
	case len(name) > maxName:
		return fmt.Errorf("has %d bytes; the limit is %d", len(name), maxName)
	case name == "." || name == ".." || Text(name) != name:
		return fmt.Errorf("is %q; it must not be empty, . or .., and it must print", name)
	}
	return nil
}
