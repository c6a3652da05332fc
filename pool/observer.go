package pool

import "time"

// Observer is told what happens in a pool, by the goroutine to which it happens; so its functions should be quick. nil
// functions cost nothing. Classes are named as in [Class]; a pool without classes has one with an empty name.
type Observer struct {
	Offered   func(class string)                                      // a task was handed to Submit, SubmitWait or Put
	Started   func(class string, waited time.Duration)                // a handler begins; how long ago the task was ready, 0 for items of a FairQueue
	Succeeded func(class string, ran time.Duration)                   // it returned nil
	Retried   func(class string, ran, delay time.Duration, err error) // it failed or snoozed, and is tried again after the delay
	Failed    func(class string, ran time.Duration, err error)        // it failed for good
	Lost      func(class string, ran time.Duration, err error)        // the queue could not be told what came of it
	Dropped   func(class string)                                      // there was no room for a task
	Expired   func(class string)                                      // a task's time was over before it was done
	Scaled    func(from, to int)                                      // the number of workers has changed
}
