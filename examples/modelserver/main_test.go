package main

func Example() {
	main()
	// Output:
	//                                       FIFO         fair by count        fair by tokens
	// tenant        tokens  served  longest wait  served  longest wait  served  longest wait
	// embeddings       100    18 %         48.9s     0 %         58.5s    99 %          1.1s
	// chat            1000    18 %         48.8s     4 %         56.1s    99 %            1s
	// agents         10000    17 %         47.8s    44 %         33.5s   100 %         700ms
	// documents     100000    18 %         48.8s    18 %         48.2s     8 %         52.9s
}
