package authoring

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/internal/source"
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/engine/api/cli"
	"procaas/engine/model"
)

const evalHelp = `eval computes an expression and shows the value of each part. Use it to try a
condition before you write it into a pipeline. "-" reads the expression from
standard input.

JSON files hold the roots that the expression reads. The event has the form that
procaas run takes. Each other file is an object with the names of that root. --set
adds a single value: --set shared-state.total=12.`

// evalCommand needs neither files nor a server. Roots that are not given are empty, so a condition can be tried
// alone.
func evalCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "eval EXPR",
		Short: "Compute an expression, and show the value of each part",
		Long:  evalHelp,
		Example: `  procaas eval "event.payload.total > 100 and configs.PROMO.enabled" --event e.json --configs c.json
  procaas eval "filter(xs, # > 1)" --set 'shared-state.xs=[1, 2, 3]'`,
		Args: cobra.ExactArgs(1),
	}
	files := map[string]*string{
		"event":        c.Flags().String("event", "", "file with the event, or - for standard input"),
		"shared-state": c.Flags().String("state", "", "file with the shared state"),
		"configs":      c.Flags().String("configs", "", "file with the live configs"),
		"sources":      c.Flags().String("sources", "", `file with the outcomes of handlers: {"get-order": {"response": …}}`),
		"flow":         c.Flags().String("flow", "", "file with the entity: id, key and state"),
		"run":          c.Flags().String("run", "", "file with the run: id, pipeline and started"),
		"item":         c.Flags().String("item", "", "file with the item of a for-each"),
	}
	set := c.Flags().StringArray("set", nil, "ROOT.NAME=JSON: add a value, or replace the one from a file")
	format := cli.Format(c, "text", "json")
	c.RunE = func(c *cobra.Command, args []string) error {
		s := cli.Of(c)
		env, err := evalEnv(s, files, *set)
		if err != nil {
			return err
		}
		text := args[0]
		if text == "-" {
			data, err := cli.AtMost(s.In, source.MaxFile)
			if err != nil {
				return fmt.Errorf("read standard input: %w", err)
			}
			text = string(data)
		}
		return eval(c.Context(), s, strings.TrimSpace(text), env, *format)
	}
	return c
}

// evalRoots are the roots in the order of the reference.
var evalRoots = []string{"event", "shared-state", "sources", "configs", "flow", "run", "item"}

// evalEnv reads what the expression may read. The state and the item are null if they are not given. The other
// roots are objects, as in a run.
func evalEnv(s cli.Streams, files map[string]*string, set []string) (datum.Env, error) {
	// --set comes after the files, so that it can replace their values.
	env := datum.Env{}
	for _, root := range evalRoots {
		env[root] = nil
		if *files[root] == "" {
			continue
		}
		data, err := s.Input(*files[root])
		if err != nil {
			return nil, err
		}
		if env[root], err = evalRoot(root, data); err != nil {
			return nil, cli.Usagef("%s: %w", *files[root], err)
		}
	}
	for _, one := range set {
		if err := setValue(env, one); err != nil {
			return nil, err
		}
	}
	for _, root := range evalRoots {
		if env[root] == nil && root != "shared-state" && root != "item" {
			env[root] = map[string]any{}
		}
	}
	return env, nil
}

// evalRoot reads the file of one root.
func evalRoot(root string, data []byte) (any, error) {
	if root == "event" {
		e, err := source.Event(data)
		return eventRoot(e), err
	}
	value, err := datum.ParseJSON(data)
	if err != nil {
		return nil, err
	}
	if _, ok := value.(map[string]any); !ok && root != "item" {
		return nil, fmt.Errorf("want an object with the names of %s", root)
	}
	return value, nil
}

// eventRoot returns an event as expressions see it.
func eventRoot(e model.Event) map[string]any {
	root := map[string]any{"id": e.ID, "type": e.Type, "source": e.Source, "time": nil, "key": nil, "payload": e.Payload}
	if e.Key != "" {
		root["key"] = e.Key
	}
	return root
}

// setValue adds one value of --set. It creates objects on the way to it, and replaces values that are in the
// way.
func setValue(env datum.Env, text string) error {
	path, value, ok := strings.Cut(text, "=")
	names := strings.Split(path, ".")
	if _, known := env[names[0]]; !ok || !known {
		return cli.Usagef("--set %s: want ROOT.NAME=JSON with one of the roots %s", text, strings.Join(evalRoots, ", "))
	}
	data, err := datum.ParseJSON([]byte(value))
	if err != nil {
		return cli.Usagef("--set %s: %w; text needs quotes", text, err)
	}
	into := map[string]any(env)
	for _, name := range names[:len(names)-1] {
		next, ok := into[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			into[name] = next
		}
		into = next
	}
	into[names[len(names)-1]] = data
	return nil
}

// eval evaluates the expression and prints its value. An expression without a value is a finding.
func eval(ctx context.Context, s cli.Streams, text string, env datum.Env, format string) error {
	e, found := expr.Parse("expression", text, env)
	if e == nil {
		files := []diag.File{{Name: "expression", Data: []byte(text)}}
		if err := s.Findings(files, found); err != nil {
			return err
		}
		return cli.ErrFindings
	}
	trace := e.Trace(ctx, env)
	var err error
	if format == "json" {
		err = s.PrintJSON(trace)
	} else {
		err = expr.WriteTrace(s.Out, trace, cli.Colorful(s.Out))
	}
	if _, failure := trace.Result(); err == nil && failure != nil {
		return cli.ErrFindings
	}
	return err
}
