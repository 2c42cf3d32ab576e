package api

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/store"
	"procaas/handlers/queue/remote"
	"procaas/handlers/queue/taskrun"
)

// This file serves operators' changes of tasks.

// maxBlocked is how many dead letters that stay an answer names.
const maxBlocked = 1000

// defaultChoice is the default bound of one operator's call.
const defaultChoice = 1000

func (g *Group) officeOperations() []rest.Operation {
	refusals := []string{problem.InvalidParameter, problem.StoreUnavailable}
	choose := func(verb, summary, about string, change changeTasks) rest.Operation {
		return typed(g, rest.Operation{
			Method: http.MethodPost, Path: "/admin/v1/queues/{pipeline}/" + verb, ID: verb + "-queued", Need: rest.Steers, Tag: "queues",
			Summary: summary,
			About:   about,
			Example: remote.TaskChoice{Key: "user-1", Limit: 100}, Replies: rest.OK("How many."), Refusals: refusals, Problems: Problems(),
		}, func(c *rest.Call, in *chooseTasks) (remote.TasksChanged, error) { return g.change(c, in, verb, change) })
	}
	return []rest.Operation{
		typed(g, rest.Operation{
			Method: http.MethodPut, Path: "/admin/v1/queues/{pipeline}", ID: "set-queue", Need: rest.Steers, Tag: "queues",
			Summary: "Pause, drain or open a type of tasks", Example: remote.QueueChange{Mode: "paused", Reason: "the service is down"},
			Replies: rest.OK("The new mode, on all nodes."), Refusals: refusals, Problems: Problems(),
		}, g.set),
		choose("cancel", "Cancel tasks that no worker has taken", "",
			func(c *rest.Call, f store.TaskFilter, _ *remote.TaskChoice) (remote.TasksChanged, error) {
				n, err := g.Tasks.Queue.CancelTasks(c.Context(), f)
				return remote.TasksChanged{Changed: n}, err
			}),
		choose("retry", "Put dead letters back into the queue", "If another task has the same unique name by now, the dead letter "+
			"stays, and `blocked` names that task. The failed run of a retried dead letter ends `cancelled`: the new task supersedes it.", g.retry),
		choose("move", "Move tasks that no worker has taken to another type", "Tasks with a unique name stay, because they are unique "+
			"within their type.",
			func(c *rest.Call, f store.TaskFilter, choice *remote.TaskChoice) (done remote.TasksChanged, err error) {
				done.Changed, err = g.Tasks.Admin.MoveTasks(c.Context(), f, choice.To)
				return done, err
			}),
	}
}

// changeTasks changes the tasks of a filter.
type changeTasks func(c *rest.Call, f store.TaskFilter, choice *remote.TaskChoice) (remote.TasksChanged, error)

// maySteer refuses a caller whose grant does not cover a type.
func maySteer(c *rest.Call, kind string) error {
	if !c.Bound() || kind == "" {
		return nil
	}
	return c.MayAt(kind)
}

type setQueue struct {
	kindPath
	Body remote.QueueChange
}

func (g *Group) set(c *rest.Call, in *setQueue) (done remote.QueueChanged, err error) {
	if err := maySteer(c, in.Kind); err != nil {
		return done, err
	}
	if err := (&store.TaskSpec{Type: in.Kind}).Check(); err != nil { // before the audit
		return done, taskProblem(err)
	}
	mode, by := store.TaskMode(in.Body.Mode), c.Actor(in.Body.Reason)
	done = remote.QueueChanged{QueueChange: in.Body, Warning: g.unheard(c.Context(), in.Kind)}
	if done.Warning != "" && mode != store.TasksOpen { // this makes the type known
		return done, unknownTaskType.New("%s; procaas queue resume %s makes it known", done.Warning, in.Kind)
	}
	err = taskrun.SetMode(c.Context(), g.Documents, in.Kind, mode, by, func() error {
		return g.Tasks.Admin.SetTaskMode(c.Context(), in.Kind, mode, by.Reason)
	})
	if err == nil {
		g.Log.Info("queue changed", "type", in.Kind, "mode", in.Body.Mode, "by", by.Name, "reason", by.Reason)
	}
	return done, taskProblem(err)
}

type chooseTasks struct {
	kindPath
	Body remote.TaskChoice
}

