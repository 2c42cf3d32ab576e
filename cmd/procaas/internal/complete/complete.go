// Package complete makes shells complete command lines.
package complete

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"procaas/cmd/procaas/internal/authoring"
	"procaas/cmd/procaas/internal/source"
	"procaas/docs"
	"procaas/dsl"
	"procaas/dsl/tree"
	"procaas/engine/api/cli"
	"procaas/engine/api/client"
	"procaas/engine/api/wire"
	"procaas/engine/canary"
	"procaas/engine/credentials"
	"procaas/engine/model"
	"procaas/engine/store"
)

// completeWithin bounds a completion by the shell: somebody has pressed a key, and waits.
const completeWithin = 80 * time.Millisecond

// A lister returns what may stand in a place of a command line. It returns nothing where it cannot tell, and prints nothing.
type lister func(q *cli.Call, args []string) []string

// A list is where the server lists something, and the member of its elements that names it. {0} is the first argument.
type list struct{ call, member string }

var (
	configs  = list{"/admin/v1/configs", "name"}
	tokens   = list{"/admin/v1/tokens", "name"}
	queues   = list{"/v1/queues", "type"}
	maps     = list{"/v1/shard-maps", "id"}
	shards   = list{"/v1/shard-maps/{0}/shards", "id"}
	clusters = list{"/admin/v1/clusters", "id"}
	services = list{"/admin/v1/services", "id"}
	clocked  = list{"/v1/triggers", "id"}
	changes  = list{"/admin/v1/audit?kind=control&limit=100", "revision"}
	steps    = list{"/admin/v1/handlers", "path"}
	served   = list{"/admin/v1/pipelines", "pipeline"}
	owned    = list{"/admin/v1/pipelines", "owner"}
	flowing  = list{"/v1/runs?limit=100", "flow"}
	keyed    = list{"/v1/runs?limit=100", "key"}
	begun    = list{"/v1/runs?limit=100", "id"}
	kept     = list{"/v1/versions", "version"}
)

// places lists what may stand where a usage line has one of these words. A word after the name of a command is more exact.
var places = map[string]lister{
	"PATH": paths, "RUN|KEY": runs, "RUN": runs, "VERSION": versions, "OTHER": versions, "PIPELINE": pipelines, "PAGE": pages,
	"config NAME": configs.names, "token NAME": tokens.names, "explain NAME": nil, "undo REVISION": changes.names,
	"TRIGGER": clocked.names, "TYPE": queues.names, "MAP": maps.names, "SHARD": shards.names, "CLUSTER": clusters.names,
	"FLOW": flows, "erase KEY": keys, "WORKER": ofClusters(workers), "PARTITION": ofClusters(partitions), "CELL": cells,
}

// options lists what may be the value of a flag with one of these names. What follows the name of a command is more exact.
var options = map[string]lister{
	"pipeline": pipelines, "handler": paths, "path": paths, "version": versions, "key": keys, "source": nil, "flow": flows,
	"service": services.names, "owner": owners, "cluster": clusters.names,
	"status": fixed(string(model.Waiting), string(model.Running), string(model.Parked), string(model.Succeeded), string(model.Failed),
		string(model.Cancelled), string(model.Ignored)),
	"role":      fixed(cli.Names(credentials.Roles(), func(r credentials.Role) string { return string(r) })...),
	"ignore":    fixed(canary.Kinds()...),
	"log-level": fixed("debug", "info", "warn", "error"), "log-format": fixed("auto", "text", "json"),
	"fail-level": fixed("error", "warning", "advice"), "submit type": pipelines, "audit kind": fixed(store.AuditKinds()...),
	"audit by": tokens.names,
}

// Add makes shells complete the arguments and flags of all commands of a program.
func Add(root *cobra.Command) { add(root, root) }

func add(root, c *cobra.Command) {
	for _, sub := range c.Commands() {
		add(root, sub)
	}
	words := argumentWords(c)
	if c.ValidArgsFunction == nil && len(words) > 0 {
		c.ValidArgsFunction = func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			word := words[min(len(args), len(words)-1)]
			if len(args) >= len(words) && !strings.HasSuffix(word, "…") {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return suggested(root, c, args, listerOf(places, c, strings.TrimSuffix(word, "…")))
		}
	}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		list := listerOf(options, c, f.Name)
		if formats := cli.Formats(f); formats != nil {
			list = fixed(formats...)
		}
		if list != nil && f.Value.Type() != "bool" {
			_ = c.RegisterFlagCompletionFunc(f.Name, func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
				return suggested(root, c, args, list)
			}) // an error would be a second function for the same flag
		}
	})
}

// argumentWords returns the words for arguments of a usage line, without brackets, up to the first flag or alternative.
func argumentWords(c *cobra.Command) (words []string) {
	for _, w := range strings.Fields(c.Use)[1:] {
		w = strings.ReplaceAll(strings.Trim(w, "[]{}"), "...", "…")
		if strings.HasPrefix(w, "-") || w == "|" {
			break
		}
		words = append(words, strings.TrimSuffix(strings.ReplaceAll(w, "]", ""), "|-"))
	}
	return words
}

// listerOf returns what completes a place of a command, or nil. Paths are those of handlers where a command calls a server,
// and otherwise files.
func listerOf(all map[string]lister, c *cobra.Command, word string) lister {
	for _, name := range []string{c.Name() + " " + word, parentName(c) + " " + word} {
		if l, known := all[name]; known {
			return l
		}
	}
	if word == "PATH" && (!callsServer(c) || c.Name() == "deploy") {
		return nil
	}
	return all[word]
}

func parentName(c *cobra.Command) string {
	if c.HasParent() {
		return c.Parent().Name()
	}
	return ""
}

