package authoring

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/addons"
	"procaas/cmd/procaas/internal/source"
	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/format"
	"procaas/dsl/tree"
	"procaas/engine/api/cli"
)

const newHelp = `new adds a handler, a stage, a pipeline or a flow in the right place of the right
file, and keeps everything else. It says why this kind is the right one. Without a
kind it asks what you want and chooses the kind. On a terminal, or with --ask, it asks
for everything that no flag says.

  flow      an entity, such as an order: its events run one at a time, and it has a
            state between them
  pipeline  what one type of event starts
  stage     a point in a pipeline: all handlers before it end before those in it start
  handler   one call or computation, next to the others of its stage

A handler with another owner than its pipeline becomes a contribution, in a file of
that owner. new writes nothing if the result has errors.`

// whys explain the defaults of new parts.
var whys = map[string]string{
	"handler": "A handler is one call or computation. It runs in parallel with others of its stage unless they share data.\n" +
		"It can be switched, limited and replaced by a fallback on its own.",
	"stage": "A stage is needed if handlers must wait for all earlier ones. It begins when all handlers of the stage before\n" +
		"have ended. If nothing has to wait, add a handler to an existing stage: the run ends earlier.",
	"pipeline": "A pipeline is started by an event. Its runs are retried, shown and ordered separately.\n" +
		"If an existing pipeline serves the event, add a handler there.",
	"flow": "A flow is needed if events of a key must run one after the other and share a state.\n" +
		"Each kind of event gets a pipeline. An automaton refuses events that come too late.",
}

// A novelty is the new part that the command writes.
type novelty struct {
	cli.Streams
	asker
	dirs                      []string
	kind, id                  string
	into, pipeline, after     string
	typ, service, path, url   string
	event, wait, key, flow    string
	on, owner                 string
	set                       []string
	critical, criticalIsGiven bool
	bundle                    *tree.Bundle
	files                     []diag.File
	before                    []diag.Diagnostic
}

func newCommand() *cobra.Command {
	n := &novelty{}
	c := &cobra.Command{
		Use:   "new [handler|stage|pipeline|flow] [ID]",
		Short: "Add a handler, stage, pipeline or flow in the right place, and say why",
		Long:  newHelp,
		Example: `  procaas new -p flows/
  procaas new handler notify-driver --into new-order/notify --service push --path /v1/push --critical=false
  procaas new stage notify --pipeline new-order --after fetch
  procaas new pipeline order-cancelled --flow order
  procaas new flow order --key order-id`,
		Args: cobra.MaximumNArgs(2),
	}
	dirs := source.PipelinesFlag(c)
	f := c.Flags()
	ask := f.Bool("ask", false, "ask for what is missing, also when the input is no terminal")
	f.StringVar(&n.into, "into", "", "handler: the stage, as pipeline/stage")
	f.StringVar(&n.typ, "type", "", "handler: request, set, emit or wait")
	f.StringVar(&n.service, "service", "", "request: the service to call")
	f.StringVar(&n.path, "path", "", "request: the path at the service")
	f.StringVar(&n.url, "url", "", "request: the address, instead of service and path")
	f.StringArrayVar(&n.set, "set", nil, "set: NAME=EXPRESSION (repeatable)")
	f.StringVar(&n.event, "event", "", "emit: the type of the event")
	f.StringVar(&n.wait, "for", "", "wait: how long")
	f.BoolVar(&n.critical, "critical", true, "handler: the run cannot succeed without it")
	f.StringVar(&n.pipeline, "pipeline", "", "stage: the pipeline")
	f.StringVar(&n.after, "after", "", "stage: the stage before (default: the last one)")
	f.StringVar(&n.flow, "flow", "", "pipeline: the flow that its events belong to")
	f.StringVar(&n.on, "on", "", "pipeline: the type of the event that starts it (default: its id)")
	f.StringVar(&n.key, "key", "", "flow: the field of the payload that has the key")
	f.StringVar(&n.owner, "owner", "", "the team that owns it")
	c.RunE = func(c *cobra.Command, args []string) error {
		n.dirs, n.criticalIsGiven = *dirs, c.Flags().Changed("critical")
		n.Streams = cli.Of(c)
		n.asker = asker{from: bufio.NewReader(n.In), to: n.Err, answers: *ask || cli.Terminal(n.In)}
		if len(args) > 0 {
			n.kind = args[0]
		}
		if len(args) > 1 {
			n.id = args[1]
		}
		return n.run()
	}
	return c
}

