package kv_test

import (
	"testing"

	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/rows/rowstest/kvtest"
)

func TestSerializable(t *testing.T) {
	for _, cuts := range []bool{false, true} {
		kvtest.Serializable(t, kv.Buffered{Map: kv.NewMemory(cuts)})
	}
}
