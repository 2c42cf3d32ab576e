package tree

import (
	"time"

	"procaas/dsl/diag"
	"procaas/dsl/expr"
)

// A Trigger sends an event by the clock, once for all nodes.
type Trigger struct {
	Span diag.Span `yaml:"-"`

	places

	// ID names the trigger.
	ID string `yaml:"id" required:"true" pattern:"id"`

	// Every is the time between two events.
	Every time.Duration `yaml:"every" min:"100ms"`

	// Cron says when, in five fields: minute, hour, day, month, weekday.
	Cron string `yaml:"cron"`

	// TimeZone is the IANA name of the time zone of cron.
	TimeZone string `yaml:"time-zone" default:"UTC"`

	// Event is the type of the event.
	Event string `yaml:"event" required:"true"`

	// Key is the key of the event.
	Key string `yaml:"key"`

	// Payload is the payload of the event.
	Payload *expr.Value `yaml:"payload" expr:"no"`

	// CatchUp decides about events that were due while no node ran. skip drops them, once sends one for all of them, and all sends each.
	CatchUp string `yaml:"catch-up" enum:"skip,once,all" default:"skip"`

	// Overlap decides about a due time at which an earlier run of the trigger has not ended. allow sends the event: runs of one key go
	// one after another, and others at once. skip does not send it. buffer-one sends it if no earlier run waits to begin. cancel-other
	// cancels the earlier run, and sends it.
	Overlap string `yaml:"overlap" enum:"allow,skip,buffer-one,cancel-other" default:"allow"`
}
