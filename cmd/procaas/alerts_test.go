package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"procaas/cmd/procaas/addons"
	"procaas/cmd/procaas/internal/serve"
	"procaas/engine/alert"
	"procaas/engine/api/cli"
	"procaas/engine/api/client"
	"procaas/engine/api/wire"
	"procaas/engine/model"
)

// postableAlerts is what version 2 of Alertmanager's API takes.
const postableAlerts = `{
  "type": "array",
  "items": {
    "type": "object", "required": ["labels"], "additionalProperties": false,
    "properties": {
      "startsAt": {"type": "string", "format": "date-time"},
      "endsAt": {"type": "string", "format": "date-time"},
      "generatorURL": {"type": "string", "format": "uri"},
      "labels": {"type": "object", "minProperties": 1, "required": ["alertname"],
        "propertyNames": {"pattern": "^[a-zA-Z_][a-zA-Z0-9_]*$"}, "additionalProperties": {"type": "string", "minLength": 1}},
      "annotations": {"type": "object",
        "propertyNames": {"pattern": "^[a-zA-Z_][a-zA-Z0-9_]*$"}, "additionalProperties": {"type": "string"}}
    }
  }
}`

// Whoever gets an alert finds it in the runbook: those of the rules, and those that nodes send.
func TestRunbookHasEveryAlert(t *testing.T) {
	t.Parallel()
	book, err := os.ReadFile("../../docs/operating/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	kinds, err := os.ReadFile("../../engine/alert/alert.go")
	if err != nil {
		t.Fatal(err)
	}
	var rules strings.Builder
	if err := alert.WriteRules(&rules, "", addons.Alerts("")); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, m := range regexp.MustCompile(`Kind = "(\w+)"`).FindAllStringSubmatch(string(kinds), -1) {
		names["Procaas"+m[1]] = true
	}
	for _, m := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(rules.String(), -1) {
		names[m[1]] = true
	}
	if len(names) < 25 {
		t.Errorf("want all alerts, have %d", len(names))
	}
	for name := range names {
		if !strings.Contains(string(book), "`"+name+"`") {
			t.Errorf("the runbook does not have %s", name)
		}
	}
}

// A gettableAlert is an alert that an Alertmanager knows.
type gettableAlert struct {
	Labels, Annotations map[string]string
	StartsAt, EndsAt    time.Time
}

// An alertmanagerStub takes alerts in as Alertmanager does, and keeps the newest
// of each set of labels.
type alertmanagerStub struct {
	t      *testing.T
	schema *jsonschema.Schema

	mu     sync.Mutex
	alerts map[string]gettableAlert
	all    strings.Builder
}

func newAlertmanager(t *testing.T) (*alertmanagerStub, string) {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(postableAlerts))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("alerts.json", doc); err != nil {
		t.Fatal(err)
	}
	m := &alertmanagerStub{t: t, schema: c.MustCompile("alerts.json"), alerts: map[string]gettableAlert{}}
	s := httptest.NewServer(m)
	t.Cleanup(s.Close)
	return m, s.URL
}

func (m *alertmanagerStub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Method != http.MethodPost || r.URL.Path != "/api/v2/alerts" || r.Header.Get("Content-Type") != "application/json" {
		m.t.Errorf("%s %s %v: not a call of version 2: %v", r.Method, r.URL, r.Header, err)
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(body)))
	if err == nil {
		err = m.schema.Validate(doc)
	}
	var posted []gettableAlert
	if err == nil {
		err = json.Unmarshal(body, &posted)
	}
	if err != nil {
		m.t.Errorf("Alertmanager would refuse %s: %v", body, err)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all.Write(body)
	for _, a := range posted {
		if !a.StartsAt.Before(a.EndsAt) {
			m.t.Errorf("Alertmanager would refuse an alert that ends before it starts: %+v", a)
		}
		id, err := json.Marshal(a.Labels)
		if err != nil {
			m.t.Error(err)
		}
		m.alerts[string(id)] = a
	}
}

