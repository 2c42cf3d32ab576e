package api

import (
	"net/http"

	"procaas/engine/api/problem"
)

// These are the problems of clusters.
var (
	clusterNotFound = problem.Kind{Code: "cluster_not_found", Status: http.StatusNotFound, Title: "There is no such cluster"}
	noWorker        = problem.Kind{Code: "no_worker", Status: http.StatusServiceUnavailable, Title: "No worker serves the partition"}
	invalidLever    = problem.Kind{Code: "invalid_lever", Status: http.StatusUnprocessableEntity, Title: "The lever cannot be pulled like this"}
	leverNotFound   = problem.Kind{Code: "lever_not_found", Status: http.StatusNotFound, Title: "Nobody has pulled this lever"}
)

// Problems lists them.
func Problems() []problem.Kind {
	return []problem.Kind{clusterNotFound, noWorker, invalidLever, leverNotFound}
}
