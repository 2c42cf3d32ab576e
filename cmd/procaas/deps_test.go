package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

// layers is the order of the house: a folder imports only folders to its left.
var layers = []string{"docs", "schemas", "dsl", "engine", "handlers", "pipelines", "cmd"}

// rooms are the parts of a folder in their order: a room imports only rooms to its
// left, and the folder itself, which is the front door, imports any of them. The engine has
// other parts too: they know the whole, and any room.
var rooms = map[string][]string{
	"dsl": {
		"diag", "rules", "urls", "datum", "render", "ops", "typing", "library", "syntax", "expr", "source",
		"format", "spec", "contracts", "tree", "decode", "merge",
		"wiring", "steps", "check", "proof", "advice",
	},
	"engine": {
		"model", "budget", "store", "sealed", "sqlstore", "clock", "socket", "pgkit", "planner", "checkpoint", "core", "guard", "canary", "fallback", "diagram", "diff",
		"secrets", "tracing", "outbound", "triggers", "definitions", "credentials", "settings",
		"records", "explain", "watch", "stats", "writes", "intake", "steering", "node",
	},
}

// commandRooms are the rooms of the command line in their order, below cmd/procaas/internal.
var commandRooms = []string{
	"source", "runview", "simulate", "authoring",
	"operate/control", "operate/runs", "operate/versions", "operate/top", "operate",
	"serve/secret", "serve/stores", "serve/observe", "serve/playground", "serve", "doctor", "demo", "complete",
}

// commandLine lists the packages of the command line.
func commandLine() []string {
	all := []string{"cmd/procaas", "engine/api/cli", "cmd/procaas/addons"}
	for _, room := range commandRooms {
		all = append(all, "cmd/procaas/internal/"+room)
	}
	return all
}

// homes says which packages may import a library directly, and why it lives
// there. A library that is not listed may be used anywhere.
var homes = []struct {
	library string
	allowed []string
	why     string
}{
	{"gopkg.in/yaml.v3", []string{"dsl/source", "dsl/format", "dsl/rules", "engine/api/cli"}, "only the language knows YAML; rules and flags are read from files"},
	{"github.com/expr-lang/expr", []string{"dsl", "dsl/syntax", "dsl/expr"}, "only the language knows expressions"},
	{"github.com/sony/gobreaker", []string{"engine/outbound"}, "it guards the engine's own requests; services of flows have gates"},
	{"github.com/go-chi/chi", []string{"engine/api", "engine/api/rest"}, "only the API routes"},
	{
		"github.com/danielgtaylor/huma",
		[]string{"engine/api", "engine/api/rest", "engine/api/intake", "handlers/queue/api"},
		"only the API describes itself",
	},
	{"github.com/jackc/pgx", []string{
		"engine/postgres", "engine/pgkit", "engine/enginetest", "engine/enginetest/cluster", "handlers/queue",
		"handlers/sharding", "handlers/sharding/demo", "handlers/sharding/preflight", "handlers/sharding/shardmap", "handlers/sharding/template", "handlers/sharding/transfer",
		"handlers/sql", "handlers/subscriptions/outbox",
		"cmd/procaas-bench",
	}, "SQL stays in the stores, in the reader of tables of services, and in what flows execute; the bench has programs written by " +
		"hand to compare with"},
	{"github.com/jackc/pglogrepl", []string{"handlers/sharding/transfer"}, "only transfers read a server's log"},
	{"modernc.org/sqlite", []string{"engine/sqlite"}, "SQL stays in the stores"},
	{"github.com/pressly/goose", []string{"engine/postgres", "engine/sqlite"}, "stores migrate themselves"},
	{
		"github.com/prometheus/client_golang",
		[]string{
			"engine", "engine/stats", "handlers/queue/taskrun", "engine/alert", "engine/api", "engine/outbound", "engine/enginetest/conformance", "handlers/subscriptions", "handlers/subscriptions/publish", "handlers/sql",
			"cmd/procaas/internal/serve",
			"cmd/procaas/internal/serve/observe", "cmd/procaas/internal/demo",
		},
		"counted in the engine, served by the API, wired in serve",
	},
	{"go.opentelemetry.io/otel/sdk", []string{"cmd/procaas/internal/serve/observe"}, "who sends traces where is wired once"},
	{
		"go.opentelemetry.io/otel",
		[]string{"engine", "engine/node", "engine/outbound", "engine/tracing", "cmd/procaas/internal/serve/observe"},
		"spans are made by the engine",
	},
	{"github.com/minio/minio-go", []string{"handlers/archive"}, "only the archive knows S3"},
	{"github.com/parquet-go/parquet-go", []string{"handlers/archive"}, "only the archive writes Parquet"},
	{"github.com/coreos/go-oidc", []string{"handlers/signon"}, "only sign-on knows issuers of tokens"},
	{"golang.org/x/oauth2", []string{"handlers/signon", "engine/outbound"}, "only sign-on and credentials of services know issuers of tokens"},
	{"github.com/go-jose/go-jose", []string{"handlers/signon"}, "only sign-on knows issuers of tokens"},
	{"github.com/nats-io", []string{"handlers/subscriptions/jetstream", "handlers/subscriptions/brokertest"}, "only this package knows NATS"},
	{"github.com/twmb/franz-go", []string{"handlers/subscriptions/kafka"}, "only this package knows Kafka"},
	{"github.com/rabbitmq/amqp091-go", []string{"handlers/subscriptions/rabbitmq"}, "only this package knows RabbitMQ"},
	{"github.com/coreos/go-systemd", []string{"cmd/procaas/internal/serve"}, "only a node that serves has a supervisor"},
	{"github.com/spf13/cobra", commandLine(), "only the command line parses flags"},
}

