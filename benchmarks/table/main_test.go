package main

import (
	"os"
	"strings"
)

// Three rounds; in the second one the machine is slower.
const rounds = `
cpu: Some
BenchmarkSubmit/keys=1/channel-2         	 100	       100.0 ns/op	       0 B/op	       0 allocs/op
BenchmarkSubmit/keys=1/pool-with-dash-2  	  50	       200.0 ns/op	      64 B/op	       1 allocs/op
BenchmarkSubmit/keys=1/channel-2         	 100	       400.0 ns/op	       0 B/op	       0 allocs/op
BenchmarkSubmit/keys=1/pool-with-dash-2  	  50	      1200.0 ns/op	      64 B/op	       1 allocs/op
BenchmarkSubmit/keys=1/channel-2         	 100	       120.0 ns/op	       0 B/op	       0 allocs/op
BenchmarkSubmit/keys=1/pool-with-dash-2  	  50	       300.0 ns/op	      64 B/op	       1 allocs/op
BenchmarkWake/channel-2         	 100	       10.0 ns/op	       0 B/op	       0 allocs/op
BenchmarkMemory/channel-2                	  30	  24002712 B/pool
BenchmarkMemory/pool-with-dash-2         	  30	      9821 B/pool
PASS
`

func Example() {
	var t tables
	t.add(strings.NewReader(rounds))
	t.print(os.Stdout)
	// Output:
	// | ns/op | Submit/keys=1 | Wake | B/op | allocs/op |
	// |---|---|---|---|---|
	// | channel | 120 | 10 | 0 | 0 |
	// | pool-with-dash | **2.5** (2.0 to 3.0) |  | 64 | 1 |
	//
	// | B/pool | Memory |
	// |---|---|
	// | channel | 24,002,712 |
	// | pool-with-dash | **0.00041** (0.00041 to 0.00041) |
}
