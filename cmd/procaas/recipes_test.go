package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"procaas/engine/api/client"
	"procaas/engine/canary"
	"procaas/engine/clock"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
)

// The jobs of the page, as their forges have them.
type (
	githubFile struct {
		Jobs map[string]struct {
			Steps []struct{ Run, If string }
		}
	}
	gitlabFile map[string]struct{ Script []string }
)

// recipes returns the commands of the jobs that deploy, by forge and event or job.
func recipes(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/authoring/ci.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := map[string][]string{}
	for _, m := range foreign.FindAllSubmatch(page, -1) {
		switch name, text := string(m[1]), m[2]; {
		case strings.HasSuffix(name, "/deploy.yml"):
			var file githubFile
			if err := yaml.Unmarshal(text, &file); err != nil {
				t.Fatal(err)
			}
			for event, condition := range map[string]string{"pull request": "github.event_name == 'pull_request'", "push": "github.ref == 'refs/heads/main'"} {
				for _, step := range file.Jobs["deploy"].Steps {
					if step.Run != "" && (step.If == "" || step.If == condition) {
						commands["github "+event] = append(commands["github "+event], step.Run)
					}
				}
			}
		case name == ".gitlab-ci.yml":
			var file gitlabFile
			if err := yaml.Unmarshal(text, &file); err != nil {
				t.Fatal(err)
			}
			for job, does := range file {
				commands["gitlab "+job] = does.Script
			}
		}
	}
	return commands
}

// The jobs of the page deploy to nodes without files, and end as the canary does. Their commands run here as they stand there.
func TestRecipesOfCIDeploy(t *testing.T) {
	t.Parallel()
	jobs, store := recipes(t), enginetest.Postgres(t)
	var servers []string
	for range 2 {
		cmd := exec.CommandContext(t.Context(), "procaas", "serve", "--store", store, "--listen", "127.0.0.1:0", "--log-format", "json")
		cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "PROCAAS_ADMIN_TOKEN="+adminToken)
		servers = append(servers, startSignalled(t, cmd).ready())
	}
	admin := client.New(servers[1], adminToken)
	made, err := exec.CommandContext(t.Context(), "procaas", "token", "new", "--name", "ci", "--role", "deployer", "--server", servers[0],
		"--token", adminToken).Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(answer string) {
		t.Helper()
		for name, text := range map[string]string{
			"ping.yaml": "pipelines:\n  - id: ping\n    shared-state: {answer: null}\n    stages:\n      - id: only\n        handlers:\n" +
				"          - {id: pong, set: {answer: " + answer + "}}\n",
			"ping.test.yaml": "tests:\n  - {name: it answers, events: {type: ping}, expect: {status: succeeded}}\n",
		} {
			if err := os.MkdirAll(filepath.Join(dir, "pipelines"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "pipelines", name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	run := func(want string, commands ...string) {
		t.Helper()
		if len(commands) == 0 {
			t.Fatalf("have only %q", jobs)
		}
		sh := exec.CommandContext(t.Context(), "sh", "-e", "-c", strings.Join(commands, "\n"))
		sh.Dir = dir
		sh.Env = append(os.Environ(), "PROCAAS=procaas", "PROCAAS_SERVER="+servers[0], "PROCAAS_TOKEN="+strings.TrimSpace(string(made)),
			"GITHUB_SHA=1a2b3c4", "CI_COMMIT_SHA=1a2b3c4")
		out, err := sh.CombinedOutput()
		if have := fmt.Sprint(string(out), err); !regexp.MustCompile(want).MatchString(have) {
			t.Errorf("%q: have %s, want %s", commands, have, want)
		}
	}
	// during runs a job whose canary somebody ends meanwhile.
	during := func(want, end string, commands ...string) {
		t.Helper()
		done := make(chan struct{})
		go func() {
			defer close(done)
			run(want, commands...)
		}()
		for over := patience.Over(time.Minute); ; clock.Pause(t.Context(), 20*time.Millisecond) {
			state, err := admin.Canary(t.Context())
			if err == nil && state.Phase == canary.Running {
				break
			}
			if over() {
				t.Fatalf("no canary runs: %+v, %v", state, err)
			}
		}
		run(`<nil>`, "$PROCAAS release "+end+" --reason seen")
		<-done
	}

	write("one")
	run(`there is nothing to compare with(?s).*leave out --canary.*exit status`, jobs["github push"]...)
	run(`2 of 2 live nodes use(?s).*<nil>`, `$PROCAAS release deploy pipelines --wait --source "$GITHUB_SHA"`)
	write("two")
	run(`would be(?s).*handler ping/only/pong(?s).*<nil>`, jobs["github pull request"]...)
	run(`handler ping/only/pong(?s).*exit status 1`, jobs["gitlab drift"]...)
	during(`2 of 2 live nodes use(?s).*<nil>`, "promote", jobs["github push"]...)
	run(`<nil>`, jobs["gitlab drift"]...)
	write("three")
	run(`would be(?s).*<nil>`, jobs["gitlab preview"]...)
	during(`is not used: (?s).*exit status 1`, "rollback", jobs["gitlab deploy"]...)
}
