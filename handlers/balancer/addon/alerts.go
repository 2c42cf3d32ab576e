package addon

import "procaas/engine/alert"

// alerts are the rules of clusters.
func alerts(server string) []alert.Rule {
	return []alert.Rule{
		{
			Name: "ProcaasPartitionsUnserved", Behind: "ProcaasQueueDeadRows",
			Expr: "max by (cluster) (procaas_cluster_unserved_partitions) > 0", For: "10s",
			Labels: alert.Severity("critical"),
			Annotations: alert.Explain("{{ $value }} partitions of {{ $labels.cluster }} are served by nobody",
				"None of the workers that may hold them answers, so their requests fail. Start one of these workers, or let the map name more.",
				"procaas balancer status"+alert.ServerFlag(server)),
		},
	}
}
