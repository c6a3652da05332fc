//go:build !cgo || !foundationdb

package foundationdb

import (
	"errors"

	"github.com/fairq/fairq/store/internal/rows"
)

func openEngine(string, string, rows.Traits) (engine, error) {
	return nil, errors.New(
		"this program was built without FoundationDB's client library: it needs cgo, and -tags foundationdb")
}
