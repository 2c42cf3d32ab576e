package api

import (
	"strconv"
	"time"

	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/api/wire"
	"procaas/engine/store"
	"procaas/handlers/queue/remote"
)

// This file serves calls that only read.

// viewOfTask converts a task for replies, without a receipt, because readers get none.
func viewOfTask(t *store.QueuedTask) remote.QueuedTask {
	return viewWithID(t, strconv.FormatInt(t.ID, 10))
}

// viewWithID is viewOfTask for callers that have the number of the task as text.
func viewWithID(t *store.QueuedTask, id string) remote.QueuedTask {
	return remote.QueuedTask{
		ID: id, Type: t.Type, State: string(t.State), Payload: t.Payload, Key: t.Key, Unique: t.Unique,
		Priority: t.Priority, Attempt: t.Attempt(), Due: t.Due, Deadline: t.Deadline, Worker: t.Worker, Error: t.Error,
		Timeout: t.Timeout.Seconds(), Until: given(&t.Until), Ended: given(&t.Ended),
	}
}

// given converts a time to one that replies omit if it is zero.
func given(t *time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return t
}

func (g *Group) list(c *rest.Call, _ *rest.Nothing) (wire.Page[remote.QueueStats], error) {
	all, err := g.Tasks.Admin.TaskStats(c.Context())
	items := []remote.QueueStats{}
	for i := range all {
		if rest.Granted(c.R).Reads(all[i].Type) {
			items = append(items, viewOfStats(&all[i]))
		}
	}
	return rest.Listed(items, err)
}

func (g *Group) tables(c *rest.Call, _ *rest.Nothing) (wire.Page[remote.QueueTable], error) {
	all, err := g.Tasks.Admin.TaskTables(c.Context())
	items := []remote.QueueTable{}
	for _, t := range all {
		items = append(items, remote.QueueTable{Table: t.Name, Bytes: t.Bytes, Live: t.Live, Dead: t.Dead, Vacuum: t.Vacuum()})
	}
	return rest.Listed(items, err)
}

// viewOfStats converts the counts of a type for replies.
func viewOfStats(t *store.TaskTypeStats) remote.QueueStats {
	q := remote.QueueStats{
		Type: t.Type, Mode: string(t.Mode), Reason: t.Reason, Ready: t.Ready, Waiting: t.Waiting, Starting: t.Starting,
		Running: t.Running, Scheduled: t.Scheduled, Failed: t.Failed, Oldest: given(&t.Oldest), Lag: t.Lag.Seconds(),
		Raised: t.Raised, RaisedAt: given(&t.RaisedLast), Asked: given(&t.Asked), AskedBy: t.AskedBy,
	}
	for _, state := range t.Estimated {
		q.Estimated = append(q.Estimated, string(state))
	}
	return q
}

// maxListedPayload bounds each payload in a list of tasks, in bytes. A page may have a thousand.
const maxListedPayload = 16 << 10

// A kindPath names a type of tasks.
type kindPath struct {
	Kind string `path:"pipeline" doc:"The type: the id of a pipeline, or any other name."`
}

type peekQuery struct {
	kindPath
	State  string `query:"state" enum:"scheduled,ready,waiting,starting,running,completed,failed,cancelled" doc:"Only tasks in this state."`
	Key    string `query:"key" bytes:"512" doc:"Only tasks of this key."`
	Unique string `query:"unique" bytes:"512" doc:"Only the task with this unique key."`
	Error  string `query:"error" bytes:"512" doc:"Only tasks whose last error contains this text."`
	ID     string `query:"id" doc:"Only this task."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"The most tasks."`
}

func (g *Group) peek(c *rest.Call, in *peekQuery) (page wire.Page[remote.QueuedTask], err error) {
	if err := c.MayRead(in.Kind); err != nil {
		return page, err
	}
	f := store.TaskFilter{
		Type: in.Kind, State: store.TaskState(in.State), Key: in.Key, Unique: in.Unique, Error: in.Error, Limit: in.Limit,
		MaxPayload: maxListedPayload,
	}
	if in.ID != "" {
		f.MaxPayload, f.IDs = 0, make([]int64, 1)
		if f.IDs[0], err = strconv.ParseInt(in.ID, 10, 64); err != nil {
			return page, problem.Parameter([]problem.Fault{{Location: "query/id", Message: "want the number of a task, have " + rest.Shown(in.ID)}})
		}
	}
	tasks, err := g.Tasks.Admin.PeekTasks(c.Context(), f)
	items := []remote.QueuedTask{}
	for i := range tasks {
		items = append(items, viewOfTask(&tasks[i]))
	}
	if err == nil && len(items) == 0 {
		err = g.mustBeHeard(c.Context(), in.Kind)
	}
	return rest.Listed(items, err)
}
