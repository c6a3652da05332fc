package redis

import (
	"testing"

	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/rows/rowstest/kvtest"
)

func TestSerializable(t *testing.T) {
	kvtest.Serializable(t, kv.Buffered{Map: newMap(t, newDatabase(t))})
}
