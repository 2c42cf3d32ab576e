package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"go/build"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// plainFlow needs nothing of an add-on.
const plainFlow = `pipelines:
  - id: hello
    shared-state: {greeted: false}
    stages:
      - id: only
        handlers:
          - {id: greet, set: {greeted: true}}
`

// everyAddon is for make test-long: each program is linked anew, which takes some 12 s of a processor.
var everyAddon = flag.Bool("every-addon", false, "build the program without each of its products, too, not only without all of them")

// ofProducts say for each product how to use it, what the program prints with it and without it, and a flag of serve that it has.
var ofProducts = map[string]struct{ args, file, with, without, flag string }{
	"balancer": {"validate FILE", clusterFlow, "no problems in 1 file", `unknown field "clusters"`, "--proxy"},
	"sharding": {"validate FILE", shardFlow, "no problems in 1 file", `unknown field "shard-maps"`, ""},
	"queue": {"validate FILE", strings.Replace(plainFlow, "    stages:", "    queue: {retry: {attempts: 1}}\n    stages:", 1), "no problems in 1 file",
		`unknown field "queue"`, "--strict-queues"},
	"inbox": {"serve --cell b=postgres://b --store sqlite:a --pipelines FILE", plainFlow, "--cell needs a --store that is postgres://",
		"unknown flag: --cell", "--cell"},
	"subscriptions": {"validate FILE", subscribedFlow, "no problems in 1 file", `unknown field "subscriptions"`, ""},
	"sql":           {"validate FILE", databaseFlow, "no problems in 1 file", `unknown field "databases"`, ""},
	"archive":       {"serve --archive ftp://a --pipelines FILE", plainFlow, "want file:///FOLDER or s3://", "unknown flag: --archive", "--archive"},
	"webhooks":      {"validate FILE", hookFlow, "no problems in 1 file", `unknown field "webhooks"`, ""},
	"signon":        {"access test FILE", accessFile, "has 1 rule for", `unknown command "access"`, "--access"},
}

const hookFlow = `webhooks:
  - {id: repo, scheme: github, secrets: [hook], type: hello, owner: team-repo}
pipelines:
  - {id: hello, shared-state: {greeted: false}, stages: [{id: only, handlers: [{id: greet, set: {greeted: true}}]}]}
`

const subscribedFlow = `subscriptions:
  - {id: orders, broker: nats, servers: ["nats://127.0.0.1:4222"], stream: ORDERS, type: hello}
pipelines:
  - {id: hello, shared-state: {greeted: false}, stages: [{id: only, handlers: [{id: greet, set: {greeted: true}}]}]}
`

const databaseFlow = `databases:
  - {id: billing, address: "postgres://procaas@127.0.0.1/billing"}
pipelines:
  - {id: hello, shared-state: {greeted: false}, stages: [{id: only, handlers: [{id: greet, set: {greeted: true}}]}]}
`

const accessFile = `issuer: https://login.example.com
audience: procaas
rules: [{role: viewer}]
`

const clusterFlow = `clusters:
  - {id: fanout, partitions: 8, key: header:X-Key, workers: [{id: w-1, url: "http://127.0.0.1:18391"}]}
`

const shardFlow = `shard-maps:
  - {id: mail, key: uid, strategy: slots, slots: 8, shards: [{id: s-1, slots: 0-7, hosts: [{address: 127.0.0.1:5432}]}]}
`

// TestProgramWithoutAddons builds the program without any of its products, or with -every-addon also without each one. It must
// serve flows that need none. It must do what its other products add, and say what it does not know of those that are missing.
func TestProgramWithoutAddons(t *testing.T) {
	t.Parallel()
	missing := [][]string{slices.Sorted(maps.Keys(ofProducts))}
	if *everyAddon {
		for name := range ofProducts {
			missing = append(missing, []string{name})
		}
	}
	for _, names := range missing {
		t.Run(strings.Join(names, "+"), func(t *testing.T) {
			t.Parallel()
			checkWithout(t, names)
		})
	}
}

