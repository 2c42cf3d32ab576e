package serve

import (
	"context"
	"errors"
	"net/http"

	"procaas/engine/api"
	"procaas/engine/api/cli"
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
	for _, a := range []struct {
		flag, address string
		part          api.Part
	}{
		{"listen-admin", n.flags.Admin, api.Whole},
		{"listen-metrics", n.flags.Metrics, api.Metrics},
	} {
		if a.address == "" {
			continue
		}
		s, err := web.Listen(ctx, a.address, n.log, transport.Server)
		if err != nil {
			return cli.ListenError(a.flag, a.address, err)
		}
		n.apart = append(n.apart, apart{a.part, s})
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
