package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"procaas/engine/api/client"
	"procaas/engine/enginetest"
	"procaas/engine/model"
)

// Nodes without files serve what is deployed, also after kill -9 and on a node that starts later.
func TestNodesWithoutFilesServeWhatIsDeployed(t *testing.T) {
	t.Parallel()
	store := enginetest.Postgres(t)
	start := func() (*signalled, *client.Client, string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "procaas", "serve", "--store", store, "--listen", "127.0.0.1:0", "--log-format", "json")
		cmd.Dir = t.TempDir()
		s := startSignalled(t, cmd)
		address := s.ready()
		return s, client.New(address, ""), address
	}
	set := func(answer string) string {
		t.Helper()
		dir := t.TempDir()
		text, err := os.ReadFile("../../deploy/flows/ping.yaml")
		if err == nil {
			text = []byte(strings.Replace(string(text), "set: {answer: pong}", "set: {answer: "+answer+"}", 1))
			err = os.WriteFile(filepath.Join(dir, "ping.yaml"), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	answer := func(c *client.Client) any {
		t.Helper()
		result, _, err := c.SubmitAndWait(t.Context(), []byte(`{"type": "ping"}`), 20*time.Second)
		if err != nil || result.Status != string(model.Succeeded) {
			t.Fatalf("have %+v, %v, want a run that succeeded", result, err)
		}
		run, err := c.Run(t.Context(), result.Run)
		if err != nil {
			t.Fatal(err)
		}
		return run.SharedState["answer"]
	}
	first, _, at := start()
	_, second, _ := start()
	deploy := func(want string, args ...string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "procaas", append([]string{"deploy", "--server", at}, args...)...).CombinedOutput()
		code := "exit status 0"
		if err != nil {
			code = err.Error()
		}
		if have := string(out) + code; !strings.Contains(have, want) {
			t.Fatalf("deploy %q: have %s, want %q", args, have, want)
		}
	}

	command := func(want string, args ...string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "procaas", append(args, "--server", at)...).CombinedOutput()
		code := "exit status 0"
		if err != nil {
			code = err.Error()
		}
		if have := string(out) + code; !regexp.MustCompile(want).MatchString(have) {
			t.Fatalf("%q: have %s, want %s", args, have, want)
		}
	}

	deploy("+ pipeline ping", set("pong"), "--dry-run")
	if list, err := second.Versions(t.Context(), 10); err != nil || len(list) != 1 {
		t.Errorf("after a dry run: %+v, %v, want only the empty set of the start", list, err)
	}
	deploy("2 of 2 live nodes use", set("pong"), "--wait", "--source", "1a2b3c4", "--reason", "first")
	if have := answer(second); have != "pong" {
		t.Errorf("have %v, want pong", have)
	}
	deploy("nothing has changed", set("pong"))
	deploy("exit status 1", set("!$ nowhere"))
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, third, address := start()
	at = address
	if have := answer(third); have != "pong" {
		t.Errorf("a node that starts later: have %v, want pong", have)
	}
	deploy("now ", set("hello"), "--reason", "friendlier")
	if have := answer(third); have != "hello" {
		t.Errorf("have %v, want hello", have)
	}
	deploy("now ", set("pong"))
	list, err := third.Versions(t.Context(), 10)
	if err != nil || len(list) != 3 || !strings.Contains(list[0].Reason, "first, from 1a2b3c4") {
		t.Errorf("have %+v, %v, want three versions, the latest being the first deployment again", list, err)
	}

	// What is current comes back byte for byte, and a difference is found in either place.
	dir, file := set("pong"), "ping.yaml"
	want, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	back := t.TempDir()
	command("wrote ping.yaml\n(?s).*exit status 0", "pull", back)
	have, err := os.ReadFile(filepath.Join(back, file))
	if err != nil || string(have) != string(want) {
		t.Errorf("pull: have %s, %v, want %s", have, err, want)
	}
	command("^runs in flight.*\nexit status 0|^exit status 0", "diff", back)
	command("0 written, 1 as they were\nexit status 0", "pull", back)
	if err := os.WriteFile(filepath.Join(back, file), append(want, "# a word more\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	command("file ping.yaml is changed\n(?s).*exit status 1", "diff", back)
	command("would be overwritten: ping.yaml\n(?s).*--force overwrites\nexit status 1", "pull", back)
	if err := os.WriteFile(filepath.Join(back, "more.yaml"), []byte("# nothing yet\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	command("file more.yaml is added\nfile ping.yaml is changed\n(?s).*exit status 1", "diff", back)
	command("more.yaml is not in the version(?s).*exit status 1", "pull", back, "--force")
	if have, err = os.ReadFile(filepath.Join(back, file)); err != nil || string(have) != string(want) {
		t.Errorf("pull --force: have %s, %v, want %s", have, err, want)
	}
	command("there is no version \"ffff\"(?s).*exit status 2", "pull", back, "--version", "ffff")
}