func (n *novelty) run() error {
	if n.kind != "" && whys[n.kind] == "" {
		return cli.Usagef("new %s: want handler, stage, pipeline or flow", n.kind)
	}
	if n.kind == "" && !n.answers {
		return cli.Usagef("new wants handler, stage, pipeline or flow; on a terminal it asks (--ask)")
	}
	if err := n.load(); err != nil {
		return err
	}
	if n.kind == "" {
		n.kind = n.findKind()
	}
	write := map[string]func() (diag.File, int, error){
		"handler": n.handler, "stage": n.stage, "pipeline": n.newPipeline,
		"flow": n.newFlow,
	}[n.kind]
	file, line, err := write()
	if err != nil {
		return err
	}
	return n.write(file, line)
}

// load reads existing files. There may be none.
func (n *novelty) load() error {
	files, err := source.Files(n.dirs, n.In, source.IsPipeline)
	if err != nil {
		return cli.Usage(err)
	}
	n.files = files
	n.bundle, n.before = dsl.Load(files, dsl.Options{Language: addons.Language(), Types: addons.Types(), Read: source.TreesOf(n.dirs).Read})
	if n.bundle == nil {
		if err := n.Findings(files, n.before); err != nil {
			return err
		}
		return cli.ErrFindings
	}
	return nil
}

// findKind asks for the kind of part.
func (n *novelty) findKind() string {
	if n.yes("Does an event of its own start it, and not a run that exists already?") {
		if n.yes("Must events of the same thing, such as an order, run one after the other, with a state kept between them?") &&
			(len(n.bundle.Flows) == 0 || !n.yes("Is the thing one of these flows: "+strings.Join(flowIDs(n.bundle), ", ")+"?")) {
			return "flow"
		}
		return "pipeline"
	}
	if n.yes("Must all that stands before it have ended, or all that stands behind wait for it?") {
		return "stage"
	}
	return "handler"
}

func flowIDs(b *tree.Bundle) []string {
	return cli.Names(b.Flows, func(f *tree.Flow) string { return f.ID })
}

// idForm is the syntax of ids.
var idForm = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// needID asks for the id if it was not given.
func (n *novelty) needID() error {
	if err := n.need(&n.id, "Its name", "an ID"); err != nil {
		return err
	}
	if !idForm.MatchString(n.id) {
		return cli.Usagef("%q: want a name of small letters, digits and hyphens, such as notify-driver", n.id)
	}
	return nil
}

// need asks for a value if it was not given.
func (n *novelty) need(value *string, question, flag string) error {
	if *value == "" && n.answers {
		*value = n.ask(question)
	}
	if *value == "" {
		return cli.Usagef("new %s wants %s", n.kind, flag)
	}
	return nil
}

// pipelineOf returns a pipeline and its file.
func (n *novelty) pipelineOf(id string) (*tree.Pipeline, diag.File, error) {
	p := n.bundle.Pipeline(id)
	if p == nil {
		ids := cli.Names(n.bundle.Pipelines, func(p *tree.Pipeline) string { return p.ID })
		return nil, diag.File{}, cli.Usagef("there is no pipeline %s%s", id, cli.Meant(id, ids, "; did you mean %s?", ""))
	}
	at := slices.IndexFunc(n.files, func(f diag.File) bool { return f.Name == p.Span.File })
	return p, n.files[at], nil
}

func (n *novelty) stage() (diag.File, int, error) {
	if err := n.needID(); err != nil {
		return diag.File{}, 0, err
	}
	if err := n.need(&n.pipeline, "Of which pipeline", "--pipeline"); err != nil {
		return diag.File{}, 0, err
	}
	p, file, err := n.pipelineOf(n.pipeline)
	if err != nil {
		return file, 0, err
	}
	if n.after == "" && n.answers && len(p.Stages) > 0 {
		n.after = n.ask("After which of " + strings.Join(p.StageIDs(), ", ") + " (the last one if left empty)")
	}
	return n.insert(file, []string{"pipelines", p.ID, "stages"}, "id: "+n.id+"\n")
}

func (n *novelty) insert(file diag.File, path []string, entry string) (diag.File, int, error) {
	text, line, err := format.Insert(file, path, n.after, entry)
	if err != nil {
		return file, 0, cli.Usage(err)
	}
	file.Data = text
	return file, line, nil
}

func (n *novelty) newPipeline() (diag.File, int, error) {
	if err := n.needID(); err != nil {
		return diag.File{}, 0, err
	}
	if n.flow == "" && n.answers && len(n.bundle.Flows) > 0 {
		n.flow = n.ask("Of which flow: " + strings.Join(flowIDs(n.bundle), ", ") + " (none if left empty)")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# What happens when %s comes.\npipelines:\n  - id: %s\n", cmp.Or(n.on, n.id), n.id)
	field := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "    %s: %s\n", name, value)
		}
	}
	field("flow", n.flow)
	field("on", n.on)
	field("owner", n.owner)
	b.WriteString("    stages:\n      - id: work\n")
	return n.file(b.String())
}

