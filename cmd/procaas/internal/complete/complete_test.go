package complete

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// An offered is a schema of the description of the API, as far as this test needs it.
type offered struct {
	Ref        string              `json:"$ref"`
	Properties map[string]*offered `json:"properties"`
	Items      *offered            `json:"items"`
}

// TestListsAreThoseOfTheServer looks the calls and members up in the description of the API: a mistyped one would offer nothing.
func TestListsAreThoseOfTheServer(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../../schemas/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Paths map[string]map[string]struct {
			Responses map[string]struct {
				Content map[string]struct{ Schema *offered }
			}
		}
		Components struct{ Schemas map[string]*offered }
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	member := func(s *offered, name string) *offered {
		if s != nil && s.Ref != "" {
			s = d.Components.Schemas[s.Ref[strings.LastIndex(s.Ref, "/")+1:]]
		}
		if s == nil {
			return nil
		}
		if name == "" {
			return s.Items
		}
		return s.Properties[name]
	}
	reply := func(call string) *offered {
		path, _, _ := strings.Cut(strings.ReplaceAll(call, "{0}", "{map}"), "?")
		return d.Paths[path]["get"].Responses["200"].Content["application/json"].Schema
	}
	for _, l := range []list{
		configs, tokens, queues, maps, shards, clusters, services, changes, steps, served, owned, flowing, keyed, begun, kept,
	} {
		if member(member(member(reply(l.call), "items"), ""), l.member) == nil {
			t.Errorf("GET %s lists nothing with %s", l.call, l.member)
		}
	}
	cluster := member(member(reply(clusters.call), "items"), "")
	if member(cluster, "partitions") == nil || member(member(member(cluster, "workers"), ""), "id") == nil {
		t.Error("clusters have no partitions or workers")
	}
	if member(member(member(reply("/admin/v1/inbox"), "cells"), ""), "name") == nil {
		t.Error("the inbox has no cells")
	}
}
