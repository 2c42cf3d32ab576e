package alert

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"procaas/engine/model"
)

// These are the thresholds of the rules.
const (
	oldestDue      = 60      // seconds that a due run waits
	stalledClaims  = 3       // seconds that a node can claim nothing
	slowCheckpoint = 1       // second
	lateShare      = 0.01    // of runs that may be later than their target
	lateNeeded     = 3       // late runs in ten minutes, so that one slow run of a quiet pipeline is no alert
	parkedLong     = 5 * 60  // seconds that a run waits without an operator's order
	undecidedLong  = 30 * 60 // seconds that a run waits for an operator
)

// A Rule is one alerting rule of Prometheus.
type Rule struct {
	Name        string
	Expr        string
	For         string // how long it must be true
	Labels      [][2]string
	Annotations [][2]string

	// Behind is the name of the rule that it follows, also one of another product. If that is empty or unknown, the rule is
	// one of the last.
	Behind string
}

// WriteRules writes alerting rules for Prometheus: those of the nodes, and one of each kind for all
// pipelines and all handlers that make calls. Labels name the pipeline or handler and its owner,
// and the commands for an operator contain them. The commands name server, which may be empty.
// The rules of products follow those of the nodes.
func WriteRules(w io.Writer, server string, products []Rule) error {
	var b bytes.Buffer
	b.WriteString("# Alerting rules for Prometheus, written by procaas gen alerts. They hold for all pipelines,\n" +
		"# and stay as they are when pipelines change.\ngroups:\n")
	writeGroup(&b, "procaas", inOrder(nodeRules(server), products))
	writeGroup(&b, "procaas-pipelines", pipelineRules(server))
	writeGroup(&b, "procaas-handlers", handlerRules(server))
	_, err := w.Write(b.Bytes())
	return err
}

// inOrder adds the rules of products to all, each where it says.
func inOrder(all, products []Rule) []Rule {
	for _, r := range products {
		if r.Behind == "" {
			all = append(all, r)
		}
	}
	for _, r := range products {
		if r.Behind == "" {
			continue
		}
		at := len(all)
		if i := slices.IndexFunc(all, func(other Rule) bool { return other.Name == r.Behind }); i >= 0 {
			at = i + 1
		}
		all = slices.Insert(all, at, r)
	}
	return all
}

