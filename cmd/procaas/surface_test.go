package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/cmd/procaas/internal/serve"
	"procaas/engine/api/cli"
	"procaas/engine/api/client"
	"procaas/engine/api/wire"
	"procaas/engine/credentials"
)

// TestSurfaceOfANode compares what people and programs see of a node with goldens: all metrics with
// their help, labels and types, and the menu of the console for each role. The stores are of an
// earlier version, so the queue, the balancer and the inbox have something to measure.
func TestSurfaceOfANode(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sqlite", "cells"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			testdata := filepath.Join("..", "..", "testdata")
			f := earlierStore(t, filepath.Join(testdata, "stores", "131cd4df"), kind)
			receiver := httptest.NewServer(http.NotFoundHandler())
			t.Cleanup(receiver.Close)
			s := cli.Streams{In: strings.NewReader(""), Out: new(bytes.Buffer), Err: new(bytes.Buffer)}
			f.Listen, f.Name, f.MaxInFlight = "127.0.0.1:0", "here", 64
			f.Lease, f.Drain = time.Minute, time.Second
			f.MaxBody, f.LogFormat, f.LogLevel = "1MiB", "json", "error"
			f.Pipelines = []string{filepath.Join(testdata, "stores", "flows")}
			f.Alerts = serve.AlertFlags{Webhooks: []string{receiver.URL}}
			f.Access = serve.AccessFlags{Token: strongToken, Open: []string{"none"}}
			if err := f.Set("proxy", "fanout=127.0.0.1:0"); err != nil {
				t.Fatal(err)
			}
			n, stop := openNode(t, f, s)
			defer stop()
			eventually(t, "metrics of add-ons that run", func() bool {
				have := described(t, n)
				return have["procaas_proxy_requests_total"] != "" && have["procaas_cluster_gini"] != ""
			})
			checkMetrics(t, "metrics_"+kind+".golden", n)
			golden(t, "menu_"+kind+".golden", menus(t, n.URL()))
		})
	}
}

// description finds the name, the help and the labels of a metric, which Prometheus exports only as a text.
var description = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: "(.*?)", (?:unit: "[^"]*", )?constLabels: .*variableLabels: \{(.*)\}\}$`)

// described returns the labels and the help of the metrics of a node.
func described(t *testing.T, n *serve.Node) map[string]string {
	t.Helper()
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		n.Metrics().(*prometheus.Registry).Describe(descriptions)
	}()
	all := map[string]string{}
	for d := range descriptions {
		m := description.FindStringSubmatch(d.String())
		if m == nil {
			t.Errorf("cannot read %s", d)
			continue
		}
		if strings.HasPrefix(m[1], "procaas_") { // others depend on the platform
			all[m[1]] = fmt.Sprintf("{%s} %s", m[3], m[2])
		}
	}
	return all
}

// metricLine is a line of the goldens of metrics: name, type, and the rest.
var metricLine = regexp.MustCompile(`(?m)^(\w+) (\w+) .*$`)

// checkMetrics compares the metrics of a node with a golden: names, types, labels and help. Only a
// metric with samples has a type. Which metrics have samples by now depends on when the node did what,
// so the golden has the type of any that had some when it was written.
func checkMetrics(t *testing.T, file string, n *serve.Node) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "testdata", "cli", file))
	if err != nil && !*update {
		t.Fatal(err)
	}
	types := map[string]string{}
	for _, m := range metricLine.FindAllStringSubmatch(string(text), -1) {
		types[m[1]] = m[2]
	}
	families, err := n.Metrics().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if *update || types[f.GetName()] != "unknown" {
			types[f.GetName()] = strings.ToLower(f.GetType().String())
		}
	}
	all := described(t, n)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "%s %s %s\n", name, cmp.Or(types[name], "unknown"), all[name])
	}
	golden(t, file, b.String())
}

var (
	sideMenu  = regexp.MustCompile(`(?s)<nav id="pages".*?</nav>`)
	sideEntry = regexp.MustCompile(`<h2>([^<]*)</h2>|<a href="([^"]*)"[^>]*>([^<]*)</a>`)
)

// menus lists the entries of the console's menu for each role.
func menus(t *testing.T, server string) string {
	t.Helper()
	var b strings.Builder
	admin := client.New(server, strongToken)
	eventually(t, "the node", func() bool { _, err := admin.Nodes(t.Context()); return err == nil })
	for _, role := range credentials.Roles() {
		token := strongToken
		if role != credentials.RoleAdmin {
			made, err := admin.NewToken(t.Context(), wire.NewToken{Name: string(role), Role: string(role)})
			if err != nil {
				t.Fatal(err)
			}
			token = made.Secret
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		reply, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(reply.Body)
		reply.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s: %d\n", role, reply.StatusCode)
		for _, e := range sideEntry.FindAllStringSubmatch(sideMenu.FindString(string(body)), -1) {
			if e[1] != "" {
				fmt.Fprintf(&b, "  %s\n", e[1])
				continue
			}
			fmt.Fprintf(&b, "    %s %s\n", e[3], e[2])
		}
	}
	return b.String()
}

// The rules that people generate are those in testdata/alert, with the rules of all add-ons.
func TestGeneratedAlerts(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	flows := filepath.Join("..", "..", "testdata", "stores", "flows")
	code := Main(t.Context(), []string{"gen", "alerts", flows, "--server", "https://procaas.example"},
		cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
	if code != cli.ExitFine {
		t.Errorf("exit code %d", code)
	}
	golden(t, filepath.Join("..", "alert", "rules.yaml"), out.String())
}
