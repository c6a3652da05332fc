package monitor

import (
	"context"
	"reflect"
	"strings"
)

// Fields returns the names of all fields of answers, but for those of stats.
func Fields() (names []string) {
	var add func(t reflect.Type)
	add = func(t reflect.Type) {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice && t.Name() == "" {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || t.PkgPath() == "time" ||
			t.PkgPath() == "github.com/fairq/fairq" {
			return
		}
		for i := range t.NumField() {
			f := t.Field(i)
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
				names = append(names, name)
			}
			if f.IsExported() || f.Anonymous {
				add(f.Type)
			}
		}
	}
	for _, t := range []reflect.Type{
		reflect.TypeFor[sample](), reflect.TypeFor[place](),
		reflect.TypeFor[taskList](), reflect.TypeFor[point](),
	} {
		add(t)
	}
	return names
}

// Look looks at a source, however long ago that was done last.
func Look(s *Source) error {
	_, err := s.of.look(context.Background())
	return err
}

var (
	KeyText  = keyText
	Shown    = shown
	ReasonOf = reasonOf
)

func KeyOf[K comparable](text string) (K, bool) { return keyOf[K](text) }
