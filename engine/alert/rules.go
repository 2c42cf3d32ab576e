package alert

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"

	"procaas/engine/model"
	"procaas/engine/store"
)

// These are the thresholds of the rules.
const (
	oldestDue      = 60 // seconds that a due run waits
	stalledClaims  = 3  // seconds that a node can claim nothing
	slowCheckpoint = 1  // second
	lateTasks      = 60 // seconds that tasks wait beyond their tolerance
	deadTaskRows   = store.VacuumAt
	unaskedTasks   = 10 * 60 // seconds without a worker that asks for waiting tasks
	parkedLong     = 5 * 60  // seconds that a run waits without an operator's order
	undecidedLong  = 30 * 60 // seconds that a run waits for an operator
)

// A rule is one alerting rule of Prometheus.
type rule struct {
	name        string
	expr        string
	after       string // how long it must be true
	labels      [][2]string
	annotations [][2]string
}

// WriteRules writes alerting rules for Prometheus: those of the nodes, and one of each kind for all
// pipelines and all handlers that make calls. Labels name the pipeline or handler and its owner,
// and the commands for an operator contain them. The commands name server, which may be empty.
func WriteRules(w io.Writer, server string) error {
	var b bytes.Buffer
	b.WriteString("# Alerting rules for Prometheus, written by procaas gen alerts. They hold for all pipelines,\n" +
		"# and stay as they are when pipelines change.\ngroups:\n")
	writeGroup(&b, "procaas", nodeRules(server))
	writeGroup(&b, "procaas-pipelines", pipelineRules(server))
	writeGroup(&b, "procaas-handlers", handlerRules(server))
	_, err := w.Write(b.Bytes())
	return err
}

