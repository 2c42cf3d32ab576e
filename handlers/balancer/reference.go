package balancer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"procaas/dsl/datum"
	"procaas/engine"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/handlers/balancer/clusters"
)

// This file passes observations and decisions from handler to handler of a tick. Small ones are in
// responses. Large ones are in the documents of the cluster, because neither the result of an
// expression nor the state of a run has room for them, and the response has a reference.

// mostInline is the largest JSON of an observation or a decision in a response, in bytes. An
// expression needs up to four times as much for it, and its result has at most 256 KiB.
const mostInline = 64 << 10

// The parts of a tick, which name the documents of [clusters.DocumentTick].
const (
	partObservation = "observation"
	partDecision    = "decision"
)

// A reference is a short response: what pipelines show of an observation or a decision, and where the
// rest is.
type reference struct {
	Cluster string   `json:"cluster"`
	At      float64  `json:"t"`
	Version int64    `json:"version"`
	Skipped string   `json:"skipped,omitempty"`
	Alerts  []string `json:"alerts,omitempty"`

	// Stored is the version of the document. 0 means that the data itself was passed.
	Stored int64 `json:"stored"`
}

// pass returns a part of a tick as a response. It stores a large part and returns a reference to it.
func pass(ctx context.Context, c *engine.Call, part string, v any, short reference) (model.Result, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return model.Result{}, err
	}
	if len(text) > mostInline {
		versions, err := c.Documents.WriteDocuments(ctx, c.Node, []store.DocumentWrite{{
			Kind: clusters.DocumentTick, Name: short.Cluster + "/" + part, Version: store.AnyVersion, Value: text,
		}}, nil)
		if err != nil {
			return model.Result{}, err
		}
		short.Stored = versions[0]
		if text, err = json.Marshal(short); err != nil {
			return model.Result{}, err
		}
	}
	data, err := datum.ParseJSON(text)
	return model.Result{Response: data}, err
}

// errReplaced reports that a later tick has stored its own part.
var errReplaced = errors.New("another tick of the cluster has begun since: give the pipeline a flow, and its events one key for " +
	"each cluster, so that ticks run one at a time")

// receive decodes what pass returned, or an observation or decision that a pipeline has made itself.
func receive(ctx context.Context, c *engine.Call, part, cluster string, given, into any) error {
	text, err := json.Marshal(given)
	if err != nil {
		return model.Permanent(err)
	}
	var r reference
	if err := json.Unmarshal(text, &r); err != nil {
		return model.Permanent(fmt.Errorf("%s: want the response of a balancer handler: %w", part, err))
	}
	if r.Stored != 0 {
		if r.Cluster != cluster {
			return model.Permanent(fmt.Errorf("%s is of cluster %q, want %q", part, r.Cluster, cluster))
		}
		d, err := c.Documents.Document(ctx, clusters.DocumentTick, cluster+"/"+part)
		switch {
		case errors.Is(err, store.ErrNotFound) || err == nil && d.Version != r.Stored:
			return model.Permanent(fmt.Errorf("%s of cluster %s: %w", part, cluster, errReplaced))
		case err != nil:
			return err
		}
		text = d.Value
	}
	if err := json.Unmarshal(text, into); err != nil {
		return model.Permanent(fmt.Errorf("%s: want the response of a balancer handler: %w", part, err))
	}
	return nil
}
