package authoring

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/internal/cli"
	"procaas/cmd/procaas/internal/source"
	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/tree"
	"procaas/engine/flowtest"
	"procaas/engine/memory"
	"procaas/engine/store"
	"procaas/engine/stub"
	"procaas/handlers"
)

const testHelp = `test runs the tests of pipelines: every *.test.yaml below the given paths (default:
the current directory). A test submits events and answers the calls of handlers with
mocks or stub services. Then it checks calls, states, outcomes, emitted events and
elapsed time. Tests run on the real engine in virtual time, so a wait of an hour
takes no time. Tests never use the network.

--chaos repeats each test with a crash before and after each checkpoint, and without
each handler that is not critical. The results must be the same. --coverage lists what
the tests do not reach.

"procaas explain tests" explains how to write tests.`

// testFlags are the flags of procaas test.
type testFlags struct {
	run         string
	chaos       bool
	coverage    bool
	minCoverage float64
	watch       bool
}

func testCommand() *cobra.Command {
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
	c.Flags().StringVar(&f.run, "run", "", "run only tests whose FILE: NAME matches this regular expression")
	c.Flags().BoolVar(&f.chaos, "chaos", false, "also run each test with crashes, and without handlers that are not critical")
	c.Flags().BoolVar(&f.coverage, "coverage", false, "list the handlers, branches, errors and degraded modes that no test reaches")
	c.Flags().Float64Var(&f.minCoverage, "min-coverage", 0, "fail when coverage is below this percentage")
	c.Flags().BoolVar(&f.watch, "watch", false, "run again whenever a file changes, until Ctrl-C")
	format := cli.Format(c, string(flowtest.Text), string(flowtest.JSON), string(flowtest.JUnit), string(flowtest.GitHub))
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		if f.minCoverage < 0 || f.minCoverage > 100 {
			return cli.Usagef("--min-coverage %g: want a percentage from 0 to 100", f.minCoverage)
		}
		t := tester{Streams: cli.Of(c), paths: here(args), flags: f, format: flowtest.Format(*format)}
		if f.run != "" {
			if t.choose, err = regexp.Compile(f.run); err != nil {
				return cli.Usagef("--run: %w", err)
			}
		}
		if f.watch {
			return t.watch(c.Context())
		}
		return t.test(c.Context())
	}
	return c
}

// isTestFile reports whether a file holds tests of pipelines.
func isTestFile(name string) bool { return source.IsYAML(name) && strings.Contains(name, ".test.") }

// A tester runs the tests below paths.
type tester struct {
	cli.Streams
	paths  []string
	flags  testFlags
	choose *regexp.Regexp
	format flowtest.Format
}

// watch runs the tests at each change.
func (t tester) watch(ctx context.Context) error {
	once := func() {
		err := t.test(ctx)
		if err != nil && !errors.Is(err, cli.ErrFindings) {
			fmt.Fprintf(t.Err, "procaas: %v\n", err)
		}
		fmt.Fprintf(t.Err, "%s watching, Ctrl-C ends it\n\n", time.Now().Format(time.TimeOnly))
	}
	once()
	return source.Watch(ctx, t.watched(), isRead, once)
}

// isRead reports whether a file may be a test, what it is about, or a schema or document of that.
func isRead(path string) bool { return source.IsYAML(path) || filepath.Ext(path) == ".json" }

// watched lists what the tests are about: themselves, and the pipelines and stub
// services that they name elsewhere.
func (t tester) watched() []string {
	paths := slices.Clone(t.paths)
	files, err := source.Files(t.paths, t.In, isTestFile)
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
	files, err := source.Files(t.paths, t.In, isTestFile)
	if err != nil {
		return cli.Usage(err)
	}
	if len(files) == 0 {
		return cli.Usagef("no tests (*.test.yaml) in %s", strings.Join(t.paths, ", "))
	}
	l := testLoader{Streams: t.Streams, trees: source.TreesOf(t.paths), bundles: map[string]*tree.Bundle{}}
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
		return cli.Usagef("--run %s: no test fits", t.flags.run)
	}
	shown := o.Cover
	if !t.flags.coverage {
		shown = nil
	}
	if err := flowtest.Write(t.Out, t.format, report, shown, cli.Colorful(t.Out)); err != nil {
		return err
	}
	if o.Cover != nil && o.Cover.Total().Percent() < t.flags.minCoverage {
		total := o.Cover.Total()
		fmt.Fprintf(t.Err, "coverage is %.1f %% (%d of %d), want %g %%; --coverage tells what is missing\n",
			total.Percent(), total.Covered, total.Total, t.flags.minCoverage)
		return cli.ErrFindings
	}
	return cli.FindingsIf(report.Failed() > 0)
}

// A testLoader loads files of tests with their pipelines, each set of these once.
type testLoader struct {
	cli.Streams
	trees   source.Trees            // that tests may name files of
	bundles map[string]*tree.Bundle // by their paths; nil for one with errors
	order   []*tree.Bundle
	failed  bool
}

// load returns the suites of files of tests. All findings are shown; errors among
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
		return nil, cli.ErrFindings
	}
	return suites, nil
}

func (l *testLoader) suite(f diag.File) (*flowtest.Suite, error) {
	file, found := flowtest.Parse(f)
	if file == nil {
		return nil, l.Findings([]diag.File{f}, found)
	}
	bundle, err := l.bundle(file.Paths(f.Name))
	if err != nil || bundle == nil {
		return nil, err
	}
	stubs, err := l.stubs(file.StubPaths(f.Name))
	if err != nil {
		return nil, err
	}
	env := flowtest.Env{Types: handlers.All(), Store: func(now func() time.Time) store.Store { return memory.New(now).Ports() }}
	suite, found := flowtest.NewSuite(f.Name, file, bundle, stubs, env)
	return suite, l.Findings([]diag.File{f}, found)
}

// bundle loads pipelines; nil when they have errors.
func (l *testLoader) bundle(paths []string) (*tree.Bundle, error) {
	key := strings.Join(paths, "\x00")
	if b, known := l.bundles[key]; known {
		return b, nil
	}
	files, err := source.PipelinesIn(l.trees, paths, l.In)
	if err != nil {
		return nil, err
	}
	b, found := dsl.Load(files, dsl.Options{Types: source.Types(), Read: l.trees.Read})
	l.bundles[key] = b
	if b == nil {
		return nil, l.Findings(files, found)
	}
	l.order = append(l.order, b) // warnings are the business of validate
	return b, nil
}

// stubs loads stub services; the function makes new ones for each test.
func (l *testLoader) stubs(paths []string) (func() (flowtest.Stubs, error), error) {
	if len(paths) == 0 {
		return nil, nil
	}
	files, err := source.FilesIn(l.trees.Enter, paths, l.In, source.IsStub)
	if err != nil {
		return nil, cli.Usage(err)
	}
	spec, found := stub.Parse(files)
	if err := l.Findings(files, found); err != nil {
		return nil, err
	}
	if spec == nil {
		return nil, cli.ErrFindings
	}
	return func() (flowtest.Stubs, error) { return stub.Play(spec) }, nil
}
