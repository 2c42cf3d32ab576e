package api

import (
	"net/http"
	"strings"
	"sync"

	"procaas/engine/api/rest"
	"procaas/handlers/sharding/transfers"
)

// This file answers most questions about shards without the router, because services may ask before
// each of their own requests. Other questions go to resolve, which gives the same answers.

const (
	mapsPrefix    = "/v1/shard-maps/"
	resolveSuffix = "/resolve"
)

// answers are buffers for replies.
var answers = sync.Pool{New: func() any { return new([]byte) }}

// quickly answers questions about shards from memory, if the caller may ask.
func (g *Group) quickly(next http.Handler, admit func(http.ResponseWriter, *http.Request) bool) http.Handler {
	maps, ok := g.Maps.(transfers.QuickShardMaps)
	if !ok {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shardMap, q, ok := g.plain(r)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		if !admit(w, r) {
			return
		}
		buffer := answers.Get().(*[]byte)
		defer answers.Put(buffer)
		answer, ok := maps.AppendAnswer((*buffer)[:0], shardMap, q.Key, q.Mode, q.DC)
		*buffer = answer
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		w.Header()["Content-Type"] = typeJSON
		_, _ = w.Write(answer)
	})
}

// typeJSON is a shared header value: do not change it in place.
var typeJSON = []string{rest.MediaJSON}

// plain parses a question that memory may answer.
func (g *Group) plain(r *http.Request) (shardMap string, q transfers.ShardQuestion, ok bool) {
	hasBody := r.ContentLength != 0 || len(r.TransferEncoding) > 0
	if r.Method != http.MethodGet || r.URL.RawPath != "" || hasBody || !g.warm.Load() {
		return "", q, false
	}
	path, ok := strings.CutPrefix(r.URL.Path, mapsPrefix)
	if !ok {
		return "", q, false
	}
	shardMap, ok = strings.CutSuffix(path, resolveSuffix)
	if !ok || strings.Contains(shardMap, "/") {
		return "", q, false
	}
	q, ok = plainQuestion(r.URL.RawQuery)
	return shardMap, q, ok
}

// plainQuestion parses a query that has only a key, a mode and a data center, each at most once and
// without escapes.
func plainQuestion(query string) (q transfers.ShardQuestion, ok bool) {
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
		if *at != "" || value == "" || len(value) > rest.MaxName || !plainValue(value) {
			return q, false
		}
		*at = value
	}
	switch q.Mode {
	case "":
		q.Mode = transfers.ShardMaster
	case transfers.ShardMaster, transfers.ShardReplica, transfers.ShardAny:
	default:
		return q, false
	}
	return q, q.Key != ""
}

// plainValue reports whether a query value needs no decoding.
func plainValue(value string) bool {
	for i := range len(value) {
		switch c := value[i]; {
		case c <= ' ', c > '~', c == '%', c == '+', c == ';':
			return false
		}
	}
	return true
}
