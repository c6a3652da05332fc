//go:build !cgo || !foundationdb

package foundationdb

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMissing(t *testing.T) {
	_, err := Open(t.Context(), "", nil)
	require.EqualError(t, err, "foundationdb: open: this program was built without FoundationDB's client library: "+
		"it needs cgo, and -tags foundationdb")
}