// TestRoomsOfTheCommandLine checks that imports among the rooms of the command line follow their order.
func TestRoomsOfTheCommandLine(t *testing.T) {
	t.Parallel()
	known := commandLine()
	known = append(known[1:], known[0])
	for _, p := range listPackages(t) {
		from := strings.TrimPrefix(p.ImportPath, "procaas/")
		if from != "cmd/procaas" && !within(from, "cmd/procaas") {
			continue
		}
		if !slices.Contains(known, from) {
			t.Errorf("%s is no room of the command line; write it into their order", from)
		}
		for _, imported := range p.Imports {
			to, ours := strings.CutPrefix(imported, "procaas/")
			if ours && slices.Index(known, to) > slices.Index(known, from) {
				t.Errorf("%s imports %s, which is to its right in %s", from, to, strings.Join(commandRooms, " ← "))
			}
		}
	}
}

type goPackage struct {
	ImportPath, Dir         string
	Imports                 []string
	GoFiles, IgnoredGoFiles []string
}

// listPackages returns all packages of the module.
func listPackages(t *testing.T) []goPackage {
	t.Helper()
	packages, err := goList()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return packages
}

// goList asks once for all tests.
var goList = sync.OnceValues(func() (packages []goPackage, err error) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Dir,Imports,GoFiles,IgnoredGoFiles", "procaas/...").Output()
	for d := json.NewDecoder(bytes.NewReader(out)); err == nil && d.More(); {
		var p goPackage
		err = d.Decode(&p)
		packages = append(packages, p)
	}
	return packages, err
})

func TestFoldersImportOnlyToTheirLeft(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t) {
		from := strings.TrimPrefix(p.ImportPath, "procaas/")
		folder, _, _ := strings.Cut(from, "/")
		rank := slices.Index(layers, folder)
		if rank < 0 {
			t.Errorf("%s: the house has no folder %s", p.ImportPath, folder)
		}
		for _, imported := range p.Imports {
			to, ours := strings.CutPrefix(imported, "procaas/")
			if !ours {
				continue
			}
			target, _, _ := strings.Cut(to, "/")
			if slices.Index(layers, target) > rank && !(strings.HasSuffix(to, "/language") && slices.Contains(knowProducts, from)) {
				t.Errorf("%s imports %s, which is to its right in %s", from, to, strings.Join(layers, " ← "))
			}
			if known := rooms[folder]; target == folder && (folder == "dsl" || isRoom(from) || isRoom(to)) {
				if folder == "dsl" || isRoom(from) {
					checkRooms(t, known, from, to)
				}
				continue
			}
			if from == "engine" && target == "engine" {
				t.Errorf("engine imports its part %s; parts that are no rooms import the whole, never the reverse", to)
			}
			if from != folder && target == folder && to != folder && folder != "cmd" && !harness(from) && !pluggedIn(from) && !within(from, to) && !within(to, from) &&
				!together(from, to) {
				t.Errorf("%s imports its sibling %s; parts of %s never import each other", from, to, folder)
			}
		}
	}
}

func isRoom(path string) bool {
	folder, room, _ := strings.Cut(path, "/")
	return slices.Contains(rooms[folder], room)
}

