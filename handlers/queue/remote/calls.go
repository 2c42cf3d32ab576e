package remote

import (
	"context"
	"net/http"
	"net/url"

	"procaas/engine/api/client"
)

// Queues counts the tasks of each type.
func Queues(ctx context.Context, c *client.Client) ([]QueueStats, error) {
	return client.List[QueueStats](ctx, c, "/v1/queues")
}

// QueueTables lists the tables of the queue.
func QueueTables(ctx context.Context, c *client.Client) ([]QueueTable, error) {
	return client.List[QueueTable](ctx, c, "/v1/queue-tables")
}

// PeekTasks lists tasks of a type.
func PeekTasks(ctx context.Context, c *client.Client, taskType string, query url.Values) ([]QueuedTask, error) {
	return client.List[QueuedTask](ctx, c, "/v1/queues/"+client.Segment(taskType)+"/tasks?"+query.Encode())
}

// SetQueue sets the mode of a type.
func SetQueue(ctx context.Context, c *client.Client, taskType string, change QueueChange) (QueueChanged, error) {
	return client.Send[QueueChanged](ctx, c, http.MethodPut, "/admin/v1/queues/"+client.Segment(taskType), change, nil)
}

// ChangeTasks cancels, retries or moves tasks of a type, and returns their number.
func ChangeTasks(ctx context.Context, c *client.Client, verb, taskType string, choice TaskChoice) (TasksChanged, error) {
	return client.Send[TasksChanged](ctx, c, http.MethodPost, "/admin/v1/queues/"+client.Segment(taskType)+"/"+verb, choice, nil)
}
