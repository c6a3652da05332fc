// Package driver is the interface between package task and a store of tasks. Programs use package
// task, which has aliases for most of the types here.
//
// A Store opens queues. For each open queue it returns a [Backend], on which a task.Queue makes
// its calls, and gets a [Notifier], to which the Backend reports events. docs/design.md describes
// the division of work, and package internal/storetest checks that a Store keeps the promises of
// package task.
package driver
