package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/cmd/procaas/internal/serve"
	"procaas/cmd/procaas/internal/source"
	"procaas/dsl"
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
			o := earlierStore(t, filepath.Join(testdata, "stores", "131cd4df"), kind)
			receiver := httptest.NewServer(http.NotFoundHandler())
			t.Cleanup(receiver.Close)
			s := cli.Streams{In: strings.NewReader(""), Out: new(bytes.Buffer), Err: new(bytes.Buffer)}
			f := serve.Flags{
				Store: o.DSN, Cells: o.Cells, Listen: "127.0.0.1:0", Name: "here", Migrate: true, MaxInFlight: 64, Lease: time.Minute,
				Drain: time.Second, MaxBody: "1MiB", LogFormat: "json", LogLevel: "error",
				Pipelines: []string{filepath.Join(testdata, "stores", "flows")},
				Alerts:    serve.AlertFlags{Webhooks: []string{receiver.URL}},
				Access:    serve.AccessFlags{Token: strongToken, Open: []string{"none"}},
			}
			if err := f.Set("proxy", "fanout=127.0.0.1:0"); err != nil {
				t.Fatal(err)
			}
			bundle, err := source.Bundle(s, f.Pipelines, dsl.Options{})
			if err != nil {
				t.Fatal(err)
			}
			n, err := serve.Open(t.Context(), s, f, bundle)
			if err != nil {
				t.Fatal(err)
			}
			// Nothing runs yet, so the same metrics have samples each time.
			types := typesOf(t, n)
			registered := "\n" + metricsOfNode(t, n, types)
			ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
			ended := make(chan error, 1)
			go func() { ended <- n.Run(ctx) }()
			defer func() {
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}()
			eventually(t, "metrics of add-ons that run", func() bool {
				have := metricsOfNode(t, n, types)
				return strings.Contains(have, "procaas_proxy_requests_total{") && strings.Contains(have, "procaas_cluster_gini{")
			})
			for name, kind := range typesOf(t, n) {
				if !strings.Contains(registered, "\n"+name+"{") {
					types[name] = kind
				}
			}
			golden(t, "metrics_"+kind+".golden", metricsOfNode(t, n, types))
			golden(t, "menu_"+kind+".golden", menus(t, n.URL()))
		})
	}
}

// description finds the name, the help and the labels of a metric, which Prometheus exports only as a text.
var description = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: "(.*?)", (?:unit: "[^"]*", )?constLabels: .*variableLabels: \{(.*)\}\}$`)

// typesOf returns the types of the metrics of a node that have samples.
func typesOf(t *testing.T, n *serve.Node) map[string]string {
	t.Helper()
	families, err := n.Metrics().Gather()
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]string{}
	for _, f := range families {
		types[f.GetName()] = strings.ToLower(f.GetType().String())
	}
	return types
}

// metricsOfNode lists the metrics of a node with their types. A metric without samples has no type.
func metricsOfNode(t *testing.T, n *serve.Node, types map[string]string) string {
	t.Helper()
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		n.Metrics().(*prometheus.Registry).Describe(descriptions)
	}()
	var lines []string
	for d := range descriptions {
		m := description.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("cannot read %s", d)
		}
		if name := m[1]; strings.HasPrefix(name, "procaas_") { // others depend on the platform
			lines = append(lines, fmt.Sprintf("%s{%s} %s: %s\n", name, m[3], cmp.Or(types[name], "no samples"), m[2]))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
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
