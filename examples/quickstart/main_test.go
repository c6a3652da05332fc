package main

func Example() {
	main()
	// Output:
	// push: alice 1
	// push: alice 2
	// push: alice 3
	// push: alice 4
	// push: alice 5
	// push: bob 1
	// push: alice 6 is refused: fairq: queue is full: it holds 6, the limit is 6
	// pop:  alice 1
	// pop:  bob 1
	// pop:  alice 2
	// pop:  alice 3
	// pop:  alice 4
	// pop:  alice 5
}
