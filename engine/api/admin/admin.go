// Package admin serves operators' calls about a node and its store: what the node has seen, the
// audit, definitions and tokens.
package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"procaas/dsl/diag"
	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/api/scope"
	"procaas/engine/api/wire"
	"procaas/engine/canary"
	"procaas/engine/credentials"
	"procaas/engine/definitions"
	"procaas/engine/diff"
	"procaas/engine/guard"
	"procaas/engine/records"
	"procaas/engine/stats"
	"procaas/engine/store"
)

// Status describes the state of a node.
type Status interface {
	// Handlers, Pipelines and Services return what this node has seen. Other nodes see other things.
	Handlers() []stats.HandlerInfo
	Pipelines() []stats.PipelineInfo
	Services() []guard.ServiceInfo

	// Durations returns how long runs and stages took on this node.
	Durations() []stats.DurationView
	SlowRuns(pipeline string, since time.Time) []stats.SlowRun

	// Costs returns what pipelines, owners or handlers have cost on each of the last days, on all nodes.
	Costs(ctx context.Context, by string, days int, reads func(path string) bool) ([]stats.Cost, error)

	// Backlog returns what waits on all nodes.
	Backlog() stats.BacklogView
	Nodes(ctx context.Context) ([]records.NodeView, error)
	Audit(ctx context.Context, f store.AuditFilter) ([]records.AuditView, error)

	// VerifyAudit checks the chains of the audit, and looks for known hashes.
	VerifyAudit(ctx context.Context, kept []string) (records.AuditReport, error)
}

// Tokens lists, makes and revokes tokens.
type Tokens interface {
	Guarded(ctx context.Context) (bool, error)
	Tokens(ctx context.Context) ([]credentials.TokenView, error)
	NewToken(ctx context.Context, spec credentials.TokenSpec, by store.Actor) (v credentials.TokenView, secret string, err error)
	RevokeToken(ctx context.Context, name string, by store.Actor) (credentials.TokenView, error)
}

// A Group serves the calls of operators.
type Group struct {
	Status   Status
	Tokens   Tokens
	Versions Versions

	// Configured says that an admin token was configured, which cannot be revoked.
	Configured bool

	// Reload reads the node's pipelines again, or a stored version. Nil if that is not possible.
	Reload func(ctx context.Context, how definitions.Change, by store.Actor) (diff.Diff, error)

	verifying chan struct{} // admits one reader of the whole audit
}

