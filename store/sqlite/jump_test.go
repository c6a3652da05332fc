package sqlite

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/rows"
)

// TestJump shows that finding a key's next kind does not slow with the tasks of a kind. A search
// for (a, b) > (?, ?) walks over all rows equal to the arguments.
func TestJump(t *testing.T) {
	cost := func(tasks int) time.Duration {
		d := openHandle(t, file(t), options{synchronous: "normal"}).db
		makeQueue(t, d)
		for i := 0; i < tasks; {
			in(t, d, func(v rows.Calls) {
				for range 1000 {
					add(t, v, rows.Row{Key: "k", Kind: fmt.Sprint(i % 2), Priority: i / 2 % 2})
					i++
				}
			})
		}
		var took time.Duration
		in(t, d, func(v rows.Calls) {
			took = fastest(func() {
				_, found, err := v.Lines([]string{"k"}, 1, false)
				require.NoError(t, err)
				require.Len(t, found, 4)
			})
		})
		return took
	}
	require.Less(t, cost(32_000), 6*cost(1000))
}