// find returns the alerts of a name, and whether one of them fires.
func (m *alertmanagerStub) find(name string) (found []gettableAlert, fires bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.alerts {
		if a.Labels["alertname"] == name {
			found = append(found, a)
			fires = fires || a.EndsAt.After(time.Now())
		}
	}
	return found, fires
}

// A hookStub is a webhook that fails the first times.
type hookStub struct {
	mu       sync.Mutex
	failures int
	took     []string
	errors   []string // of the same alerts
}

func (h *hookStub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failures--; h.failures >= 0 {
		http.Error(w, "not yet", http.StatusServiceUnavailable)
		return
	}
	var body struct {
		Alerts []struct {
			Status, Kind, Path string
			Error              string `json:"last_error"`
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for _, a := range body.Alerts {
		h.took = append(h.took, a.Status+" "+a.Kind+" "+a.Path)
		h.errors = append(h.errors, a.Error)
	}
}

func (h *hookStub) has(line string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.took, line)
}

// tells reports whether an alert has a reason.
func (h *hookStub) tells(why string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.errors, why)
}

const alerting = `services: [{id: bank, url: %s}]
flows: [{id: order, key: !$ event.payload.id}]
pipelines:
  - id: work
    flow: order
    owner: team-orders
    stages:
      - id: pay
        handlers:
          - {id: charge, request: {service: bank, path: /charge, headers: {Authorization: !secret TOKEN}}, retry: {attempts: 1}}
`

// TestAlertsReachAlertmanagerAndWebhooks lets a bank fail a run: the owner gets the alert,
// uses the very commands of the alert, and learns that it is over.
func TestAlertsReachAlertmanagerAndWebhooks(t *testing.T) { // not parallel: it sets the environment
	t.Setenv("PROCAAS_SECRET_TOKEN", "canary-7f3a")
	bank := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "no money for "+r.Header.Get("Authorization"), http.StatusPaymentRequired)
	}))
	manager, url := newAlertmanager(t)
	hook := &hookStub{failures: 2}
	hooks := httptest.NewServer(hook)
	t.Cleanup(hooks.Close)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), fmt.Appendf(nil, alerting, bank.URL), 0o644); err != nil {
		t.Fatal(err)
	}
	store := "sqlite:" + filepath.Join(t.TempDir(), "o.db")
	o := &operated{t: t, dir: dir}
	o.server = startNode(t, store, dir, func(f *serve.Flags) {
		f.Alerts = serve.AlertFlags{
			Alertmanagers: []string{url + "/"}, Webhooks: []string{hooks.URL + "/T0/canary-hook"}, Labels: map[string]string{"cluster": "test"},
		}
	})
	o.client = client.New(o.server, "")
	for range 5 {
		if _, err := o.client.SubmitEvent(t.Context(), wire.Event{Type: "work", Payload: map[string]any{"id": "o-1"}}); err != nil {
			t.Fatal(err)
		}
	}
	o.wait(model.Failed, 1)
	eventually(t, "an alert", func() bool { _, fires := manager.find("ProcaasKeyBlocked"); return fires })
	eventually(t, "the webhook after it has failed", func() bool { return hook.has("firing KeyBlocked work/pay/charge") })

	found, _ := manager.find("ProcaasKeyBlocked")
	if len(found) != 1 {
		t.Fatalf("want one alert for the path, have %v", found)
	}
	a := found[0]
	for name, want := range map[string]string{
		"path": "work/pay/charge", "pipeline": "work", "stage": "pay", "handler": "charge", "owner": "team-orders", "severity": "critical",
		"cluster": "test",
	} {
		if a.Labels[name] != want {
			t.Errorf("label %s: want %q, have %q", name, want, a.Labels[name])
		}
	}
	for name, want := range map[string]string{
		"switch_off": "procaas switch hold work/pay/charge --reason 'alert KeyBlocked' --server " + o.server,
		"retry":      "procaas runs retry --handler work/pay/charge --server " + o.server,
		"last_error": "402 from GET", "run_url": o.server + "/v1/runs/", "keys": "order/o-1", "success_ratio": "0", "since": "T",
	} {
		if !strings.Contains(a.Annotations[name], want) {
			t.Errorf("annotation %s: want %q, have %q", name, want, a.Annotations[name])
		}
	}
	if reply, err := http.Get(a.Annotations["run_url"]); err != nil || reply.StatusCode != http.StatusOK {
		t.Errorf("want the run at its link, have %v, %v", reply, err)
	}
	for _, command := range []string{"switch_off", "switch_on", "retry"} {
		words := regexp.MustCompile(`'[^']*'|\S+`).FindAllString(a.Annotations[command], -1)
		for i := range words {
			words[i] = strings.Trim(words[i], "'")
		}
		var out, errs strings.Builder
		if command == "retry" { // the bank is there again
			bank.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
		}
		if code := Main(t.Context(), words[1:], cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}); code != cli.ExitFine {
			t.Errorf("%s: want it to work, have exit code %d: %s%s", a.Annotations[command], code, out.String(), errs.String())
		}
	}
	o.wait(model.Succeeded, 5)
	eventually(t, "the end of the alert", func() bool { found, fires := manager.find("ProcaasKeyBlocked"); return len(found) == 1 && !fires })
	eventually(t, "its end at the webhook", func() bool { return hook.has("resolved KeyBlocked work/pay/charge") })
	if found, _ := manager.find("ProcaasRunFailed"); len(found) != 0 {
		t.Errorf("want one alert for the path, have %v, too", found)
	}
	bank.Close()
	if strings.Contains(manager.all.String(), "canary") {
		t.Errorf("want no secrets told, have %s", manager.all.String())
	}
}