func nodeRules(server string) []Rule {
	nodes := "procaas nodes" + ServerFlag(server)
	return []Rule{
		{
			Name: "ProcaasAbsent", Expr: "absent(procaas_inbox_waiting)", For: "2m", Labels: Severity("critical"),
			Annotations: Explain("no node of ProcaaS can be seen",
				"Prometheus gets no metrics of any node: events are not taken in, or nobody sees it.", nodes),
		}, {
			Name: "ProcaasStoreLost", Expr: "max(procaas_store_lost) == 1", For: "0s", Labels: Severity("critical"),
			Annotations: Explain("the store has lost what it acknowledged", "It was set back, removed or replaced, as by a failover to a "+
				"replica that lagged. "+
				"Nodes that know better write nothing to it; /readyz and their logs say what is missing. Bring back the right one, or restart the "+
				"nodes to go on with what is left.", nodes),
		}, {
			Name: "ProcaasStoreErrors", Expr: "sum by (operation) (rate(procaas_store_errors_total[5m])) > 0.1", For: "5m",
			Labels: Severity("critical"),
			Annotations: Explain("calls of the store fail: {{ $labels.operation }}", "Nodes repeat what the store does not take, so nothing is "+
				"lost, but events and runs are slow or stand still.", nodes),
		}, {
			Name: "ProcaasInboxOld", Expr: fmt.Sprintf("max(procaas_inbox_oldest_seconds) > %d", oldestDue), For: "5m",
			Labels: Severity("critical"),
			Annotations: Explain("runs wait for {{ $value | humanizeDuration }} though they are due", "Nodes are too few or too slow, or runs "+
				"wait for a limit.", nodes+"; procaas switch list"+ServerFlag(server)),
		}, {
			Name: "ProcaasEventsShed", Expr: `sum by (reason) (rate(procaas_events_shed_total{reason="overload"}[5m])) > 0`, For: "1m",
			Labels: Severity("warning"),
			Annotations: Explain("events are refused, since they come faster than the store writes",
				"Senders get 503 with Retry-After and send again.", nodes),
		}, {
			Name: "ProcaasCheckpointSlow", Expr: fmt.Sprintf("histogram_quantile(0.99, sum by (le) "+
				"(rate(procaas_checkpoint_seconds_bucket[5m]))) > %d", slowCheckpoint),
			For: "10m", Labels: Severity("warning"),
			Annotations: Explain("checkpoints take {{ $value | humanizeDuration }}", "Each step of each run waits for the store that long.", ""),
		}, {
			Name: "ProcaasRunQuarantined", Expr: "sum(rate(procaas_runs_quarantined_total[1h])) > 0", For: "0m", Labels: Severity("critical"),
			Annotations: Explain("a run has brought down node after node, and is quarantined",
				"It stands still until somebody has found out what it does there: its memory, or a fault of ProcaaS.",
				"procaas runs list --status parked --error-class quarantined"+ServerFlag(server)),
		}, {
			Name: "ProcaasRunNotUndone", Expr: "sum(rate(procaas_runs_not_undone_total[1h])) > 0", For: "0m", Labels: Severity("critical"),
			Annotations: Explain("a compensation has failed for good, and what its run has done is not undone",
				"The run lists what is not undone. Its retry repeats only these compensations.",
				"procaas runs list --not-undone"+ServerFlag(server)),
		}, {
			Name: "ProcaasRunDamaged", Expr: "sum(rate(procaas_runs_damaged_total[1h])) > 0", For: "0m", Labels: Severity("critical"),
			Annotations: Explain("the data of a run in the store is damaged, and the run is set aside",
				"The error of the run says what was found and what to do; the logs name rows without a readable id. Check the disk of the store.",
				"procaas runs list --status failed --error-class damaged"+ServerFlag(server)),
		}, {
			Name: "ProcaasClaimsStalled", Expr: fmt.Sprintf("max(procaas_claims_stalled_seconds) > %d", stalledClaims), For: "10s",
			Labels: Severity("critical"),
			Annotations: Explain("a node can take no run from the store, although runs are due",
				"Events are still accepted, but nothing runs. /readyz of the node and its logs say why.", nodes),
		}, {
			Name: "ProcaasPipelineMultiplies", Expr: `max by (pipeline) (procaas_runs_parked{reason="loop"}) > 0`, For: "0m",
			Labels: Severity("critical"),
			Annotations: Explain("the runs of {{ $labels.pipeline }} start more and more of its runs",
				"They emit its event, or put its task, more than once each, without end so far. {{ $value }} wait for the budget of that.",
				"procaas runs list --status parked --pipeline "+ofPipeline+ServerFlag(server)),
		}, {
			Name: "ProcaasServiceDown", Expr: "max by (service) (procaas_service_down) == 1", For: "1m", Labels: Severity("warning"),
			Annotations: Explain("service {{ $labels.service }} is down", "Hardly any call of it succeeds. It is called once at a time until it "+
				"is back; runs wait.", ""),
		}, {
			Name: "ProcaasCertificateEnds", Expr: "min by (service) (procaas_service_certificate_seconds) and on (service) " +
				"max by (service) (procaas_service_certificate_ends_soon) == 1", For: "0m", Labels: Severity("warning"),
			Annotations: Explain("the certificate for service {{ $labels.service }} ends in {{ $value | humanizeDuration }}",
				"Nodes show it to the service, which refuses them then. Replace its files: nodes read them again within a second of the next call.",
				"procaas doctor"+ServerFlag(server)),
		}, {
			Name: "ProcaasEventsUntaken", Expr: "sum by (reason) (increase(procaas_events_untaken_total[1h])) > 0", For: "0m",
			Labels: Severity("warning"),
			Annotations: Explain("events that were kept for an await are not taken: {{ $labels.reason }}",
				"No run took them within max-age, or their key keeps too many. Either the events for which runs await them do not come, or "+
					"max-age is too short.", "procaas runs list --status ignored"+ServerFlag(server)),
		}, {
			Name: "ProcaasAlertsUnsent", Expr: "sum by (receiver) (rate(procaas_alert_requests_failed_total[15m])) > 0", For: "15m",
			Labels:      Severity("warning"),
			Annotations: Explain("alerts do not reach {{ $labels.receiver }}", "What ProcaaS tells by itself does not arrive.", ""),
		},
	}
}

// These are the paths of alerts, as templates.
const (
	ofPipeline = "{{ $labels.pipeline }}"
	ofHandler  = "{{ $labels.pipeline }}/{{ $labels.stage }}/{{ $labels.handler }}"
)

