package main

import (
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"procaas/engine/api/cli"
)

// operatorCommands are the commands that work on each store. FLOWS is the directory of the
// pipelines, and COPY a file.
var operatorCommands = []string{
	"procaas submit --type aside --key a --wait",
	"procaas submit --type broken --key c --wait || [ $? = 1 ]",
	"procaas runs list --status failed && procaas runs show a && procaas runs export --since 1h > exported",
	"procaas explain a aside/only/pong",
	"procaas top --sort failures --once && procaas services && procaas nodes && procaas costs --by owner && procaas release canary && procaas healthcheck && { procaas doctor || [ $? = 1 ]; }",
	"procaas audit --since 2h && procaas audit verify",

	"procaas switch hold work --reason why && procaas switch list && procaas switch on work",
	"procaas switch undo $(procaas switch hold note --reason why 2>&1 | sed -n 's/.*switch undo \\([0-9]*\\).*/\\1/p')",
	"procaas limit work 500/s --for 1h && procaas limit && procaas limit work --remove",
	"procaas runs slow && { procaas deadline work 300ms --for 1h --dry-run || [ $? -le 2 ]; } && procaas deadline && procaas deadline work --remove",
	"procaas switch off aside/only/pong --for 30m && procaas submit --type aside --key b --wait && procaas switch on aside/only/pong",
	"procaas runs list --left-out aside/only/pong && procaas runs make-up --handler aside/only/pong --since 1h",
	"procaas switch keep aside/only/pong && procaas switch on aside/only/pong",
	"procaas release rollout aside/only/pong 25 && procaas release rollout aside/only/pong --remove",
	"procaas config set TONE '{\"loud\": true}' --reason why",

	"procaas runs retry --handler broken/only/fails --failed-since 1h --dry-run && procaas runs retry --handler broken/only/fails",
	"procaas runs cancel c && procaas runs rerun a --reason why",
	"procaas erase aside b --dry-run && procaas erase aside b --cancel --vacuum --reason why --format json > receipt.json",

	"sed -i 's/answer: pong/answer: hello/' FLOWS/aside.yaml && procaas release reload --reason why",
	"for dry in --dry-run ''; do procaas runs migrate --pipeline work $dry || [ $? = 1 ]; done",
	"procaas release versions && procaas release rollback --reason why",
	"sed -i 's/answer: hello/answer: hi/' FLOWS/aside.yaml && procaas release reload --canary 5%",
	"procaas release promote 50% --hold && procaas release promote --reason why",
	"sed -i 's/answer: hi/answer: hello/' FLOWS/aside.yaml && procaas release reload --shadow 50% && procaas release rollback",
	"procaas release reload --drop",
	"procaas release deploy FLOWS/ --dry-run && procaas release deploy FLOWS/ --wait --reason why",
	"procaas release pull pulled --force",
	"set -- $(procaas release versions | sed -n '2,3s/ .*//p'); procaas release versions show $1 --files && { procaas release versions diff $1 $2 || [ $? = 1 ]; }",
	"procaas replay --since 1h FLOWS/ || [ $? = 1 ]",
	"procaas diff FLOWS/ FLOWS/", // asks the node about its runs

	"curl -sf -H \"Authorization: Bearer $PROCAAS_TOKEN\" -H 'Content-Type: application/json' -d '{\"payload\": 1}' " +
		"$PROCAAS_SERVER/v1/queues/letters/tasks",
	"procaas queue stats && procaas queue peek letters && procaas queue pause letters && procaas queue resume letters",
	"procaas queue drain letters && procaas queue move letters --to parcels && procaas queue retry letters && procaas queue cancel parcels",
	"procaas token new --name viewer --role viewer && procaas token list",
}

// operatorCommandsSQLite are those beside a node on SQLite. FILE is the database.
var operatorCommandsSQLite = []string{
	`/bin/kill -HUP $MAINPID`,
	`sqlite3 FILE "select count(*) from runs" && sqlite3 FILE "pragma integrity_check"`,
	`sqlite3 FILE ".backup COPY" && rm COPY`,
	`procaas store check --store STORE`,
	`procaas store backup --store STORE COPY`,
	`procaas store migrate --store STORE && exit 1 || [ $? = 3 ]`, // it is in use
}

// operatorCommandsPostgres are those beside nodes on PostgreSQL.
var operatorCommandsPostgres = []string{
	`/bin/kill -HUP $MAINPID`,
	`procaas store check --store STORE`,
	`pg_dump -Fc -f COPY STORE`,
	`procaas store adopt --store STORE`, // it was not restored
	`procaas store keys list --store STORE`,
	`procaas store keys new COPY.keys; procaas store keys rotate --store STORE --encryption-keys COPY.keys && exit 1 || [ $? = 2 ]`,
	`procaas store keys stop --store STORE && exit 1 || [ $? = 2 ]; procaas store keys remove x --store STORE && exit 1 || [ $? = 2 ]`,
	`procaas store migrate --store STORE`,
}

