// Package fairq is a queue that is fair between keys. Each item belongs to a key, such as a
// tenant, a user or a host, and the keys are served in rounds, so that one key's flood does not
// make the others wait. Use it where you would use a channel or a first-in first-out queue between
// those who ask for work and those who do it.
//
//	q := fairq.New(func(j Job) string { return j.User }, nil)
//	err := q.Push(job)            // does not wait; PushWait does
//	next, err := q.PopWait(ctx)   // Pop does not wait
//
// [FairQueue] is made for many goroutines, and has a capacity. [Queue] is the same without lock
// and limit, for use inside something that has its own.
//
// # Rounds
//
// A round delivers the oldest item of every key that had one when the round began, in the order in
// which these were pushed. When it is used up, the next one begins. A round begins with the first
// Pop from it. A key of weight w has its w oldest items in a round instead of one.
//
// With [Options].Cost, a round has a share of work for each key instead of a number of items: its
// weight times the quantum. A key whose item costs more than is left of its share has the rest of
// the cost taken off its shares of the rounds that follow, and so no turn in them.
//
// With [Options].ShareTime there are no rounds: the keys share the time of those who work on the
// items, and nobody needs to know a cost. Take it where the queue sees when an item has ended, as
// in [FairQueue.All].
//
// # What is promised
//
// Say K is the number of keys that have items, R the number of items left in the current round,
// and that an item waits n if n others are popped between its push and its pop. With the default
// options:
//
//   - A key that has nothing queued waits at most R+K-1, and so at most 2(K-1), for its first
//     item, its own key counted in K. It does not matter how long the other keys' backlogs are,
//     nor who comes later.
//   - The j-th item of a key waits at most R+j*K-1, if K counts every key that has items at some
//     time meanwhile.
//   - As long as two keys both have items, the numbers of their items delivered since any moment
//     differ by 2 at most.
//   - No key is served more than twice in a row while another one has items all the time.
//   - Items of one key leave in the order in which they were pushed.
//   - With weights, K is the sum of the weights: the j-th item of a key of weight w waits at most
//     R+ceil(j/w)*K-1, and the key is served at most 2w times in a row.
//   - With costs, where B is a key's weight times the quantum, and c the cost of its dearest item: a
//     key that has not used the rounds to come waits for its first item at most for the work that
//     is left of the current round, and for each other key for B-1+c. As long as two keys both
//     have items, and the next one of each is pushed before the round of its last one begins, the
//     work done for them since any moment, each in units of its own B, differs by at most
//     2 + (c-1)/B of the one + (c-1)/B of the other.
//   - An item that is accepted leaves exactly once: it is popped, removed by its ticket or its
//     key, evicted and then handed to [Options].OnEvict, or drained. No cancellation and no panic
//     of a function of yours changes that.
//   - With [RejectOverShare], the last free place goes only to a key that has nothing queued, and
//     m keys of weight 1 that flood the queue together leave about 1/(m+1) of it free.
//   - With [EvictHeaviest], the capacity refuses a push only if the pushing key is among the keys
//     whose backlog reaches furthest, in rounds, and what is evicted is the newest item of such a
//     key. With [EvictOldest] it refuses no push, and what is evicted is the oldest item of such a
//     key, the pushing one if that is among them.
//   - Producers who wait are admitted in rounds by key. Consumers who wait are served first come,
//     first served. If an item is handed to a consumer when its context ends, the consumer has the
//     item.
//   - Functions of yours run without the lock held. They may call the queue. If one panics, the
//     other functions that the same call owes are called nevertheless.
//
// docs/design.md has the reasons, and property_test.go the tests.
//
// # What is not promised
//
//   - Fairness of work without [Options].Cost or ShareTime: then each item counts the same, however
//     long it takes.
//   - A limit of running jobs: one key may have all workers at a time. (Package task has
//     MaxInFlightPerKey.)
//   - With [ThisRound], a bound on how long a key with a backlog waits, and on the memory for keys
//     already served, while ever new keys join the same round.
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
//	the end          | Close: workers     | Close: what is     | Shutdown: the rest goes to
//	                 | finish the rest    | taken goes back    | Leftovers; StopAndWait: it is done
//
// docs/design.md has the reasons.
//
// # Cost
//
// Push, Pop, Add, Remove, Len, KeyLen, Keys, KeyStat and Stats take constant time, whatever the
// number of keys and items, and do not allocate as long as the queue does not grow. There is no
// scan and no sort, and growing copies 2,048 places at most. Position is O(items ahead), RemoveKey
// and Upcoming O(items returned), KeyStats O(keys), with the lock held for some thousand of them at
// a time, and Snapshot O(items), of which the lock is held for copying the memory only. Drain is O(items), but
// holds the lock only for the producers who wait; Close is O(goroutines that wait).
//
// An item takes 20 bytes beyond itself, with costs 32, plus 4 for each round; a key 72 to 80
// beyond its own text. Items are copied in and out, so those of more than about 100 bytes are
// better queued by pointer. Memory goes back as places become empty, 4,096 at a time, and all but
// about half a megabyte when the queue is empty, for keys and items of 16 bytes.
package fairq
