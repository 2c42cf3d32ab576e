package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// Each target that make help shows is made of commands that a shell understands.
func TestMakeTargetsAreShell(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	targets := regexp.MustCompile(`(?m)^([a-z-]+):.*## `).FindAllStringSubmatch(string(text), -1)
	if len(targets) < 10 {
		t.Fatalf("want the targets of the Makefile, have %v", targets)
	}
	for _, target := range targets {
		command := exec.CommandContext(t.Context(), "make", "-n", "-C", "../..", target[1])
		script, err := command.Output()
		if err != nil {
			t.Errorf("make -n %s: %v", target[1], err)
			continue
		}
		check := exec.CommandContext(t.Context(), "sh", "-n")
		check.Stdin = strings.NewReader(string(script))
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("make %s: %v: %s", target[1], err, out)
		}
	}
}
