// Package alert tells people when something is wrong with a path, once, and when
// it is well again: by Alertmanager's API and by webhooks.
//
// What has happened comes as notices of the engine. A book makes troubles of
// them: for each path at most one alert is firing, that of the gravest trouble,
// however often it happens. Each receiver has a sender of its own, which repeats
// what could not be sent; the engine never waits for any of it.
//
// Each node tells what it has seen itself. Alertmanager takes equal alerts of
// several nodes for one, since nothing in their labels says from which node they
// come; a webhook may get one from each node, with the same id.
//
// For those who alert by what Prometheus sees, [WriteRules] and [WriteDashboard]
// write rules and a dashboard of the pipelines.
package alert

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// A Kind says what is wrong.
type Kind string

// The kinds. Of the first five a path has the gravest alone; they are in this
// order.
const (
	KeyBlocked         Kind = "KeyBlocked"         // later events of a key wait for a run that has failed, or stands still
	RunParked          Kind = "RunParked"          // a run stands still until an operator decides
	RunFailed          Kind = "RunFailed"          // runs have failed
	HandlerDegraded    Kind = "HandlerDegraded"    // a handler is out of the flow by itself
	HandlerFailing     Kind = "HandlerFailing"     // a handler that is not critical keeps failing
	ServiceDown        Kind = "ServiceDown"        // runs cannot go on without a service that answers hardly any call
	PipelineMultiplies Kind = "PipelineMultiplies" // runs of a pipeline start more and more of its runs
	ServiceDegraded    Kind = "ServiceDegraded"    // the handlers of a service are out of the flow by themselves
	FallbacksFrozen    Kind = "FallbacksFrozen"    // half of all services fail at once
	NodeUnhealthy      Kind = "NodeUnhealthy"      // a node cannot work
	CanaryRolledBack   Kind = "CanaryRolledBack"   // a new version was worse than the old one
	DefinitionOutdated Kind = "DefinitionOutdated" // a node cannot run the current definition
)

// Severity returns how soon somebody should look: critical or warning.
func (k Kind) Severity() string {
	switch k {
	case HandlerDegraded, HandlerFailing, ServiceDegraded, CanaryRolledBack, DefinitionOutdated:
		return "warning"
	}
	return "critical"
}

// An Alert is one thing that is wrong, or was.
type Alert struct {
	Kind     Kind
	Path     string // pipeline, or pipeline/stage/handler; empty when it is about no path
	Service  string // of a ServiceDown or a ServiceDegraded
	Node     string // of a NodeUnhealthy or DefinitionOutdated
	Owner    string
	Critical bool // the runs of the path cannot succeed without it

	Since time.Time
	Ended time.Time // zero while it fires
	Until time.Time // when a fallback ends, at the soonest; zero for others

	Ratio    *float64 // of the path's calls, how many succeed; nil when nobody knows
	Error    string   // the last one
	Run      string   // the last one that it happened to
	Runs     int      // to how many runs it has happened, on this node; of a ServiceDown or a PipelineMultiplies, how many wait on all nodes
	Parked   bool     // they stand still and have not failed
	Keys     []string // flow/key that are blocked; the last ones
	KeyCount int      // of all
	Handlers []string // that are out with a service
}

