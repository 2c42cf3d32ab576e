package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"procaas/engine"
)

// A QueueChange is the body that says what a type does from now on.
type QueueChange struct {
	Mode   string `json:"mode" enum:"open,paused,draining" doc:"open; paused: tasks are put, and none is taken; draining: tasks are taken, and none is put."`
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"Why, for people."`
}

// A QueueChanged says what a type does from now on.
type QueueChanged struct {
	QueueChange
	Warning string `json:"warning,omitempty" doc:"Nothing is known of the type, which may be mistyped."`
}

// A TaskChoice is the body that does something to tasks of a type.
type TaskChoice struct {
	IDs    []string `json:"ids,omitempty" maxItems:"1000" doc:"Only these, by their numbers as text."`
	Key    string   `json:"key,omitempty" doc:"Only tasks of this key."`
	Unique string   `json:"unique,omitempty" doc:"Only the task with this unique name."`
	State  string   `json:"state,omitempty" enum:"ready,waiting,scheduled,failed" doc:"Only tasks in this state; all states that the call takes when left out."`
	Limit  int      `json:"limit,omitempty" minimum:"1" maximum:"100000" doc:"At most as many; 1000 when left out."`
	To     string   `json:"to,omitempty" doc:"Of a move: the other type."`
	Reason string   `json:"reason,omitempty" maxLength:"512" doc:"Why, for people."`
}

// TasksChanged says how many tasks were changed.
type TasksChanged struct {
	Changed int    `json:"changed" doc:"How many tasks were cancelled, retried or moved; as many as the limit when there may be more."`
	Warning string `json:"warning,omitempty" doc:"Nothing is known of the type, which may be mistyped."`
}

// The bounds of one call of an operator.
const (
	defaultChoice = 1000
	maxChoice     = 100_000
)

func (s *server) queueOfficeOperations() []operation {
	kind := []*huma.Param{inPath("pipeline", "The type: a pipeline's id, or any other.")}
	refusals := []string{codeInvalidParameter, codeInvalidTask, codeQueueDraining, codeNoTasks, codeStoreUnavailable}
	choose := func(verb, summary, about string, change func(context.Context, engine.TaskFilter, string) (int, error)) operation {
		return operation{
			method: http.MethodPost, path: "/admin/v1/queues/{pipeline}/" + verb, id: verb + "-queued", tag: "queues", summary: summary, about: about,
			params: kind, body: jsonBody(s.schema(TaskChoice{}), TaskChoice{Key: "user-1", Limit: 100}),
			replies:  []reply{{status: 200, about: "How many.", body: TasksChanged{}}},
			refusals: refusals, serve: func(w http.ResponseWriter, r *http.Request) error { return s.changeTasks(w, r, verb, change) },
		}
	}
	return []operation{
		{
			method: http.MethodPut, path: "/admin/v1/queues/{pipeline}", id: "set-queue", tag: "queues",
			summary: "Pause, drain or open a type of tasks", params: kind,
			body:    jsonBody(s.schema(QueueChange{}), QueueChange{Mode: "paused", Reason: "the service is down"}),
			replies: []reply{{status: 200, about: "It is so on all nodes.", body: QueueChanged{}}}, refusals: refusals, serve: s.putQueue,
		},
		choose("cancel", "Cancel tasks that no worker holds", "", func(ctx context.Context, f engine.TaskFilter, _ string) (int, error) {
			return s.tasks.CancelTasks(ctx, f)
		}),
		choose("retry", "Put dead letters into the queue again", "A task whose unique name another one has by now is done by that one.",
			func(ctx context.Context, f engine.TaskFilter, _ string) (int, error) {
				return s.tasks.RetryTasks(ctx, f)
			}),
		choose("move", "Give tasks that no worker holds another type", "Those with a unique name stay: they are unique in their type.",
			func(ctx context.Context, f engine.TaskFilter, to string) (int, error) {
				return s.tasks.MoveTasks(ctx, f, to)
			}),
	}
}

// steered gives the type that an operator may steer.
func (s *server) steered(r *http.Request) (string, error) {
	kind, err := pathValue(r, "pipeline")
	if err == nil && len(granted(r).Paths) > 0 {
		err = mayAt(r, kind)
	}
	if err == nil {
		err = s.needTasks()
	}
	return kind, err
}

func (s *server) putQueue(w http.ResponseWriter, r *http.Request) error {
	kind, err := s.steered(r)
	if err != nil {
		return err
	}
	f, err := s.object(w, r)
	if err != nil {
		return err
	}
	change := QueueChange{Mode: f.required("mode"), Reason: f.label("reason", maxReason)}
	if !slices.Contains([]string{"open", "paused", "draining"}, change.Mode) {
		f.fault("mode", "want open, paused or draining, have %s", shown(change.Mode))
	}
	f.refuseUnknown()
	if err := faulty(f.faults); err != nil {
		return err
	}
	if err := (&engine.TaskSpec{Type: kind}).Check(); err != nil { // before it is written down
		return taskProblem(err)
	}
	warning := s.unheard(r.Context(), kind)
	mode := engine.TaskMode(change.Mode)
	err = s.engine.SetQueueMode(r.Context(), kind, mode, actor(r, change.Reason), func() error {
		return s.tasks.SetTaskMode(r.Context(), kind, mode, change.Reason)
	})
	if err != nil {
		return taskProblem(err)
	}
	s.log.Info("queue changed", "type", kind, "mode", change.Mode, "by", granted(r).Name, "reason", change.Reason)
	return writeJSON(w, http.StatusOK, QueueChanged{change, warning})
}

func (s *server) changeTasks(w http.ResponseWriter, r *http.Request, verb string, change func(context.Context, engine.TaskFilter, string) (int, error)) error {
	kind, err := s.steered(r)
	if err != nil {
		return err
	}
	f, err := s.object(w, r)
	if err != nil {
		return err
	}
	filter := engine.TaskFilter{
		Type: kind, Key: f.label("key", engine.MaxTaskName), Unique: f.label("unique", engine.MaxTaskName),
		State: engine.TaskState(f.str("state")), Limit: f.between("limit", 1, maxChoice, defaultChoice),
	}
	ids := f.labels("ids", maxName)
	if len(ids) > maxTasks {
		f.fault("ids", "want at most %d, have %d", maxTasks, len(ids))
	}
	for _, text := range ids {
		id, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			f.fault("ids", "want numbers of tasks as text, have %s", shown(text))
		}
		filter.IDs = append(filter.IDs, id)
	}
	to, reason := f.label("to", engine.MaxTaskName), f.label("reason", maxReason)
	if (verb == "move") != (to != "") {
		f.fault("to", "want the other type for a move, and for nothing else")
	}
	f.refuseUnknown()
	if err := faulty(f.faults); err != nil {
		return err
	}
	if to != "" && len(granted(r).Paths) > 0 {
		if err := mayAt(r, to); err != nil {
			return err
		}
	}
	n, err := change(r.Context(), filter, to)
	if err != nil {
		return taskProblem(err)
	}
	s.log.Info("tasks changed", "verb", verb, "type", kind, "tasks", n, "by", granted(r).Name, "reason", reason)
	done := TasksChanged{Changed: n}
	if n == 0 {
		done.Warning = s.unheard(r.Context(), kind)
	}
	return writeJSON(w, http.StatusOK, done)
}

// taskProblem says what is wrong with what an operator asks for.
func taskProblem(err error) error {
	if errors.Is(err, engine.ErrDraining) {
		return refuse(codeQueueDraining, "%s", err)
	}
	if errors.Is(err, engine.ErrTask) || errors.Is(err, engine.ErrConflict) {
		return refuse(codeInvalidTask, "%s", err)
	}
	return err
}

// Queues counts the tasks of each type.
func (c *Client) Queues(ctx context.Context) ([]QueueStats, error) {
	var page Page[QueueStats]
	err := c.call(ctx, http.MethodGet, "/v1/queues", nil, nil, &page)
	return page.Items, err
}

// PeekTasks lists tasks of a type.
func (c *Client) PeekTasks(ctx context.Context, taskType string, query url.Values) ([]QueuedTask, error) {
	var page Page[QueuedTask]
	err := c.call(ctx, http.MethodGet, "/v1/queues/"+url.PathEscape(taskType)+"/tasks?"+query.Encode(), nil, nil, &page)
	return page.Items, err
}

// SetQueue says what a type does from now on.
func (c *Client) SetQueue(ctx context.Context, taskType string, change QueueChange) (QueueChanged, error) {
	var done QueueChanged
	err := c.call(ctx, http.MethodPut, "/admin/v1/queues/"+url.PathEscape(taskType), change, nil, &done)
	return done, err
}

// ChangeTasks cancels, retries or moves tasks of a type, and tells how many.
func (c *Client) ChangeTasks(ctx context.Context, verb, taskType string, choice TaskChoice) (TasksChanged, error) {
	var done TasksChanged
	err := c.call(ctx, http.MethodPost, "/admin/v1/queues/"+url.PathEscape(taskType)+"/"+verb, choice, nil, &done)
	return done, err
}
