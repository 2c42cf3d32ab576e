package serve

import (
	"context"
	"errors"
	"net/http"

	"procaas/engine/api"
	"procaas/engine/api/transport"
	"procaas/engine/api/web"
)

// apart is an address of its own for a part of the API.
type apart struct {
	part api.Part
	web  *web.Server
}

// listenApart binds the addresses beside the first one.
func (n *Node) listenApart(ctx context.Context) error {
	for address, part := range map[string]api.Part{n.flags.Admin: api.Whole, n.flags.Metrics: api.Metrics} {
		if address == "" {
			continue
		}
		s, err := web.Listen(ctx, address, n.log, transport.Server)
		if err != nil {
			return err
		}
		n.apart = append(n.apart, apart{part, s})
	}
	return nil
}

// startWeb serves the handler of each part at its address, or replaces it.
func (n *Node) startWeb(of func(api.Part) http.Handler) {
	for _, a := range n.apart {
		a.web.Start(of(a.part))
	}
	first := api.Whole
	if n.flags.Admin != "" {
		first = api.Public
	}
	n.web.Start(of(first))
}

// closeWeb closes all addresses of a node that does not run.
func (n *Node) closeWeb() error {
	err := n.web.Close()
	for _, a := range n.apart {
		err = errors.Join(err, a.web.Close())
	}
	return err
}
