package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"procaas/cmd/procaas-bench/figures"
)

// A figureGroup is a part of the figures of the pages, which make figures measures together.
type figureGroup struct {
	name  string
	parts string
	set   func(*options)
}

// figureGroups are all groups, the slow ones last. Each has its own options, so that figures of different days can be compared.
var figureGroups = []figureGroup{
	{"flows", "flows", func(o *options) { o.match = wholePrograms }},
	{"latency", "latency", func(o *options) { o.match, o.span = wholePrograms, 6*time.Second }},
	{"recovery", "recovery", func(o *options) { o.rounds = 3 }},
	{"intake", "accept,runs,backlog", func(o *options) { o.rounds, o.crowd = 3, 300_000 }},
	{"queue", "queue-drain,queue-latency", func(o *options) { o.rounds, o.crowd, o.span = 3, 100_000, 10*time.Second }},
	{"cores", "cores", func(o *options) { o.rounds = 3 }},
	{"definitions", "definitions", func(o *options) { o.rounds, o.span = 2, 6*time.Second }},
	{"waits", "waits", func(o *options) { o.rounds, o.span = 2, 6*time.Second }},
	{"fairness", "fairness", func(o *options) { o.rounds, o.span = 3, 8*time.Second }},
	{"expressions", "expressions", func(o *options) { o.rounds = 3 }},
	{"around", "around", func(o *options) { o.rounds = 1 }},
	{"inbox", "inbox", func(o *options) { o.rounds, o.crowd = 1, 100_000 }},
}

// wholePrograms are the contestants of the pages.
var wholePrograms = []string{"naive", "grouped", "procaas", "procaas, result awaited", "procaas, ids and keys", "procaas on SQLite"}

// A chosenGroup is a group with the options of this run.
type chosenGroup struct {
	figureGroup
	options options
	command string // repeats it
}

// chooseGroups returns groups by their names, or all. Flags that are set win over the options of a group.
func chooseGroups(names string, set *flag.FlagSet) (chosen []chosenGroup, err error) {
	wanted := groupNames()
	if names != "all" {
		if wanted, err = choose("-figures", strings.Join(strings.Fields(names), " "), " ", groupNames()); err != nil {
			return nil, err
		}
	}
	var args, shown []string
	set.Visit(func(f *flag.Flag) {
		arg := []string{"-" + f.Name, f.Value.String()}
		switch f.Name {
		case "figures":
		case "binary", "dsn", "cpuprofile", "memprofile": // where things are on this machine
			args = append(args, arg...)
		default:
			args, shown = append(args, arg...), append(shown, arg...)
		}
	})
	for _, g := range figureGroups {
		if !slices.Contains(wanted, g.name) {
			continue
		}
		one := chosenGroup{figureGroup: g, options: defaultOptions(), command: "make figures ONLY=" + g.name}
		g.set(&one.options)
		if err := one.options.flagSet(&choice{}).Parse(args); err != nil {
			return nil, err
		}
		if len(shown) > 0 {
			one.command += fmt.Sprintf(" ARGS=%q", strings.Join(shown, " "))
		}
		one.options.only = strings.Split(g.parts, ",")
		chosen = append(chosen, one)
	}
	return chosen, nil
}

func groupNames() []string {
	var names []string
	for _, g := range figureGroups {
		names = append(names, g.name)
	}
	return names
}

// measureGroups measures groups of figures, and writes each to its file and to the pages as soon as it is complete. It refuses a tree
// whose commit does not say what is measured.
func measureGroups(ctx context.Context, b *bench) error {
	top := "."
	commit, err := cleanCommit(ctx, top)
	if err != nil {
		return err
	}
	for _, g := range b.groups {
		set := figures.Set{
			Commit: commit, Date: time.Now().UTC().Format(time.DateOnly), Machine: machine() + " with PostgreSQL " + b.server.version,
			Command: g.command, Figures: map[string]figures.Figure{},
		}
		if set.Others, err = othersUse(ctx, 3*time.Second); err != nil {
			return err
		}
		one := *b
		one.options, one.found = g.options, &findings{}
		if err := one.measure(ctx); err != nil {
			return fmt.Errorf("figures of %s are not written: %w", g.name, err)
		}
		one.found.derive()
		for _, f := range *one.found {
			set.Figures[f.name] = figures.Figure{Value: significant(median(f.rounds)), Unit: f.unit}
		}
		if now, err := cleanCommit(ctx, top); err != nil || now != commit {
			return errors.Join(fmt.Errorf("figures of %s are not written: the tree has changed since commit %s", g.name, commit), err)
		}
		if err := errors.Join(figures.Save(top, g.name, set), figures.WritePages(top)); err != nil {
			return err
		}
	}
	return nil
}

