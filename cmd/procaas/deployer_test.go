package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A team deploys its own files with a token that can change no others, however they differ.
func TestDeployersChangeOnlyWhatTheirOwnersLookAfter(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "procaas", "serve", "--store", "sqlite:"+filepath.Join(t.TempDir(), "s.db"),
		"--listen", "127.0.0.1:0", "--log-format", "json")
	cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "PROCAAS_ADMIN_TOKEN="+adminToken)
	at := startSignalled(t, cmd).ready()
	run := func(token, want string, args ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), "procaas", append(args, "--server", at, "--token", token)...)
		out, err := c.CombinedOutput()
		code := "exit status 0"
		if err != nil {
			code = err.Error()
		}
		if have := string(out) + code; !regexp.MustCompile(want).MatchString(have) {
			t.Fatalf("%q: have %s, want %s", args, have, want)
		}
		return strings.Fields(string(out) + " .")[0]
	}
	set := func(files map[string]string) string {
		t.Helper()
		dir := t.TempDir()
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	pipeline := func(owner, id, answer string) string {
		return "owner: " + owner + "\npipelines:\n  - id: " + id + "\n    shared-state: {answer: null}\n    stages:\n" +
			"      - id: only\n        handlers:\n          - {id: pong, set: {answer: " + answer + "}}\n"
	}
	const fine, refused = `exit status 0`, `exit status 1`
	shop, pay := pipeline("shop", "cart", "one"), pipeline("pay", "charge", "one")
	both := set(map[string]string{"shop.yaml": shop, "pay.yaml": pay})
	run(adminToken, fine, "deploy", both)
	token := run(adminToken, fine, "token", "new", "--name", "shop-ci", "--role", "deployer", "--owner", "shop")

	run(token, refused, "runs", "list")
	run(token, refused, "reload")
	back := t.TempDir()
	run(token, `2 written`, "pull", back)
	run(token, `the runs in flight are not compared(?s).*exit status 0`, "diff", back)
	cart := pipeline("shop", "cart", "two")
	run(token, `2 of 2|1 of 1 live nodes use`, "deploy", set(map[string]string{"shop.yaml": cart, "pay.yaml": pay}), "--wait")
	run(token, fine, "rollback", "--reason", "its own")

	const said = `pay.yaml" differs from the current version, and pipeline charge in it is of pay(?s).*exit status 1`
	for name, files := range map[string]map[string]string{
		"another's file":     {"shop.yaml": shop, "pay.yaml": pipeline("pay", "charge", "two")},
		"without it":         {"shop.yaml": shop},
		"only a comment":     {"shop.yaml": shop, "pay.yaml": pay + "# mine\n"},
		"taken over":         {"shop.yaml": shop, "pay.yaml": pipeline("shop", "charge", "two")},
		"moved to its own":   {"shop.yaml": shop + strings.SplitAfterN(pay, "pipelines:\n", 2)[1]},
		"a file of nobody's": {"shop.yaml": shop, "pay.yaml": pay, "more.yaml": "configs: {LOUD: true}\n"},
		"owners of files":    {"shop.yaml": shop, "pay.yaml": pay, "CODEOWNERS": "shop.yaml @shop\n"},
	} {
		want := said
		switch name {
		case "a file of nobody's":
			want = `more.yaml" differs from the current version, and what else it declares in it is of no owner(?s).*exit status 1`
		case "owners of files":
			want = `CODEOWNERS" differs from the current version, and CODEOWNERS in it is of no owner(?s).*exit status 1`
		}
		dir := set(files)
		run(token, want, "deploy", dir)
		if name == "another's file" {
			run(token, want, "deploy", dir, "--dry-run")
			run(token, want, "deploy", dir, "--shadow", "5%")
		}
	}
	run(adminToken, fine, "deploy", set(map[string]string{"shop.yaml": shop, "pay.yaml": pipeline("pay", "charge", "two")}), "--canary", "5%")
	run(token, said, "rollback")
	run(token, said, "promote")
	run(adminToken, fine, "promote")
	run(token, said, "rollback")
}
