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
	// push: carol 1
	// pop:  alice 1
	// pop:  bob 1
	// pop:  carol 1
	// pop:  alice 2
	// pop:  alice 3
	// pop:  alice 4
	// pop:  alice 5
	//
	// The same with a queue that is soon full, and keeps room for others:
	// push: alice 1
	// push: alice 2
	// push: alice 3
	// push: alice 4 is refused:
	//   fairq: full for this key: it holds 3, and its share, which shrinks as others come, is 2 now
	// push: alice 5 is refused:
	//   fairq: full for this key: it holds 3, and its share, which shrinks as others come, is 2 now
	// push: bob 1
	// push: carol 1
	// pop:  alice 1
	// pop:  bob 1
	// pop:  carol 1
	// pop:  alice 2
	// pop:  alice 3
}