// A key that is blocked is still told of after a restart, and its end, too.
func TestAlertsGoOnAfterARestart(t *testing.T) {
	t.Parallel()
	manager, url := newAlertmanager(t)
	dir, store := t.TempDir(), "sqlite:"+filepath.Join(t.TempDir(), "o.db")
	const yaml = `flows: [{id: order, key: !$ event.payload.id}]
configs: {STOCK: false}
pipelines:
  - id: work
    flow: order
    stages: [{id: a, handlers: [{id: take, set: {}, enabled: !$ configs.STOCK or event.payload.missing.stock}]}]
`
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(yaml), 0o644); err != nil {
		t.Fatal(err)
	}
	o := &operated{t: t, dir: dir}
	t.Run("before", func(t *testing.T) {
		o.client = client.New(startNode(t, store, dir), "")
		if _, err := o.client.SubmitEvent(t.Context(), wire.Event{Type: "work", Payload: map[string]any{"id": "o-1"}}); err != nil {
			t.Fatal(err)
		}
		o.wait(model.Failed, 1)
	})
	o.server = startNode(t, store, dir, func(f *serve.Flags) { f.Alerts.Alertmanagers = []string{url} })
	eventually(t, "an alert of the key", func() bool { _, fires := manager.find("ProcaasKeyBlocked"); return fires })
}

func TestAlertFlagsAreChecked(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--alertmanager am:9093":                                     "want an absolute http or https URL",
		"--alert-webhook https://u:canary@":                          "want an absolute http or https URL",
		"--alertmanager http://am --alert-label a-b=c":               "want a name of letters",
		"--trace-url http://jaeger/trace/{id}":                       "--trace-url: want an address with {trace_id}",
		"--trace-url javascript:alert({trace_id})":                   "--trace-url: want an address with {trace_id}",
		"--alertmanager http://am --external-url /here":              "--external-url is not an absolute http or https URL",
		"--alertmanager http://am --external-url http://u:canary@am": "--external-url holds a password",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(failing), 0o644); err != nil {
			t.Fatal(err)
		}
		var out, errs strings.Builder
		line := append(strings.Fields("serve --listen 127.0.0.1:0 --store sqlite:"+filepath.Join(dir, "o.db")+" --pipelines "+dir),
			strings.Fields(args)...)
		code := Main(t.Context(), line, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		if code != cli.ExitUsage || !strings.Contains(errs.String(), want) || strings.Contains(errs.String(), "canary") {
			t.Errorf("%s: want exit code 2 and %q, have %d and %s", args, want, code, errs.String())
		}
	}
}