// callsServer reports whether a command always calls a server.
func callsServer(c *cobra.Command) bool {
	f := c.Flag("server")
	if f == nil {
		f = c.InheritedFlags().Lookup("server")
	}
	return f != nil && f.DefValue != ""
}

// suggested asks a lister, for a short time.
func suggested(root, c *cobra.Command, args []string, list lister) ([]string, cobra.ShellCompDirective) {
	if c.Name() == "explain" && parentName(c) == root.Name() {
		list = func(q *cli.Call, args []string) []string {
			if len(args) > 0 {
				return paths(q, args)
			}
			return slices.Concat(authoring.Explainable(root), runs(q, args))
		}
	}
	if list == nil {
		return nil, cobra.ShellCompDirectiveDefault // files
	}
	_ = cli.Prepare(c) // a wrong flag is the command's to report
	ctx, cancel := context.WithTimeout(cmp.Or(c.Context(), context.Background()), completeWithin)
	defer cancel()
	found := make(chan []string, 1)
	go func() {
		q := cli.CallOf(c, args)
		q.Ctx, q.Out, q.Err = ctx, io.Discard, io.Discard
		found <- list(q, args)
	}()
	select {
	case all := <-found:
		return all, cobra.ShellCompDirectiveNoFileComp
	case <-ctx.Done(): // it ends with the process
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

func fixed(all ...string) lister { return func(*cli.Call, []string) []string { return all } }

// names is a [lister] of a list of the server. It returns nothing if there is no such list.
func (l list) names(q *cli.Call, args []string) (all []string) {
	call := l.call
	if strings.Contains(call, "{0}") {
		if len(args) == 0 {
			return nil
		}
		call = strings.Replace(call, "{0}", url.PathEscape(args[0]), 1)
	}
	page, ok := asked[wire.Page[map[string]any]](q, call)
	if !ok {
		return nil
	}
	for _, item := range page.Items {
		switch v := item[l.member].(type) {
		case string:
			all = append(all, v)
		case float64:
			all = append(all, strconv.FormatFloat(v, 'f', -1, 64))
		}
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(text string) bool { return text == "" })
}

// asked asks the server, if there is one.
func asked[T any](q *cli.Call, call string) (reply T, ok bool) {
	if q.Server == "" {
		return reply, false
	}
	reply, err := client.Send[T](q.Ctx, q.Client, http.MethodGet, call, nil, nil)
	return reply, err == nil
}

// mostPartitions bounds what is offered of a cluster.
const mostPartitions = 1000

// ofClusters lists something of all clusters: the flag that chooses one may come later in the line.
func ofClusters(of func(clusterNames) []string) lister {
	return func(q *cli.Call, _ []string) (all []string) {
		page, _ := asked[wire.Page[clusterNames]](q, clusters.call)
		for _, c := range page.Items {
			all = append(all, of(c)...)
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
}

// clusterNames is what people name of a cluster.
type clusterNames struct {
	Partitions int
	Workers    []struct{ ID string }
}

func workers(c clusterNames) []string {
	return cli.Names(c.Workers, func(w struct{ ID string }) string { return w.ID })
}

func partitions(c clusterNames) (all []string) {
	for i := range min(c.Partitions, mostPartitions) {
		all = append(all, strconv.Itoa(i))
	}
	return all
}

// cells lists the databases of the inbox.
func cells(q *cli.Call, _ []string) []string {
	inbox, _ := asked[struct{ Cells []struct{ Name string } }](q, "/admin/v1/inbox")
	return cli.Names(inbox.Cells, func(c struct{ Name string }) string { return c.Name })
}

// paths lists handlers, and the pipelines and stages that they are in.
func paths(q *cli.Call, args []string) (all []string) {
	handlers := steps.names(q, args)
	if handlers == nil {
		for _, p := range read(q) {
			for _, s := range p.Stages {
				for _, h := range s.Handlers {
					handlers = append(handlers, p.ID+"/"+s.ID+"/"+h.ID)
				}
			}
		}
	}
	for _, path := range handlers {
		for i, r := range path {
			if r == '/' {
				all = append(all, path[:i])
			}
		}
		all = append(all, path)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// pipelines lists those of the server, or of files.
func pipelines(q *cli.Call, args []string) []string {
	all := served.names(q, args)
	if all == nil {
		all = cli.Names(read(q), func(p *tree.Pipeline) string { return p.ID })
	}
	return all
}

// owners lists those of the pipelines, or of files.
func owners(q *cli.Call, args []string) []string {
	all := owned.names(q, args)
	if all == nil {
		all = cli.Names(read(q), func(p *tree.Pipeline) string { return p.Owner })
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(o string) bool { return o == "" })
}

// flows lists the flows of the newest runs.
func flows(q *cli.Call, args []string) []string { return flowing.names(q, args) }

// keys lists the keys of the newest runs.
func keys(q *cli.Call, args []string) []string { return keyed.names(q, args) }

// runs lists the newest runs and their keys.
func runs(q *cli.Call, args []string) []string {
	return slices.Concat(keys(q, args), begun.names(q, args))
}

// versions lists the first digits of versions.
func versions(q *cli.Call, args []string) []string {
	return cli.Names(kept.names(q, args), cli.Short)
}

// pages lists the pages of the documentation.
func pages(*cli.Call, []string) []string {
	all, err := docs.Pages()
	if err != nil {
		return nil
	}
	return cli.Names(all, func(p docs.Page) string { return p.Name })
}

// read reads the pipelines below the working directory.
func read(q *cli.Call) []*tree.Pipeline {
	bundle, err := source.Bundle(q.Streams, []string{"."}, dsl.Options{})
	if err != nil {
		return nil
	}
	return bundle.Pipelines
}