// ID is the same for the same trouble, on all nodes.
func (a *Alert) ID() string {
	sum := sha256.Sum256([]byte(strings.Join([]string{string(a.Kind), a.Path, a.Service, a.Node}, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// Summary says in one line what is wrong.
func (a *Alert) Summary() string {
	switch a.Kind {
	case KeyBlocked:
		return fmt.Sprintf("%s: %s until a run is retried or cancelled", a.Path, count(a.KeyCount, "key is blocked", "keys are blocked"))
	case RunParked:
		return fmt.Sprintf("%s: %s for an operator", a.Path, count(a.Runs, "run waits", "runs wait"))
	case RunFailed:
		return fmt.Sprintf("%s: %s failed", a.Path, count(a.Runs, "run has", "runs have"))
	case HandlerDegraded:
		return fmt.Sprintf("%s is out of the flow by itself: too few of its calls succeed", a.Path)
	case HandlerFailing:
		return fmt.Sprintf("%s keeps failing; %s gone on without it", a.Path, count(a.Runs, "run has", "runs have"))
	case ServiceDown:
		return fmt.Sprintf("service %s is down: hardly any call of it succeeds, and %s for it", a.Service,
			count(a.Runs, "run waits", "runs wait"))
	case PipelineMultiplies:
		return fmt.Sprintf("%s: the runs of the pipeline start more and more of its runs; %s for the budget of that", a.Path,
			count(a.Runs, "run waits", "runs wait"))
	case ServiceDegraded:
		return fmt.Sprintf("service %s: its handlers are out of the flow by themselves, too few of their calls succeed", a.Service)
	case FallbacksFrozen:
		return "half of all services fail at once: no handler goes out of the flow by itself, since the cause may be on our side"
	case NodeUnhealthy:
		return fmt.Sprintf("node %s cannot work", a.Node)
	case CanaryRolledBack:
		return "a new version of the pipelines was rolled back by itself: it was worse than the current one"
	case DefinitionOutdated:
		return fmt.Sprintf("node %s runs new events by an older definition", a.Node)
	}
	return string(a.Kind)
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// SwitchOff is the command that switches off what the alert is about; empty when
// there is nothing to switch. What runs cannot succeed without is held, which
// loses nothing.
func (a *Alert) SwitchOff(server string) string {
	verb := "switch off"
	if a.Critical || a.Path != "" && strings.Count(a.Path, "/") < 2 {
		verb = "switch hold"
	}
	return a.commands(verb, " --reason "+quote("alert "+string(a.Kind)), server)
}

// SwitchOn is the command that takes SwitchOff back.
func (a *Alert) SwitchOn(server string) string { return a.commands("switch on", "", server) }

// commands makes one command for each path.
func (a *Alert) commands(what, options, server string) string {
	paths := a.Handlers
	if a.Path != "" {
		paths = []string{a.Path}
	}
	out := make([]string, len(paths))
	for i, path := range paths {
		out[i] = fmt.Sprintf("procaas %s %s%s%s", what, path, options, serverFlag(server))
	}
	return strings.Join(out, "; ")
}

// Retry is the command that continues with the runs that failed or stand still;
// empty when there are none.
func (a *Alert) Retry(server string) string {
	switch {
	case a.Kind != KeyBlocked && a.Kind != RunFailed && a.Kind != RunParked:
		return ""
	case a.Parked:
		return "procaas runs retry " + a.Run + serverFlag(server)
	}
	return "procaas runs retry --handler " + a.Path + serverFlag(server)
}

// Look is the command that shows what is wrong.
func (a *Alert) Look(server string) string {
	switch {
	case a.Kind == ServiceDown:
		return "procaas top --sort failures" + serverFlag(server) + "; procaas runs list --status parked" + serverFlag(server)
	case a.Kind == PipelineMultiplies:
		pipeline, _, _ := strings.Cut(a.Path, "/")
		return "procaas runs list --status parked --pipeline " + pipeline + serverFlag(server)
	case a.Kind == NodeUnhealthy, a.Kind == DefinitionOutdated:
		return "procaas nodes" + serverFlag(server)
	case a.Run != "":
		return "procaas runs show " + a.Run + serverFlag(server)
	case a.Path != "":
		return "procaas top " + a.Path + serverFlag(server)
	}
	return "procaas top --sort failures" + serverFlag(server)
}

// serverFlag names the server in a command; it may be left to the environment.
func serverFlag(server string) string {
	if server == "" {
		return ""
	}
	return " --server " + quote(server)
}

// RunURL is where the run can be looked at; empty without a run.
func (a *Alert) RunURL(server string) string {
	if a.Run == "" {
		return ""
	}
	return strings.TrimRight(server, "/") + "/v1/runs/" + a.Run
}

// quote makes a text one word for a shell.
func quote(text string) string {
	special := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-_./:@", c)
	}
	if text != "" && !strings.ContainsFunc(text, special) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
