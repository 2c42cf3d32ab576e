package authoring

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"procaas/dsl/diag"
	"procaas/dsl/tree"
	"procaas/engine/api/cli"
)

// handler writes a handler into its stage. A handler of another owner becomes a contribution in a file of that
// owner.
func (n *novelty) handler() (diag.File, int, error) {
	none := diag.File{}
	if err := n.needID(); err != nil {
		return none, 0, err
	}
	if err := n.need(&n.into, "Into which stage, as pipeline/stage", "--into PIPELINE/STAGE"); err != nil {
		return none, 0, err
	}
	pipeline, stage, ok := strings.Cut(n.into, "/")
	if !ok || strings.Contains(stage, "/") {
		return none, 0, cli.Usagef("--into %q: want pipeline/stage", n.into)
	}
	p, file, err := n.pipelineOf(pipeline)
	if err != nil {
		return none, 0, err
	}
	if !slices.Contains(p.StageIDs(), stage) {
		hint := cli.Meant(stage, p.StageIDs(), "; did you mean %s?", "")
		return none, 0, cli.Usagef("pipeline %s has no stage %s%s; it has %s", p.ID, stage, hint, strings.Join(p.StageIDs(), ", "))
	}
	body, err := n.body()
	if err != nil {
		return none, 0, err
	}
	if !n.criticalIsGiven && n.answers {
		n.critical = n.yes("Would a run be wrong without it")
		n.criticalIsGiven = true
	}
	if n.owner == "" || n.owner == p.Owner {
		entry := "id: " + n.id + "\n"
		if !n.critical {
			entry += "critical: false\n"
		}
		if stage == tree.FinalStage && len(p.Finally) > 0 {
			return n.insert(file, []string{"pipelines", p.ID, "finally"}, entry+body)
		}
		return n.insert(file, []string{"pipelines", p.ID, "stages", stage, "handlers"}, entry+body)
	}
	if p.Closed() && p.Invitation(n.owner, stage) == nil {
		return none, 0, cli.Usagef("pipeline %s of %s takes no handlers of %s in stage %s; ask %s to add to the pipeline: %s",
			p.ID, p.Owner, n.owner, stage, p.Owner, tree.InvitationWanted(n.owner, stage))
	}
	if by := p.Invitation(n.owner, stage); by != nil && by.Deadline > 0 && n.typ != "set" {
		body = "deadline: " + tree.Longest{Time: by.Deadline}.String() + "\n" + body
	}
	return n.contribution(file, body)
}

// contribution writes a handler of another owner.
func (n *novelty) contribution(beside diag.File, body string) (diag.File, int, error) {
	if !n.criticalIsGiven {
		n.critical = false // contributors rarely want to stop the runs of others
	}
	entry := fmt.Sprintf("id: %s\ninto: %s\nowner: %s\ncritical: %t\n%s", n.id, n.into, n.owner, n.critical, body)
	name := path.Join(filepath.ToSlash(n.ownDir(filepath.Dir(filepath.FromSlash(beside.Name)))), n.owner+".yaml")
	for _, f := range n.files {
		if f.Name == name {
			return n.insert(f, []string{"handlers"}, entry)
		}
	}
	return n.insert(diag.File{Name: name, Data: []byte("# What " + n.owner + " adds to the pipelines of others.\n")}, []string{"handlers"},
		entry)
}

// body writes the body of the handler.
func (n *novelty) body() (string, error) {
	if n.typ == "" {
		n.typ = n.guessType()
	}
	if n.typ == "" && n.answers {
		n.typ = n.ask("What does it do: request (call a service), set (compute values), emit (hand in an event), wait")
	}
	switch n.typ {
	case "request":
		return n.request()
	case "set":
		return n.values()
	case "emit":
		if err := n.need(&n.event, "The type of the event", "--event"); err != nil {
			return "", err
		}
		return "emit: {type: " + n.event + ", payload: !$ event.payload}\n", nil
	case "wait":
		if err := n.need(&n.wait, "How long, such as 30s", "--for"); err != nil {
			return "", err
		}
		return "wait: {for: " + n.wait + "}\n", nil
	case "":
		return "", cli.Usagef("new handler wants --type request, set, emit or wait")
	}
	return "", cli.Usagef("new handler writes request, set, emit and wait; of other types, such as %s, procaas explain shows an example",
		n.typ)
}

// guessType returns the type by flags that only one type has.
func (n *novelty) guessType() string {
	switch {
	case n.service != "" || n.url != "" || n.path != "":
		return "request"
	case len(n.set) > 0:
		return "set"
	case n.event != "":
		return "emit"
	case n.wait != "":
		return "wait"
	}
	return ""
}

func (n *novelty) request() (string, error) {
	if n.url != "" {
		return fmt.Sprintf("request: {url: %q}\n", n.url), nil
	}
	if n.service == "" && n.answers {
		ids := cli.Names(n.bundle.Services, func(s *tree.Service) string { return s.ID })
		n.service = n.ask("Which service: " + strings.Join(ids, ", "))
	}
	if n.service == "" {
		return "", cli.Usagef("new handler wants --service and --path, or --url")
	}
	if err := n.need(&n.path, "Which path there, such as /v1/push", "--path"); err != nil {
		return "", err
	}
	return "request:\n  service: " + n.service + "\n  path: " + n.path + "\n", nil
}

func (n *novelty) values() (string, error) {
	if len(n.set) == 0 && n.answers {
		n.set = []string{n.ask("What, as name=expression")}
	}
	body := "set:\n"
	for _, s := range n.set {
		name, expr, ok := strings.Cut(s, "=")
		if !ok || strings.TrimSpace(expr) == "" {
			return "", cli.Usagef("--set %q: want NAME=EXPRESSION", s)
		}
		body += "  " + strings.TrimSpace(name) + ": !$ |\n    " + strings.TrimSpace(expr) + "\n"
	}
	if len(n.set) == 0 {
		return "", cli.Usagef("new handler wants --set NAME=EXPRESSION")
	}
	return body, nil
}
