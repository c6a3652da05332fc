package driver

import (
	"strconv"
	"time"
)

// EventType is the type of an Event.
type EventType uint8

// The events.
const (
	EventPut     EventType = iota + 1
	EventTake              // it was taken
	EventAck               // it is done, and gone
	EventRelease           // it was handed back: it is ready or delayed, or EventBury follows
	EventBury              // it is buried
	EventKick              // it was buried, and is ready
	EventDelete            // it was deleted, discarded or cancelled with its group, and is gone
	EventTTL               // its time to live or its deadline is over, and it is gone
	EventTTR               // its lease ran out: it is ready, or EventBury follows
	EventTouch             // its lease was extended
	EventDelay             // its delay is over, and it is ready
	EventStart             // its group holds it no longer
	EventEvict             // it made room for another one, and is gone
	EventResume            // its consumer was resumed, and holds it by another lease
	EventCancel            // its group was cancelled while it is taken; its lease goes on
	EventChange            // its delay, priority or payload is another one now
)

var eventNames = [...]string{
	EventPut: "put", EventTake: "take", EventAck: "ack", EventRelease: "release",
	EventBury: "bury", EventKick: "kick", EventDelete: "delete", EventTTL: "ttl",
	EventTTR: "ttr", EventTouch: "touch", EventDelay: "delay", EventStart: "start",
	EventEvict: "evict", EventResume: "resume", EventCancel: "cancel", EventChange: "change",
}

// String returns the event's name in lower case.
func (t EventType) String() string {
	if int(t) < len(eventNames) && t > 0 {
		return eventNames[t]
	}
	return "EventType(" + strconv.Itoa(int(t)) + ")"
}

// Event is a task.Event: see its fields.
type Event struct {
	Type   EventType
	Time   time.Time
	Task   Info
	Lease  uint64
	Missed uint64
}
