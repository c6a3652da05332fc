package redis

import (
	"strings"
	"testing"

	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest/kvtest"
)

// empty returns a function that returns empty engines, over a client outside of bubbles.
func empty(t *testing.T) func(t *testing.T) kv.Map {
	client, _ := newClient(t, newDatabase(t))
	return func(t *testing.T) kv.Map {
		_, prefix, _ := strings.Cut(newDatabase(t), "#")
		e := newEngine(client, &Options{Prefix: prefix})
		e.traits = rows.Traits{} // the tests expect exact times
		return e
	}
}

func TestRows(t *testing.T) { kvtest.Rows(t, empty(t)) }

func TestStore(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes")
	}
	kvtest.Store(t, empty(t))
}
