//go:build cgo && foundationdb

package foundationdb

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOptions(t *testing.T) {
	for _, o := range []Options{
		{MaxPayload: -1},
		{MaxPayload: maxPayload + 1},
		{Skew: -1},
		{Poll: -1},
		{Timeout: -1},
		{History: -1},
	} {
		_, err := open(t.Context(), &o, nil)
		require.ErrorContains(t, err, "foundationdb.Options.")
	}
}