// operatorCommandsStopped are those while no node runs. Then the events are sent again.
var operatorCommandsStopped = map[string]string{
	"sqlite":   `rm -f FILE-wal FILE-shm && cp COPY FILE && procaas store adopt --store STORE --dry-run && procaas store adopt --store STORE`,
	"postgres": `pg_restore -d STORE COPY`,
}

// operatorCommandsElsewhere names tests that run other commands: those of a system beside its own
// load, and those that start nodes or only write the address of one.
var operatorCommandsElsewhere = map[string]string{
	"procaas balancer": "TestLeverCommands",
	"procaas shard":    "TestTransferSurvivesKill9",
	"procaas inbox":    "TestInboxMoveSurvivesKill9",
	"procaas serve":    "TestOperatorsCommandsUnderLoad",
	"procaas gen":      "TestDocs",
	"procaas login":    "TestPeopleSignOnByTheirIssuer",

	"procaas subscriptions": "TestSubscriptionsForOperators",
	"procaas triggers":      "TestTriggersForOperators",
}

// operatorQuoted finds commands in a page: quoted in its text, or lines of its blocks.
var operatorQuoted = regexp.MustCompile(
	"(?m)`((?:procaas|sqlite3|pg_dump|pg_restore|rm) [^`]+)`|^(?:\\$ )?((?:procaas|sqlite3) .*)|^ExecReload=(.*)")

// TestOperatorsCommandsAreThoseOfThePages finds each command that a page tells operators to use, and
// that calls a live node or works on its store, among those that run under load.
func TestOperatorsCommandsAreThoseOfThePages(t *testing.T) {
	t.Parallel()
	all := slices.Concat(operatorCommands, operatorCommandsSQLite, operatorCommandsPostgres,
		slices.Collect(maps.Values(operatorCommandsStopped)))
	root := newRoot(cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard})
	under := map[string]bool{} // names of commands of ours that run under load
	for _, c := range all {
		for part := range strings.SplitSeq(c, "procaas ") {
			under[commandName(root, "procaas "+part)] = true
		}
	}
	for system, test := range operatorCommandsElsewhere {
		under[system] = true
		if !isTestHere(t, test) {
			t.Errorf("there is no %s, which would run %s", test, system)
		}
	}
	seen := 0
	for _, page := range operatorPages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range operatorQuoted.FindAllStringSubmatch(string(text), -1) {
			command := m[1] + m[2] + m[3]
			runs := func(c string) bool { return strings.Contains(c, command) }
			if strings.HasPrefix(command, "procaas") {
				name := commandName(root, command)
				if !worksOnLiveNodes(root, name) {
					continue
				}
				system := strings.Join(strings.Fields(name)[:2], " ")
				runs = func(string) bool { return under[name] || under[system] }
			}
			seen++
			if !slices.ContainsFunc(all, runs) {
				t.Errorf("%s tells operators to use %q, which no test runs under load: add it to operatorCommands", page, command)
			}
		}
	}
	if seen < 60 {
		t.Errorf("only %d commands were found: the test shows nothing", seen)
	}
}

// operatorPages are the pages for operators.
func operatorPages(t *testing.T) []string {
	t.Helper()
	pages := []string{"../../README.md", "../../SECURITY.md"}
	for _, dir := range []string{"operating", "systems"} {
		found, err := filepath.Glob("../../docs/" + dir + "/*.md")
		if err != nil || len(found) == 0 {
			t.Fatalf("want pages in docs/%s, have %v, %v", dir, found, err)
		}
		pages = append(pages, found...)
	}
	return pages
}

// isTestHere reports whether this package has a test.
func isTestHere(t *testing.T, name string) bool {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), "func "+name+"(t *testing.T)")
	})
}

// commandName returns the name of the command of ours in a line, with its subcommand.
func commandName(root *cobra.Command, line string) string {
	c, _, err := root.Find(strings.Fields(line)[1:])
	if err != nil {
		return "procaas"
	}
	return c.CommandPath()
}

// worksOnLiveNodes reports whether a command calls a server, or works on its store. Those for trying
// things out have a server of their own.
func worksOnLiveNodes(root *cobra.Command, name string) bool {
	c, _, err := root.Find(strings.Fields(name)[1:])
	return err == nil && (c.Flag("server") != nil || c.Flag("store") != nil) &&
		!slices.Contains([]string{"procaas", "procaas dev", "procaas demo", "procaas demo balancer", "procaas demo shards"}, name)
}
