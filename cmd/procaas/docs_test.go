package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/cmd/procaas/addons"
	"procaas/cmd/procaas/internal/source"
	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/render"
	"procaas/engine/clock"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/handlers/subscriptions/brokertest"
)

// The pages of docs are tests. Their blocks are worked off in order, in an empty directory, by one shell:
//
//   - yaml: must have no findings. With a first line that is only a file name, it is written for the commands behind it.
//   - yaml wrong=CODE: must have that finding.
//   - console: each line that begins with "$ " is a command, what follows is its output, with "..." for any text or lines.
//   - sh: commands without their output; "sh not-run" is left out.
//
// The server of a page is wherever there is a free port, although the page says 127.0.0.1:8080. So are stub services, from 9000 on.

var (
	docBlock = regexp.MustCompile("(?ms)^```(\\w+)([^\n]*)\n(.*?)^```$")
	fileName = regexp.MustCompile(`^# ([\w./-]+\.(?:yaml|json))\n`)
	// reading are commands that may be repeated until they tell what the page says.
	reading = regexp.MustCompile(`^(procaas (runs (list|show)|versions|canary|explain|top|audit|nodes|queue (stats|peek)|switch list|limit list|` +
		`subscriptions (list|dead-letters)|balancer (status|moves|explain)|shard (list|show|resolve|transfers)|inbox status|config list)\b|curl |psql .*select )`)
	changing = regexp.MustCompile(` -X | -d | --data|--request`)
	serving  = regexp.MustCompile(`\bprocaas (dev|serve|demo)(\s|$)`)
	// servicePort is where a page says that a stub service listens. Pages run at the same time.
	servicePort = regexp.MustCompile(`\b127\.0\.0\.1:9\d{3}\b`)
)

