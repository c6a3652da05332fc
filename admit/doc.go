// Package admit shares permits between keys: tenants, users, hosts. A [Limiter] is a semaphore.
// Goroutines wait at it for a handler, a database connection or an upstream service. A plain
// semaphore serves the first that came, so one tenant with 200 open requests makes all others
// wait. Here a free permit goes, of the keys that wait and hold fewer than MaxPerKey permits, to
// the one
//
//  1. that holds the fewest, divided by its weight and rounded down;
//  2. of these, that has used the least time for its weight;
//  3. of these, whose first request has waited longest.
//
// Within a key permits go to who came first. The time that a permit is held counts only while
// somebody waits who could have it, so free capacity costs nobody anything, and a lone key has a
// plain semaphore. A key that comes begins where the others are: at the most that a key had used
// when it was admitted from the line.
//
// # Guarantees
//
// D is the longest time that a permit is held.
//
//   - Two keys of weight 1 that wait all the time, and held no permit before that, get the same
//     time over any interval, give or take less than (limit + 1) * D.
//   - With equal weights, a key that holds nothing and owes nothing is never passed by one that
//     came later, and waits at most D * (n/limit + 1), n the keys that hold or wait when it comes.
//   - No permit is free while somebody waits who may have it.
//   - A call that was given a permit keeps it, even if its context is done at that moment.
//
// There is no bound in a number of releases: a key of short requests passes many times while a long
// one lasts. docs/design.md has more, and what the rule costs.
//
// # Rates
//
// With Options.Rate, permits also need units of a budget, such as tokens a minute for a language
// model, and keys share units instead of time: see [Limiter.AcquireN].
//
// # Cost
//
// Acquire and Release are O(log keys that wait), and O(1) if nobody waits; they allocate nothing
// for a key that is known. Memory is O(permits held + requests that wait): idle keys are forgotten
// when there are more than 32 and twice those that hold or wait. All methods may be called at any
// time by any goroutine. No goroutine runs, and no code of the user's runs under the lock.
package admit
