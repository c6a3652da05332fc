package account

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is known is that of the keys learned of last, of no fewer than a generation and of no more
// than two.
func TestMeans(t *testing.T) {
	var m Means
	name := func(i int) string { return fmt.Sprint("key", i) }
	known := func(i int) bool { return m.Estimate(name(i), 1) != 1 }
	for i := range 5 * Generation {
		if m.Learn(name(i), 1000, 100); i%1000 > 0 {
			continue
		}
		m.Learn("often", 1<<20, 1<<20)
		require.EqualValues(t, 1<<20, m.Estimate("often", 1))
		require.LessOrEqual(t, len(m.recent)+len(m.before), 2*Generation)
		require.True(t, known(max(0, i-Generation+10)))
		require.False(t, i >= 2*Generation && known(i-2*Generation))
	}
	require.EqualValues(t, 7, m.Estimate("new", 7))
	for range 200 {
		m.Learn("new", 0, 7)
	}
	require.EqualValues(t, 1, m.Estimate("new", 7))
}
