//go:build cgo && foundationdb

package foundationdb

import (
	"testing"

	"github.com/fairq/fairq/store/internal/rows/rowstest/kvtest"
)

func TestOptions(t *testing.T) {
	kvtest.Options(t, func(o *Options) error {
		_, err := open(t.Context(), o, nil)
		return err
	})
}
