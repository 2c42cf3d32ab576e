package api

import (
	"net/http"

	"procaas/engine/api/problem"
)

// These are the problems of shard maps.
var (
	unknownShardMap = problem.Kind{Code: "unknown_shard_map", Status: http.StatusNotFound, Title: "There is no such shard map"}
	unknownShard    = problem.Kind{Code: "unknown_shard", Status: http.StatusNotFound, Title: "The map has no such shard"}
	invalidShardKey = problem.Kind{Code: "invalid_shard_key", Status: http.StatusUnprocessableEntity, Title: "The text is no key of the map"}
	keyNotPlaced    = problem.Kind{Code: "key_not_placed", Status: http.StatusNotFound, Title: "The key lives nowhere"}
	noFitHost       = problem.Kind{Code: "no_fit_host", Status: http.StatusServiceUnavailable, Title: "No host of the shard is fit"}
	shardBusy       = problem.Kind{Code: "shard_busy", Status: http.StatusConflict, Title: "The key or the shard is busy"}
	unknownTransfer = problem.Kind{Code: "unknown_transfer", Status: http.StatusNotFound, Title: "There is no such transfer"}
	transferState   = problem.Kind{Code: "transfer_state", Status: http.StatusConflict, Title: "The transfer cannot do that now"}
)

// Problems lists them.
func Problems() []problem.Kind {
	return []problem.Kind{unknownShardMap, unknownShard, invalidShardKey, keyNotPlaced, noFitHost, shardBusy, unknownTransfer, transferState}
}
