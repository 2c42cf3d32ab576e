package addon

import (
	"fmt"

	"procaas/engine/alert"
	"procaas/engine/store"
)

const (
	lateTasks    = 60      // seconds that tasks wait beyond their tolerance
	unaskedTasks = 10 * 60 // seconds without a worker that asks for waiting tasks
	deadTaskRows = store.VacuumAt
)

// alerts are the rules of the queue of tasks.
func alerts(server string) []alert.Rule {
	queues := "procaas queue stats" + alert.ServerFlag(server)
	return []alert.Rule{
		{
			Name: "ProcaasQueueLate", Expr: fmt.Sprintf("max by (type) (procaas_queue_lag_seconds) > %d", lateTasks), For: "5m",
			Labels: alert.Severity("warning"),
			Annotations: alert.Explain("tasks of {{ $labels.type }} wait for {{ $value | humanizeDuration }} beyond what they tolerate",
				"Their workers are too few, too slow or away, or the type is paused.", queues),
		}, {
			Name: "ProcaasQueueDeadRows", For: "10m", Labels: alert.Severity("warning"),
			Expr: fmt.Sprintf("max by (table) (procaas_queue_dead_rows) > %d and on (table) "+
				"max by (table) (procaas_queue_dead_rows) > max by (table) (procaas_queue_live_rows)", deadTaskRows),
			Annotations: alert.Explain("{{ $value }} rows of {{ $labels.table }} wait for a vacuum, more than are in use",
				"Run in the store: vacuum (analyze, verbose) {{ $labels.table }}. If they stay, it says from which old transaction on they are "+
					"needed: end that.", queues),
		}, {
			Name: "ProcaasQueueUnasked", For: "5m", Labels: alert.Severity("warning"),
			Expr: fmt.Sprintf(`max by (type) (procaas_queue_tasks{state="ready"}) > 0 and on (type) `+
				`time() - max by (type) (procaas_queue_asked_timestamp_seconds) > %d`, unaskedTasks),
			Annotations: alert.Explain("nobody asks for tasks of {{ $labels.type }}, and {{ $value }} wait",
				"Their workers do not run, or whoever put them has mistyped the type: procaas queue move gives them the right one.", queues),
		}, {
			Name: "ProcaasDeadLetters", Expr: `max by (type) (procaas_queue_tasks{state="failed"}) > 0`, For: "15m",
			Labels: alert.Severity("warning"),
			Annotations: alert.Explain("{{ $value }} tasks of {{ $labels.type }} have failed for good",
				"They stay until somebody decides: procaas queue peek TYPE --state failed tells why, procaas queue retry TYPE tries them again.",
				queues),
		},
	}
}
