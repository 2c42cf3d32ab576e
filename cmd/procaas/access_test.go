package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"procaas/engine/api/cli"
	"procaas/engine/api/client"
	"procaas/engine/api/wire"
	"procaas/engine/model"
	"procaas/engine/store"
)

var someToken = regexp.MustCompile(`procaas_[A-Za-z0-9_-]{43}`)

// TestTokenCommands compares what the commands print with
// testdata/cli/token.golden. {NAME} is the token of that name.
func TestTokenCommands(t *testing.T) {
	t.Parallel()
	o := operateNode(t, switched)
	var have strings.Builder
	made := map[string]string{}
	for _, line := range []string{
		"token list",
		"token new --name ci --role operator",
		"token new --name ann --role admin --expires never --reason first",
		"nodes",
		"nodes --token procaas_guess",
		"token new --token {ann} --name on-call --role operator --path work/last --expires 30d",
		"token new --token {ann} --name orders --role submitter --path work --expires 2h --format json",
		"token new --token {ann} --name screen --role viewer",
		"token new --token {ann} --name screen --role viewer",
		"token new --token {ann} --name x --role operator --path work/lats",
		"token new --token {ann} --name x --role admin --path work",
		"token new --token {ann} --name x --role boss",
		"token new --token {ann} --name admin --role viewer",
		"token new --token {ann} --name x --role viewer --expires 2020-01-01T00:00:00Z",
		"token new --token {ann} --name x --role viewer --expires soon",
		"token new --token {ann} --name x",
		"token list --token {on-call}",
		"switch off work/last/tell --token {screen}",
		"switch off work/last/tell --token {on-call} --reason incident",
		"switch hold work --token {on-call}",
		"limit work/first 10/s --token {on-call}",
		"config set NO 1 --token {on-call}",
		"reload --token {on-call}",
		"submit --type work --token {screen}",
		"switch undo 8 --token {on-call}",
		"token revoke on-call --token {ann} --reason left",
		"switch list --token {on-call}",
		"token revoke on-call --token {ann}",
		"token revoke scren --token {ann}",
		"token revoke ann --token {ann}",
		"token list --token {ann}",
		"audit --token {screen}",
		"audit --token {screen} --kind control --name work/last --by on-call",
		"audit --token {screen} --limit 1",
		"audit --token {screen} --kind tokens",
		"audit --token {screen} --since yesterday",
		"audit verify",
		"audit verify --token {screen}",
		"audit verify --token {screen} --expect 12",
		"audit verify --token {screen} --expect " + strings.Repeat("0", 64),
		"audit verify --token {screen} --format json",
	} {
		args := strings.Fields(line)
		for name, secret := range made {
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "{"+name+"}", secret)
			}
		}
		var out, errs bytes.Buffer
		code := Main(t.Context(), append(args, "--server", o.server), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		if secret := someToken.FindString(out.String()); secret != "" {
			made[args[indexAfter(args, "--name")]] = secret
		}
		text := someToken.ReplaceAllString(out.String()+errs.String(), "SECRET")
		text = regexp.MustCompile("[0-9a-f]{64}").ReplaceAllString(text, "HASH64")
		fmt.Fprintf(&have, "$ procaas %s\n%s", line, someTime.ReplaceAllString(text, "TIME"))
		if code != cli.ExitFine {
			fmt.Fprintf(&have, "[exit code %d]\n", code)
		}
		have.WriteString("\n")
	}
	golden(t, "token.golden", regexp.MustCompile(`definition  -  .*`).ReplaceAllString(have.String(), "definition  -  HASH"))
}

func indexAfter(args []string, flag string) int {
	for i, a := range args {
		if a == flag {
			return i + 1
		}
	}
	return 0
}

// TestAbsurdCommands compares what is said of commands that make no sense with
// testdata/cli/absurd.golden. None of them changes anything.
func TestAbsurdCommands(t *testing.T) {
	t.Parallel()
	o := operateNode(t, "configs: {CITIES: [berlin], SWITCH: {enabled: true}, ANY: null}\n"+switched)
	var before string
	eventually(t, "the node to start", func() bool {
		before = o.command(cli.ExitFine, "", "audit", "--format", "json")
		return strings.Contains(before, "definition")
	})
	var have strings.Builder
	for _, line := range []string{
		"config set CITIES berlin",
		`config set CITIES "berlin"`,
		"config set CITIES 7",
		"config set SWITCH false",
		"config set CITES []",
		"config set CITIES",
		"switch off work/last --for -1h",
		"switch off work/last --for 50000d",
		"switch off wrok",
		"switch hold work/first/lok",
		"switch hold work/first/look/more",
		"switch hold /",
		"limit work 2000000/s",
		"limit work 1/30d",
		"limit work -5/s",
		"limit work many",
		"limit work 10/s --for 0s",
		"limit wrok 10/s",
		"limit work 10/s --remove",
		"rollout work/last/log 101",
		"rollout work/last/log -1",
		"rollout work/last/log NaN",
		"rollout work/first/look 50",
		"runs retry --handler work/last --since 2h --until never",
		"runs retry 01a1fe1b-57f5-7564-89b1-f820dbff05be",
		"runs cancel nobody",
		"runs list --status done",
		"runs list --limit 0",
		"runs list --limit 5000",
		"runs list --limit many",
		"runs list --cursor zzz",
		"runs retry --key k --limit -1",
		"runs retry --key k --dry-run=perhaps",
		"switch on wrok",
		"top --every often",
		"balancer moves",
		"audit --limit -1",
		"audit --cursor !",
		"submit --type wrok",
		"submit --type work --payload {",
		"token new --name x --role admin --expires 0s",
		"token new --name x --role admin --expires 5000d",
	} {
		var out bytes.Buffer
		code := Main(t.Context(), append(strings.Fields(line), "--server", o.server), cli.Streams{
			In: strings.NewReader(""), Out: &out,
			Err: &out,
		})
		fmt.Fprintf(&have, "$ procaas %s\n%s[exit code %d]\n\n", line, someTime.ReplaceAllString(out.String(), "TIME"), code)
		if code == cli.ExitFine {
			t.Errorf("procaas %s: want it refused", line)
		}
	}
	golden(t, "absurd.golden", have.String())
	o.command(cli.ExitFine, `^the server has no cluster: declare one below clusters:\n$`, "balancer", "status")
	if after := o.command(cli.ExitFine, "", "audit", "--format", "json"); after != before {
		t.Errorf("want nothing changed, have %s after %s", after, before)
	}
}

