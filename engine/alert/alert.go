// Package alert tells people once when something is wrong with a path, and once when it is well
// again, with Alertmanager's API and webhooks.
//
// The engine reports events as notices. A book turns them into troubles. For each path at most one
// alert fires, that of the gravest trouble, however often it happens. Each receiver has its own
// sender, which retries. The engine never waits for any of this.
//
// Each node reports what it has seen itself. Alertmanager merges equal alerts of several nodes,
// because their labels do not name the node. A webhook may get one alert from each node, with the
// same id.
//
// For alerts based on Prometheus, [WriteRules] and [WriteDashboard] write rules and a dashboard of
// the pipelines.
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

// These are the kinds. Of the first seven, a path has only the gravest. They are ordered by gravity.
const (
	RunNotUndone Kind = "RunNotUndone" // a compensation has failed for good, and what its run has done stays
	// later events of a key wait for a run that has failed or waits for an operator
	KeyBlocked         Kind = "KeyBlocked"
	RunParked          Kind = "RunParked"          // a run waits until an operator decides
	RunFailed          Kind = "RunFailed"          // runs have failed
	HandlerDegraded    Kind = "HandlerDegraded"    // fallback has turned a handler off
	HandlerFailing     Kind = "HandlerFailing"     // a non-critical handler keeps failing
	EventsUntaken      Kind = "EventsUntaken"      // events were kept for runs that did not take them
	ServiceDown        Kind = "ServiceDown"        // runs wait for a service that answers hardly any call
	RunsLate           Kind = "RunsLate"           // the p99 of a pipeline or stage is over its target
	PipelineMultiplies Kind = "PipelineMultiplies" // runs of a pipeline start more and more of its runs
	ServiceDegraded    Kind = "ServiceDegraded"    // fallback has turned the handlers of a service off
	CertificateEnds    Kind = "CertificateEnds"    // the certificate that a node shows to a service ends soon, or has ended
	FallbacksFrozen    Kind = "FallbacksFrozen"    // half of all services fail at once
	NodeUnhealthy      Kind = "NodeUnhealthy"      // a node cannot work
	CanaryRolledBack   Kind = "CanaryRolledBack"   // a new version was worse than the old one
	DefinitionOutdated Kind = "DefinitionOutdated" // a node cannot run the current definition
	StoreDamaged       Kind = "StoreDamaged"       // the store has data that can be neither read nor set aside
)

// Severity returns the urgency: critical or warning.
func (k Kind) Severity() string {
	switch k {
	case HandlerDegraded, HandlerFailing, EventsUntaken, RunsLate, ServiceDegraded, CertificateEnds, CanaryRolledBack, DefinitionOutdated:
		return "warning"
	}
	return "critical"
}

// An Alert is one thing that is wrong, or was.
type Alert struct {
	Kind     Kind
	Path     string // pipeline, or pipeline/stage/handler; empty if it is not about a path
	Service  string // of a ServiceDown, a ServiceDegraded or a CertificateEnds
	Node     string // of a NodeUnhealthy, DefinitionOutdated or StoreDamaged
	Owner    string
	Critical bool // runs cannot succeed without the path

	Since time.Time
	Ended time.Time // zero while it fires
	Until time.Time // earliest end of a fallback, or the end of a certificate; zero for others

	Ratio *float64 // success ratio of the path's calls; nil if unknown
	Error string   // the last error
	Run   string   // the last affected run
	// Runs is the number of affected runs on this node. For ServiceDown or PipelineMultiplies, it
	// is the number of waiting runs on all nodes.
	Runs     int
	Parked   bool     // the runs wait, and have not failed
	Keys     []string // the last blocked ones, as flow/key
	KeyCount int      // number of all blocked keys
	Handlers []string // that are off with a service
}