func (n *novelty) newFlow() (diag.File, int, error) {
	if err := n.needID(); err != nil {
		return diag.File{}, 0, err
	}
	if err := n.need(&n.key, "Which field of an event's payload tells one "+n.id+" from another", "--key"); err != nil {
		return diag.File{}, 0, err
	}
	owner := ""
	if n.owner != "" {
		owner = "    owner: " + n.owner + "\n"
	}
	return n.file(fmt.Sprintf("# The events of one %s run one at a time, in the order in which they came.\nflows:\n  - id: %s\n%s"+
		"    key: !$ event.payload['%s']\n    shared-state: {}                # kept between the events\n", n.id, n.id, owner, n.key))
}

// file returns a new file, named after its content.
func (n *novelty) file(text string) (diag.File, int, error) {
	dir := n.dirs[0]
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		dir = filepath.Dir(dir)
	}
	dir = n.home(dir)
	if n.flow != "" {
		if f := n.bundle.Flow(n.flow); f != nil {
			dir = filepath.Dir(filepath.FromSlash(f.Span.File))
		}
	}
	name := filepath.Join(dir, n.id+".yaml")
	if _, err := os.Lstat(name); err == nil {
		return diag.File{}, 0, cli.Usagef("%s is there already", name)
	}
	return diag.File{Name: filepath.ToSlash(name), Data: []byte(text)}, 3, nil
}

// home returns the directory of the owner's existing parts, the common directory of all pipelines, or
// otherwise.
func (n *novelty) home(otherwise string) string {
	var dirs []string
	for _, p := range n.bundle.Pipelines {
		dirs = append(dirs, filepath.Dir(filepath.FromSlash(p.Span.File)))
	}
	slices.Sort(dirs)
	dirs = slices.Compact(dirs)
	if len(dirs) == 1 {
		otherwise = dirs[0]
	}
	return n.ownDir(otherwise)
}

// ownDir returns the directory of the owner's first pipeline or contribution, or otherwise.
func (n *novelty) ownDir(otherwise string) string {
	if n.owner == "" {
		return otherwise
	}
	contributed := ""
	for _, p := range n.bundle.Pipelines {
		if p.Owner == n.owner {
			return filepath.Dir(filepath.FromSlash(p.Span.File))
		}
		for _, s := range p.Stages {
			for _, h := range s.Handlers {
				if h.Owner == n.owner && h.Span.File != p.Span.File && contributed == "" {
					contributed = filepath.Dir(filepath.FromSlash(h.Span.File))
				}
			}
		}
	}
	return cmp.Or(contributed, otherwise)
}

// write checks all files with the new text, writes it and describes it.
func (n *novelty) write(file diag.File, line int) error {
	files := slices.DeleteFunc(slices.Clone(n.files), func(f diag.File) bool { return f.Name == file.Name })
	files = append(files, file)
	_, found := dsl.Load(files, dsl.Options{Language: addons.Language(), Types: addons.Types(), Read: source.TreesOf(n.dirs).Read})
	if diag.HasErrors(found) {
		fmt.Fprintf(n.Err, "Nothing was written: with this %s the pipelines would not be in order.\n", n.kind)
		return cmp.Or(n.advise(files, found), cli.ErrFindings)
	}
	path := filepath.FromSlash(file.Name)
	old, err := os.ReadFile(path)
	switch {
	case err == nil && bytes.Equal(old, file.Data):
		return fmt.Errorf("%s did not change", file.Name)
	case err == nil && !slices.ContainsFunc(n.files, func(f diag.File) bool { return f.Name == file.Name }):
		return cli.Usagef("%s is there already, and not among the files that -p names: name its directory", file.Name)
	case err == nil:
		err = source.Replace(path, file.Data)
	case os.IsNotExist(err):
		if err = source.New(path, file.Data); errors.Is(err, fs.ErrExist) {
			err = fmt.Errorf("%s is there already", file.Name)
		}
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(n.Out, "wrote %s %s at %s:%d\n\n%s\n", n.kind, n.id, file.Name, line, whys[n.kind])
	return n.advise(files, found)
}

// advise prints findings that are new.
func (n *novelty) advise(files []diag.File, found []diag.Diagnostic) error {
	found = slices.DeleteFunc(found, func(d diag.Diagnostic) bool {
		return slices.ContainsFunc(n.before, func(b diag.Diagnostic) bool { return b.Code == d.Code && b.Message == d.Message })
	})
	return n.Findings(files, found)
}
