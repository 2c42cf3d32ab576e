package api

import (
	"net/http"
	"strings"
	"sync"

	"procaas/engine"
)

// This file answers most questions for shards without the router: services may ask before
// each of their own requests. What is not plain goes on to resolveShard, which answers the same.

const (
	shardMapsPrefix = "/v1/shard-maps/"
	resolveSuffix   = "/resolve"
)

// answers are buffers for replies.
var answers = sync.Pool{New: func() any { return new([]byte) }}

// quickly answers questions for shards that memory can answer.
func (s *server) quickly(next http.Handler) http.Handler {
	maps, ok := s.shards.(engine.QuickShardMaps)
	if !ok {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.answerQuickly(w, r, maps) {
			next.ServeHTTP(w, r)
		}
	})
}

// answerQuickly replies to a question, or tells that it did not.
func (s *server) answerQuickly(w http.ResponseWriter, r *http.Request, maps engine.QuickShardMaps) bool {
	if r.Method != http.MethodGet || r.URL.RawPath != "" || r.ContentLength != 0 || len(r.TransferEncoding) > 0 || !s.warm.Load() {
		return false
	}
	shardMap, ok := strings.CutPrefix(r.URL.Path, shardMapsPrefix)
	if !ok {
		return false
	}
	if shardMap, ok = strings.CutSuffix(shardMap, resolveSuffix); !ok || strings.Contains(shardMap, "/") {
		return false
	}
	q, ok := plainQuestion(r.URL.RawQuery)
	if !ok {
		return false
	}
	if _, err := s.grantFor(r, needs["resolve-shard"]); err != nil {
		s.refuse(w, r, err)
		return true
	}
	buffer := answers.Get().(*[]byte)
	defer answers.Put(buffer)
	answer, ok := maps.AppendAnswer((*buffer)[:0], shardMap, q.Key, q.Mode, q.DC)
	*buffer = answer
	if !ok {
		return false
	}
	w.Header()["Content-Type"] = typeJSON
	_, _ = w.Write(answer)
	return true
}

// plainQuestion reads a query that has no more than a key, a mode and a data centre, each once
// and without escapes.
func plainQuestion(query string) (q engine.ShardQuestion, ok bool) {
	for query != "" {
		var field string
		field, query, _ = strings.Cut(query, "&")
		name, value, _ := strings.Cut(field, "=")
		var at *string
		switch name {
		case "key":
			at = &q.Key
		case "mode":
			at = &q.Mode
		case "dc":
			at = &q.DC
		default:
			return q, false
		}
		if *at != "" || value == "" || len(value) > maxName || !plainValue(value) {
			return q, false
		}
		*at = value
	}
	switch q.Mode {
	case "":
		q.Mode = engine.ShardMaster
	case engine.ShardMaster, engine.ShardReplica, engine.ShardAny:
	default:
		return q, false
	}
	return q, q.Key != ""
}

// plainValue tells whether a value of a query stands for itself.
func plainValue(value string) bool {
	for i := range len(value) {
		if c := value[i]; c <= ' ' || c > '~' || c == '%' || c == '+' || c == ';' {
			return false
		}
	}
	return true
}
