package addons_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"gopkg.in/yaml.v3"

	"procaas/cmd/procaas/addons"
	"procaas/engine"
	"procaas/engine/alert"
	"procaas/engine/enginetest"
	"procaas/engine/planner"
	"procaas/engine/stats"
	"procaas/engine/store"
	"procaas/handlers"
	"procaas/handlers/queue/taskrun"
)

var rewrite = flag.Bool("update", false, "rewrite the expected output in testdata/alert")

const watched = `
pipelines:
  - id: new-order
    owner: team-orders
    shared-state: {order: null}
    stages:
      - id: fetch
        handlers:
          - {id: get, request: {url: http://127.0.0.1:9/}}
          - {id: note, set: {order: 1}}
      - id: notify
        handlers:
          - {id: bonus, owner: "the {{ 'bonus' }} team", critical: false, request: {url: http://127.0.0.1:9/},
             fallback: {min-success-ratio: 0.7}}
          - {id: mail, critical: false, request: {url: http://127.0.0.1:9/}}
  - id: quiet
    stages: [{id: only, handlers: [{id: later, set: {}}]}]
`

func plans(t *testing.T) []*planner.Plan {
	t.Helper()
	known := engine.Types(handlers.All())
	b := enginetest.LoadIn(t, addons.Language(), watched, handlers.All()...)
	var out []*planner.Plan
	for _, p := range b.Pipelines {
		plan, err := planner.New(b, p, known)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, plan)
	}
	return out
}

// golden compares a text with a file of testdata/alert.
func golden(t *testing.T, name string, have []byte) {
	t.Helper()
	file := filepath.Join("..", "..", "..", "testdata", "alert", name)
	if *rewrite {
		if err := os.WriteFile(file, have, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want) {
		t.Errorf("%s is stale; run go test ./cmd/procaas/addons -update and read the difference; have\n%s", file, have)
	}
}

// ruleFile is what Prometheus reads, and nothing else.
type ruleFile struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Alert, Expr, For    string
			Labels, Annotations map[string]string
		}
	}
}

