package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"procaas/engine/enginetest/patience"
)

// A clientOf is the client of one language: how its own tests run, and how the example of its page does.
type clientOf struct {
	language string // as blocks of the page name it
	folder   string // below clients
	program  string
	test     []string
	example  func(t *testing.T, folder, dir, code string) *exec.Cmd
}

var clientsInLanguages = []clientOf{
	{"go", "go", "go", []string{"go", "test", "-trimpath", "-buildvcs=false", "-count=1", "./..."}, goExample},
	{"ts", "typescript", "npm", []string{"npm", "test"}, tsExample},
	{"python", "python", "python3", []string{"python3", "-m", "unittest", "discover"}, pythonExample},
}

// TestClients runs the tests of each client, in its own language, and its example in the docs, each against a real server.
func TestClients(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/authoring/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	flows := filepath.Join(t.TempDir(), "shop.yaml")
	write(t, flows, blockOf(t, page, "yaml"))
	for _, c := range clientsInLanguages {
		t.Run(c.folder, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(c.program); err != nil {
				t.Fatalf("this needs %s; run: sh engine/enginetest/install.sh", c.program)
			}
			folder, err := filepath.Abs(filepath.Join("../../clients", c.folder))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := patience.Context(t.Context(), 5*time.Minute)
			defer cancel()
			server, address := startProcaas(ctx, t, "", "dev", flows, "--ephemeral", "--listen", "127.0.0.1:0")
			defer server.kill()

			test := exec.CommandContext(ctx, c.test[0], c.test[1:]...)
			test.Dir, test.Env = folder, append(os.Environ(), "PROCAAS_SERVER=http://"+address, "PYTHONDONTWRITEBYTECODE=1")
			if out, err := test.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", strings.Join(c.test, " "), err, out)
			}
			code := strings.ReplaceAll(blockOf(t, page, c.language), "127.0.0.1:8080", address)
			runExample(t, c.example(t, folder, t.TempDir(), code))
		})
	}
}

// blockOf returns the first block of a page in a language.
func blockOf(t *testing.T, page []byte, language string) string {
	t.Helper()
	m := regexp.MustCompile("(?ms)^```" + language + "\n(.*?)^```$").FindSubmatch(page)
	if m == nil {
		t.Fatalf("the page has no example in %s", language)
	}
	return string(m[1])
}

// runExample runs an example until it has done its task, and stops it as the page says.
func runExample(t *testing.T, example *exec.Cmd) {
	t.Helper()
	var out lines
	example.Stdout, example.Stderr = &out, &out
	if err := example.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = example.Process.Kill() }() // if the test gives up
	patience.Until(t, "the example to do its task", func() bool { return out.after("letter to ") != "" })
	if err := example.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := example.Wait(); err != nil || !strings.Contains(out.after(""), "succeeded") {
		t.Errorf("the example ended with %v\n%s", err, out.after(""))
	}
}

// goExample builds the example as a module that replaces the address of the client, as the page says.
func goExample(t *testing.T, folder, dir, code string) *exec.Cmd {
	write(t, filepath.Join(dir, "main.go"), code)
	write(t, filepath.Join(dir, "go.mod"), fmt.Sprintf(
		"module example\n\ngo 1.25\n\nrequire procaas/clients/go v0.0.0\n\nreplace procaas/clients/go => %s\n", folder))
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", "example")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return exec.CommandContext(t.Context(), filepath.Join(dir, "example"))
}

// tsExample has the package where Node.js looks for it.
func tsExample(t *testing.T, folder, dir, code string) *exec.Cmd {
	write(t, filepath.Join(dir, "example.mjs"), code)
	if err := os.Mkdir(filepath.Join(dir, "node_modules"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(folder, filepath.Join(dir, "node_modules", "procaas-client")); err != nil {
		t.Fatal(err)
	}
	return exec.CommandContext(t.Context(), "node", filepath.Join(dir, "example.mjs"))
}

func pythonExample(t *testing.T, folder, dir, code string) *exec.Cmd {
	write(t, filepath.Join(dir, "example.py"), code)
	example := exec.CommandContext(t.Context(), "python3", filepath.Join(dir, "example.py"))
	example.Env = append(os.Environ(), "PYTHONPATH="+folder, "PYTHONDONTWRITEBYTECODE=1")
	return example
}
