package rowstest

import (
	"fmt"
	"hash/fnv"
	"reflect"
	"slices"
	"strings"
)

// show returns the result of a View as a string. Results that mean the same give the same string:
// nil is written like an empty slice, the entries of a map are in the order of its keys, and
// fields that a driver may fill as it likes are left out.
func show(x any) string { return showValue(reflect.ValueOf(x)) }

func showValue(v reflect.Value) string {
	var parts []string
	switch v.Kind() {
	case reflect.Invalid:
		return "nil"
	case reflect.Pointer:
		return showValue(v.Elem())
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return showBytes(v.Bytes())
		}
		for i := range v.Len() {
			parts = append(parts, showValue(v.Index(i)))
		}
		return "[" + strings.Join(parts, "\n\t") + "]"
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.IsExported() && !slices.Contains([]string{"Was", "Written"}, f.Name) {
				parts = append(parts, f.Name+": "+showValue(v.Field(i)))
			}
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return fmt.Sprintf("%#v", v.Interface())
}

// showBytes shows large ones by what they hash to.
func showBytes(b []byte) string {
	if len(b) <= 100 {
		return fmt.Sprintf("%q", b)
	}
	h := fnv.New64a()
	_, _ = h.Write(b)
	return fmt.Sprintf("%d bytes with hash %x", len(b), h.Sum64())
}
