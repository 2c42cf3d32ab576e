package api

import (
	"errors"
	"net/http"
	"slices"
	"strconv"

	"procaas/dsl/datum"
	"procaas/dsl/tree"
	"procaas/engine/api/intake"
	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/store"
	"procaas/handlers/queue/language"
	"procaas/handlers/queue/taskrun"

	"github.com/danielgtaylor/huma/v2"
	"procaas/handlers/queue/remote"
)

// This file puts tasks into the queue. It reads them by hand, because each task of an array is
// accepted or refused on its own, and its pipeline has the defaults.

func (g *Group) putOperation() rest.Operation {
	o := rest.Typed(rest.Operation{
		Method: http.MethodPost, Path: "/v1/queues/{pipeline}/tasks", ID: "put-tasks", Need: rest.Submits, Tag: "events",
		Summary: "Put tasks into a queue",
		About: "If the type is a pipeline with a `queue` section, or is no pipeline, the tasks go into the queue for workers. For any " +
			"other pipeline, each task becomes an event of the first type that it serves, and the reply is that for events. If no pipeline " +
			"declares the type, and no worker has asked for it within a month, the reply has a `warning`. A server with `--strict-queues` " +
			"refuses such tasks.",
		Body: func(schema func(any) *huma.Schema) *huma.RequestBody {
			return rest.JSONBody(intake.OneOrMany(schema(remote.Task{})), map[string]any{"payload": map[string]any{"to": "u-7"}, "delay": "90s"})
		},
		Replies:  intake.Receipts([]any{remote.TaskReceipt{}, remote.TaskReceipts{}}, remote.TaskReceipts{}),
		Refusals: intake.Refusals(problem.PipelineNotFound, problem.InvalidParameter),
		Problems: []problem.Kind{invalidTask, queueDraining, unknownTaskType},
	}, func(c *rest.Call, in *kindPath) (any, error) {
		c.Answered()
		return nil, g.put(c, in.Kind)
	})
	return o
}

// put puts tasks into a queue. For a pipeline without a queue section, each becomes an event of the
// first type that it serves. All other tasks go into the queue of tasks.
func (g *Group) put(c *rest.Call, kind string) error {
	pipeline := g.Engine.Bundle().Pipeline(kind)
	if g.Tasks != nil && (pipeline == nil || language.Of(pipeline) != nil) {
		return g.putTasks(c, kind, pipeline)
	}
	if pipeline == nil {
		return problem.New(problem.PipelineNotFound, "there is no pipeline %q", kind)
	}
	return g.Events.PutTasks(c, pipeline)
}

// putTasks puts tasks into the queue of tasks. pipeline is nil for other types.
func (g *Group) putTasks(c *rest.Call, kind string, pipeline *tree.Pipeline) error {
	if err := maySteer(c, kind); err != nil {
		return err
	}
	v, err := c.JSON()
	if err != nil {
		return err
	}
	var specs []store.TaskSpec
	many, err := rest.Each(v, maxTasks, func(f *rest.Fields) { specs = append(specs, specOf(f, kind, pipeline)) })
	if err != nil {
		return err
	}
	warning, err := g.mayServe(c.Context(), kind, pipeline)
	if err != nil {
		return err
	}
	if err := c.Spend(len(specs)); err != nil {
		return err
	}
	out, err := g.Tasks.Queue.PutTasks(c.Context(), specs)
	if err != nil {
		return err
	}
	return replyPut(c, kind, out, many, warning)
}

// replyPut replies 202 if all tasks were accepted, 207 if some were, and with a problem if none
// was.
func replyPut(c *rest.Call, kind string, out []store.TaskPut, many bool, warning string) error {
	receipts, refused := remote.TaskReceipts{Tasks: []remote.TaskReceipt{}, Warning: warning}, 0
	for _, one := range out {
		item := remote.TaskReceipt{Outcome: string(one.Outcome)}
		if one.Err != nil {
			item.Error = one.Err.Error()
			refused++
		} else {
			item.ID = strconv.FormatInt(one.ID, 10)
		}
		receipts.Tasks = append(receipts.Tasks, item)
	}
	switch {
	case len(out) > 0 && refused == len(out):
		if errors.Is(out[0].Err, store.ErrDraining) {
			return queueDraining.New("%q: %s; procaas queue resume %s opens it again", kind, out[0].Err, kind)
		}
		if errors.Is(out[0].Err, store.ErrMoving) || errors.Is(out[0].Err, store.ErrAway) {
			return out[0].Err
		}
		return invalidTask.New("%s", out[0].Err)
	case !many:
		receipts.Tasks[0].Warning = warning
		return c.Reply(http.StatusAccepted, receipts.Tasks[0])
	case refused > 0:
		return c.Reply(http.StatusMultiStatus, receipts)
	}
	return c.Reply(http.StatusAccepted, receipts)
}

// specOf reads a task. The queue section of its pipeline has the defaults. An explicit priority of
// 0 differs from none.
func specOf(f *rest.Fields, kind string, pipeline *tree.Pipeline) store.TaskSpec {
	spec := store.TaskSpec{
		Type: kind, Key: f.Label("key", store.MaxTaskName), Priority: f.Integer("priority"), Tolerance: f.Duration("delay_tolerance"),
		Delay: f.Duration("delay"), At: f.Instant("at"), Timeout: f.Duration("timeout"), Unique: f.Label("unique", store.MaxTaskName),
		OnDuplicate: store.Duplicate(f.Text("on_duplicate")),
	}
	if most := 1 << 30; spec.Priority < -most || spec.Priority > most {
		f.Fault("priority", "want a number from %d to %d, have %d", -most, most, spec.Priority)
	}
	if spec.Delay > 0 && !spec.At.IsZero() {
		f.Fault("delay", "want either delay or at, have both")
	}
	payload, err := datum.FormatKinds(f.Get("payload"))
	if err != nil {
		f.Fault("payload", "%v", err)
	}
	spec.Payload = payload
	f.RefuseUnknown()
	if pipeline != nil && len(f.Faults) == 0 {
		var said []taskrun.TaskOption
		if f.Has("priority") {
			said = append(said, taskrun.SaidPriority)
		}
		if f.Has("delay_tolerance") {
			said = append(said, taskrun.SaidTolerance)
		}
		if err := taskrun.FillTask(pipeline, &spec, said...); err != nil {
			f.Fault("payload", "%v", err)
		}
	}
	if spec.OnDuplicate != "" && !slices.Contains(store.Duplicates(), spec.OnDuplicate) {
		f.Fault("on_duplicate", "want one of %s, have %s", rest.Joined(store.Duplicates()), rest.Shown(string(spec.OnDuplicate)))
	}
	if spec.OnDuplicate == store.DuplicateMerge && spec.Merge == nil {
		f.Fault("on_duplicate", "want keep, replace or rerun; merge is for pipelines whose queue section says how")
	}
	return spec
}
