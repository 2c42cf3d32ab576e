package authoring

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/addons"
	"procaas/cmd/procaas/internal/source"
	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/api/cli"
	"procaas/engine/flowtest"
	"procaas/engine/memory"
	"procaas/engine/store"
	"procaas/engine/stub"
)

const testHelp = `test runs the tests of pipelines: every *.test.yaml below the given paths (default:
the current directory). A test submits events and answers the calls of handlers with
mocks or stub services. Then it checks calls, states, outcomes, emitted events and
elapsed time. Tests run on the real engine in virtual time, so a wait of an hour
takes no time. Tests never use the network. A test makes at most 20000 calls. It
prints its progress after each 1000, since that many calls take a while.

A test is about the pipelines of its own directory. If these need files of another team,
name both directories: procaas test core bonus. They are then one set.

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
  procaas test core/ bonus/
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

// isRead reports whether a file may be a test, a pipeline, a schema or a document.
func isRead(path string) bool { return source.IsYAML(path) || filepath.Ext(path) == ".json" }

// watched lists what to watch: the tests, and the pipelines and stub services that they name elsewhere.
func (t tester) watched() []string {
	paths := slices.Clone(t.paths)
	files, err := source.Files(t.paths, t.In, source.IsTest)
	if err != nil {
		return paths // watch reports the error
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
	files, err := source.Files(t.paths, t.In, source.IsTest)
	if err != nil {
		return cli.Usage(err)
	}
	if len(files) == 0 {
		return cli.Usagef("no tests (*.test.yaml) in %s", strings.Join(t.paths, ", "))
	}
	l := testLoader{
		Streams: t.Streams, trees: source.TreesOf(t.paths), given: source.Dirs(t.paths),
		bundles: map[string]*loaded{}, shown: map[finding]bool{},
	}
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

// A testLoader loads test files with their pipelines. It loads each set of pipelines once.
type testLoader struct {
	cli.Streams
	trees   source.Trees       // where tests may name files
	given   []string           // directories of the command
	bundles map[string]*loaded // by their paths
	order   []*tree.Bundle
	shown   map[finding]bool
	failed  bool
}

// loaded is the result of loading pipelines.
type loaded struct {
	bundle *tree.Bundle // nil if there are errors
	files  []diag.File
	found  []diag.Diagnostic
}

// A finding identifies a finding.
type finding struct {
	code diag.Code
	at   diag.Span
}

func placed(d diag.Diagnostic) finding {
	d.Via = nil // it differs each time that the files are loaded
	return finding{d.Code, d.Span}
}

// load returns the suites of test files. It prints findings, and returns an error if any is an error.
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
	about, err := l.about(f.Name, file)
	if err != nil {
		return nil, err
	}
	if about.bundle == nil {
		return nil, l.show(about)
	}
	if !slices.Contains(l.order, about.bundle) {
		l.order = append(l.order, about.bundle) // validate reports warnings
	}
	if missing := missingStubs(f, file); len(missing) > 0 {
		return nil, l.Findings([]diag.File{f}, missing)
	}
	stubs, err := l.stubs(file.StubPaths(f.Name))
	if err != nil {
		return nil, err
	}
	env := flowtest.Env{
		Types: addons.HandlerTypes(), Store: func(now func() time.Time) store.Store { return memory.New(now).Ports() },
		Progress: func(file, test string, calls, most int) {
			fmt.Fprintf(l.Err, "%s: %s: %d calls so far, at most %d\n", file, test, calls, most)
		},
	}
	suite, found := flowtest.NewSuite(f.Name, file, about.bundle, stubs, env)
	return suite, l.Findings([]diag.File{f}, found)
}

// about loads the pipelines that a test file is about. A directory may need pipelines of other teams. If these are
// given too, all of them form one set.
func (l *testLoader) about(name string, file *flowtest.File) (*loaded, error) {
	paths := file.Paths(name)
	own, err := l.pipelines(paths)
	if err != nil || own.bundle != nil || len(file.Pipelines) > 0 {
		return own, err
	}
	set, err := l.pipelines(append(paths, l.given...))
	if err != nil || !cures(set.found, own.found) {
		return own, err
	}
	return set, nil
}

// show prints the findings of pipelines, once for all tests.
func (l *testLoader) show(about *loaded) error {
	var fresh []diag.Diagnostic
	for _, d := range about.found {
		if at := placed(d); !l.shown[at] {
			l.shown[at] = true
			fresh = append(fresh, d)
		}
	}
	return l.Findings(about.files, fresh)
}

// cures reports whether an error of before is missing in later findings.
func cures(later, before []diag.Diagnostic) bool {
	return slices.ContainsFunc(before, func(d diag.Diagnostic) bool {
		return d.Severity == diag.Error && !slices.ContainsFunc(later, func(l diag.Diagnostic) bool { return placed(l) == placed(d) })
	})
}

// pipelines loads a set of pipelines once.
func (l *testLoader) pipelines(paths []string) (*loaded, error) {
	key := strings.Join(paths, "\x00")
	if known := l.bundles[key]; known != nil {
		return known, nil
	}
	files, err := source.PipelinesIn(l.trees, paths, l.In)
	if err != nil {
		return nil, err
	}
	b, found := dsl.Load(files, dsl.Options{Language: addons.Language(), Types: addons.Types(), Read: l.trees.Read})
	l.bundles[key] = &loaded{bundle: b, files: files, found: found}
	return l.bundles[key], nil
}

// missingStubs reports the files of stub services that a test file names and that do not exist.
func missingStubs(f diag.File, file *flowtest.File) []diag.Diagnostic {
	var r diag.Reporter
	for i, path := range file.StubPaths(f.Name) {
		_, err := os.Stat(path)
		if !errors.Is(err, fs.ErrNotExist) {
			continue // reading it says what else is wrong
		}
		at := file.PlaceOf(fmt.Sprintf("stubs[%d]", i), file.PlaceOf("stubs", diag.Span{File: f.Name}))
		known, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
		known = slices.DeleteFunc(known, func(name string) bool { return !source.IsStub(name) })
		for i, name := range known {
			known[i] = filepath.Base(name)
		}
		r.Errorf(at, rules.TestName, diag.DidYouMean(filepath.Base(path), known, `"`), "there is no file %s", path)
	}
	return r.Diagnostics()
}

// stubs loads stub services. The returned function creates new ones for each test.
func (l *testLoader) stubs(paths []string) (func() (engine.Stubs, error), error) {
	if len(paths) == 0 {
		return nil, nil
	}
	files, err := source.NamedStubsIn(l.trees.Enter, paths, l.In)
	if err != nil {
		return nil, err
	}
	return stubPlayers(l.Streams, files)
}

// stubPlayers checks stub files. The returned function creates new stub services.
func stubPlayers(s cli.Streams, files []diag.File) (func() (engine.Stubs, error), error) {
	spec, err := source.StubSpec(s, files)
	if err != nil {
		return nil, err
	}
	return func() (engine.Stubs, error) { return stub.Play(spec) }, nil
}
