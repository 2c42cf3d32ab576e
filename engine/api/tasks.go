package api

import (
	"net/http"
	"time"

	"procaas/dsl"
	"procaas/engine"
)

// A Task is work for a queue.
type Task struct {
	Payload        any    `json:"payload,omitempty" doc:"What to do: any JSON value."`
	Priority       int    `json:"priority,omitempty" format:"int32" doc:"Higher goes first among tasks that are due."`
	DelayTolerance any    `json:"delay_tolerance,omitempty" doc:"How long the task may wait beyond its time without harm: text such as 90s, or a number of seconds."`
	Delay          any    `json:"delay,omitempty" doc:"How long from now the task is due: text such as 90s, or a number of seconds. Not together with at."`
	At             string `json:"at,omitempty" format:"date-time" doc:"When the task is due. Not together with delay."`
	Key            string `json:"key,omitempty" doc:"What the task is about. Events of one key run one at a time, in order; tasks as their type's queue section or its workers say."`
	Unique         string `json:"unique,omitempty" doc:"Of a task, not of an event: a name among those of its type that have not ended."`
	OnDuplicate    string `json:"on_duplicate,omitempty" enum:"keep,merge,replace,rerun" doc:"What becomes of the task when another one has its unique name; keep when left out."`
	Timeout        any    `json:"timeout,omitempty" doc:"Of a task, not of an event: how long one attempt may take."`
}

// postTasks puts tasks into the queue that a pipeline is: each becomes an event
// of the first type that the pipeline serves. Tasks of a pipeline that has a queue
// section, and of types that are no pipeline, go into the queue of tasks.
func (s *server) postTasks(w http.ResponseWriter, r *http.Request) error {
	id, err := pathValue(r, "pipeline")
	if err != nil {
		return err
	}
	pipeline := s.engine.Bundle().Pipeline(id)
	if s.tasks != nil && (pipeline == nil || isQueue(pipeline)) {
		return s.putTasks(w, r, id, pipeline)
	}
	if pipeline == nil {
		return refuse(codePipelineNotFound, "there is no pipeline %q", id)
	}
	eventType := pipeline.ID
	if len(pipeline.On) > 0 {
		eventType = pipeline.On[0]
	}
	if err := s.mayTakeIn(); err != nil {
		return err
	}
	v, err := s.readJSON(w, r)
	if err != nil {
		return err
	}
	now := time.Now()
	in, err := decodeList(v, func(f *fields) engine.Event {
		e := taskEvent(f, now)
		e.Type = eventType
		return e
	}, pointerOf)
	if err != nil {
		return err
	}
	in.trace(r.Header)
	in.queue = pipeline.ID
	return s.submit(w, r, in)
}

// taskEvent reads a task that becomes an event. now is what its delay counts from.
func taskEvent(f *fields, now time.Time) engine.Event {
	e := engine.Event{
		Payload:        f.get("payload"),
		Priority:       f.integer("priority"),
		DelayTolerance: f.duration("delay_tolerance"),
		At:             f.instant("at"),
		Key:            f.str("key"),
	}
	delay := f.duration("delay")
	switch {
	case f.values["delay"] != nil && f.values["at"] != nil:
		f.fault("delay", "want either delay or at, have both")
	case delay > 0:
		e.At = now.Add(delay).UTC()
	}
	f.refuseUnknown()
	return e
}

// isQueue tells whether a pipeline serves tasks.
func isQueue(p *dsl.Pipeline) bool { return p.Queue != nil }