// There is one rule of each kind, however many pipelines there are.
func TestRulesAreOneOfEachKind(t *testing.T) {
	t.Parallel()
	var b, again bytes.Buffer
	for _, w := range []*bytes.Buffer{&b, &again} {
		if err := alert.WriteRules(w, "https://procaas.example", addons.Alerts("https://procaas.example")); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(b.Bytes(), again.Bytes()) {
		t.Error("want the same text each time")
	}
	golden(t, "rules.yaml", b.Bytes())

	var file ruleFile
	d := yaml.NewDecoder(&b)
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil {
		t.Fatal(err)
	}
	known, groups, rules := metricNames(), map[string]bool{}, map[string]bool{}
	for _, g := range file.Groups {
		if groups[g.Name] {
			t.Errorf("the group %s is there twice", g.Name)
		}
		groups[g.Name] = true
		for _, r := range g.Rules {
			checkExpr(t, r.Expr, known)
			id := r.Alert + " " + r.Labels["severity"] + " " + r.Labels["path"]
			switch {
			case rules[id]:
				t.Errorf("the rule %s is there twice", id)
			case !regexp.MustCompile(`^Procaas[A-Z][A-Za-z]+$`).MatchString(r.Alert), !regexp.MustCompile(`^\d+[smh]$`).MatchString(r.For):
				t.Errorf("%s: want a name and a duration, have %q, %q", id, r.Alert, r.For)
			case r.Labels["severity"] != "critical" && r.Labels["severity"] != "warning", r.Annotations["summary"] == "",
				r.Annotations["description"] == "":
				t.Errorf("%s: want a severity, a summary and a description, have %v, %v", id, r.Labels, r.Annotations)
			case strings.Count(r.Labels["path"], "/") == 2 && !strings.Contains(r.Annotations["switch_on"], " "+r.Labels["path"]+" --server"):
				t.Errorf("%s: want the command that switches it, have %v", id, r.Annotations)
			}
			rules[id] = true
		}
	}
	of := "{{ $labels.pipeline }}/{{ $labels.stage }}/{{ $labels.handler }}"
	for _, want := range []string{
		"ProcaasHandlerFailing critical " + of, "ProcaasHandlerFailing warning " + of,
		"ProcaasHandlerDegraded warning " + of, "ProcaasRunsFailing critical {{ $labels.pipeline }}",
	} {
		if !rules[want] {
			t.Errorf("want the rule %s, have %q", want, slices.Sorted(maps.Keys(rules)))
		}
	}
}

func TestDashboardShowsThePipelines(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := alert.WriteDashboard(&b, plans(t)); err != nil {
		t.Fatal(err)
	}
	golden(t, "dashboard.json", b.Bytes())

	type panel struct {
		ID      int
		Type    string
		Title   string
		GridPos struct{ H, W, X, Y int }
		Targets []struct{ Expr, RefID string }
		Panels  []json.RawMessage
	}
	var d struct{ Panels []json.RawMessage }
	if err := json.Unmarshal(b.Bytes(), &d); err != nil {
		t.Fatal(err)
	}
	known, ids := metricNames(), map[int]bool{}
	var check func(list []json.RawMessage)
	check = func(list []json.RawMessage) {
		taken := map[[2]int]string{}
		for _, raw := range list {
			var p panel
			if err := json.Unmarshal(raw, &p); err != nil {
				t.Fatal(err)
			}
			if ids[p.ID] || p.ID == 0 {
				t.Errorf("%s: want an id of its own, have %d", p.Title, p.ID)
			}
			ids[p.ID] = true
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
						t.Fatalf("%s is in the place of %q", p.Title, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
			if len(p.Targets) == 0 && p.Type != "row" {
				t.Errorf("%s: want something shown", p.Title)
			}
			for _, target := range p.Targets {
				checkExpr(t, strings.ReplaceAll(target.Expr, "$__rate_interval", "5m"), known)
			}
			check(p.Panels)
		}
	}
	check(d.Panels)
}

// A namesOf takes down which metrics are registered.
type namesOf struct {
	prometheus.Registerer
	names map[string]bool
}

var fqName = regexp.MustCompile(`fqName: "([^"]+)"`)

func (n namesOf) MustRegister(list ...prometheus.Collector) {
	for _, c := range list {
		descs := make(chan *prometheus.Desc, 100)
		c.Describe(descs)
		close(descs)
		for d := range descs {
			name := fqName.FindStringSubmatch(d.String())[1]
			n.names[name] = true
			if strings.HasSuffix(name, "_seconds") {
				n.names[name+"_bucket"] = true
			}
		}
	}
}

// metricNames lists what a node shows.
func metricNames() map[string]bool {
	n := namesOf{names: map[string]bool{}}
	stats.NewMetrics(n)
	taskrun.MeasureTasks(&store.TaskStore{}, n)
	if _, err := alert.New(alert.Options{Webhooks: []string{"http://127.0.0.1/"}, Metrics: n}); err != nil {
		panic(err)
	}
	n.names["procaas_cluster_unserved_partitions"] = true // serve has the metrics of clusters
	n.names["procaas_subscription_connected"] = true      // those of subscriptions
	n.names["procaas_subscription_dead_letters"] = true
	n.names["procaas_sign_on_issuer_up"] = true        // that of sign-on
	n.names["procaas_webhook_deliveries_total"] = true // and those of webhooks
	return n.names
}

var (
	exprTexts  = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	exprNames  = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)
	exprRanges = regexp.MustCompile(`\[\d+[smh]\]`)
	exprLabels = regexp.MustCompile(`\{[^{}]*\}`)
	exprBy     = regexp.MustCompile(`\b(?:by|on|group_left) \([a-z, ]+\)`)
)

// checkExpr makes sure that an expression is whole, and speaks only of metrics that
// there are. It is no parser; what is written was parsed by Prometheus's own once.
func checkExpr(t *testing.T, expr string, known map[string]bool) {
	t.Helper()
	bare := exprTexts.ReplaceAllString(expr, "")
	for _, pair := range []string{"()", "{}", "[]"} {
		if strings.Count(bare, pair[:1]) != strings.Count(bare, pair[1:]) {
			t.Errorf("%s: want as many %s as %s", expr, pair[:1], pair[1:])
		}
	}
	if strings.ContainsAny(bare, `"'`) || exprTexts.ReplaceAllString(expr, "") == expr && strings.Contains(expr, "=~") {
		t.Errorf("%s: want texts in quotes", expr)
	}
	metrics := 0
	bare = exprBy.ReplaceAllString(exprLabels.ReplaceAllString(exprRanges.ReplaceAllString(bare, ""), ""), "")
	for _, name := range exprNames.FindAllString(bare, -1) {
		switch {
		case slices.Contains([]string{"absent", "sum", "min", "max", "rate", "increase", "histogram_quantile", "time", "and"}, name):
		case known[name], known[strings.TrimSuffix(name, "_count")]:
			metrics++
		default:
			t.Errorf("%s: there is no %s", expr, name)
		}
	}
	if metrics == 0 {
		t.Errorf("%s: want a metric", expr)
	}
}