// These are the labels of pipelines, handlers and owners. After a reload, nodes may differ for a
// moment, so the greatest value counts.
const (
	byHandler         = "(pipeline, stage, handler)"
	pipelineTolerance = "max by (pipeline, owner) (procaas_pipeline_tolerance)"
)

// handlerTolerance is the metric of the tolerance of critical handlers, or of others.
func handlerTolerance(critical bool) string {
	return fmt.Sprintf("max by (pipeline, stage, handler, owner) (procaas_handler_tolerance{critical=\"%t\"})", critical)
}

// failing is the share of failures where it exceeds the tolerance.
func failing(counter, label, by, tolerance string) string {
	return fmt.Sprintf(`sum by %[3]s (rate(%[1]s{%[2]s="failed"}[5m])) / `+
		`sum by %[3]s (rate(%[1]s{%[2]s=~"succeeded|failed"}[5m])) > on %[3]s group_left (owner) %[4]s`,
		counter, label, by, tolerance)
}

// pipelineRules are the rules of all pipelines.
func pipelineRules(server string) []Rule {
	return []Rule{{
		Name:   "ProcaasRunsFailing",
		Expr:   failing("procaas_runs_total", "status", "(pipeline)", pipelineTolerance),
		For:    "5m",
		Labels: labelsOf("critical", ofPipeline),
		Annotations: append(Explain(
			"{{ $value | humanizePercentage }} of the runs of "+ofPipeline+" fail",
			"Failed runs keep their state; they go on from the handler that failed when they are retried. Keys of flows that block wait for that.",
			"procaas runs list --status failed --pipeline "+ofPipeline+ServerFlag(server),
		), commands(&Alert{Kind: RunFailed, Path: ofPipeline}, server)...),
	}, lateRule("pipeline", "procaas_run_seconds_count", "accepted", ofPipeline, server),
		lateRule("pipeline, stage", "procaas_stage_seconds_count", "begun", ofPipeline+"/{{ $labels.stage }}", server), {
			Name: "ProcaasSwitchForgotten",
			Expr: "max by " + byHandler + " (procaas_switch_off) + on (pipeline) group_left (owner) 0 * " + pipelineTolerance + " == 1",
			For:  "4h", Labels: labelsOf("warning", ofHandler),
			Annotations: append(Explain(
				ofHandler+" has been switched off for hours", "Somebody has switched it off, or holds its runs, and may have forgotten it.",
				"procaas switch list"+ServerFlag(server),
			), [2]string{"switch_on", "procaas switch on " + ofHandler + ServerFlag(server)}),
		}, {
			Name: "ProcaasRunsParked", Expr: parkedFor("service|limit|lifted|retry", parkedLong), For: "1m",
			Labels: labelsOf("warning", ofPipeline),
			Annotations: Explain("{{ $value }} runs of "+ofPipeline+" stand still: {{ $labels.reason }}",
				"They wait for a service that is down, for a limit, after a lift or before a retry, the first of them for minutes. They go on by "+
					"themselves once that is over.",
				"procaas top --once"+ServerFlag(server)),
		}, {
			Name: "ProcaasRunsUndecided", Expr: parkedFor("operator|blocking", undecidedLong), For: "1m", Labels: labelsOf("warning", ofPipeline),
			Annotations: Explain("{{ $value }} runs of "+ofPipeline+" wait for somebody to decide: {{ $labels.reason }}",
				"They stand still until they are retried or cancelled. A failed run that blocks holds the later events of its key, too.",
				"procaas runs list --status parked --pipeline "+ofPipeline+ServerFlag(server)+"; procaas runs list --status failed --pipeline "+
					ofPipeline+ServerFlag(server)),
		}}
}

// lateRule is the rule of missed targets: of pipelines, or of stages. A late run of a quiet pipeline is not enough.
func lateRule(by, counter, from, path, server string) Rule {
	stage := `=""`
	if from == "begun" {
		stage = `!=""`
	}
	late := fmt.Sprintf("sum by (%s) (increase(procaas_late_total{stage%s}[10m]))", by, stage)
	return Rule{
		Name: "ProcaasRunsLate", For: "1m", Labels: labelsOf("warning", path),
		Expr: fmt.Sprintf(`%[1]s / sum by (%[2]s) (increase(%[3]s{from="%[4]s"}[10m])) > on (pipeline) group_left (owner) %[5]g + 0 * %[6]s `+
			`and on (%[2]s) %[1]s >= %[7]d`, late, by, counter, from, lateShare, pipelineTolerance, lateNeeded),
		Annotations: Explain("{{ $value | humanizePercentage }} of "+path+" took longer than the target",
			"The p99 of the last ten minutes is over it. A deadline bounds the slow handler until it is mended: procaas deadline HANDLER 500ms "+
				"--dry-run"+ServerFlag(server)+" shows what that would have cut.",
			"procaas runs slow "+ofPipeline+" --since 10m"+ServerFlag(server)),
	}
}

