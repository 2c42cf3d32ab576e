package client

import (
	"context"
	"net/http"
	"net/url"

	"procaas/engine/api/wire"
)

// Queues counts the tasks of each type.
func (c *Client) Queues(ctx context.Context) ([]wire.QueueStats, error) {
	return List[wire.QueueStats](ctx, c, "/v1/queues")
}

// QueueTables lists the tables of the queue.
func (c *Client) QueueTables(ctx context.Context) ([]wire.QueueTable, error) {
	return List[wire.QueueTable](ctx, c, "/v1/queue-tables")
}

// PeekTasks lists tasks of a type.
func (c *Client) PeekTasks(ctx context.Context, taskType string, query url.Values) ([]wire.QueuedTask, error) {
	return List[wire.QueuedTask](ctx, c, "/v1/queues/"+url.PathEscape(taskType)+"/tasks?"+query.Encode())
}

// SetQueue sets the mode of a type.
func (c *Client) SetQueue(ctx context.Context, taskType string, change wire.QueueChange) (wire.QueueChanged, error) {
	return Send[wire.QueueChanged](ctx, c, http.MethodPut, "/admin/v1/queues/"+url.PathEscape(taskType), change, nil)
}

// ChangeTasks cancels, retries or moves tasks of a type, and returns their number.
func (c *Client) ChangeTasks(ctx context.Context, verb, taskType string, choice wire.TaskChoice) (wire.TasksChanged, error) {
	return Send[wire.TasksChanged](ctx, c, http.MethodPost, "/admin/v1/queues/"+url.PathEscape(taskType)+"/"+verb, choice, nil)
}