// TestEachAddonIsLeftOutByItsTag checks for each product that the program builds without it, and then links nothing of it. Only the
// list of add-ons has files with tags, so all other packages build, and import, as they do without one.
func TestEachAddonIsLeftOutByItsTag(t *testing.T) {
	t.Parallel()
	imports := map[string][]string{}
	for _, p := range listPackages(t) {
		imports[p.ImportPath] = p.Imports
		if p.ImportPath == listOfAddons {
			continue
		}
		for _, file := range slices.Concat(p.GoFiles, p.IgnoredGoFiles) {
			if text, err := os.ReadFile(filepath.Join(p.Dir, file)); err != nil || withTag.Match(text) {
				t.Errorf("%s has %s with a tag of a product, or %v", p.ImportPath, file, err)
			}
		}
	}
	for _, product := range products {
		name := filepath.Base(product)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, known := ofProducts[name]; !known {
				t.Errorf("ofProducts does not say how to use the %s", name)
			}
			tag := "without_" + name
			if out, err := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags="+tag, listOfAddons).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			tagged := build.Default
			tagged.BuildTags = []string{tag}
			list, err := tagged.ImportDir("addons", 0)
			if err != nil {
				t.Fatal(err)
			}
			linked := map[string]bool{}
			var link func(paths []string)
			link = func(paths []string) {
				for _, path := range paths {
					if path == listOfAddons || linked[path] {
						continue
					}
					linked[path] = true
					link(imports[path])
				}
			}
			link(imports["procaas/cmd/procaas"])
			link(list.Imports)
			for _, other := range slices.Sorted(maps.Keys(ofProducts)) {
				if linked["procaas/handlers/"+other+"/addon"] == (other == name) {
					t.Errorf("the program with the tag %s: want it to link each product but %s, have %v", tag, name, slices.Sorted(maps.Keys(linked)))
				}
			}
			for path := range linked {
				if strings.HasPrefix(path, "procaas/handlers/"+name) {
					t.Errorf("the program without the %s links %s", name, path)
				}
			}
		})
	}
}

// listOfAddons is the package that a tag takes a product from.
const listOfAddons = "procaas/cmd/procaas/addons"

// withTag finds such a tag.
var withTag = regexp.MustCompile(`(?m)^//go:build .*\bwithout_`)

// checkWithout builds the program without some products and checks it.
func checkWithout(t *testing.T, missing []string) {
	dir := t.TempDir()
	program := filepath.Join(dir, "procaas")
	compile := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w",
		"-tags=without_"+strings.Join(missing, ",without_"), "-o", program, "procaas/cmd/procaas")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	help, err := exec.Command(program, "serve", "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	flow := write("plain.yaml", plainFlow)
	for name, p := range ofProducts {
		args := strings.Fields(strings.Replace(p.args, "FILE", write(name+".yaml", p.file), 1))
		want := p.with
		if slices.Contains(missing, name) {
			want = p.without
		}
		if p.flag != "" && strings.Contains(string(help), p.flag) == slices.Contains(missing, name) {
			t.Errorf("the help of serve names %s: want it only with the %s, have\n%s", p.flag, name, help)
		}
		if out, _ := exec.Command(program, args...).CombinedOutput(); !strings.Contains(string(out), want) {
			t.Errorf("%s: want %q, have\n%s", p.args, want, out)
		}
	}

	serve := exec.Command(program, "serve", "--pipelines", flow, "--store", "sqlite:"+filepath.Join(dir, "o.db"),
		"--listen", "127.0.0.1:0", "--log-format", "json")
	log, err := serve.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = serve.Process.Kill() }) // it has ended, unless the test failed
	lines := bufio.NewScanner(log)
	server := ""
	for server == "" && lines.Scan() {
		var line struct{ Msg, Address string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "serving" {
			server = line.Address
		}
	}
	r, err := http.Post(server+"/v1/events?wait=20s", "application/json", strings.NewReader(`{"type":"hello"}`))
	if err != nil {
		t.Error(err)
	} else {
		var run struct{ Status string }
		if err := json.NewDecoder(r.Body).Decode(&run); err != nil || run.Status != "succeeded" {
			t.Errorf("want a run that succeeded, have %d, %+v, %v", r.StatusCode, run, err)
		}
		r.Body.Close()
	}
	if err := serve.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	for lines.Scan() { // until it has ended
	}
	if err := serve.Wait(); err != nil {
		t.Errorf("want an end without an error, have %v", err)
	}
}
