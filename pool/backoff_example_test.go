package pool_test

import (
	"fmt"
	"math"
	"time"

	"github.com/fairq/fairq/pool"
)

// Func is for any other curve.
func ExampleBackoff() {
	s := float64(time.Second)
	for _, b := range []struct {
		name string
		pool.Backoff
	}{
		{"doubling", pool.Backoff{Base: time.Second, Max: time.Minute}},
		{"constant", pool.Backoff{Base: time.Second, Max: time.Second}},
		{"linear", pool.Backoff{Max: time.Minute, Func: func(n int) time.Duration {
			return time.Duration(n) * time.Second
		}}},
		{"cubic", pool.Backoff{Max: time.Minute, Func: func(n int) time.Duration {
			return time.Duration(s * math.Pow(float64(n), 3))
		}}},
		{"logarithmic", pool.Backoff{Max: time.Minute, Func: func(n int) time.Duration {
			return time.Duration(s * (1 + math.Log2(float64(n))))
		}}},
	} {
		fmt.Printf("%-12v", b.name)
		for failures := 1; failures <= 6; failures++ {
			fmt.Printf("%8v", b.Delay(failures).Round(10*time.Millisecond))
		}
		fmt.Println()
	}
	// Output:
	// doubling          1s      2s      4s      8s     16s     32s
	// constant          1s      1s      1s      1s      1s      1s
	// linear            1s      2s      3s      4s      5s      6s
	// cubic             1s      8s     27s    1m0s    1m0s    1m0s
	// logarithmic       1s      2s   2.58s      3s   3.32s   3.58s
}
