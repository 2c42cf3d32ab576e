package api_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-chi/chi/v5"

	"procaas/cmd/procaas/addons"
	"procaas/engine/api"
	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/api/ui"
	"procaas/engine/credentials"
	"procaas/engine/model"
	"procaas/engine/store"
)

var update = flag.Bool("update", false, "rewrite schemas/openapi.json")

// described are options with the calls of all add-ons. Nothing is behind them.
func described() (o api.Options) {
	for _, a := range addons.All() {
		if p := a.New(); p.Calls != nil {
			o.Groups = append(o.Groups, p.Calls(nil))
		}
	}
	return o
}

// TestDescriptionIsFresh compares schemas/openapi.json with what the router
// says of itself.
func TestDescriptionIsFresh(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	api.New(described()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/openapi.json", nil))
	var want bytes.Buffer
	if err := json.Indent(&want, w.Body.Bytes(), "", "  "); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("..", "..", "schemas", "openapi.json")
	if *update {
		if err := os.WriteFile(file, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want.Bytes()) {
		t.Errorf("%s is stale; run go test ./engine/api -run DescriptionIsFresh -update", file)
	}
}

// TestEveryRouteIsDescribed walks the router and the description both ways.
func TestEveryRouteIsDescribed(t *testing.T) {
	t.Parallel()
	router, doc, _ := api.Inside(described())
	var routed, described []string
	err := chi.Walk(router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if strings.HasPrefix(route+"/", ui.Root) {
			return nil // pages for people, which programs need not know
		}
		routed = append(routed, method+" "+route)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, item := range doc.Paths {
		data, err := json.Marshal(item)
		if err != nil {
			t.Fatal(err)
		}
		var methods map[string]any
		if err := json.Unmarshal(data, &methods); err != nil {
			t.Fatal(err)
		}
		for method := range methods {
			described = append(described, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(routed)
	slices.Sort(described)
	if !slices.Equal(routed, described) {
		t.Errorf("have routes\n%s\nand described\n%s", strings.Join(routed, "\n"), strings.Join(described, "\n"))
	}
}

// TestEveryCodeIsDescribed looks for each code of a problem in the description.
func TestEveryCodeIsDescribed(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	api.New(described()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/openapi.json", nil))
	codes := slices.Collect(maps.Keys(problem.Table))
	for _, p := range addons.Problems() {
		codes = append(codes, p.Code)
		if _, twice := problem.Table[p.Code]; twice || p.Status < 400 || p.Title == "" {
			t.Errorf("the problem %+v is in the table of codes, too, or has no meaning", p)
		}
	}
	for _, code := range codes {
		if !strings.Contains(w.Body.String(), "`"+code+"`") {
			t.Errorf("a reply may have the code %s, which no operation names among its refusals", code)
		}
	}
}

// TestBodiesSayWhatTheyTake compares the description of bodies with their readers: all but
// CloudEvents refuse members that they do not know.
func TestBodiesSayWhatTheyTake(t *testing.T) {
	t.Parallel()
	_, doc, operations := api.Inside(described())
	seen := map[*huma.Schema]bool{}
	var look func(where string, schema *huma.Schema)
	look = func(where string, schema *huma.Schema) {
		if schema == nil || seen[schema] {
			return
		}
		seen[schema] = true
		if name, ok := strings.CutPrefix(schema.Ref, "#/components/schemas/"); ok {
			look(where+" "+name, doc.Components.Schemas.Map()[name])
			return
		}
		if values, free := schema.AdditionalProperties.(*huma.Schema); free {
			look(where+".*", values) // its members are the sender's to name
		} else if schema.Type == huma.TypeObject && schema.AdditionalProperties != false {
			t.Errorf("%s: unknown members are refused, and the schema has additionalProperties: %v", where, schema.AdditionalProperties)
		}
		for name, p := range schema.Properties {
			look(where+"."+name, p)
		}
		look(where, schema.Items)
		for _, one := range schema.OneOf {
			look(where, one)
		}
	}
	for _, o := range operations {
		if !slices.ContainsFunc(doc.Tags, func(tag *huma.Tag) bool { return tag.Name == o.Tag }) {
			t.Errorf("%s has the tag %s, of which the description says nothing", o.ID, o.Tag)
		}
	}
	for path, item := range doc.Paths {
		for _, op := range []*huma.Operation{item.Post, item.Put} {
			if op != nil && op.RequestBody != nil {
				look(path, op.RequestBody.Content[rest.MediaJSON].Schema)
			}
		}
	}
	if len(seen) < 100 {
		t.Errorf("want to see at least 100 schemas, have %d", len(seen))
	}
}

// TestEveryCodeHasAMeaning keeps the table and the operations in step.
func TestEveryCodeHasAMeaning(t *testing.T) {
	t.Parallel()
	_, _, operations := api.Inside(described())
	for _, o := range operations {
		for _, code := range o.Refusals {
			if problem.Table[code].Status == 0 {
				t.Errorf("%s: code %q is not in the table of problems", o.ID, code)
			}
		}
		if o.Summary == "" || o.Tag == "" || len(o.Replies) == 0 {
			t.Errorf("%s %s is not described", o.Method, o.Path)
		}
	}
	for code, p := range problem.Table {
		if p.Status < 400 || p.Title == "" {
			t.Errorf("code %q: have status %d and title %q", code, p.Status, p.Title)
		}
	}
}

// An operation that needs no token says so: tools take one that says nothing for one that
// was forgotten.
func TestEveryOperationSaysWhoMayCallIt(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	api.New(described()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/openapi.json", nil))
	var doc struct {
		Paths map[string]map[string]struct {
			ID       string                `json:"operationId"`
			Security []map[string][]string `json:"security"`
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	free := map[string]bool{}
	_, _, operations := api.Inside(described())
	for _, o := range operations {
		free[o.ID] = o.Need.Anybody
	}
	for path, methods := range doc.Paths {
		for method, o := range methods {
			if o.Security == nil || (len(o.Security) > 0) == free[o.ID] {
				t.Errorf("%s %s: want its security said, have %v", method, path, o.Security)
			}
		}
	}
}

// TestChangesNeedMoreThanAViewer looks at the needs of all operations. Providers sign their requests to webhooks, and a consent
// changes nothing.
func TestChangesNeedMoreThanAViewer(t *testing.T) {
	t.Parallel()
	_, _, operations := api.Inside(described()) // panics for an operation without a need
	for _, o := range operations {
		if o.ID == "receive-webhook" || o.Method == http.MethodOptions {
			continue
		}
		if n := o.Need; o.Method != http.MethodGet && (n.Anybody || n.Role == credentials.RoleViewer) {
			t.Errorf("%s changes something, and needs no more than %q", o.ID, n.Role)
		}
	}
}

// TestEnumerationsAreComplete compares the lists in tags with those of the engine.
func TestEnumerationsAreComplete(t *testing.T) {
	t.Parallel()
	_, doc, _ := api.Inside(described())
	for _, c := range []struct {
		path, parameter string
		want            []string
	}{
		{"/admin/v1/audit", "kind", store.AuditKinds()},
		{"/v1/runs", "status", []string{
			string(model.Waiting), string(model.Running), string(model.Parked), string(model.Succeeded), string(model.Failed),
			string(model.Cancelled), string(model.Ignored),
		}},
	} {
		for _, p := range doc.Paths[c.path].Get.Parameters {
			if p.Name != c.parameter {
				continue
			}
			var have []string
			for _, value := range p.Schema.Enum {
				have = append(have, fmt.Sprint(value))
			}
			if !slices.Equal(have, c.want) {
				t.Errorf("%s of %s: want %v, have %v", c.parameter, c.path, c.want, have)
			}
		}
	}
}
