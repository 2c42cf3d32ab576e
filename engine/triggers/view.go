package triggers

import (
	"fmt"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/model"
)

// A TriggerView shows people a trigger of the current definition.
type TriggerView struct {
	ID        string   `json:"id" doc:"The id."`
	Event     string   `json:"event" doc:"The type of its events."`
	Key       string   `json:"key,omitempty" doc:"The key of its events."`
	Pipelines []string `json:"pipelines" doc:"The pipelines that its events run, or that await them."`

	Every    string `json:"every,omitempty" doc:"The time between two firings; absent with cron." example:"1h0m0s"`
	Cron     string `json:"cron,omitempty" doc:"The times, in five fields; absent with every." example:"30 4 * * *"`
	TimeZone string `json:"time_zone" doc:"The time zone of cron." example:"Europe/Paris"`
	CatchUp  string `json:"catch_up" enum:"skip,once,all" doc:"What becomes of firings that were due while no node ran."`
	Overlap  string `json:"overlap" enum:"allow,skip,buffer-one,cancel-other" doc:"What becomes of a firing while an earlier run has not ended."`

	State string        `json:"state" enum:"active,paused" doc:"Whether it fires by itself."`
	Pause *TriggerPause `json:"pause,omitempty" doc:"Who paused it, if it is paused."`

	Last    *FiredEvent  `json:"last,omitempty" doc:"The latest firing that the store knows."`
	Skip    *TriggerSkip `json:"skip,omitempty" doc:"The latest due time at which it did not fire."`
	Skipped TriggerSkips `json:"skipped" doc:"How many due times it did not fire, ever."`
	Next    []time.Time  `json:"next" doc:"The next due times, in its time zone. It does not fire at those in a pause."`
}

// A TriggerPause is who paused a trigger.
type TriggerPause struct {
	By     string     `json:"by" doc:"The token of the operator."`
	Reason string     `json:"reason,omitempty" doc:"The reason."`
	Since  time.Time  `json:"since" doc:"When it was paused."`
	Until  *time.Time `json:"until,omitempty" doc:"When it fires again by itself; absent if it stays paused."`
}

// A FiredEvent is an event of a trigger.
type FiredEvent struct {
	Event  string       `json:"event" doc:"The id of the event. That of a due time is the time."`
	Time   time.Time    `json:"time" doc:"The due time, or when an operator fired it."`
	ByHand bool         `json:"by_hand,omitempty" doc:"true if an operator fired it."`
	Run    string       `json:"run,omitempty" doc:"Its run; absent if the store no longer knows it."`
	Status model.Status `json:"status,omitempty" doc:"The status of the run."`
	Error  string       `json:"error,omitempty" doc:"Why the run failed."`
}

// A TriggerSkip is a due time at which a trigger did not fire.
type TriggerSkip struct {
	Time   time.Time `json:"time" doc:"The due time."`
	Reason string    `json:"reason" enum:"paused,running,missed" doc:"Why: an operator has paused the trigger, an earlier run had not ended, or no node ran."`
	Run    string    `json:"run,omitempty" doc:"The run that had not ended, for running."`
}

// TriggerSkips counts due times at which a trigger did not fire, by reason.
type TriggerSkips struct {
	Paused  int64 `json:"paused" doc:"An operator had paused the trigger."`
	Running int64 `json:"running" doc:"An earlier run had not ended."`
	Missed  int64 `json:"missed" doc:"No node ran, and catch-up did not make up for it."`
}

// These are the states of triggers.
const (
	StateActive = "active"
	StatePaused = "paused"
)

// NewView makes the view of a trigger, with its next due times after a moment.
func NewView(t *tree.Trigger, after time.Time, next int) (TriggerView, error) {
	v := TriggerView{
		ID: t.ID, Event: t.Event, Key: t.Key, Pipelines: []string{}, Cron: t.Cron, TimeZone: t.TimeZone, CatchUp: t.CatchUp,
		Overlap: t.Overlap, State: StateActive, Next: []time.Time{},
	}
	if t.Every > 0 {
		v.Every = t.Every.String()
	}
	c, err := newClockwork(t)
	if err != nil {
		return v, err
	}
	zone, err := time.LoadLocation(t.TimeZone)
	if err != nil {
		return v, fmt.Errorf("trigger %s: time-zone: %w", t.ID, err)
	}
	for range next {
		after = c.next(after)
		if after.IsZero() {
			break
		}
		v.Next = append(v.Next, after.In(zone))
	}
	return v, nil
}

// Note shows what the store knows of the trigger in its mark.
func (v *TriggerView) Note(m Mark) {
	v.Skipped = TriggerSkips{Paused: m.Skipped[Paused], Running: m.Skipped[Running], Missed: m.Skipped[Missed]}
	if !m.Passed.IsZero() {
		v.Skip = &TriggerSkip{Time: m.Passed, Reason: m.Reason, Run: m.Run}
	}
}
