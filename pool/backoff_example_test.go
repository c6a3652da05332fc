package pool_test

import (
	"fmt"
	"time"

	"github.com/fairq/fairq/pool"
)

func ExampleBackoff() {
	for curve := pool.Exponential; curve < pool.Random; curve++ {
		b := pool.Backoff{Curve: curve, Base: time.Second, Max: time.Minute}
		fmt.Printf("%-12v", curve)
		for failures := 1; failures <= 6; failures++ {
			fmt.Printf("%8v", b.Delay(failures).Round(10*time.Millisecond))
		}
		fmt.Println()
	}
	// Output:
	// exponential       1s      2s      4s      8s     16s     32s
	// constant          1s      1s      1s      1s      1s      1s
	// linear            1s      2s      3s      4s      5s      6s
	// quadratic         1s      4s      9s     16s     25s     36s
	// polynomial        1s      8s     27s    1m0s    1m0s    1m0s
	// fibonacci         1s      1s      2s      3s      5s      8s
	// logarithmic       1s      2s   2.58s      3s   3.32s   3.58s
}