func TestRetriesAreAuditedWithTheirActor(t *testing.T) {
	t.Parallel()
	o := operateNode(t, failing)
	if _, err := o.client.SubmitEvent(t.Context(), wire.Event{Type: "work"}); err != nil {
		t.Fatal(err)
	}
	o.wait(model.Failed, 1)
	made, err := o.client.NewToken(t.Context(), wire.NewToken{Name: "ann", Role: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	o.client = client.New(o.server, made.Secret)
	page, err := o.client.Runs(t.Context(), store.RunFilter{Status: model.Failed})
	if err != nil || len(page.Items) != 1 {
		t.Fatal(page, err)
	}
	run := page.Items[0].ID
	o.command(cli.ExitFindings, "401|needs the header", "runs", "retry", run)
	o.command(cli.ExitFine, run, "runs", "retry", run, "--reason", "stock is back", "--token", made.Secret)
	o.wait(model.Failed, 1)
	o.command(cli.ExitFine, `cancelled 1 run\n`, "runs", "cancel", "--handler", "work/last", "--reason", "too late", "--token", made.Secret)
	o.command(cli.ExitFine, `(?s)ann +run +`+run+` +too late\n.*status: failed → cancelled\n.*ann +run +`+run+` +stock is back`, "audit",
		"--kind", "run", "--token", made.Secret)
}

func TestServersThatOthersReachNeedATokenAndSayWhatIsOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pipelines := write("a.yaml", failing)
	good, empty := write("token", "s3cret\n"), write("empty", "\n")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--listen", "0.0.0.0:0"}, "can be reached from outside; set --admin-token-file"},
		{[]string{"--listen", "127.0.0.1"}, `the address "127.0.0.1": want HOST:PORT such as 127.0.0.1:8080`},
		{[]string{"--admin-token", "a", "--admin-token-file", good}, "exclude each other"},
		{[]string{"--admin-token-file", empty}, "the file is empty"},
		{[]string{"--admin-token-file", filepath.Join(dir, "none")}, "--admin-token-file: open "},
		{[]string{"--admin-token", "sha256:abc"}, "want sha256: and 64 hexadecimal digits"},
		{[]string{"--admin-token", "a"}, "want 20 characters or more, 8 of them different, have 1 and 1"},
		{[]string{"--admin-token", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}, "have 39 and 1"},
		{[]string{"--admin-token-file", good}, "this one was made just now and is nobody's yet: procaas_"},
		{[]string{"--admin-token", "s3 cret"}, "want one token, without spaces"},
		{[]string{"--open", "event"}, `--open "event": did you mean events?`},
		{[]string{"--open", "none,runs"}, `--open "none": want events, runs, metrics, or none alone`},
	} {
		var out bytes.Buffer
		args := append([]string{"serve", "--pipelines", pipelines, "--store", "sqlite:" + filepath.Join(dir, "new.db")}, c.args...)
		code := Main(t.Context(), args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
		if code != cli.ExitUsage || !strings.Contains(out.String(), c.want) {
			t.Errorf("%v: want exit code 2 and %q, have %d and %s", c.args, c.want, code, out.String())
		}
		if strings.Contains(strings.ReplaceAll(out.String(), " ", ""), "s3cret") {
			t.Errorf("%v: the token is told: %s", c.args, out.String())
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "new.db")); err == nil {
		t.Error("want no store made by a server that does not serve")
	}

	// A store in which no token was ever made does not help.
	var out bytes.Buffer
	store := "sqlite:" + filepath.Join(dir, "made.db")
	if code := Main(t.Context(), []string{"store", "migrate", "--store", store}, cli.Streams{
		In: strings.NewReader(""), Out: &out,
		Err: &out,
	}); code != cli.ExitFine {
		t.Fatal(out.String())
	}
	code := Main(t.Context(), []string{"serve", "--pipelines", pipelines, "--store", store, "--listen", "0.0.0.0:0"},
		cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
	if code != cli.ExitUsage || !strings.Contains(out.String(), "can be reached from outside") {
		t.Errorf("want exit code 2, have %d and %s", code, out.String())
	}
}

// With tokens a server lets nobody in without one; only those for trying things out do.
func TestServersOpenNothingUnlessTold(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{"serve": "[none]", "dev": "[events,runs,metrics]", "demo": "[events,runs,metrics]"} {
		c, _, err := newRoot(cli.Streams{}).Find([]string{path})
		if err != nil {
			t.Fatal(err)
		}
		if have := c.Flags().Lookup("open").DefValue; have != want {
			t.Errorf("%s: want --open %s by default, have %s", path, want, have)
		}
	}
}
