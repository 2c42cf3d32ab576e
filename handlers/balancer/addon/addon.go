// Package addon plugs the balancer and its proxies into procaas.
package addon

import (
	"context"

	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/addon"
	"procaas/engine/api"
	"procaas/engine/api/ui"
	"procaas/handlers/balancer"
	balancerapi "procaas/handlers/balancer/api"
	"procaas/handlers/balancer/clusters"
	"procaas/handlers/balancer/console"
	"procaas/handlers/balancer/language"
)

// New returns the add-on.
func New() addon.Addon {
	return addon.Addon{
		Name: "balancer", Sections: []tree.Section{language.Section()}, Compare: compareClusters, Alerts: alerts, Types: balancer.Types,
		Problems: balancerapi.Problems(), New: newProcess,
		Demo: demo, ServeHelp: proxyHelp,
		Commands: func(addon.Tools) []addon.Command {
			return []addon.Command{{Command: balancerCommand()}, {Command: simulateCommand(), Under: "simulate"}, {Command: demoWorkerCommand()}}
		},
	}
}

// A process is the balancer in one process.
type process struct {
	proxies  proxies
	clusters *clusters.Clusters // nil before open, as is workers
	workers  *balancer.Workers
}

func newProcess() *addon.Process {
	p := &process{}
	x := &p.proxies
	return &addon.Process{
		ServeFlags: x.flags.add, Addresses: x.addresses, Check: x.check, Listen: x.listen, Open: p.open, Close: p.close,
		Calls: func(*engine.Engine) api.Group { return balancerapi.Calls(p.clusters) },
		Pages: func(*engine.Engine) []ui.Page { return console.Pages(p.clusters) },
	}
}

func (p *process) open(_ context.Context, h *addon.Host) (*addon.Part, error) {
	p.clusters, p.workers = clusters.NewClusters(h.Store, h.Bundle, h.Now), balancer.NewWorkers(h.Targets)
	return &addon.Part{
		Types: balancer.Bind(balancer.Types(), p.workers),
		Free:  p.workers.CloseIdleConnections,
		Run: func(ctx context.Context, n addon.Running) error {
			h.Metrics.MustRegister(newMetrics(p.clusters))
			return p.proxies.run(ctx, h, n, p)
		},
	}, nil
}

// close closes the addresses of the proxies, and the connections to workers.
func (p *process) close() error {
	if p.workers != nil {
		p.workers.CloseIdleConnections()
	}
	return p.proxies.close()
}
