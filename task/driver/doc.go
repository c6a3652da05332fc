// Package driver is what a store of tasks implements. Programs use package task, whose names for
// most of what is here are aliases; this package is for those who write a [Store].
//
// A Store opens queues. For each open queue it returns a [Backend], on which a task.Queue makes
// its calls, and is given a [Notifier], by which the Backend says what happens.
// docs/stores.md says who does what, and the package task/storetest tells whether a Store
// keeps what package task promises.
package driver
