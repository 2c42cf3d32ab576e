package pipelines_test

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"procaas/cmd/procaas/addons"
	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/render"
	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/checkpoint"
	"procaas/engine/diagram"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/store"
	"procaas/engine/stub"
)

var update = flag.Bool("update", false, "rewrite the goldens")

// read returns the pipelines of a folder and its stub services.
func read(t *testing.T, dir string) (files, stubs []diag.File) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no files in %s: %v", dir, err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f := diag.File{Name: filepath.ToSlash(name), Data: data}
		switch {
		case strings.HasSuffix(name, ".stub.yaml"):
			stubs = append(stubs, f)
		case !strings.HasSuffix(name, ".test.yaml"):
			files = append(files, f)
		}
	}
	return files, stubs
}

// load checks files, which must be without findings.
func load(t *testing.T, files []diag.File) *tree.Bundle {
	t.Helper()
	bundle, found := dsl.Load(files, dsl.Options{Language: addons.Language(), Types: addons.Types()})
	noFindings(t, files, found)
	return bundle
}

func loadStubs(t *testing.T, files []diag.File) *stub.Spec {
	t.Helper()
	spec, found := stub.Parse(files)
	noFindings(t, files, found)
	return spec
}

func noFindings(t *testing.T, files []diag.File, found []diag.Diagnostic) {
	t.Helper()
	if len(found) == 0 {
		return
	}
	var text bytes.Buffer
	if err := render.Write(&text, render.Text, files, found, false); err != nil {
		t.Fatal(err)
	}
	t.Fatal(text.String())
}

func TestTaxiServicesHaveStubs(t *testing.T) {
	t.Parallel()
	files, stubs := read(t, "taxi")
	played := map[string]string{}
	for _, s := range loadStubs(t, stubs).Services {
		played[s.ID] = "http://" + s.Listen
	}
	declared := map[string]string{}
	for _, s := range load(t, files).Services {
		declared[s.ID] = s.URL
	}
	if diff := cmp.Diff(declared, played); diff != "" {
		t.Error(diff)
	}
}

// The base flow is critical, what other teams add is not, and everything has an
// owner.
func TestTaxiCriticality(t *testing.T) {
	t.Parallel()
	files, _ := read(t, "taxi")
	for _, p := range load(t, files).Pipelines {
		for _, stage := range p.Stages {
			for _, h := range stage.Handlers {
				contributed := h.Into != ""
				if contributed && (h.IsCritical() || h.Owner == "") || p.Owner == "" {
					t.Errorf("%s: critical %v, owners %q and %q", h.Path, h.IsCritical(), h.Owner, p.Owner)
				}
			}
		}
	}
}

func TestTaxiPlans(t *testing.T) {
	t.Parallel()
	files, _ := read(t, "taxi")
	bundle := load(t, files)
	types := addons.Types()
	var have bytes.Buffer
	for _, p := range bundle.Pipelines {
		plan, err := planner.New(bundle, p, types)
		if err != nil {
			t.Fatal(err)
		}
		if err := diagram.Write(&have, plan, diagram.Text); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&have)
	}
	golden := "../testdata/pipelines/taxi_plans.txt"
	if *update {
		if err := os.WriteFile(golden, have.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), have.String()); diff != "" {
		t.Errorf("the plans differ from %s (go test ./pipelines -update rewrites it):\n%s", golden, diff)
	}
}

// A company is the taxi at work: its stub services, and an engine.
type company struct {
	*testing.T
	engine *engine.Engine
	stubs  *stub.Server
}

