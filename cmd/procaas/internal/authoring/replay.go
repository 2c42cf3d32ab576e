package authoring

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/addons"
	"procaas/cmd/procaas/internal/source"
	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/engine"
	"procaas/engine/api/cli"
	"procaas/engine/definitions"
	"procaas/engine/flowtest"
	"procaas/engine/records"
	"procaas/engine/replay"
	"procaas/engine/store"
	"procaas/handlers"
)

const replayHelp = `replay runs recorded runs again, by these files: in virtual time, and without a network.
It reports which runs would call other services, send something else, come to another
result or take longer. Differences with the same cause are one group.

A server records runs with procaas serve --record 5%. Read them from the server, from a file
of procaas runs export, or from one of an archive in JSON Lines. An archive has no versions of
the pipelines, so those of its runs come from the server. Each run is replayed by its own
version first. A run that does not come to its recorded end in this way cannot be compared,
and the report says why.

Services answer what was recorded, also to a changed request. If the new files make a call
that was not recorded, the replay assumes that it succeeds if nothing reads its response.
Otherwise the replay of the run ends there, unless --stub answers the call.

Exit codes: 0 when nothing differs, 1 when something does, 3 when no run can be compared.`

// replayFlags are the flags of procaas replay.
type replayFlags struct {
	from   string
	slower string
	stubs  []string
	filter store.RunFilter
	when   cli.Span
}

func replayCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "replay [PATH…]",
		Short: "Show what new pipelines would have done with recorded runs",
		Long:  replayHelp,
		Example: `  procaas replay --server http://127.0.0.1:8080 --since 1h flows/
  procaas replay --from recorded.ndjson --format github flows/`,
		Args: cobra.ArbitraryArgs,
	}
	var f replayFlags
	c.Flags().StringVar(&f.from, "from", "", "file of procaas runs export or of an archive, instead of a server; - for standard input")
	c.Flags().StringVar(&f.filter.Pipeline, "pipeline", "", "only runs of this pipeline")
	c.Flags().StringVar(&f.slower, "slower", "10%", "report runs that take longer by more than this, and by 10ms or more")
	c.Flags().StringSliceVar(&f.stubs, "stub", nil, "files of stub services that answer calls that were not recorded")
	f.when.Add(c, "only runs accepted at this time or later", "only runs accepted before")
	cli.ServerFlags(c)
	format := cli.Format(c, string(flowtest.Text), string(flowtest.JSON), string(flowtest.JUnit), string(flowtest.GitHub))
	return cli.Calls(c, func(q *cli.Call) error { return f.replay(q, flowtest.Format(*format)) })
}

func (f *replayFlags) replay(q *cli.Call, format flowtest.Format) error {
	if err := f.when.Read(&f.filter.Since, &f.filter.Until); err != nil {
		return err
	}
	slower, err := cli.Share(f.slower)
	if err != nil {
		return cli.Usagef("--slower %w", err)
	}
	bundle, err := source.Bundle(q.Streams, here(q.Args), dsl.Options{})
	if err != nil {
		return err
	}
	stubs, err := f.stubServices(q.Streams)
	if err != nil {
		return err
	}
	env := replay.Env{Types: addons.HandlerTypes(), Alone: handlers.Alone()}
	now, err := replay.NewProgram(bundle, env, stubs)
	if err != nil {
		return err
	}
	old := &versions{env: env, known: map[string]*replay.Program{}}
	old.read = func(hash string) (definitions.VersionDetail, error) { return q.Version(q.Ctx, hash) }
	var next func() (*records.Recorded, error)
	if f.from == "" {
		next = q.Recordings(f.filter)
	} else {
		file, err := f.open(q.In)
		if err != nil {
			return err
		}
		defer file.Close()
		plain, err := unpacked(file)
		if err != nil {
			return cli.Usagef("--from %s: %w", f.from, err)
		}
		next = f.chosen(replay.NewReader(plain, old.add).Next)
	}
	report, err := replay.Run(q.Ctx, next, replay.Options{Now: now, Was: old.program, Slower: slower / 100})
	if err != nil {
		return err
	}
	if report.Runs == 0 {
		return fmt.Errorf("no recorded run is there: start the server with --record 5%%, and see --since and --pipeline")
	}
	if err := writeReplay(q.Out, format, report); err != nil {
		return err
	}
	if report.Compared() == 0 {
		return fmt.Errorf("none of the recorded runs can be compared")
	}
	return cli.FindingsIf(report.Differ > 0)
}

