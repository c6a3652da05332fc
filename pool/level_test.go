package pool

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLoadLevel has fullnesses with up to three decimals, as people write them.
func TestLoadLevel(t *testing.T) {
	for thousandths := 1; thousandths <= 1000; thousandths++ {
		fullness, err := strconv.ParseFloat("0."+strconv.Itoa(1000 + thousandths)[1:], 64)
		if thousandths == 1000 {
			fullness, err = 1, nil
		}
		require.NoError(t, err)
		for capacity := range 1200 {
			want := max(1, (thousandths*capacity+999)/1000)
			if got := loadLevel(fullness, capacity); got != want {
				require.Failf(t, "wrong", "%v of %d is %d, not %d", fullness, capacity, got, want)
			}
		}
	}
}