// ID is the same for the same trouble, on all nodes.
func (a *Alert) ID() string {
	sum := sha256.Sum256([]byte(strings.Join([]string{string(a.Kind), a.Path, a.Service, a.Node}, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// Summary describes the trouble in one line.
func (a *Alert) Summary() string {
	switch a.Kind {
	case RunNotUndone:
		return fmt.Sprintf("%s: %s done what could not be undone", a.Path, count(a.Runs, "run has", "runs have"))
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
	case EventsUntaken:
		return fmt.Sprintf("%s: no run took %s in time", a.Path, count(a.Runs, "event that was kept for it", "events that were kept for it"))
	case CertificateEnds:
		return fmt.Sprintf("the certificate that nodes show to service %s ends at %s", a.Service, a.Until.UTC().Format(time.RFC3339))
	case ServiceDown:
		return fmt.Sprintf("service %s is down: hardly any call of it succeeds, and %s for it", a.Service,
			count(a.Runs, "run waits", "runs wait"))
	case PipelineMultiplies:
		return fmt.Sprintf("%s: the runs of the pipeline start more and more of its runs; %s for the budget of that", a.Path,
			count(a.Runs, "run waits", "runs wait"))
	case RunsLate:
		return fmt.Sprintf("%s is late: more than one in a hundred took longer than the target", a.Path)
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
	case StoreDamaged:
		return fmt.Sprintf("node %s cannot read a row of its store, and the run of that row stands still", a.Node)
	}
	return string(a.Kind)
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// SwitchOff returns the command that switches off what the alert is about, or empty. A critical
// handler is held instead, so nothing is lost.
func (a *Alert) SwitchOff(server string) string {
	if a.Kind == RunsLate || a.Kind == EventsUntaken {
		return "" // off is no remedy for late
	}
	verb := "switch off"
	if a.Critical || a.Path != "" && strings.Count(a.Path, "/") < 2 {
		verb = "switch hold"
	}
	return a.commands(verb, " --reason "+quote("alert "+string(a.Kind)), server)
}

// SwitchOn returns the command that undoes SwitchOff.
func (a *Alert) SwitchOn(server string) string {
	if a.Kind == RunsLate || a.Kind == EventsUntaken {
		return ""
	}
	return a.commands("switch on", "", server)
}

// commands returns one command per path.
func (a *Alert) commands(what, options, server string) string {
	paths := a.Handlers
	if a.Path != "" {
		paths = []string{a.Path}
	}
	out := make([]string, len(paths))
	for i, path := range paths {
		out[i] = fmt.Sprintf("procaas %s %s%s%s", what, path, options, ServerFlag(server))
	}
	return strings.Join(out, "; ")
}

// Bound returns the command that shows what a bound for the slow handler would have cut, or empty.
func (a *Alert) Bound(server string) string {
	if a.Kind != RunsLate || len(a.Handlers) == 0 {
		return ""
	}
	return fmt.Sprintf("procaas deadline %s 500ms --dry-run%s", a.Handlers[0], ServerFlag(server))
}

// Retry returns the command that retries the failed or waiting runs, or empty.
func (a *Alert) Retry(server string) string {
	switch {
	case a.Kind != KeyBlocked && a.Kind != RunFailed && a.Kind != RunParked && a.Kind != RunNotUndone:
		return ""
	case a.Parked:
		return "procaas runs retry " + a.Run + ServerFlag(server)
	}
	return "procaas runs retry --handler " + a.Path + ServerFlag(server)
}

// Look returns the command that shows the trouble.
func (a *Alert) Look(server string) string {
	switch {
	case a.Kind == ServiceDown:
		return "procaas top --sort failures" + ServerFlag(server) + "; procaas runs list --status parked" + ServerFlag(server)
	case a.Kind == PipelineMultiplies:
		pipeline, _, _ := strings.Cut(a.Path, "/")
		return "procaas runs list --status parked --pipeline " + pipeline + ServerFlag(server)
	case a.Kind == RunsLate:
		pipeline, _, _ := strings.Cut(a.Path, "/")
		return "procaas runs slow " + pipeline + " --since 10m" + ServerFlag(server) + "; procaas top " + pipeline + ServerFlag(server)
	case a.Kind == CertificateEnds:
		return "procaas doctor" + ServerFlag(server)
	case a.Kind == NodeUnhealthy, a.Kind == DefinitionOutdated, a.Kind == StoreDamaged:
		return "procaas nodes" + ServerFlag(server)
	case a.Run != "":
		return "procaas runs show " + a.Run + ServerFlag(server)
	case a.Path != "":
		return "procaas top " + a.Path + ServerFlag(server)
	}
	return "procaas top --sort failures" + ServerFlag(server)
}

// ServerFlag returns the flag that names the server, or nothing if the environment names it.
func ServerFlag(server string) string {
	if server == "" {
		return ""
	}
	return " --server " + quote(server)
}

// RunURL returns the address of the run in the console, or empty.
func (a *Alert) RunURL(server string) string {
	if a.Run == "" {
		return ""
	}
	return strings.TrimRight(server, "/") + "/v1/runs/" + a.Run
}

// quote quotes a text as one word for a shell.
func quote(text string) string {
	special := func(c rune) bool {
		isLetter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		isDigit := '0' <= c && c <= '9'
		return !isLetter && !isDigit && !strings.ContainsRune("-_./:@", c)
	}
	if text != "" && !strings.ContainsFunc(text, special) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
