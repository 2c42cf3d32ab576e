package addon

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/dsl/diag"
	"procaas/engine/alert"
	"procaas/handlers/signon"
)

// away returns which issuers do not answer, or nil.
func away(d *signon.Desk) error {
	all := d.Away()
	for _, address := range diag.SortedKeys(all) {
		if err := all[address]; err != nil {
			return fmt.Errorf("nobody can sign in at the issuer %s, which does not answer; tokens of this server go on: %w", address, err)
		}
	}
	return nil
}

// issuers are the metric of the issuers of a file. There are none without a file.
type issuers struct{ desk *signon.Desk }

var issuerUp = prometheus.NewDesc("procaas_sign_on_issuer_up",
	"1 if the issuer of tokens answered this node the last time, 0 if not.", []string{"issuer"}, nil)

// Describe implements [prometheus.Collector].
func (i issuers) Describe(ch chan<- *prometheus.Desc) { ch <- issuerUp }

// Collect implements [prometheus.Collector].
func (i issuers) Collect(ch chan<- prometheus.Metric) {
	if i.desk == nil {
		return
	}
	for address, err := range i.desk.Away() {
		up := 1.0
		if err != nil {
			up = 0
		}
		ch <- prometheus.MustNewConstMetric(issuerUp, prometheus.GaugeValue, up, address)
	}
}

// alerts are the rules of sign-on.
func alerts(server string) []alert.Rule {
	return []alert.Rule{{
		Name: "ProcaasIssuerAway", For: "5m", Labels: alert.Severity("warning"),
		Expr: `min by (issuer) (procaas_sign_on_issuer_up) == 0`,
		Annotations: alert.Explain("the issuer of tokens {{ $labels.issuer }} does not answer",
			"Nobody can sign in there. Tokens and sessions stay good until they end, on nodes that have read its keys. Tokens of the server go on.",
			"procaas health"+alert.ServerFlag(server)),
	}}
}
