// Package monitor shows which keys wait in queues, how long, and which keys have been served: as a
// page that updates itself, and as JSON.
//
//	emails := monitor.TaskQueue("emails", tasks, nil)
//	m := monitor.New(nil,
//		monitor.FairQueue("jobs", queue, nil),
//		emails,
//		monitor.Pool("workers", p, emails))
//	mux.Handle("/debug/fairq/", http.StripPrefix("/debug/fairq", m))
//
// A [Monitor] is an http.Handler. It registers nothing, and reads its sources only while a client
// asks, or while [Monitor.Run] runs. Every client sees the keys of all queued items, so mount it
// where only people who may see them can reach it. It shows payloads only through a function of
// yours.
//
// A tenant with many keys has many rows, each with a small share, and none of them looks like a
// flood. If there are far more keys than tenants, check where the keys come from.
//
// # What it costs
//
// A Monitor reads a source at most once a second, for any number of clients. If a read takes
// longer than a twentieth of a second, the next one is later, so that reads take at most a
// twentieth of the time. Each read has a goroutine of its own, and ends after five seconds. A read
// makes these calls:
//
//   - FairQueue: Stats, KeyStats of 100 keys in four orders, and Upcoming of 1,000 items. Each
//     locks the queue to copy, and does the rest without the lock. Upcoming holds it longest, for
//     0.02 to 0.07 ms with any number of items and keys, or KeyStats where Options.CountKeys is
//     several thousand.
//   - TaskQueue: Stats, KeyStats by service and refusals, List of taken tasks, and Upcoming of
//     1,000 tasks. In memory Upcoming holds the lock longest, for 0.1 to 0.6 ms. In other stores
//     it reads 200 tasks, and all calls make a bounded number of indexed reads. To count tasks by
//     key it lists all of them, in pages of 1,000, for at most a fortieth of the time.
//   - Pool: Stats, and a read of its queue.
//
// These are medians of BenchmarkLook, and for tasks of BenchmarkUpcoming in task/memory. On a very
// busy machine a goroutine may lose its processor for many milliseconds while it holds the lock:
// docs/costs.md has the figures. A Monitor keeps the counts of the last minute and an hour of
// points for the charts, some 100 KB for each source.
//
// # Paths
//
// All paths but the actions are GET, and return JSON. {name} is the name of a source. Errors have
// the form {"error": "..."}, with a matching status. Times are in RFC 3339, durations in
// nanoseconds. docs/operating.md explains the fields.
//
//	/                                   the page
//	/v1/queues                          all sources, with their stats, without waiting for any
//	/v1/queues/{name}                   one of them
//	/v1/queues/{name}/keys?limit=&by=   up to 100 keys, by backlog, oldest, served, refused, paused
//	/v1/queues/{name}/snapshot?limit=   the next items, in order, up to 1,000
//	/v1/queues/{name}/history           numbers of the last hour, while the source was read
//	/v1/queues/{name}/tasks?state=&key=&kind=&reason=&by=&limit=   up to 1,000 tasks of a state, and
//	                                    the first 10,000 grouped by reason, key or kind. The states
//	                                    are ready, taken, retrying, delayed, held, buried and
//	                                    failed, the last failures of a pool
//	/v1/queues/{name}/tasks/{id}        all fields of a task
//	/v1/queues/{name}/search?key=       the position of a key's first item among the next items
//	/v1/queues/{name}/live?after=       all that the page shows, as soon as it is not that of a time
//	POST /v1/queues/{name}/actions/...  see [Options.Actions]
//
// The default limit is 50. Later versions may add fields; existing fields keep their names and
// meanings while the path begins with /v1.
//
// The page shows a key as text: in quotes, with escapes as in Go, if it is empty, begins with a
// quote, or has bytes that do not print; and shortened, with its length and a hash, if it has more
// than 100 bytes. So different keys have different texts, and the paths take keys in the same
// form.
//
// # The end of a server
//
// [net/http.Server.Shutdown] waits for running requests, and an open page has one, which lasts
// until the next read. To end these, cancel the BaseContext in a function for RegisterOnShutdown.
package monitor
