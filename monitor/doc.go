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
// A [Monitor] is an http.Handler. It registers nothing and starts no goroutine. Whoever can reach
// it sees the keys of all that is queued, so mount it where only those who may see them can. Of
// payloads it shows what a function of yours tells of them, and nothing without one.
//
// # What it costs
//
// A source is looked at once a second at most, however many look, and only while somebody does.
// If a look takes longer than a twentieth of a second, the next one is later, so that looking takes
// no more than a twentieth of the time. What a look does:
//
//   - FairQueue: Stats, KeyStats of 100 keys in three orders, Upcoming of 1,000 items, and KeyStat
//     of the keys among these. Each takes the lock by itself, copies, and lets it go; all else is
//     done after that. The longest hold is that of Upcoming, 0.02 to 0.07 ms, however many items
//     and keys there are, or that of KeyStats where Options.CountKeys is several thousand.
//   - TaskQueue: Stats, KeyStats by service and refusals, Upcoming of 1,000 tasks, and List of 50
//     that are buried. The longest hold in memory is that of Upcoming, 0.1 to 0.6 ms. In other
//     stores it is Upcoming of 200, and all of it is a bounded number of indexed reads.
//   - Pool: Stats, and a look at its queue.
//
// These are medians, measured by BenchmarkLook, and of tasks by BenchmarkUpcoming of task/memory. On
// a machine that is very busy a goroutine may lose its processor while it holds the lock, for many
// milliseconds: docs/monitor.md has the figures.
//
// # Paths
//
// All but the actions are GET, and answer with JSON. {name} is that of a source. Errors are of the
// form {"error": "..."}, with a status that fits. Times are in RFC 3339, durations in nanoseconds.
// docs/monitor.md tells what the fields mean.
//
//	/                                   the page
//	/v1/queues                          all sources, with their stats
//	/v1/queues/{name}                   one of them
//	/v1/queues/{name}/keys?limit=       up to 100 keys, those with the longest backlog first
//	/v1/queues/{name}/snapshot?limit=   what leaves next, in order, up to 1,000
//	/v1/queues/{name}/buried?limit=     buried tasks, as Kick would make them ready, up to 50
//	/v1/queues/{name}/search?key=       the position of a key's first item among what leaves next
//	/v1/queues/{name}/events            all of it, as server-sent events; 100 viewers at most
//	POST /v1/queues/{name}/actions/...  see [Options.Actions]
//
// Limits are 50 if they are not given. The keys are those that were counted (Options.CountKeys of
// the queue), those that are among what leaves next, and of a FairQueue its heaviest. Fields may
// be added to what is answered; those that are there keep their names and meanings as long as the
// path begins with /v1.
//
// A key is shown as text. It is in quotes, with escapes as in Go, if it is empty, begins with a
// quote, or has bytes that do not print; of one longer than 100 bytes the beginning is shown, with
// its length and a hash. So different keys have different texts, and the paths take keys in the
// same form.
//
// # Share and fair share
//
// The share of a key is its part of the service that the keys shown have had lately: in the present
// minute and those before it, each of which counts half as much as the one after it. The service is
// work if there are costs, else items. The fair share
// of a key that has nothing queued is the share that it has had, for it wanted no more. The keys
// with a backlog divide what these leave, by their weights. The backlog of a pool is that of the
// queue that [Pool] is given.
//
// # The end of a server
//
// [net/http.Server.Shutdown] waits for requests that are being served, and a page that is open has
// one. So end them: with a BaseContext that is cancelled by a function given to RegisterOnShutdown.
package monitor
