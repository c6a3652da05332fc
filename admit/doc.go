// Package admit shares permits between keys: tenants, users, hosts. A [Limiter] is a semaphore.
// Goroutines wait at it for a handler, a database connection or an upstream service. A plain
// semaphore serves the first that came, so one tenant with 200 open requests makes all others
// wait. Here a free permit goes to a key that waits and holds fewer than MaxPerKey permits. Of
// these keys it goes to the key
//
//  1. that holds the fewest, divided by its weight and rounded down;
//  2. on a tie, that has used the least time for its weight;
//  3. then, whose first request has waited longest.
//
// Within a key the first request gets the permit. Time counts only while a request waits that
// could have the permit. So free capacity costs nothing, and a lone key has a plain semaphore. A
// new key begins level with the others. Its used time is the highest that a key had when it was
// admitted from the line, but not far above that of a waiting key.
//
// # Guarantees
//
// D is the longest time that a permit is held.
//
//   - Let all keys wait all the time, and owe nothing when they come. Then two keys of weight 1
//     hold permits, over any interval, for times that differ by at most (2*limit + 1) * D.
//   - Let a key hold no permit and owe nothing. With equal weights such a key is never passed by a
//     key that comes later. With weights of 1 it waits less than D * (n/limit + 2), n being the
//     number of keys that hold or wait when it comes. That does not hold after the limit was
//     lowered, or after a debt was forgotten, because a key was idle for longer than many others.
//   - No permit is free while a call waits that may have it.
//   - A call that was given a permit keeps it, even if its context is done at that moment.
//
// There is no bound in a number of releases: a key of short requests passes many times while a
// long one lasts. docs/design.md has more, and docs/costs.md the price of the rule.
//
// # How many permits
//
// The limit is what the bottleneck can do at a time: the connections of a database, the requests
// that an upstream service handles at once. More permits make sharing slower: a flood takes all of
// them before others come. With eight times as many permits, eight times as many must come back
// before the others hold their part.
//
// A client that reads slowly keeps the permit of its request until it has read the answer. So set
// MaxPerKey, and a WriteTimeout of the server.
//
// A caller that holds a permit and acquires another one can wait for itself. If callers that do so
// hold all permits, or MaxPerKey of their key, none of them goes on. Let them release first, or
// call TryAcquire, or take the second permit from another Limiter.
//
// # One tenant is one key
//
// Each key gets a share. So a tenant that chooses its keys, by addresses, sessions or headers,
// gets many. Take the key from the login, give all requests without a login the same key, and set
// MaxPerKey.
//
// # Rates
//
// With Options.Rate, permits also need units of a budget, such as tokens a minute for a language
// model. Then keys share units instead of time: see [Limiter.AcquireN].
//
// # Cost
//
// Acquire and Release are O(log waiting keys), and O(1) if no call waits; they allocate nothing
// for a known key. Memory is O(held permits + waiting requests): the Limiter remembers at most 32
// idle keys, and two more for each active key. All methods may be called at any time by any
// goroutine. No goroutine runs, and no user code runs under the lock.
package admit
