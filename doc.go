// Package fairq is a queue that is fair between keys. Each item belongs to a key, such as a
// tenant, a user or a host, and the keys are served in rounds, so that one key's flood does not
// make the others wait. Use it in place of a channel or a first-in first-out queue between
// producers and workers.
//
//	q := fairq.New(func(j Job) string { return j.User }, nil)
//	err := q.Push(job)            // does not wait; PushWait does
//	next, err := q.PopWait(ctx)   // Pop does not wait
//
// [FairQueue] is safe for many goroutines and has a capacity. [Queue] is the same data structure
// without lock and limit, for code that already has both.
//
// # Rounds
//
// A round delivers the oldest item of every key that had one when the round began, in the order in
// which these were pushed. The next round begins with the first Pop after its last item. A key of
// weight w has its w oldest items in a round instead of one.
//
// With [Options].Cost, a round gives each key a share of work instead of a number of items: its
// weight times the quantum. A key whose item costs more than the rest of its share borrows from
// its shares of later rounds, and skips turns until the debt is paid.
//
// With [Options].ShareTime there are no rounds: the keys share the working time of the consumers,
// and nobody needs to know a cost. Use it where the queue sees the end of each item, as in
// [FairQueue.All].
//
// # Promises
//
// Let K be the number of keys that have items, and R the number of items left in the current
// round. An item waits n if n others are popped between its push and its pop. With the default
// options:
//
//   - The first item of a key that has nothing queued waits at most R+K-1, and so at most 2(K-1),
//     its own key counted in K. Neither the backlogs of other keys nor later keys change that.
//   - The j-th item of a key waits at most R+j*K-1, if K counts every key that has items at some
//     time during the wait.
//   - While two keys both have items, the numbers of their items delivered since any moment
//     differ by at most 2.
//   - No key is served more than twice in a row while another one has items all the time.
//   - Items of one key leave in the order in which they were pushed.
//   - With weights, K is the sum of the weights. The j-th item of a key of weight w waits at most
//     R+ceil(j/w)*K-1. The key is served at most 2w times in a row.
//   - With costs, let B be a key's weight times the quantum, and c the cost of its most expensive
//     item. A key that owes nothing waits for its first item until the current round is over, and
//     each other key has been served at most B-1+c more.
//   - With costs, measure the work done for each of two keys, since any moment, in units of its
//     own B. The two differ by at most 2 + (c-1)/B of the one + (c-1)/B of the other. The
//     condition is that both have items, and that the next item of each is pushed before the round
//     of its last one begins.
//   - An accepted item leaves exactly once: it is popped, removed by its ticket or its key, or
//     evicted and handed to [Options].OnEvict, or drained. No cancellation and no panic of your
//     functions changes that.
//   - With [RejectOverShare], m keys of weight 1 that flood the queue together leave about 1/(m+1)
//     of it free. The last free place goes only to a key that has nothing queued.
//   - With [EvictHeaviest], a full queue refuses a push only if the pushing key is among the keys
//     whose backlog reaches furthest, in rounds. It evicts the newest item of such a key. With
//     [EvictOldest] it refuses no push, and evicts the oldest item of such a key: of the pushing
//     one, if that is among them.
//   - Waiting producers are admitted in rounds by key. Waiting consumers are served first come,
//     first served. A consumer that is handed an item as its context ends returns the item.
//   - Your functions run without the lock held, and may call the queue. If one panics, the call
//     still runs the other functions that it owes.
//
// docs/design.md has the reasons, and property_test.go the tests.
//
// # Not promised
//
//   - Fairness of work without [Options].Cost or ShareTime: each item counts the same, however
//     long it takes.
//   - A limit of running jobs without [Options].MaxInFlightPerKey: one key may have all workers at
//     a time, and keep them if its jobs hang.
//   - Order between items of different keys beyond the order of the rounds.
//   - Anything when the program ends: the queue is in memory.
//
// # Beside the other packages
//
//	                 | fairq.New          | task.Open          | pool.Func
//	Capacity 0       | 128                | no limit           | no limit
//	full, by default | refuses            | refuses            | waits
//	wrong options    | panic              | error              | panic
//	a failed item    | the worker's       | comes back         | tried again, up to ten times
//	the end          | Close: workers     | Close: taken tasks | Shutdown: the rest goes to
//	                 | finish the rest    | are handed back    | Leftovers; StopAndWait: it is done
//
// # Cost
//
// Push, Pop, Add, Remove, Len, KeyStat and Stats take constant time, whatever the number of keys
// and items, and allocate only when the queue grows. Nothing is scanned or sorted, and growing
// copies at most 2,048 places. With the lock held, Position is O(items ahead),
// RemoveKey and Upcoming are O(items returned), and Close is O(waiting goroutines). KeyStats is
// O(keys) and holds the lock for a few thousand keys at a time. Snapshot and Drain are O(items):
// Snapshot holds the lock to copy the memory, Drain only to admit waiting producers.
//
// An item takes 20 bytes beyond itself, with costs 32, plus 4 for each round. A key takes 72 to 80
// bytes beyond its own text. Items are copied in and out, so queue items larger than about 100
// bytes by pointer. The queue returns memory in units of 4,096 places as they empty. An empty
// queue keeps at most about half a megabyte, if keys and items have 16 bytes.
package fairq
