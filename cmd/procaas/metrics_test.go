package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"procaas/engine/api/wire"
	"procaas/engine/model"
)

// TestMetricsOfANode runs events, and reads what Prometheus would: all that is
// promised is there, and obeys the rules of promtool check metrics.
func TestMetricsOfANode(t *testing.T) {
	t.Parallel()
	o := operateNode(t, failing)
	for range 3 {
		if _, err := o.client.SubmitEvent(t.Context(), wire.Event{Type: "work"}); err != nil {
			t.Fatal(err)
		}
	}
	o.wait(model.Failed, 3)
	eventually(t, "the last run to be counted", func() bool { // after its end is stored
		reply, err := http.Get(o.server + "/metrics")
		if err != nil {
			return false
		}
		defer reply.Body.Close()
		text, err := io.ReadAll(reply.Body)
		return err == nil && strings.Contains(string(text), `procaas_runs_total{pipeline="work",status="failed"} 3`)
	})
	reply, err := http.Get(o.server + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	var text strings.Builder
	problems, err := promlint.New(io.TeeReader(reply.Body, &text)).Lint()
	if err != nil || reply.StatusCode != http.StatusOK {
		t.Fatal(reply.Status, err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for _, want := range []string{
		`procaas_handler_calls_total{handler="broken",outcome="failed",pipeline="work",stage="last"} 3`,
		`procaas_handler_seconds_count{handler="broken",pipeline="work",stage="last"} 3`,
		`procaas_handler_fallback{handler="broken",pipeline="work",stage="last"} 0`,
		`procaas_handler_success_ratio{handler="broken",pipeline="work",stage="last"} 0`,
		`procaas_events_accepted_total 3`,
		`procaas_runs_total{pipeline="work",status="failed"} 3`,
		`procaas_runs_total{pipeline="work",status="succeeded"} 0`,
		"procaas_inbox_waiting ", "procaas_inbox_oldest_seconds ", "procaas_checkpoint_seconds_count ", "go_goroutines ",
	} {
		if !strings.Contains(text.String(), "\n"+want) {
			t.Errorf("want %s, have\n%s", want, text.String())
		}
	}
}