// parkedFor is how many runs of a pipeline wait for one of the reasons, if the first has waited
// longer than seconds.
func parkedFor(reasons string, seconds int) string {
	const by = "max by (pipeline, reason) "
	return fmt.Sprintf(`%[1]s(procaas_runs_parked{reason=~"%[2]s"}) + on (pipeline) group_left (owner) 0 * %[3]s `+
		`and on (pipeline, reason) %[1]s(procaas_runs_parked_oldest_seconds) > %[4]d`,
		by, reasons, pipelineTolerance, seconds)
}

// handlerRules are the rules of all handlers that make calls.
func handlerRules(server string) []Rule {
	ruleOf := func(level, after string, critical bool, consequence string) Rule {
		about := &Alert{Kind: HandlerFailing, Path: ofHandler, Critical: critical}
		return Rule{
			Name: "ProcaasHandlerFailing", Expr: failing("procaas_handler_calls_total", "outcome", byHandler, handlerTolerance(critical)),
			For: after, Labels: labelsOf(level, ofHandler),
			Annotations: append(Explain(
				"{{ $value | humanizePercentage }} of the calls of "+ofHandler+" fail", consequence, "procaas runs list --status failed --handler "+
					ofHandler+ServerFlag(server),
			), commands(about, server)...),
		}
	}
	return []Rule{
		ruleOf("critical", "2m", true, "Its runs cannot succeed without it: they fail when it gives up."),
		ruleOf("warning", "5m", false, "Its runs go on without it."),
		{
			Name: "ProcaasHandlerDegraded",
			Expr: "max by " + byHandler + " (procaas_handler_fallback) + on " + byHandler + " group_left (owner) 0 * " + handlerTolerance(false) +
				" == 1",
			For: "1m", Labels: labelsOf("warning", ofHandler),
			Annotations: append(Explain(
				ofHandler+" is out of the flow by itself", "Too few of its calls succeed. Single calls find out when it works again; until then "+
					"its fallback stands in.", "procaas top --once"+ServerFlag(server),
			), commands(&Alert{Kind: HandlerFailing, Path: ofHandler}, server)...),
		},
	}
}

// Severity returns the label of an alert, critical or warning.
func Severity(level string) [][2]string { return [][2]string{{"severity", level}} }

// labelsOf returns the additional labels of an alert.
func labelsOf(level, path string) [][2]string {
	return append(Severity(level), [2]string{"path", path})
}

// Explain returns what is wrong, what it means and where to look first.
func Explain(summary, meaning, look string) [][2]string {
	text := meaning
	if look != "" {
		text += " Look: " + look
	}
	return [][2]string{{"summary", summary}, {"description", text}}
}

// commands lists what an operator can do.
func commands(a *Alert, server string) [][2]string {
	out := [][2]string{{"switch_off", a.SwitchOff(server)}, {"switch_on", a.SwitchOn(server)}}
	if a.Critical || a.Kind == RunFailed {
		failed := *a
		failed.Kind = RunFailed
		out = append(out, [2]string{"retry", failed.Retry(server)})
	}
	return out
}

// writeGroup writes a group of rules.
func writeGroup(b *bytes.Buffer, name string, rules []Rule) {
	fmt.Fprintf(b, "  - name: %s\n    rules:\n", name)
	for _, r := range rules {
		fmt.Fprintf(b, "      - alert: %s\n        expr: %s\n        for: %s\n", r.Name, scalar(r.Expr), r.For)
		for _, block := range []struct {
			name  string
			pairs [][2]string
		}{{"labels", r.Labels}, {"annotations", r.Annotations}} {
			fmt.Fprintf(b, "        %s:\n", block.name)
			for _, pair := range block.pairs {
				fmt.Fprintf(b, "          %s: %s\n", pair[0], scalar(pair[1]))
			}
		}
	}
}

// scalar formats a YAML text: in single quotes, or as JSON if it needs escapes.
func scalar(s string) string {
	if !strings.ContainsFunc(s, func(c rune) bool { return !unicode.IsPrint(c) }) {
		return "'" + strings.ReplaceAll(s, "'", "''") + "'"
	}
	return string(model.EncodeJSON(s))
}
