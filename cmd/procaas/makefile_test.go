package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"procaas/engine/api/cli"
)

// These find targets in the Makefile and commands in their scripts.
var (
	makeTarget = regexp.MustCompile(`(?m)^([a-z-]+):.*## `)
	makeFlag   = regexp.MustCompile(`flag\.\w+\((?:&\w+, )?"([\w-]+)"`)
	makeFunc   = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(`)
	makePath   = regexp.MustCompile(`(?:^|[ "])(\./[a-z][\w/-]*|[a-z]+/[\w/-]+\.sh)(?:$|[ "])`)
	makeGoTest = regexp.MustCompile(`\bgo test .*`)
	makeScript = regexp.MustCompile(`\bsh (\S+\.sh)`)
	makeOurs   = regexp.MustCompile(`(?:^|&& )bin/procaas ([^;&|>]+)`)
)

// goTestFlags are flags of go test itself, and whether a value follows them.
var goTestFlags = map[string]bool{
	"count": true, "timeout": true, "v": false, "run": true, "bench": true, "benchmem": false, "benchtime": true, "race": false,
	"parallel": true,
	"tags":     true, "list": true, "fuzz": true, "fuzztime": true, "fuzzminimizetime": true, "trimpath": false, "buildvcs": false,
	"gcflags": false, "vet": false, "p": true,
	"args": false, "rewrite": false, "c": false, "o": true, "skip": true,
}

// TestMakeTargetsCallWhatIsThere looks at each target, and at the scripts that it runs, as a shell and as Go would: the commands of
// ours take their flags, and tests, benchmarks, their flags, packages and scripts that are named are there.
func TestMakeTargetsCallWhatIsThere(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	targets := makeTarget.FindAllStringSubmatch(string(text), -1)
	if len(targets) < 10 {
		t.Fatalf("want the targets of the Makefile, have %v", targets)
	}
	phony := regexp.MustCompile(`(?s)\n\.PHONY:(.*?[^\\])\n`).FindStringSubmatch(string(text))[1]
	for target := range strings.FieldsSeq(strings.ReplaceAll(phony, "\\\n", " ")) {
		if !strings.Contains(string(text), "\n"+target+":") {
			t.Errorf("%s is phony and has no rule", target)
		}
	}
	for _, target := range targets {
		t.Run(target[1], func(t *testing.T) {
			t.Parallel()
			script, err := exec.CommandContext(t.Context(), "make", "-n", "-C", "../..", target[1], "LIST=procaas/docs", "SOURCES=").Output() // these take a second each
			if err != nil {
				t.Fatalf("make -n: %v", err)
			}
			checkScript(t, string(script))
			for _, m := range makeScript.FindAllStringSubmatch(string(script), -1) {
				data, err := os.ReadFile(filepath.Join("../..", m[1]))
				if err != nil {
					t.Fatal(err)
				}
				checkScript(t, string(data))
			}
		})
	}
}

// checkScript looks at the commands of a target or a script.
func checkScript(t *testing.T, script string) {
	t.Helper()
	check := exec.CommandContext(t.Context(), "sh", "-n")
	check.Stdin = strings.NewReader(script)
	if out, err := check.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const dir = "../.."
	for line := range strings.Lines(strings.ReplaceAll(script, "\\\n", " ")) {
		for _, m := range makePath.FindAllStringSubmatch(line, -1) {
			if _, err := os.Stat(filepath.Join(dir, m[1])); err != nil {
				t.Errorf("%s is not there, in: %s", m[1], line)
			}
		}
		for _, m := range makeOurs.FindAllStringSubmatch(line, -1) {
			found, rest, err := newRoot(cli.Streams{}).Find(strings.Fields(m[1]))
			if err == nil {
				err = found.ParseFlags(rest)
			}
			if err != nil || !found.HasParent() {
				t.Errorf("procaas %s: %v", m[1], err)
			}
		}
		if m := makeGoTest.FindString(line); m != "" && !strings.Contains(m, "$(") {
			checkGoTest(t, dir, strings.Fields(m)[2:])
		}
	}
}

// checkGoTest checks that the arguments of go test exist, and that it takes the flags.
func checkGoTest(t *testing.T, dir string, words []string) {
	t.Helper()
	var packages, runs, flags []string
	for i := 0; i < len(words); i++ {
		word := strings.Trim(words[i], `'"`)
		name, ours := strings.CutPrefix(word, "-")
		name, _, assigned := strings.Cut(name, "=")
		switch value, known := goTestFlags[name]; {
		case !ours && strings.HasPrefix(word, "./"):
			packages = append(packages, word)
		case !ours:
		case known && value && !assigned && i+1 < len(words):
			i++
			if name == "run" || name == "bench" {
				runs = append(runs, strings.Trim(words[i], `'"`))
			}
		case !known:
			flags = append(flags, name)
		}
	}
	if len(packages) == 0 {
		packages = []string{"."}
	}
	code := testCode(t, dir, packages)
	var funcs []string
	for _, m := range makeFunc.FindAllStringSubmatch(code, -1) {
		funcs = append(funcs, m[1])
	}
	for _, run := range runs {
		pattern, err := regexp.Compile(run)
		if err != nil {
			t.Errorf("%s: %v", run, err)
		} else if run != "^$" && run != "." && !slices.ContainsFunc(funcs, pattern.MatchString) {
			t.Errorf("go test %v: nothing there matches %s", words, run)
		}
	}
	for _, f := range flags {
		if !slices.ContainsFunc(makeFlag.FindAllStringSubmatch(code, -1), func(m []string) bool { return m[1] == f }) {
			t.Errorf("go test %v: the tests there have no flag -%s", words, f)
		}
	}
}

// testCode reads the tests of packages.
func testCode(t *testing.T, dir string, packages []string) string {
	t.Helper()
	var code strings.Builder
	for _, p := range packages {
		whole, below := strings.CutSuffix(p, "/...")
		err := filepath.WalkDir(filepath.Join(dir, whole), func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && !below && name != filepath.Join(dir, whole) {
				return filepath.SkipDir
			}
			if err != nil || !strings.HasSuffix(name, "_test.go") {
				return err
			}
			data, err := os.ReadFile(name)
			code.Write(append(data, '\n'))
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	return code.String()
}
