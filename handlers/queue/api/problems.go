package api

import (
	"net/http"

	"procaas/engine/api/problem"
)

// These are the problems of tasks.
var (
	noTasks         = problem.Kind{Code: "no_task_queue", Status: http.StatusNotImplemented, Title: "The server keeps no tasks"}
	invalidTask     = problem.Kind{Code: "invalid_task", Status: http.StatusUnprocessableEntity, Title: "The task makes no sense"}
	queueDraining   = problem.Kind{Code: "queue_draining", Status: http.StatusConflict, Title: "The queue takes no new tasks"}
	unknownTaskType = problem.Kind{Code: "unknown_task_type", Status: http.StatusNotFound, Title: "Nobody does tasks of this type"}
)

// Problems lists them.
func Problems() []problem.Kind {
	return []problem.Kind{noTasks, invalidTask, queueDraining, unknownTaskType}
}
