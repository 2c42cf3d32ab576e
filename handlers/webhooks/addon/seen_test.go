package addon

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestUnknownWebhooksLeaveATrace sends many requests to webhooks that no file declares. The metric counts all of them, without their
// ids. The log has a line each ten seconds, with how many there were.
func TestUnknownWebhooksLeaveATrace(t *testing.T) {
	t.Parallel()
	s := seen{deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "d", Help: "d"}, []string{"webhook", "outcome"})}
	var text strings.Builder
	log := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for range 3 {
		s.unknown(log, "parcel", now)
	}
	s.unknown(log, strings.Repeat("x", 1000), now.Add(tellEach))
	const line = `level=WARN msg="a request came to a webhook that no file declares" webhook=`
	want := line + "parcel requests=1\n" + line + strings.Repeat("x", shownID) + " requests=3\n"
	if text.String() != want {
		t.Errorf("want the log\n%s\nhave\n%s", want, text.String())
	}
	r := prometheus.NewRegistry()
	r.MustRegister(s.deliveries)
	families, err := r.Gather()
	if err != nil || len(families) != 1 || len(families[0].GetMetric()) != 1 {
		t.Fatalf("want one series whatever is asked for, have %v (%v)", families, err)
	}
	if n := families[0].GetMetric()[0].GetCounter().GetValue(); n != 4 {
		t.Errorf("want 4 requests counted, have %g", n)
	}
}
