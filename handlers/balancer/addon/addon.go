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
	"procaas/handlers/balancer/console"
	"procaas/handlers/balancer/language"
)

// New returns the add-on.
func New() addon.Addon {
	return addon.Addon{
		Name: "balancer", Sections: []tree.Section{language.Section()}, Types: balancer.Types(), Problems: balancerapi.Problems(), New: newProcess,
		Commands: func() []addon.Command {
			return []addon.Command{{Command: balancerCommand()}, {Command: simulateCommand(), Under: "simulate"}}
		},
	}
}

func newProcess() *addon.Process {
	p := &proxies{}
	return &addon.Process{
		ServeFlags: p.flags.add, Addresses: p.addresses, Check: p.check, Listen: p.listen, Close: p.close,
		Calls: func(e *engine.Engine) api.Group { return balancerapi.Calls(e) },
		Pages: func(e *engine.Engine) []ui.Page { return console.Pages(e) },
		Open: func(_ context.Context, h *addon.Host) (*addon.Part, error) {
			return &addon.Part{
				Run: func(ctx context.Context, n addon.Running) error {
					h.Metrics.MustRegister(newMetrics(n.Engine))
					return p.run(ctx, h, n)
				},
			}, nil
		},
	}
}