func (g *Group) change(c *rest.Call, in *chooseTasks, verb string, change changeTasks) (done remote.TasksChanged, err error) {
	b := &in.Body
	if err := errors.Join(maySteer(c, in.Kind), maySteer(c, b.To)); err != nil {
		return done, err
	}
	f := store.TaskFilter{Type: in.Kind, Key: b.Key, Unique: b.Unique, Error: b.Error, State: store.TaskState(b.State), Limit: b.Limit}
	if f.Limit == 0 {
		f.Limit = defaultChoice
	}
	var r reading
	for _, text := range b.IDs {
		id, err := strconv.ParseInt(text, 10, 64)
		f.IDs = append(f.IDs, id)
		if err != nil {
			r.fault("/ids", "want numbers of tasks as text, have %s", rest.Shown(text))
		}
	}
	if (verb == "move") != (b.To != "") {
		r.fault("/to", "want the other type for a move, and for nothing else")
	}
	if err := problem.Body(r.faults); err != nil {
		return done, err
	}
	if b.Preview {
		change = func(c *rest.Call, f store.TaskFilter, _ *remote.TaskChoice) (remote.TasksChanged, error) {
			return g.preview(c, f, verb)
		}
	}
	unheard := ""
	if b.To != "" {
		unheard = g.unheard(c.Context(), b.To) // asked before it has the tasks
	}
	if done, err = change(c, f, b); err != nil {
		return done, taskProblem(err)
	}
	if by := c.Actor(b.Reason); !b.Preview {
		g.Log.Info("tasks changed", "verb", verb, "type", in.Kind, "tasks", done.Changed, "by", by.Name, "reason", by.Reason)
	}
	if done.Changed == 0 {
		return done, g.mustBeHeard(c.Context(), in.Kind)
	}
	done.Warning = cmp.Or(done.Warning, unheard)
	return done, nil
}

// retry puts dead letters back into the queue. The runs of their last attempts would otherwise wait for a decision for ever.
func (g *Group) retry(c *rest.Call, f store.TaskFilter, choice *remote.TaskChoice) (done remote.TasksChanged, err error) {
	all, err := g.Tasks.Admin.RetryTasks(c.Context(), f)
	all, blocked := store.Retried(all)
	for _, r := range all {
		done.Retried = append(done.Retried, remote.TaskRetried{Task: strconv.FormatInt(r.Task, 10), As: strconv.FormatInt(r.As, 10)})
	}
	for _, r := range blocked[:min(len(blocked), maxBlocked)] {
		done.Blocked = append(done.Blocked, remote.TaskBlocked{Task: strconv.FormatInt(r.Task, 10), By: strconv.FormatInt(r.As, 10)})
	}
	done.Changed = len(all)
	if err != nil || g.Engine.Bundle().Pipeline(f.Type) == nil {
		return done, err
	}
	if err := g.Engine.Supersede(c.Context(), f.Type, all, c.Actor(choice.Reason)); err != nil {
		g.Log.Warn("failed runs of retried tasks were not ended", "type", f.Type, "error", err)
		done.Warning = "the tasks were retried, but some of their failed runs were not ended: procaas runs list --status failed " +
			"--pipeline " + f.Type
	}
	return done, nil
}

// preview lists the tasks that a change would choose.
func (g *Group) preview(c *rest.Call, f store.TaskFilter, verb string) (done remote.TasksChanged, err error) {
	states := []store.TaskState{store.TaskReady, store.TaskWaiting, store.TaskScheduled}
	switch {
	case verb == "retry" && (f.State == "" || f.State == store.TaskFailed):
		states = []store.TaskState{store.TaskFailed}
	case verb != "retry" && slices.Contains(states, f.State):
		states = []store.TaskState{f.State}
	case f.State != "":
		return done, fmt.Errorf("%w: %s changes no tasks that are %s", store.ErrConflict, verb, f.State)
	}
	f.MaxPayload = 1 // they are not shown
	for most := f.Limit; len(states) > 0 && done.Changed < most; states = states[1:] {
		f.State, f.Limit = states[0], most-done.Changed
		tasks, err := g.Tasks.Admin.PeekTasks(c.Context(), f)
		if err != nil {
			return done, err
		}
		for i := range tasks {
			if v := viewOfTask(&tasks[i]); verb != "move" || v.Unique == "" {
				v.Payload, done.Preview = nil, append(done.Preview, v)
			}
		}
		done.Changed = len(done.Preview)
	}
	return done, nil
}

// taskProblem converts the error of an operator's call to a problem.
func taskProblem(err error) error {
	if errors.Is(err, store.ErrDraining) {
		return queueDraining.New("%s", err)
	}
	if errors.Is(err, store.ErrTask) || errors.Is(err, store.ErrConflict) {
		return invalidTask.New("%s", err)
	}
	return err
}