func open(t *testing.T) company {
	files, stubs := read(t, "taxi")
	spec := loadStubs(t, stubs)
	server, err := stub.Start(t.Context(), spec, stub.Options{FreePorts: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range spec.Services {
		for i := range files {
			files[i].Data = bytes.ReplaceAll(files[i].Data, []byte("http://"+s.Listen), []byte(server.URLs()[s.ID]))
		}
	}
	o := engine.DefaultOptions()
	o.Store, o.Types, o.Bundle, o.Name = enginetest.NewMemory().Ports(), addons.HandlerTypes(), load(t, files), "test"
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return company{t, enginetest.Start(t, o), server}
}

// send submits an event about an order and returns its run when it has ended.
func (c company) send(eventType, order string, more ...any) checkpoint.RunView {
	c.Helper()
	payload := map[string]any{"order-id": order}
	for i := 0; i < len(more); i += 2 {
		payload[more[i].(string)] = more[i+1]
	}
	event := model.Event{ID: eventType + "/" + order, Source: "test", Type: eventType, Payload: payload}
	submitted, err := c.engine.Submit(c.Context(), []intake.Submission{{Event: event}})
	if err != nil || submitted[0].Err != nil {
		c.Fatalf("submit %s: %v, %v", eventType, err, submitted)
	}
	for over := patience.Over(time.Minute); ; {
		view, err := c.engine.RunByID(c.Context(), submitted[0].Receipt.Run)
		if err != nil {
			c.Fatal(err)
		}
		if view.Status.Ended() {
			return view
		}
		if over() {
			c.Fatalf("the run of %s has not ended: %+v", eventType, view)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// succeeded sends an event, of which the run must succeed and lead to a state.
func (c company) succeeded(state, eventType, order string, more ...any) checkpoint.RunView {
	c.Helper()
	view := c.send(eventType, order, more...)
	if view.Status != model.Succeeded {
		c.Fatalf("%s: %s: %s", eventType, view.Status, view.Error)
	}
	entity, err := c.engine.Entity(c.Context(), "taxi-order", order)
	if err != nil || entity.State != state {
		c.Fatalf("after %s the order is %s, %v, want %s", eventType, entity.State, err, state)
	}
	return view
}

// outcomes tells what became of the handlers of a run.
func outcomes(v checkpoint.RunView) map[string]string {
	out := map[string]string{}
	for _, h := range v.Handlers {
		out[strings.TrimPrefix(h.Path, v.Pipeline+"/")] = h.Outcome
	}
	return out
}

func TestTaxiOrderLives(t *testing.T) {
	t.Parallel()
	c := open(t)
	created := c.succeeded("searching", "new-order-created", "o-1", "is-authorized", true)
	driver := created.SharedState["driver-id"]
	if driver == nil || created.SharedState["order"].(map[string]any)["id"] != "o-1" {
		t.Errorf("after the first event: %v", created.SharedState)
	}
	rejected := c.succeeded("searching", "driver-rejected-offer", "o-1", "driver-id", driver)
	if diff := cmp.Diff([]any{driver}, rejected.SharedState["rejected-by"]); diff != "" || rejected.SharedState["driver-id"] == driver {
		t.Errorf("after the rejection: %v", rejected.SharedState)
	}
	found := c.succeeded("assigned", "new-driver-found", "o-1", "driver-id", "d-7")
	if found.SharedState["driver-id"] != "d-7" {
		t.Errorf("after the acceptance: %v", found.SharedState)
	}
	c.succeeded("driving", "ride-started", "o-1")
	finished := c.succeeded("finished", "order-finished", "o-1")
	price := finished.SharedState["order"].(map[string]any)["price"].(int)
	if want := float64(price) * 0.9; finished.SharedState["total"] != want {
		t.Errorf("total: have %v, want %v", finished.SharedState["total"], want)
	}
	runs, _, err := c.engine.List(t.Context(), store.RunFilter{Pipeline: "rating-wanted", Limit: 10})
	if err != nil || len(runs) != 1 || runs[0].Status != model.Waiting {
		t.Errorf("the question about the ride: %+v, %v", runs, err)
	}
	event := model.Event{ID: "late", Type: "order-cancelled", Payload: map[string]any{"order-id": "o-1"}}
	late, err := c.engine.Submit(t.Context(), []intake.Submission{{Event: event}})
	if err != nil || late[0].Err == nil {
		t.Errorf("a finished order was cancelled: %v, %v", late, err)
	}
}

func TestTaxiOrderIsCancelled(t *testing.T) {
	t.Parallel()
	c := open(t)
	c.succeeded("searching", "new-order-created", "o-1")
	v := c.succeeded("cancelled", "order-cancelled", "o-1")
	if have := outcomes(v)["undo/release-driver"]; have != "succeeded" {
		t.Errorf("the driver's release: %s", have)
	}
}

// What is not critical may break, and every order goes on.
func TestTaxiSurvivesIncidents(t *testing.T) {
	t.Parallel()
	c := open(t)
	for _, incident := range []string{"statistics-down", "push-down", "bonus-down"} {
		if err := c.stubs.SetIncident(incident, true); err != nil {
			t.Fatal(err)
		}
	}
	const orders = 8
	var mu sync.Mutex
	failed := map[string]int{}
	t.Run("orders", func(t *testing.T) {
		for i := range orders {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				c, order := company{t, c.engine, c.stubs}, fmt.Sprintf("o-%d", i)
				created := c.succeeded("searching", "new-order-created", order)
				c.succeeded("assigned", "new-driver-found", order, "driver-id", "d-1")
				c.succeeded("driving", "ride-started", order)
				v := c.succeeded("finished", "order-finished", order)
				if v.SharedState["discount"] != 0 {
					t.Errorf("discount: have %v, want that of the fallback", v.SharedState["discount"])
				}
				mu.Lock()
				defer mu.Unlock()
				for path, outcome := range outcomes(created) {
					if outcome == "failed" {
						failed[path]++
					}
				}
				// After enough failures the handler goes out of the flow by itself.
				if have := outcomes(created)["miscellaneous/update-statistics"]; have != "failed" && have != "skipped" {
					t.Errorf("statistics: have %s, want failed, or skipped once it is out", have)
				}
			})
		}
	})
	want := []string{
		"miscellaneous/evaluate-bonus", "miscellaneous/update-statistics",
		"perform-notifications/notify-driver", "perform-notifications/notify-user",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(failed))); diff != "" {
		t.Error(diff)
	}
}

// Tariffs and switches decide who gets a message.
func TestTaxiNotifiesByTariffAndSwitch(t *testing.T) {
	t.Parallel()
	c := open(t)
	const driver, user = "perform-notifications/notify-driver", "perform-notifications/notify-user"
	told := map[string]string{}
	for i := range 4 { // each tariff comes up
		v := c.succeeded("searching", "new-order-created", fmt.Sprintf("o-%d", i))
		told[v.SharedState["order"].(map[string]any)["tariff"].(string)] = outcomes(v)[driver]
	}
	if told["comfort"] != "skipped" || told["econom"] != "succeeded" || told["business"] != "succeeded" {
		t.Errorf("drivers told by tariff: %v", told)
	}
	by := store.Actor{Name: "test", Reason: "quiet"}
	if _, err := c.engine.SetConfig(t.Context(), "NOTIFY_SWITCH", map[string]any{"enabled": false}, -1, by); err != nil {
		t.Fatal(err)
	}
	v := c.succeeded("searching", "new-order-created", "o-quiet")
	if have := outcomes(v); have[driver] != "skipped" || have[user] != "skipped" {
		t.Errorf("with the switch off: %v", have)
	}
}
