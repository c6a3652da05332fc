package rowstest_test

import (
	"testing"
	"time"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest"
)

// memory is a DB whose method Reopen has the form that Run looks for.
type memory struct{ *rowstest.DB }

func (m memory) Reopen(*testing.T) rows.DB { return memory{m.DB.Reopen()} }

func TestMemory(t *testing.T) {
	for name, shared := range map[string]bool{"Exclusive": false, "Shared": true} {
		t.Run(name, func(t *testing.T) {
			rowstest.Run(t, func(*testing.T) rows.DB {
				db := rowstest.NewDB(time.Now)
				db.Shared = shared
				return memory{db}
			})
		})
	}
}
