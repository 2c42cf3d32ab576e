package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/render"
	"procaas/engine/flowtest"
	"procaas/engine/memory"
	"procaas/engine/store"
	"procaas/engine/stub"
	"procaas/handlers"
)

const testHelp = `test runs the tests of pipelines: every *.test.yaml below the given paths, the
current directory when there is none. A test hands events in, answers the calls
of handlers by mocks or stub services, and says what must come of it: calls,
states, outcomes, emitted events, elapsed time. It runs on the engine itself, in
virtual time, so that a wait of an hour takes none; it never opens the network.

--chaos runs each test again with a crash at each of its checkpoints, before and
after it is written, and without each handler that is not critical: the same must
come of it. --coverage tells what the tests do not reach.

"procaas explain tests" tells how tests are written.`

// testFlags are the flags of procaas test.
type testFlags struct {
	run         string
	chaos       bool
	coverage    bool
	minCoverage float64
	watch       bool
}

func testCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "test [PATH…]",
		Short: "Run the tests of pipelines, in virtual time",
		Long:  testHelp,
		Example: `  procaas test flows/
  procaas test flows/ --run 'cancel' --watch
  procaas test flows/ --chaos --coverage --min-coverage 90`,
		Args: cobra.ArbitraryArgs,
	}
	var f testFlags
	c.Flags().StringVar(&f.run, "run", "", "run only tests whose FILE: NAME fits this regular expression")
	c.Flags().BoolVar(&f.chaos, "chaos", false, "run each test again with crashes, and without handlers that are not critical")
	c.Flags().BoolVar(&f.coverage, "coverage", false, "tell which handlers, branches, errors and degraded modes no test reaches")
	c.Flags().Float64Var(&f.minCoverage, "min-coverage", 0, "fail when less than this percentage is covered")
	c.Flags().BoolVar(&f.watch, "watch", false, "run again whenever a file has changed, until Ctrl-C")
	format := formatFlag(c, string(flowtest.Text), string(flowtest.JSON), string(flowtest.JUnit), string(flowtest.GitHub))
	c.RunE = func(c *cobra.Command, args []string) error {
		word, err := format()
		if err != nil {
			return err
		}
		if len(args) == 0 {
			args = []string{"."}
		}
		if f.minCoverage < 0 || f.minCoverage > 100 {
			return usagef("--min-coverage %g: want a percentage from 0 to 100", f.minCoverage)
		}
		t := tester{streams: s, paths: args, flags: f, format: flowtest.Format(word)}
		if f.run != "" {
			if t.choose, err = regexp.Compile(f.run); err != nil {
				return usagef("--run: %w", err)
			}
		}
		if f.watch {
			return t.watch(c.Context())
		}
		return t.test(c.Context())
	}
	return c
}

// isTestFile tells whether a file holds tests of pipelines.
func isTestFile(name string) bool { return isYAML(name) && strings.Contains(name, ".test.") }

// A tester runs the tests below paths.
type tester struct {
	streams
	paths  []string
	flags  testFlags
	choose *regexp.Regexp
	format flowtest.Format
}

// watch runs the tests at each change.
func (t tester) watch(ctx context.Context) error {
	once := func() {
		err := t.test(ctx)
		var usage usageError
		if errors.As(err, &usage) || err != nil && !errors.Is(err, errFindings) {
			fmt.Fprintf(t.err, "procaas: %v\n", err)
		}
		fmt.Fprintf(t.err, "%s watching, Ctrl-C ends it\n\n", time.Now().Format(time.TimeOnly))
	}
	once()
	return watch(ctx, t.watched(), once)
}

