package rowstest

import (
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task/driver"
)

// show returns what a View returned as a string. It is the same for things that are to be equal:
// nil and empty slices are the same, as is the order of things that have none.
func show(x any) string {
	switch x := x.(type) {
	case []byte:
		return showBytes(x)
	case *rows.Queue:
		return orNil(x, func() string { return fmt.Sprintf("{%d %s}", x.ID, showBytes(x.Settings)) })
	case *rows.Head:
		return orNil(x, func() string {
			return fmt.Sprintf("{%s %v %d %v}", showBytes(x.Settings), x.Paused, x.PausedKeys, x.Rounds)
		})
	case *rows.Row:
		return orNil(x, func() string {
			r := *x
			r.Payload, r.Err, r.Was = nil, nil, 0
			return fmt.Sprintf("%#v payload %s error %s", r, showBytes(x.Payload), showError(x.Err))
		})
	case *rows.Ended:
		return orNil(x, func() string {
			d := *x
			d.Payload, d.Err = nil, nil
			return fmt.Sprintf("%#v payload %s error %s", d, showBytes(x.Payload), showError(x.Err))
		})
	case *rows.Outcome:
		return orNil(x, func() string {
			o := *x
			o.Err, o.Written = nil, 0
			return fmt.Sprintf("%#v error %s", o, showError(x.Err))
		})
	case *rows.Key:
		return orNil(x, func() string { return fmt.Sprintf("%#v", *x) })
	case *rows.Group:
		return orNil(x, func() string { return fmt.Sprintf("%#v", *x) })
	case *rows.Consumer:
		return orNil(x, func() string { return fmt.Sprintf("%#v", *x) })
	case []rows.Key:
		return showEach(x)
	}
	return fmt.Sprintf("%#v", x)
}

func orNil[T any](x *T, f func() string) string {
	if x == nil {
		return "nil"
	}
	return f()
}

func showEach[T any](list []T) string {
	lines := make([]string, len(list))
	for i, x := range list {
		lines[i] = show(x)
	}
	return "[" + strings.Join(lines, "\n\t") + "]"
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

func showError(err *driver.Error) string {
	return orNil(err, func() string { return fmt.Sprintf("%#v", *err) })
}
