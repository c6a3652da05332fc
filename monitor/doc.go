// Package monitor shows who waits in queues, for how long, and who has had the service: as a page
// that updates itself, and as JSON.
//
//	emails := monitor.TaskQueue("emails", tasks, nil)
//	m := monitor.New(nil,
//		monitor.FairQueue("jobs", queue, nil),
//		emails,
//		monitor.Pool("workers", p, emails))
//	mux.Handle("/debug/fairq/", http.StripPrefix("/debug/fairq", m))
//
// A [Monitor] is an http.Handler. It registers nothing, and looks only while somebody does, or while
// [Monitor.Run] runs. Whoever can reach it sees the keys of all that is queued, so mount it where
// only those who may see them can. Of payloads it shows what a function of yours tells of them, and
// nothing without one.
//
// # What it costs
//
// A source is looked at once a second at most, however many look. If a look takes longer than a
// twentieth of a second, the next one is later, so that looking takes no more than a twentieth of
// the time. A look is made by a goroutine of its own, and ends after five seconds. What it does:
//
//   - FairQueue: Stats, KeyStats of 100 keys in four orders, and Upcoming of 1,000 items. Each takes
//     the lock by itself, copies, and lets it go; all else is done after that. The longest hold is
//     that of Upcoming, 0.02 to 0.07 ms, however many items and keys there are, or that of KeyStats
//     where Options.CountKeys is several thousand.
//   - TaskQueue: Stats, KeyStats by service and refusals, and Upcoming of 1,000 tasks. The longest
//     hold in memory is that of Upcoming, 0.1 to 0.6 ms. In other stores it is Upcoming of 200, and
//     all of it is a bounded number of indexed reads. KeyStats by backlog and age, which may read
//     all tasks, are called so rarely that they take a fortieth of the time at most.
//   - Pool: Stats, and a look at its queue.
//
// These are medians, measured by BenchmarkLook, and of tasks by BenchmarkUpcoming of task/memory. On
// a machine that is very busy a goroutine may lose its processor while it holds the lock, for many
// milliseconds: docs/operating.md has the figures. What was counted in the last minute, and an hour of
// points for the charts, are kept: some 100 KB for a source.
//
// # Paths
//
// All but the actions are GET, and answer with JSON. {name} is that of a source. Errors are of the
// form {"error": "..."}, with a status that fits. Times are in RFC 3339, durations in nanoseconds.
// docs/operating.md explains the fields.
//
//	/                                   the page
//	/v1/queues                          all sources, with their stats; waits for none of them
//	/v1/queues/{name}                   one of them
//	/v1/queues/{name}/keys?limit=&by=   up to 100 keys, by backlog, oldest, served, refused or paused
//	/v1/queues/{name}/snapshot?limit=   what leaves next, in order, up to 1,000
//	/v1/queues/{name}/history           numbers of the last hour, as far as the source was looked at
//	/v1/queues/{name}/failures?by=      buried tasks by reason, key, kind, or all of these; 10,000 are read; or the last that failed in a pool
//	/v1/queues/{name}/buried?limit=&after=&key=&kind=&reason=   up to 100 of them, by id
//	/v1/queues/{name}/tasks/{id}        all that there is to know of a task
//	/v1/queues/{name}/search?key=       the position of a key's first item among what leaves next
//	/v1/queues/{name}/events            all of it, as server-sent events; 100 viewers at most
//	POST /v1/queues/{name}/actions/...  see [Options.Actions]
//
// Limits are 50 if they are not given. Fields may be added to what is answered; those that are there
// keep their names and meanings as long as the path begins with /v1.
//
// A key is shown as text. It is in quotes, with escapes as in Go, if it is empty, begins with a
// quote, or has bytes that do not print; of one longer than 100 bytes the beginning is shown, with
// its length and a hash. So different keys have different texts, and the paths take keys in the
// same form.
//
// # The end of a server
//
// [net/http.Server.Shutdown] waits for requests that are being served, and a page that is open has
// one. So end them: with a BaseContext that is cancelled by a function given to RegisterOnShutdown.
package monitor
