package monitor

import (
	"crypto/sha256"
	"fmt"
	"reflect"
	"strconv"
	"unicode/utf8"

	"github.com/fairq/fairq/internal/printable"
)

// How many bytes are shown of a key, and of payloads, errors and the like.
const (
	maxKeyText = 100
	maxText    = 200
)

// keyText returns the text for a key that the package documentation describes. Keys that fmt
// prints differently have different texts.
func keyText(key any) string { return hashed(printable.Key(key), maxKeyText) }

// hashed shows a text. Different texts are shown differently, however long they are.
func hashed(text string, most int) string {
	if len(text) <= most {
		return printable.Text(text)
	}
	hash := sha256.Sum256([]byte(text))
	return fmt.Sprintf("%s of %d bytes, %x", cut(text, most), len(text), hash[:8])
}

// shown returns how a payload or an error is shown.
func shown(text string) string { return shownUpTo(text, maxText) }

func shownUpTo(text string, most int) string {
	if len(text) <= most {
		return printable.Text(text)
	}
	return fmt.Sprintf("%s of %d bytes", cut(text, most), len(text))
}

// cut returns the beginning of a text.
func cut(text string, n int) string {
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return strconv.Quote(text[:n]) + "…"
}

// keyOf returns the key with that keyText, if the text determines the key.
func keyOf[K comparable](text string) (key K, ok bool) {
	v := reflect.ValueOf(&key).Elem()
	switch {
	case v.Kind() == reflect.String:
		plain, err := printable.Parse(text)
		if err != nil {
			return key, false
		}
		v.SetString(plain)
	case v.CanInt():
		n, _ := strconv.ParseInt(text, 10, 64)
		v.SetInt(n)
	case v.CanUint():
		n, _ := strconv.ParseUint(text, 10, 64)
		v.SetUint(n)
	default:
		return key, false
	}
	return key, keyText(any(key)) == text
}