// Operations lists the calls.
func (g *Group) Operations() []rest.Operation {
	g.verifying = make(chan struct{}, 1)
	return append([]rest.Operation{
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/admin/v1/handlers", ID: "list-handlers", Need: rest.Views, Tag: "admin",
			Summary: "List handlers with the statistics of this node", Replies: rest.OK("All handlers, in order."),
		}, func(c *rest.Call, _ *rest.Nothing) (wire.Page[stats.HandlerInfo], error) {
			return rest.Listed(scope.Handlers(rest.Granted(c.R), g.Status.Handlers()), nil)
		}),
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/admin/v1/pipelines", ID: "list-pipelines", Need: rest.Views, Tag: "admin",
			Summary: "List pipelines with the events and the ended runs of this node",
			About:   "Each has its figures for the last 10 seconds, minute, 10 minutes and hour.",
			Replies: rest.OK("All pipelines, in order."),
		}, func(c *rest.Call, _ *rest.Nothing) (wire.Page[stats.PipelineInfo], error) {
			return rest.Listed(scope.Pipelines(rest.Granted(c.R), g.Status.Pipelines()), nil)
		}),
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/admin/v1/services", ID: "list-services", Need: rest.Views, Tag: "admin",
			Summary: "List the services that handlers call, with the limits of this node", Replies: rest.OK("All services, in order."),
		}, func(*rest.Call, *rest.Nothing) (wire.Page[guard.ServiceInfo], error) {
			return rest.Listed(g.Status.Services(), nil)
		}),
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/admin/v1/durations", ID: "list-durations", Need: rest.Views, Tag: "admin",
			Summary: "List how long runs and stages took on this node",
			About: "Only runs that succeeded and stages that were completed count, on the node that did it. After a restart a node begins " +
				"with none. A node counts 1000 pipelines and stages one by one.",
			Replies: rest.OK("The pipelines with their stages, in order, as far as a run has succeeded."),
		}, func(c *rest.Call, _ *rest.Nothing) (wire.Page[stats.DurationView], error) {
			return rest.Listed(scope.Durations(rest.Granted(c.R), g.Status.Durations()), nil)
		}),
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/admin/v1/slow-runs", ID: "list-slow-runs", Need: rest.Views, Tag: "admin",
			Summary: "List the slowest runs that succeeded on this node",
			About: "A node remembers the ten slowest runs of each pipeline in each five minutes of the last two hours. Each comes with the " +
				"handler that took longest.",
			Replies: rest.OK("The runs, the slowest first."), Refusals: []string{problem.InvalidParameter},
		}, func(c *rest.Call, in *slowRuns) (wire.Page[stats.SlowRun], error) {
			since := in.Since
			if since.IsZero() {
				since = time.Now().Add(-time.Hour)
			}
			all := scope.SlowRuns(rest.Granted(c.R), g.Status.SlowRuns(in.Pipeline, since))
			return rest.Listed(all[:min(len(all), in.Limit)], nil)
		}),
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/admin/v1/costs", ID: "list-costs", Need: rest.Views, Tag: "admin",
			Summary:  "List what pipelines, owners and handlers cost on all nodes, by day",
			About:    "Nodes add to the store once a minute and when they stop. A node that dies loses at most its last minute. The store keeps 90 days.",
			Replies:  rest.OK("The costs, the latest day first, and of a day those with the most time of calls."),
			Refusals: []string{problem.InvalidParameter, problem.StoreUnavailable},
		}, func(c *rest.Call, in *costs) (wire.Page[stats.Cost], error) {
			grant := rest.Granted(c.R)
			all, err := g.Status.Costs(c.Context(), in.By, in.Days, func(path string) bool { return scope.Reads(grant, path) })
			return rest.Listed(all[:min(len(all), in.Limit)], err)
		}),
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/admin/v1/backlog", ID: "get-backlog", Need: rest.Views, Tag: "admin",
			Summary: "Count the runs that wait on all nodes, by cause",
			About:   "Counts are exact, but some seconds old. The more runs there are, the less often the node counts.",
			Replies: rest.OK("What waits."),
		}, func(c *rest.Call, _ *rest.Nothing) (stats.BacklogView, error) {
			return scope.Backlog(rest.Granted(c.R), g.Status.Backlog()), nil
		}),
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/admin/v1/nodes", ID: "list-nodes", Need: rest.Follows, Tag: "admin",
			Summary: "List live nodes, and nodes that died recently",
			Replies: rest.OK("The nodes."), Refusals: []string{problem.StoreUnavailable},
		}, func(c *rest.Call, _ *rest.Nothing) (wire.Page[records.NodeView], error) {
			return rest.Listed(g.Status.Nodes(c.Context()))
		}),
		rest.Typed(rest.Operation{
			Method: http.MethodPost, Path: "/admin/v1/reload", ID: "reload", Need: rest.Rules, Tag: "admin",
			Summary: "Read the pipelines of this node again, for new events on all nodes",
			About: "The server refuses pipelines with errors and returns all findings. It also refuses files without pipelines if it has " +
				"some now. It refuses to remove a pipeline while accepted events wait for it, unless `drop` cancels them. A refusal changes " +
				"nothing. Runs that have begun keep their definition. With `canary`, only a share of the keys uses the new version. The " +
				"server compares both versions, and rolls back by itself when the new one is worse. With `shadow`, no run uses the new " +
				"version. Nodes replay a share of the ended runs with it, and count what differs.",
			Example: wire.Reload{Reason: "new tariffs"}, Replies: rest.OK("The differences."),
			Refusals: []string{
				problem.InvalidPipelines, problem.EventsWait, problem.NotReloadable, problem.CanaryRefused, problem.StoreUnavailable,
			},
		}, g.reload),
		rest.Typed(rest.Operation{
			Method: http.MethodPost, Path: "/admin/v1/deploy", ID: "deploy", Need: rest.Deploys, Tag: "admin",
			Summary: "Make a set of pipelines from outside current on all nodes",
			About: "The body has all files of the set, so nodes need none. The checks are those of a reload, and so are `canary`, `shadow` and " +
				"`drop`. The same set again changes nothing. With `dry_run` nothing changes at all. The token of a deployer with `owners` may change " +
				"only files in which all belongs to these.",
			Example: wire.Deployment{Files: []wire.DeployedFile{{Name: "ping.yaml", Text: "pipelines: …"}}, Source: "1a2b3c4"},
			MaxBody: maxDeployment, Replies: rest.OK("The differences."),
			Refusals: []string{
				problem.InvalidPipelines, problem.EventsWait, problem.NotReloadable, problem.CanaryRefused, problem.Forbidden, problem.StoreUnavailable,
			},
		}, g.deploy),
	}, slices.Concat(g.versionOperations(), g.auditOperations(), g.tokenOperations())...)
}