// checkRooms checks that an import in a folder of rooms follows their order.
func checkRooms(t *testing.T, known []string, from, to string) {
	t.Helper()
	_, in, isRoom := strings.Cut(from, "/")
	_, target, ok := strings.Cut(to, "/")
	switch {
	case !isRoom:
	case !slices.Contains(known, in):
		t.Errorf("%s is no room of %s; write it into the order of rooms: %s", from, to, strings.Join(known, " ← "))
	case !ok:
		t.Errorf("%s imports the front door %s; rooms import only rooms to their left: %s", from, to, strings.Join(known, " ← "))
	case slices.Index(known, target) > slices.Index(known, in):
		t.Errorf("%s imports %s, which is to its right in %s", from, to, strings.Join(known, " ← "))
	}
}

// testLibraries are what only tests may link: each registers flags of its own, and
// makes programs larger.
var testLibraries = []string{
	"testing", "pgregory.net/rapid", "procaas/engine/enginetest", "github.com/rogpeppe/go-internal",
	"go.uber.org/goleak", "github.com/oauth2-proxy/mockoidc", "github.com/golang-jwt/jwt/v5",
	"github.com/nats-io/nats-server/v2/server", "github.com/twmb/franz-go/pkg/kfake", "procaas/handlers/subscriptions/brokertest",
}

// TestProgramsLinkNoTestLibraries looks at all that the commands are built from.
func TestProgramsLinkNoTestLibraries(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"procaas/cmd/procaas", "procaas/cmd/procaas-bench", "procaas/engine/enginetest/testdb"} {
		out, err := exec.Command("go", "list", "-deps", program).Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		linked := strings.Fields(string(out))
		if !slices.Contains(linked, program) {
			t.Fatalf("%s is not among what go list names", program)
		}
		for _, library := range testLibraries {
			if slices.Contains(linked, library) {
				t.Errorf("%s links %s, which only tests may", program, library)
			}
		}
	}
}

// within reports whether a package is a part of another one.
func within(part, whole string) bool { return strings.HasPrefix(part, whole+"/") }

// together reports whether two packages are rooms of one part, such as engine/api.
func together(a, b string) bool {
	x, y := strings.SplitN(a, "/", 3), strings.SplitN(b, "/", 3)
	return len(x) == 3 && len(y) == 3 && x[0] == y[0] && x[1] == y[1]
}

// pluggable are the libraries that add-ons may use at their seam.
var pluggable = []string{"github.com/spf13/cobra", "github.com/prometheus/client_golang", "github.com/danielgtaylor/huma"}

// pluggedIn reports whether a package plugs an add-on into procaas, or is the place where that is done.
func pluggedIn(from string) bool {
	return from == "engine/addon" || strings.HasPrefix(from, "handlers/") && strings.HasSuffix(from, "/addon")
}

// harness reports whether a package only serves tests, which may import siblings.
func harness(from string) bool { return strings.HasPrefix(from, "engine/enginetest") }

// products are the folders of the add-ons.
var products = []string{"handlers/archive", "handlers/balancer", "handlers/inbox", "handlers/queue", "handlers/sharding", "handlers/signon", "handlers/sql", "handlers/subscriptions", "handlers/webhooks"}

// knowProducts are packages that know a product although they are neither its own nor the list of add-ons.
var knowProducts = []string{
	"cmd/procaas-bench", // the workbench measures all of them
}

// TestOnlyTheListKnowsAddons checks that the core can be read, and built, without any of the products.
func TestOnlyTheListKnowsAddons(t *testing.T) {
	t.Parallel()
	knows := map[string]bool{}
	for _, p := range listPackages(t) {
		from := strings.TrimPrefix(p.ImportPath, "procaas/")
		for _, imported := range p.Imports {
			to := strings.TrimPrefix(imported, "procaas/")
			for _, product := range products {
				if !within(to, product) && to != product || within(from, product) || from == product || from == "cmd/procaas/addons" {
					continue
				}
				knows[from] = true
				if !slices.Contains(knowProducts, from) {
					t.Errorf("%s imports %s; only cmd/procaas/addons may know a product", from, to)
				}
			}
		}
	}
	for _, from := range knowProducts {
		if !knows[from] {
			t.Errorf("%s no longer knows a product; take it from the list", from)
		}
	}
}

func TestLibrariesStayAtHome(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t) {
		from := strings.TrimPrefix(p.ImportPath, "procaas/")
		for _, imported := range p.Imports {
			for _, home := range homes {
				if imported != home.library && !strings.HasPrefix(imported, home.library+"/") {
					continue
				}
				if !slices.Contains(home.allowed, from) && !(pluggedIn(from) && slices.Contains(pluggable, home.library)) {
					t.Errorf("%s imports %s, whose home is %s: %s", from, imported, strings.Join(home.allowed, ", "), home.why)
				}
			}
		}
	}
}