// open opens the file of recorded runs.
func (f *replayFlags) open(stdin io.Reader) (io.ReadCloser, error) {
	if f.from == "-" {
		return io.NopCloser(stdin), nil
	}
	file, err := os.Open(f.from)
	if err != nil {
		return nil, cli.Usagef("--from: %w", err)
	}
	return file, nil
}

// unpacked returns the text of a file that may be compressed by gzip, as those of an archive are.
func unpacked(file io.Reader) (io.Reader, error) {
	b := bufio.NewReader(file)
	if magic, err := b.Peek(2); err != nil || magic[0] != 0x1f || magic[1] != 0x8b {
		return b, nil // the caller finds what is wrong
	}
	return gzip.NewReader(b)
}

// chosen returns the runs of a file that the flags choose.
func (f *replayFlags) chosen(next func() (*records.Recorded, error)) func() (*records.Recorded, error) {
	return func() (*records.Recorded, error) {
		for {
			run, err := next()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", f.from, err)
			}
			if run == nil || f.fits(run) {
				return run, nil
			}
		}
	}
}

func (f *replayFlags) fits(run *records.Recorded) bool {
	of := &f.filter
	return (of.Pipeline == "" || run.Pipeline == of.Pipeline) && !run.Accepted.Before(of.Since) &&
		(of.Until.IsZero() || run.Accepted.Before(of.Until))
}

// stubServices returns the services that answer calls without a recording, or nil.
func (f *replayFlags) stubServices(s cli.Streams) (func() (engine.Stubs, error), error) {
	if len(f.stubs) == 0 {
		return nil, nil
	}
	files, err := source.NamedStubs(f.stubs, s.In)
	if err != nil {
		return nil, err
	}
	return stubPlayers(s, files)
}

// versions are the definitions of recorded runs.
type versions struct {
	env  replay.Env
	read func(hash string) (definitions.VersionDetail, error) // reads those that a file has not

	mu    sync.Mutex // guards known
	known map[string]*replay.Program
}

// add adds a version.
func (v *versions) add(d definitions.VersionDetail) error {
	var files []diag.File
	for _, f := range d.Files {
		files = append(files, diag.File{Name: f.Name, Data: []byte(f.Text)})
	}
	b, found := dsl.Load(files, dsl.Options{Language: addons.Language(), Types: addons.Types()})
	if b == nil {
		return fmt.Errorf("this procaas cannot read the version %s of the pipelines: %s", d.Version.Version, definitions.FirstError(found))
	}
	p, err := replay.NewProgram(b, v.env, nil)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.known[d.Version.Version] = p
	return nil
}

// program returns a version.
func (v *versions) program(hash string) (*replay.Program, error) {
	v.mu.Lock()
	p := v.known[hash]
	v.mu.Unlock()
	if p != nil {
		return p, nil
	}
	d, err := v.read(hash)
	if err != nil {
		return nil, fmt.Errorf("the files of the version %s of the pipelines, which a server has: %w", hash, err)
	}
	if err := v.add(d); err != nil {
		return nil, err
	}
	return v.program(hash)
}

// writeReplay writes a report. In JUnit and GitHub format, each pipeline is a test, and causes are its
// failures.
func writeReplay(w io.Writer, format flowtest.Format, r *replay.Report) error {
	switch format {
	case flowtest.Text:
		_, err := io.WriteString(w, r.Text())
		return err
	case flowtest.JSON:
		return r.JSON(w)
	}
	return flowtest.Write(w, format, replayTests(r), nil, false)
}

// replayTests converts the report to tests, one per pipeline.
func replayTests(r *replay.Report) *flowtest.Report {
	out := &flowtest.Report{Took: r.Took}
	for _, p := range r.Pipelines {
		result := &flowtest.Result{File: "replay", Name: "recorded runs of " + p, Variants: 1}
		var found []flowtest.Difference
		for _, c := range r.Causes {
			if c.Pipeline != p {
				continue
			}
			d := flowtest.Difference{Path: c.Difference.String(), Span: c.Span, Want: c.Was, Have: c.Now}
			d.Note = replay.Count(c.Runs) + ", such as " + strings.Join(c.IDs, ", ")
			for _, f := range c.Then {
				d.Note += fmt.Sprintf("\nthen %s, in %s: %s → %s", f.Difference, replay.Count(f.Runs), f.Was, f.Now)
			}
			found = append(found, d)
			if result.Span.File == "" {
				result.File, result.Span = c.Span.File, c.Span
			}
		}
		if found != nil {
			result.Failures = []flowtest.Failure{{Differences: found}}
		}
		out.Results = append(out.Results, result)
	}
	return out
}