type slowRuns struct {
	Pipeline string    `query:"pipeline" doc:"Only runs of this pipeline."`
	Since    time.Time `query:"since" doc:"Only runs that ended at this time or later. The default is an hour ago."`
	Limit    int       `query:"limit" minimum:"1" maximum:"1000" default:"20" doc:"The most runs."`
}

type costs struct {
	By    string `query:"by" enum:"pipeline,owner,handler" default:"pipeline" doc:"What to add up by."`
	Days  int    `query:"days" minimum:"1" maximum:"90" default:"7" doc:"How many days, with today."`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"The most entries."`
}

type reload struct {
	Body wire.Reload `required:"false"`
}

func (g *Group) reload(c *rest.Call, in *reload) (diff.Diff, error) {
	how, err := changeOf(in.Body)
	if err != nil {
		return diff.Diff{}, err
	}
	return g.change(c, how, in.Body.Reason)
}

// maxDeployment bounds the body of a deployment, in bytes.
const maxDeployment = 16 << 20

type deployment struct {
	Body wire.Deployment
}

func (g *Group) deploy(c *rest.Call, in *deployment) (diff.Diff, error) {
	how, err := changeOf(in.Body.Reload)
	if err != nil {
		return diff.Diff{}, err
	}
	seen := map[string]bool{}
	for i, f := range in.Body.Files {
		if seen[f.Name] {
			fault := problem.Fault{Location: fmt.Sprintf("/files/%d/name", i), Message: "want each file once, have " + f.Name + " again"}
			return diff.Diff{}, problem.Body([]problem.Fault{fault})
		}
		seen[f.Name] = true
		how.Files = append(how.Files, diag.File{Name: f.Name, ID: f.Name, Data: []byte(f.Text)})
	}
	how.Dry = in.Body.DryRun
	reason := in.Body.Reason
	if in.Body.Source != "" {
		reason = strings.TrimPrefix(reason+", from "+in.Body.Source, ", ")
	}
	return g.change(c, how, reason)
}

// changeOf returns how a body makes a version current.
func changeOf(b wire.Reload) (definitions.Change, error) {
	how := definitions.Change{Drop: b.Drop, Try: orderOf(b)}
	if how.Try == nil && b.Canary+b.Shadow > 0 {
		return how, problem.Body([]problem.Fault{{Location: "/shadow", Message: "want a canary or a shadow, have both"}})
	}
	ofCanary := b.Step != 0 || b.Runs != 0 || b.Hold || len(b.Ignore) > 0
	if b.Canary == 0 && ofCanary {
		return how, problem.Body([]problem.Fault{{Location: "/canary", Message: "want a percentage above 0 with step, runs, hold or ignore"}})
	}
	return how, nil
}

// orderOf returns how to try the version; nil for not at all, and for two ways.
func orderOf(b wire.Reload) *canary.Order {
	switch {
	case b.Canary > 0 && b.Shadow == 0:
		return &canary.Order{Percent: b.Canary, Every: time.Duration(b.Step), Least: b.Runs, Hold: b.Hold, Ignore: b.Ignore}
	case b.Shadow > 0 && b.Canary == 0:
		return &canary.Order{Percent: b.Shadow, Shadow: true}
	}
	return nil
}

// change makes another definition current.
func (g *Group) change(c *rest.Call, how definitions.Change, reason string) (found diff.Diff, err error) {
	err = definitions.ErrNoFiles
	how.Owners = rest.Granted(c.R).Owners
	if how.Try != nil {
		how.Try.Owners = how.Owners
	}
	if g.Reload != nil {
		found, err = g.Reload(c.Context(), how, c.Actor(reason))
	}
	if errors.Is(err, definitions.ErrNoFiles) {
		return found, problem.New(problem.NotReloadable, "%s", err)
	}
	if waits, ok := errors.AsType[*definitions.DropError](err); ok {
		return found, problem.New(problem.EventsWait, "%s; the pipelines before stay", waits)
	}
	if refused, ok := errors.AsType[*definitions.LoadError](err); ok {
		p := problem.New(problem.InvalidPipelines, "%s; the pipelines before stay", refused)
		p.Diagnostics = problem.Findings(refused.Found)
		return found, p
	}
	return found, ofVersion(err)
}