func TestDocs(t *testing.T) {
	t.Parallel()
	root := repository(t)
	var pages []string
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d fs.DirEntry, err error) error {
		if d.IsDir() && (d.Name() == "decisions" || d.Name() == "reference") {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, ".md") {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range pages {
		name, _ := filepath.Rel(root, path)
		t.Run(strings.TrimSuffix(name, ".md"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			p := &page{nats: brokerOf(t, string(text)), t: t, name: name, dir: t.TempDir(), server: freeAddress(t), files: map[string]string{}, services: map[string]string{}}
			p.work(string(text))
		})
	}
}

// brokerOf starts the broker of a page that has one, and returns its address.
func brokerOf(t *testing.T, text string) string {
	const address = "nats://127.0.0.1:4222"
	if !strings.Contains(text, address) {
		return address
	}
	return brokertest.StartNATS(t).URL()
}

// A page is one whose blocks are being worked off.
type page struct {
	t      *testing.T
	name   string
	dir    string
	server string            // where 127.0.0.1:8080 is
	files  map[string]string // pipelines that the page has written, by name
	// services are the addresses that stubs really have, by those that the page says.
	services map[string]string
	line     int // of the block that is worked on

	in    io.WriteCloser // of the shell; nil before the first command
	out   *bufio.Reader
	nats  string // the address of its broker
	store string // the PostgreSQL of the page; empty before it is asked for
	shop  string // the address and the database of its service; empty before it is asked for

	database string // in which its flows execute statements; empty before it is asked for
}

func (p *page) work(text string) {
	for _, m := range docBlock.FindAllStringSubmatchIndex(text, -1) {
		kind, info, body := text[m[2]:m[3]], strings.TrimSpace(text[m[4]:m[5]]), text[m[6]:m[7]]
		p.line = 1 + strings.Count(text[:m[0]], "\n")
		switch {
		case strings.HasPrefix(info, "file=") || strings.HasPrefix(info, "not-run"):
		case kind == "yaml" || kind == "yml":
			p.yaml(info, body)
		case kind == "console":
			p.console(body)
		case kind == "sh":
			p.run("set -e\n" + body + "set +e\n")
		case !slices.Contains([]string{"text", "json", "mermaid", "go", "ts", "python", "sql"}, kind): // TestClients runs the programs
			p.failf("a block of %q: want yaml, console, sh, text, json, mermaid, go, ts, python or sql", kind)
		}
	}
	if len(p.files) > 0 {
		p.validate(p.files, "")
	}
}

func (p *page) failf(format string, args ...any) {
	p.t.Helper()
	p.t.Errorf("%s:%d: %s", p.name, p.line, fmt.Sprintf(format, args...))
}

// yaml checks a file of YAML, and writes it when it has a name.
func (p *page) yaml(info, body string) {
	wrong, isWrong := strings.CutPrefix(info, "wrong=")
	if info != "" && !isWrong {
		p.failf("a block of YAML says %q: want nothing, or wrong=CODE", info)
	}
	named := fileName.FindStringSubmatch(body)
	if named == nil {
		p.validate(map[string]string{"example.yaml": body}, wrong)
		return
	}
	write(p.t, filepath.Join(p.dir, named[1]), p.replaced(body))
	if source.IsPipeline(named[1]) {
		p.files[named[1]] = body
	}
}

// validate wants no findings in files, not even advice, or the one that is called wrong.
func (p *page) validate(texts map[string]string, wrong string) {
	var files []diag.File
	for name, text := range texts {
		files = append(files, diag.File{Name: name, Data: []byte(text)})
	}
	_, found := dsl.Load(files, dsl.Options{Language: addons.Language(), Types: addons.Types()})
	if wrong != "" {
		if !slices.ContainsFunc(found, func(d diag.Diagnostic) bool { return d.Code == diag.Code(wrong) }) {
			p.failf("want the finding %s, have %v", wrong, found)
		}
		return
	}
	if len(found) > 0 {
		var out strings.Builder
		if err := render.Write(&out, render.Text, files, found, false); err != nil {
			p.t.Fatal(err)
		}
		p.failf("the example has findings:\n%s", out.String())
	}
}

// console runs commands and compares what they print.
func (p *page) console(body string) {
	command, want := "", ""
	check := func() {
		if command == "" {
			return
		}
		match := regexp.MustCompile(`\A` + pattern(want) + `\s*\z`)
		repeatable := reading.MatchString(command) && !changing.MatchString(command)
		have, code := p.try(command)
		over := patience.Over(patienceOfPages)
		for repeatable && (code != "0" || !match.MatchString(have)) && !over() {
			clock.Pause(p.t.Context(), 50*time.Millisecond)
			have, code = p.try(command)
		}
		if code != "0" {
			p.failf("exit code %s of\n%s\n%s", code, command, have)
			return
		}
		if !match.MatchString(have) {
			p.failf("$ %s\nwant\n%s\nhave\n%s", command, want, have)
		}
	}
	continued := false
	for line := range strings.Lines(body) {
		p.line++
		switch rest, is := strings.CutPrefix(line, "$ "); {
		case is:
			check()
			command, want = strings.TrimSpace(rest), ""
		case continued:
			command += "\n" + strings.TrimSpace(line)
		default:
			want += line
		}
		continued = strings.HasSuffix(strings.TrimSpace(line), `\`)
	}
	check()
}

// patienceOfPages is how long a page may wait for an output on an idle machine.
const patienceOfPages = 5 * time.Second

// pattern makes a regular expression of an output in which "..." matches any text, or, alone in a line, for any lines.
func pattern(want string) string {
	var out strings.Builder
	for line := range strings.Lines(strings.TrimRight(want, "\n ")) {
		line = strings.TrimRight(line, "\n ")
		if strings.TrimSpace(line) == "..." {
			out.WriteString(`(?s:.*?)`)
			continue
		}
		parts := strings.Split(line, "...")
		for i, part := range parts {
			// The width of a column depends on its contents.
			words := strings.Fields(part)
			for j, w := range words {
				words[j] = regexp.QuoteMeta(w)
			}
			parts[i] = strings.Join(words, `[ ]+`)
			if part != "" && part[0] == ' ' {
				parts[i] = `[ ]*` + parts[i]
			}
			if strings.HasSuffix(part, " ") {
				parts[i] += `[ ]*`
			}
		}
		out.WriteString(`[ ]*` + strings.Join(parts, `.*?`) + `[ ]*\n?`)
	}
	return out.String()
}

// replaced replaces the names of the page by those of this machine.
func (p *page) replaced(text string) string {
	if strings.Contains(text, "postgres://procaas@db/procaas") {
		if p.store == "" {
			p.store = enginetest.Postgres(p.t)
		}
		text = strings.ReplaceAll(text, "postgres://procaas@db/procaas", p.store)
	}
	const shop = "127.0.0.1:5432/shop"
	if strings.Contains(text, shop) {
		if p.shop == "" {
			p.shop = enginetest.OwnPostgres(p.t).Addr() + "/postgres"
		}
		text = strings.ReplaceAll(text, shop, p.shop)
	}
	if strings.Contains(text, billing) {
		if p.database == "" {
			p.database = ownDatabase(p.t)
		}
		text = strings.ReplaceAll(text, billing, p.database)
	}
	text = strings.ReplaceAll(text, "nats://127.0.0.1:4222", p.nats)
	text = servicePort.ReplaceAllStringFunc(text, func(address string) string {
		if p.services[address] == "" {
			p.services[address] = freeAddress(p.t)
		}
		return p.services[address]
	})
	return strings.NewReplacer("127.0.0.1:8080", p.server, "localhost:8080", p.server).Replace(text)
}

// billing is the database of pages whose flows execute statements. Its address is one that psql takes, too.
const billing = "postgres://procaas@127.0.0.1:5432/billing"

// ownDatabase makes a database for a test, and returns its address.
func ownDatabase(t *testing.T) string {
	t.Helper()
	u, err := url.Parse(enginetest.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	u.RawQuery = "sslmode=disable"
	server, name := u.String(), "test_"+strings.ToLower(rand.Text())
	do := func(ctx context.Context, statement string) {
		conn, err := pgx.Connect(ctx, server)
		if err == nil {
			_, err = conn.Exec(ctx, fmt.Sprintf(statement, name))
			_ = conn.Close(ctx)
		}
		if err != nil {
			t.Error(err)
		}
	}
	do(t.Context(), "create database %s")
	t.Cleanup(func() { do(context.WithoutCancel(t.Context()), "drop database %s with (force)") })
	u.Path = "/" + name
	return u.String()
}

// asWritten is the opposite: it puts the page's own names back into what a command printed.
func (p *page) asWritten(text string) string {
	text = strings.ReplaceAll(text, p.server, "127.0.0.1:8080")
	for address, real := range p.services {
		text = strings.ReplaceAll(text, real, address)
	}
	return text
}

// run runs commands in the shell of the page. They must end well.
func (p *page) run(commands string) {
	p.t.Helper()
	if out, code := p.try(commands); code != "0" {
		p.failf("exit code %s of\n%s\n%s", code, commands, out)
	}
}

// try runs commands in the shell of the page. It returns what they print, and the exit code of the last one.
func (p *page) try(commands string) (printed, code string) {
	p.t.Helper()
	if p.in == nil {
		p.begin()
	}
	background := regexp.MustCompile(`(?m)^(.*[^&]) &$`)
	waits := false
	for _, m := range background.FindAllString(commands, -1) {
		waits = waits || serving.MatchString(m)
	}
	commands = background.ReplaceAllString(p.replaced(commands), "$1 >>background.log 2>&1 &")
	const mark = "\x01"
	fmt.Fprintf(p.in, "%s\nprintf '%%b%%s\\n' '\\001' \"$?\"\n", strings.TrimRight(commands, "\n"))
	var out strings.Builder
	for {
		line, err := p.out.ReadString('\n')
		if before, after, found := strings.Cut(line, mark); found {
			out.WriteString(before)
			code = strings.TrimSpace(after)
			break
		}
		out.WriteString(line)
		if err != nil {
			log, _ := os.ReadFile(filepath.Join(p.dir, "background.log"))
			p.failf("a command of these failed:\n%s\n%s\n%s", commands, out.String(), log)
			p.t.FailNow()
		}
	}
	if waits {
		patience.Until(p.t, p.name+": the server to be ready", func() bool {
			resp, err := http.Get("http://" + p.server + "/readyz")
			return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
		})
	}
	return p.asWritten(out.String()), code
}

// begin starts the shell of the page. It and all that it has started end with the test.
func (p *page) begin() {
	shell := exec.CommandContext(p.t.Context(), "sh")
	shell.Dir = p.dir
	shell.Env = append(os.Environ(), "NO_COLOR=1", "HOME="+p.dir, "PROCAAS_LISTEN="+p.server, "PROCAAS_SERVER=http://"+p.server, "NATS_URL="+p.nats)
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, outWriter, err := os.Pipe()
	if err != nil {
		p.t.Fatal(err)
	}
	shell.Stdout, shell.Stderr = outWriter, outWriter
	if p.in, err = shell.StdinPipe(); err != nil {
		p.t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		p.t.Fatal(err)
	}
	_ = outWriter.Close()
	p.out = bufio.NewReader(out)
	p.t.Cleanup(func() {
		_ = p.in.Close()
		_ = syscall.Kill(-shell.Process.Pid, syscall.SIGTERM)
		_ = shell.Wait()
		_ = out.Close()
	})
}
