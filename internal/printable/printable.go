// Package printable makes text from outside readable: keys, kinds, errors.
package printable

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// StackMark ends the reason of a failure if the stack of a panic follows. Package task records
// both in one text.
const StackMark = "\n\ngoroutine "

// Text returns a text unchanged if it is visible and unambiguous, and otherwise in quotes with
// escapes as in Go. Different texts stay different, because Text quotes every text that begins
// with a quote.
func Text(text string) string {
	hidden := func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }
	if text == "" || text[0] == '"' || strings.TrimSpace(text) != text ||
		strings.ContainsFunc(text, hidden) {
		return strconv.Quote(text)
	}
	return text
}

// Key is fmt.Sprint, but does not follow a pointer, because other goroutines may be changing its
// target.
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

// Fields shows a struct like %+v, without the fields that are zero.
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

// Parse returns the text for which Text returns this.
func Parse(shown string) (string, error) {
	if !strings.HasPrefix(shown, `"`) {
		return shown, nil
	}
	text, err := strconv.Unquote(shown)
	if err != nil {
		return "", fmt.Errorf("%s begins with a quote, but is not a text in "+
			"quotes with escapes as in Go", Text(shown))
	}
	return text, nil
}

// maxName is the limit of a name, in bytes.
const maxName = 100

// CheckName returns an error if a source of package monitor cannot have this name. Names become a
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