// watched lists what the tests are about: themselves, and the pipelines and stub
// services that they name elsewhere.
func (t tester) watched() []string {
	paths := slices.Clone(t.paths)
	files, err := readFiles(t.paths, t.in, isTestFile)
	if err != nil {
		return paths // which watch tells
	}
	for _, f := range files {
		if file, _ := flowtest.Parse(f); file != nil {
			paths = append(append(paths, file.Paths(f.Name)...), file.StubPaths(f.Name)...)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// test runs the tests once.
func (t tester) test(ctx context.Context) error {
	files, err := readFiles(t.paths, t.in, isTestFile)
	if err != nil {
		return usageError{err}
	}
	if len(files) == 0 {
		return usagef("no tests (*.test.yaml) in %s", strings.Join(t.paths, ", "))
	}
	l := testLoader{streams: t.streams, trees: treesOf(t.paths), bundles: map[string]*dsl.Bundle{}}
	suites, err := l.load(files)
	if err != nil {
		return err
	}
	o := flowtest.Options{Run: t.choose, Chaos: t.flags.chaos}
	if t.flags.coverage || t.flags.minCoverage > 0 {
		o.Cover = flowtest.NewCoverage(l.order...)
	}
	report, err := flowtest.Run(ctx, suites, o)
	if err != nil {
		return err
	}
	if len(report.Results) == 0 {
		return usagef("--run %s: no test fits", t.flags.run)
	}
	shown := o.Cover
	if !t.flags.coverage {
		shown = nil
	}
	if err := flowtest.Write(t.out, t.format, report, shown, colorful(t.out)); err != nil {
		return err
	}
	if o.Cover != nil && o.Cover.Total().Percent() < t.flags.minCoverage {
		total := o.Cover.Total()
		fmt.Fprintf(t.err, "coverage is %.1f %% (%d of %d), want %g %%; --coverage tells what is missing\n",
			total.Percent(), total.Covered, total.Total, t.flags.minCoverage)
		return errFindings
	}
	if report.Failed() > 0 {
		return errFindings
	}
	return nil
}

// A testLoader loads files of tests with their pipelines, each set of these once.
type testLoader struct {
	streams
	trees   trees                  // that tests may name files of
	bundles map[string]*dsl.Bundle // by their paths; nil for one with errors
	order   []*dsl.Bundle
	failed  bool
}

// load gives the suites of files of tests. All findings are shown; errors among
// them end the command.
func (l *testLoader) load(files []diag.File) ([]*flowtest.Suite, error) {
	var suites []*flowtest.Suite
	for _, f := range files {
		suite, err := l.suite(f)
		if err != nil {
			return nil, err
		}
		if suite == nil {
			l.failed = true
			continue
		}
		suites = append(suites, suite)
	}
	if l.failed {
		return nil, errFindings
	}
	return suites, nil
}

func (l *testLoader) suite(f diag.File) (*flowtest.Suite, error) {
	file, found := flowtest.Parse(f)
	if file == nil {
		return nil, l.show([]diag.File{f}, found)
	}
	bundle, err := l.bundle(file.Paths(f.Name))
	if err != nil || bundle == nil {
		return nil, err
	}
	stubs, err := l.stubs(file.StubPaths(f.Name))
	if err != nil {
		return nil, err
	}
	env := flowtest.Env{Types: handlers.All(), Store: func(now func() time.Time) store.Store { return memory.New(now) }}
	suite, found := flowtest.NewSuite(f.Name, file, bundle, stubs, env)
	return suite, l.show([]diag.File{f}, found)
}

func (l *testLoader) show(files []diag.File, found []diag.Diagnostic) error {
	if len(found) == 0 {
		return nil
	}
	return render.Write(l.err, render.Text, files, found, colorful(l.err))
}

// bundle loads pipelines; nil when they have errors.
func (l *testLoader) bundle(paths []string) (*dsl.Bundle, error) {
	key := strings.Join(paths, "\x00")
	if b, known := l.bundles[key]; known {
		return b, nil
	}
	files, err := readFilesIn(l.trees.enter, paths, l.in, isPipelineFile)
	if err != nil {
		return nil, usageError{err}
	}
	if len(files) == 0 {
		return nil, usagef("no pipeline files (*.yaml, *.yml) in %s", strings.Join(paths, ", "))
	}
	b, found := dsl.Load(files, dsl.Options{Types: languageTypes(), Read: l.trees.read})
	l.bundles[key] = b
	if b == nil {
		return nil, l.show(files, found)
	}
	l.order = append(l.order, b) // warnings are the business of validate
	return b, nil
}

// stubs loads stub services; the function makes new ones for each test.
func (l *testLoader) stubs(paths []string) (func() (flowtest.Stubs, error), error) {
	if len(paths) == 0 {
		return nil, nil
	}
	files, err := readFilesIn(l.trees.enter, paths, l.in, isStubFile)
	if err != nil {
		return nil, usageError{err}
	}
	spec, found := stub.Parse(files)
	if err := l.show(files, found); err != nil {
		return nil, err
	}
	if spec == nil {
		return nil, errFindings
	}
	return func() (flowtest.Stubs, error) { return stub.Play(spec) }, nil
}