func nodeRules(server string) []rule {
	nodes, queues := "procaas nodes"+serverFlag(server), "procaas queue stats"+serverFlag(server)
	return []rule{
		{
			name: "ProcaasAbsent", expr: "absent(procaas_inbox_waiting)", after: "2m", labels: severity("critical"),
			annotations: explain("no node of ProcaaS can be seen",
				"Prometheus gets no metrics of any node: events are not taken in, or nobody sees it.", nodes),
		}, {
			name: "ProcaasStoreLost", expr: "max(procaas_store_lost) == 1", after: "0s", labels: severity("critical"),
			annotations: explain("the store has lost what it acknowledged", "It was set back, removed or replaced, as by a failover to a "+
				"replica that lagged. "+
				"Nodes that know better write nothing to it; /readyz and their logs say what is missing. Bring back the right one, or restart the "+
				"nodes to go on with what is left.", nodes),
		}, {
			name: "ProcaasStoreErrors", expr: "sum by (operation) (rate(procaas_store_errors_total[5m])) > 0.1", after: "5m",
			labels: severity("critical"),
			annotations: explain("calls of the store fail: {{ $labels.operation }}", "Nodes repeat what the store does not take, so nothing is "+
				"lost, but events and runs are slow or stand still.", nodes),
		}, {
			name: "ProcaasInboxOld", expr: fmt.Sprintf("max(procaas_inbox_oldest_seconds) > %d", oldestDue), after: "5m",
			labels: severity("critical"),
			annotations: explain("runs wait for {{ $value | humanizeDuration }} though they are due", "Nodes are too few or too slow, or runs "+
				"wait for a limit.", nodes+"; procaas switch list"+serverFlag(server)),
		}, {
			name: "ProcaasEventsShed", expr: `sum by (reason) (rate(procaas_events_shed_total{reason="overload"}[5m])) > 0`, after: "1m",
			labels: severity("warning"),
			annotations: explain("events are refused, since they come faster than the store writes",
				"Senders get 503 with Retry-After and send again.", nodes),
		}, {
			name: "ProcaasCheckpointSlow", expr: fmt.Sprintf("histogram_quantile(0.99, sum by (le) "+
				"(rate(procaas_checkpoint_seconds_bucket[5m]))) > %d", slowCheckpoint),
			after: "10m", labels: severity("warning"),
			annotations: explain("checkpoints take {{ $value | humanizeDuration }}", "Each step of each run waits for the store that long.", ""),
		}, {
			name: "ProcaasRunQuarantined", expr: "sum(rate(procaas_runs_quarantined_total[1h])) > 0", after: "0m", labels: severity("critical"),
			annotations: explain("a run has brought down node after node, and is quarantined",
				"It stands still until somebody has found out what it does there: its memory, or a fault of ProcaaS.",
				"procaas runs list --status parked --error-class quarantined"+serverFlag(server)),
		}, {
			name: "ProcaasRunDamaged", expr: "sum(rate(procaas_runs_damaged_total[1h])) > 0", after: "0m", labels: severity("critical"),
			annotations: explain("the data of a run in the store is damaged, and the run is set aside",
				"The error of the run says what was found and what to do; the logs name rows without a readable id. Check the disk of the store.",
				"procaas runs list --status failed --error-class damaged"+serverFlag(server)),
		}, {
			name: "ProcaasClaimsStalled", expr: fmt.Sprintf("max(procaas_claims_stalled_seconds) > %d", stalledClaims), after: "10s",
			labels: severity("critical"),
			annotations: explain("a node can take no run from the store, although runs are due",
				"Events are still accepted, but nothing runs. /readyz of the node and its logs say why.", nodes),
		}, {
			name: "ProcaasPipelineMultiplies", expr: `max by (pipeline) (procaas_runs_parked{reason="loop"}) > 0`, after: "0m",
			labels: severity("critical"),
			annotations: explain("the runs of {{ $labels.pipeline }} start more and more of its runs",
				"They emit its event, or put its task, more than once each, without end so far. {{ $value }} wait for the budget of that.",
				"procaas runs list --status parked --pipeline "+ofPipeline+serverFlag(server)),
		}, {
			name: "ProcaasServiceDown", expr: "max by (service) (procaas_service_down) == 1", after: "1m", labels: severity("warning"),
			annotations: explain("service {{ $labels.service }} is down", "Hardly any call of it succeeds. It is called once at a time until it "+
				"is back; runs wait.", ""),
		}, {
			name: "ProcaasAlertsUnsent", expr: "sum by (receiver) (rate(procaas_alert_requests_failed_total[15m])) > 0", after: "15m",
			labels:      severity("warning"),
			annotations: explain("alerts do not reach {{ $labels.receiver }}", "What ProcaaS tells by itself does not arrive.", ""),
		}, {
			name: "ProcaasQueueLate", expr: fmt.Sprintf("max by (type) (procaas_queue_lag_seconds) > %d", lateTasks), after: "5m",
			labels: severity("warning"),
			annotations: explain("tasks of {{ $labels.type }} wait for {{ $value | humanizeDuration }} beyond what they tolerate",
				"Their workers are too few, too slow or away, or the type is paused.", queues),
		}, {
			name: "ProcaasQueueDeadRows", after: "10m", labels: severity("warning"),
			expr: fmt.Sprintf("max by (table) (procaas_queue_dead_rows) > %d and on (table) "+
				"max by (table) (procaas_queue_dead_rows) > max by (table) (procaas_queue_live_rows)", deadTaskRows),
			annotations: explain("{{ $value }} rows of {{ $labels.table }} wait for a vacuum, more than are in use",
				"Run in the store: vacuum (analyze, verbose) {{ $labels.table }}. If they stay, it says from which old transaction on they are "+
					"needed: end that.", queues),
		}, {
			name: "ProcaasPartitionsUnserved", expr: "max by (cluster) (procaas_cluster_unserved_partitions) > 0", after: "10s",
			labels: severity("critical"),
			annotations: explain("{{ $value }} partitions of {{ $labels.cluster }} are served by nobody",
				"None of the workers that may hold them answers, so their requests fail. Start one of these workers, or let the map name more.",
				"procaas balancer status"+serverFlag(server)),
		}, {
			name: "ProcaasQueueUnasked", after: "5m", labels: severity("warning"),
			expr: fmt.Sprintf(`max by (type) (procaas_queue_tasks{state="ready"}) > 0 and on (type) `+
				`time() - max by (type) (procaas_queue_asked_timestamp_seconds) > %d`, unaskedTasks),
			annotations: explain("nobody asks for tasks of {{ $labels.type }}, and {{ $value }} wait",
				"Their workers do not run, or whoever put them has mistyped the type: procaas queue move gives them the right one.", queues),
		}, {
			name: "ProcaasDeadLetters", expr: `max by (type) (procaas_queue_tasks{state="failed"}) > 0`, after: "15m", labels: severity("warning"),
			annotations: explain("{{ $value }} tasks of {{ $labels.type }} have failed for good",
				"They stay until somebody decides: procaas queue peek TYPE --state failed tells why, procaas queue retry TYPE tries them again.",
				queues),
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
func pipelineRules(server string) []rule {
	return []rule{{
		name:   "ProcaasRunsFailing",
		expr:   failing("procaas_runs_total", "status", "(pipeline)", pipelineTolerance),
		after:  "5m",
		labels: labelsOf("critical", ofPipeline),
		annotations: append(explain(
			"{{ $value | humanizePercentage }} of the runs of "+ofPipeline+" fail",
			"Failed runs keep their state; they go on from the handler that failed when they are retried. Keys of flows that block wait for that.",
			"procaas runs list --status failed --pipeline "+ofPipeline+serverFlag(server),
		), commands(&Alert{Kind: RunFailed, Path: ofPipeline}, server)...),
	}, {
		name:  "ProcaasSwitchForgotten",
		expr:  "max by " + byHandler + " (procaas_switch_off) + on (pipeline) group_left (owner) 0 * " + pipelineTolerance + " == 1",
		after: "4h", labels: labelsOf("warning", ofHandler),
		annotations: append(explain(
			ofHandler+" has been switched off for hours", "Somebody has switched it off, or holds its runs, and may have forgotten it.",
			"procaas switch list"+serverFlag(server),
		), [2]string{"switch_on", "procaas switch on " + ofHandler + serverFlag(server)}),
	}, {
		name: "ProcaasRunsParked", expr: parkedFor("service|limit|lifted|retry", parkedLong), after: "1m",
		labels: labelsOf("warning", ofPipeline),
		annotations: explain("{{ $value }} runs of "+ofPipeline+" stand still: {{ $labels.reason }}",
			"They wait for a service that is down, for a limit, after a lift or before a retry, the first of them for minutes. They go on by "+
				"themselves once that is over.",
			"procaas top --once"+serverFlag(server)),
	}, {
		name: "ProcaasRunsUndecided", expr: parkedFor("operator|blocking", undecidedLong), after: "1m", labels: labelsOf("warning", ofPipeline),
		annotations: explain("{{ $value }} runs of "+ofPipeline+" wait for somebody to decide: {{ $labels.reason }}",
			"They stand still until they are retried or cancelled. A failed run that blocks holds the later events of its key, too.",
			"procaas runs list --status parked --pipeline "+ofPipeline+serverFlag(server)+"; procaas runs list --status failed --pipeline "+
				ofPipeline+serverFlag(server)),
	}}
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
func handlerRules(server string) []rule {
	ruleOf := func(level, after string, critical bool, consequence string) rule {
		about := &Alert{Kind: HandlerFailing, Path: ofHandler, Critical: critical}
		return rule{
			name: "ProcaasHandlerFailing", expr: failing("procaas_handler_calls_total", "outcome", byHandler, handlerTolerance(critical)),
			after: after, labels: labelsOf(level, ofHandler),
			annotations: append(explain(
				"{{ $value | humanizePercentage }} of the calls of "+ofHandler+" fail", consequence, "procaas runs list --status failed --handler "+
					ofHandler+serverFlag(server),
			), commands(about, server)...),
		}
	}
	return []rule{
		ruleOf("critical", "2m", true, "Its runs cannot succeed without it: they fail when it gives up."),
		ruleOf("warning", "5m", false, "Its runs go on without it."),
		{
			name: "ProcaasHandlerDegraded",
			expr: "max by " + byHandler + " (procaas_handler_fallback) + on " + byHandler + " group_left (owner) 0 * " + handlerTolerance(false) +
				" == 1",
			after: "1m", labels: labelsOf("warning", ofHandler),
			annotations: append(explain(
				ofHandler+" is out of the flow by itself", "Too few of its calls succeed. Single calls find out when it works again; until then "+
					"its fallback stands in.", "procaas top --once"+serverFlag(server),
			), commands(&Alert{Kind: HandlerFailing, Path: ofHandler}, server)...),
		},
	}
}

func severity(level string) [][2]string { return [][2]string{{"severity", level}} }

// labelsOf returns the additional labels of an alert.
func labelsOf(level, path string) [][2]string {
	return append(severity(level), [2]string{"path", path})
}

// explain returns what is wrong, what it means and where to look first.
func explain(summary, meaning, look string) [][2]string {
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
func writeGroup(b *bytes.Buffer, name string, rules []rule) {
	fmt.Fprintf(b, "  - name: %s\n    rules:\n", name)
	for _, r := range rules {
		fmt.Fprintf(b, "      - alert: %s\n        expr: %s\n        for: %s\n", r.name, scalar(r.expr), r.after)
		for _, block := range []struct {
			name  string
			pairs [][2]string
		}{{"labels", r.labels}, {"annotations", r.annotations}} {
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