// cleanCommit returns the commit of the tree. It refuses a tree with changes other than figures and pages.
func cleanCommit(ctx context.Context, top string) (string, error) {
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "git", append([]string{"-C", top}, args...)...).Output()
		return strings.TrimRight(string(out), "\n"), err
	}
	changed, err := git("status", "--porcelain", "--", ".", ":!"+figures.Folder, ":!docs/*.md", ":!README.md")
	if err != nil {
		return "", fmt.Errorf("git status: %w", err)
	}
	if changed != "" {
		return "", fmt.Errorf("want a tree without changes, or nobody can repeat the figures; commit these first:\n%s", changed)
	}
	return git("rev-parse", "--short=8", "HEAD")
}

// numbers are how a page writes a small number.
var numbers = []string{"no", "one", "two", "three", "four", "five", "six", "seven", "eight"}

// machine describes this machine in neutral words.
func machine() string {
	n, kind := runtime.NumCPU(), "a machine"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil && regexp.MustCompile(`(?m)^flags\s.*\bhypervisor\b`).Match(info) {
		kind = "a virtual machine"
	}
	count := strconv.Itoa(n)
	if n < len(numbers) {
		count = numbers[n]
	}
	if n == 1 {
		return "one core of " + kind
	}
	return count + " cores of " + kind
}

// othersUse returns which share of the processors other programs take, from 0 to 1.
func othersUse(ctx context.Context, span time.Duration) (float64, error) {
	before, err := busyTime()
	if err != nil {
		return 0, err
	}
	began, own := time.Now(), ownCPU()
	if err := pause(ctx, span); err != nil {
		return 0, err
	}
	after, err := busyTime()
	used := (after - before - (ownCPU() - own)).Seconds() / time.Since(began).Seconds() / float64(runtime.NumCPU())
	return significant(max(used, 0)), err
}

// busyTime returns the processor time of all programs since the start of the machine.
func busyTime() (time.Duration, error) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(data), "\n")
	f := strings.Fields(first)
	if len(f) < 8 {
		return 0, fmt.Errorf("/proc/stat: want 8 fields or more in the first line, have %q", first)
	}
	var sum int
	for i, field := range f[1:8] {
		if i == 3 || i == 4 { // idle, and waiting for a disk
			continue
		}
		n, err := strconv.Atoi(field)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		sum += n
	}
	return tick * time.Duration(sum), nil
}

// significant rounds to four digits, so that files of figures are easy to read and to compare.
func significant(v float64) float64 {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	if err != nil {
		return v
	}
	return rounded
}

// derive adds what larger machines could do, by arithmetic: the processor time of a flow stays the same.
func (f *findings) derive() {
	const prefix = "procaas, 256 in flight: "
	var program, server, log float64
	for _, one := range *f {
		switch one.name {
		case prefix + "program":
			program = median(one.rounds)
		case prefix + "PostgreSQL":
			server = median(one.rounds)
		case prefix + "log":
			log = median(one.rounds)
		}
	}
	if program == 0 {
		return
	}
	for _, cores := range []int{8, 32, 64} {
		flows := float64(cores) * 1e6 / (program + server)
		name := fmt.Sprintf("%d cores: ", cores)
		f.of(name+"flows", "").rounds = []float64{flows}
		f.of(name+"log", "MB/s").rounds = []float64{flows * log / 1e6}
	}
}
