package ui_test

import (
	"net/http"
	"testing"
	"time"

	"procaas/engine/api/ui"
	"procaas/engine/enginetest/pages"
	"procaas/engine/guard"
	"procaas/engine/stats"
)

// down is an engine in the first seconds of an outage: one handler in thirty fails, and of a minute it is one in a hundred.
type down struct{ troubled }

func (down) Services() []guard.ServiceInfo {
	since := time.Now().Add(-24 * time.Second)
	return []guard.ServiceInfo{{ID: "cards", Critical: true, FailingSince: &since}}
}

func (down) Handlers() []stats.HandlerInfo {
	none, most := 0.0, 0.99
	return []stats.HandlerInfo{
		{Path: "p/s/fetch", Switch: "on", CallsPerS: 10, Calls: 600, SuccessRatio: &most},
		{Path: "p/s/pay", Switch: "on", Critical: true, Calls: 100, SuccessRatio: &most, RecentCalls: 3, RecentRatio: &none},
	}
}

func (down) Active() []stats.HandlerInfo { return down{}.Handlers() }

func (down) Pipelines() []stats.PipelineInfo {
	none, most := 0.0, 0.995
	window := func(period string, ended, failed int64, ratio *float64) stats.PipelineWindow {
		return stats.PipelineWindow{
			Window:   stats.Window{Period: period, Ended: ended, Failed: failed, PerS: float64(ended) / 10, SuccessRatio: ratio},
			Accepted: 100, AcceptedPerS: 10,
		}
	}
	return []stats.PipelineInfo{{Pipeline: "p", Windows: []stats.PipelineWindow{
		window("10s", 24, 24, &none), window("1m", 600, 3, &most), window("10m", 600, 3, &most), window("1h", 600, 3, &most),
	}}}
}

// The first tile names what fails from the first seconds on, however many other calls succeed. The page says how many runs
// end, and how many of them succeed, in all periods.
func TestOverviewNamesAnOutageAtOnce(t *testing.T) {
	t.Parallel()
	o := options()
	o.Engine = ui.Engine{Definition: down{}, Node: down{}, Runs: down{}, Steering: down{}, Switches: down{}, Changes: down{}, History: pages.Plain{}}
	pages.Open(t, o, "/", http.StatusOK, `<ul class="tiles">
<li class="bad"><span title=`, "failing now</span> <b>3</b><span>cards and 2 more</span>",
		`runs ended per second</span><dl class="periods"><div><dt>10s<dd>2.4</div><div><dt>1m<dd>60</div>`,
		`<dl class="periods"><div><dt>10s<dd>0.0 %</div><div><dt>1m<dd>99.5 %</div>`)
	pages.Open(t, o, "/?since=6h", http.StatusOK, `<a href="/?since=6h" aria-current="true">6h</a>`, `data-chart="p99" data-query="since=6h"`)
}

// Each page has an icon, which tells the tab of the console from others.
func TestPagesHaveAnIcon(t *testing.T) {
	t.Parallel()
	pages.Open(t, options(), "/console/docs", http.StatusOK, `<link rel="icon" href="/console/static/icon.svg">`)
	pages.Open(t, options(), "/console/static/icon.svg", http.StatusOK, "<svg")
}
