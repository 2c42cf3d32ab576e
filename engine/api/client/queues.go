package client

import (
	"context"
	"net/http"
	"net/url"

	"procaas/engine/api/wire"
)

// queuesCalls are the calls about tasks.
type queuesCalls struct{ *caller }

// Queues counts the tasks of each type.
func (c queuesCalls) Queues(ctx context.Context) ([]wire.QueueStats, error) {
	return list[wire.QueueStats](ctx, c.caller, "/v1/queues")
}

// PeekTasks lists tasks of a type.
func (c queuesCalls) PeekTasks(ctx context.Context, taskType string, query url.Values) ([]wire.QueuedTask, error) {
	return list[wire.QueuedTask](ctx, c.caller, "/v1/queues/"+url.PathEscape(taskType)+"/tasks?"+query.Encode())
}

// SetQueue sets the mode of a type.
func (c queuesCalls) SetQueue(ctx context.Context, taskType string, change wire.QueueChange) (wire.QueueChanged, error) {
	return send[wire.QueueChanged](ctx, c.caller, http.MethodPut, "/admin/v1/queues/"+url.PathEscape(taskType), change, nil)
}

// ChangeTasks cancels, retries or moves tasks of a type, and returns their number.
func (c queuesCalls) ChangeTasks(ctx context.Context, verb, taskType string, choice wire.TaskChoice) (wire.TasksChanged, error) {
	return send[wire.TasksChanged](ctx, c.caller, http.MethodPost, "/admin/v1/queues/"+url.PathEscape(taskType)+"/"+verb, choice, nil)
}
