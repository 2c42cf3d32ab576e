package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"procaas/cmd/procaas/internal/serve/web"
	"procaas/dsl/cluster"
	"procaas/dsl/datum"
	"procaas/dsl/tree"
	"procaas/engine/api"
	"procaas/engine/api/access"
	"procaas/engine/api/cli"
	"procaas/engine/api/transport"
	"procaas/engine/clusters"
	"procaas/handlers/balancer/route"
)

// ProxyFlags are the flags of the proxies for clusters.
type ProxyFlags struct {
	Addresses, Keys map[string]string // by cluster
	Patience        time.Duration
	Silence         time.Duration
	Replay          string
}

func (f *ProxyFlags) add(flags *pflag.FlagSet) {
	flags.StringToStringVar(&f.Addresses, "proxy", nil, "address whose requests go to the workers of a cluster: CLUSTER=:PORT on "+
		"this machine, or CLUSTER=HOST:PORT (repeatable)")
	flags.StringToStringVar(&f.Keys, "proxy-key", nil, "where these requests have their key, if not where the cluster says: "+
		"CLUSTER=header:NAME, query:NAME or path:N (repeatable)")
	flags.DurationVar(&f.Patience, "proxy-patience", route.DefaultPatience, "how long a request waits for a worker that serves "+
		"its partition")
	flags.DurationVar(&f.Silence, "proxy-timeout", route.DefaultSilence, "how long a worker may be silent before and within its answer, "+
		"and a caller within its body")
	flags.StringVar(&f.Replay, "proxy-replay", "1MiB",
		"largest body that the proxy can send again; a larger one waits until a worker asks for it")
}

// A proxied is the proxy of one cluster.
type proxied struct {
	cluster string           // its id
	address string           // including the host
	web     *web.Server      // nil before listen
	key     cluster.KeyPlace // place of the key in requests
}

// proxies are all proxies of a node.
type proxies struct {
	flags  ProxyFlags
	replay int64      // bytes
	all    []*proxied // sorted by cluster
}

// newProxies reads the flags and finds the clusters. It binds no address.
func newProxies(f ProxyFlags, b *tree.Bundle) (*proxies, error) {
	p := &proxies{flags: f}
	replay, err := datum.ParseBytes(f.Replay)
	if err != nil && len(f.Addresses) > 0 {
		return nil, cli.Usagef("--proxy-replay %q: %w", f.Replay, err)
	}
	p.replay = int64(replay)
	for id := range f.Keys {
		if f.Addresses[id] == "" {
			return nil, cli.Usagef("--proxy-key %s=%s: there is no --proxy for the cluster", id, f.Keys[id])
		}
	}
	for _, id := range slices.Sorted(maps.Keys(f.Addresses)) {
		x, err := f.find(id, b)
		if err != nil {
			return nil, err
		}
		p.all = append(p.all, x)
	}
	return p, nil
}

// find returns the proxy of one --proxy.
func (f *ProxyFlags) find(id string, b *tree.Bundle) (*proxied, error) {
	declared := b.Cluster(id)
	if declared == nil {
		known := cli.Names(b.Clusters, func(c *tree.Cluster) string { return c.ID })
		return nil, cli.Usagef("--proxy %s=%s: no cluster %q is declared; %s", id, f.Addresses[id], id,
			cli.Meant(id, known, "did you mean %s?", "declare it below clusters:"))
	}
	address, err := proxyAddress(f.Addresses[id])
	if err != nil {
		return nil, cli.Usagef("--proxy %s=%s: %w", id, f.Addresses[id], err)
	}
	place := declared.Key
	if f.Keys[id] != "" {
		place = f.Keys[id]
	}
	key, err := cluster.ParseKeyPlace(place)
	if err != nil {
		return nil, cli.Usagef("--proxy-key %s: %w", id, err)
	}
	return &proxied{cluster: id, address: address, key: key}, nil
}

// listen binds the addresses. If one fails, call close for the others.
func (p *proxies) listen(ctx context.Context, log *slog.Logger) (err error) {
	for _, x := range p.all {
		if x.web, err = web.Listen(ctx, x.address, log, transport.PassingServer); err != nil {
			return err
		}
	}
	return nil
}

// proxyAddress adds this machine to an address without a host. To be reachable from other machines, a proxy
// needs an explicit host.
func proxyAddress(text string) (string, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return "", fmt.Errorf("want :PORT or HOST:PORT: %w", err)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", fmt.Errorf("%q is no port", port)
	} else if host == "" {
		host, port = "127.0.0.1", fmt.Sprint(n)
	}
	return net.JoinHostPort(host, port), nil
}

// beyond returns an address that other machines reach, or "".
func (f *ProxyFlags) beyond() string {
	for _, id := range slices.Sorted(maps.Keys(f.Addresses)) {
		if address, err := proxyAddress(f.Addresses[id]); err == nil && !transport.Loopback(address) {
			return address
		}
	}
	return ""
}

// start makes the proxies answer, with the API's rules for access.
func (p *proxies) start(ctx context.Context, g *errgroup.Group, n *Node, served api.Options) {
	if len(p.all) == 0 {
		return
	}
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "procaas_proxy_requests_total", Help: "Requests to a cluster, by the status of the reply.",
	}, []string{"cluster", "code"})
	repeats := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "procaas_proxy_repeats_total", Help: "How often the proxy sent such requests again, because their partition was moving or " +
			"the worker failed.",
	}, []string{"cluster"})
	n.metrics.MustRegister(requests, repeats)
	for _, x := range p.all {
		follower := route.NewFollower(route.SourceFunc(func(ctx context.Context, after int64) (clusters.Assignment, error) {
			return n.engine.AwaitAssignment(ctx, x.cluster, after)
		}), n.log.With("cluster", x.cluster))
		g.Go(func() error { follower.Run(ctx); return nil })
		repeated := repeats.WithLabelValues(x.cluster)
		proxy := route.NewProxy(route.ProxyOptions{
			Follower: follower, Key: x.key, Patience: p.flags.Patience, Silence: p.flags.Silence, Replay: p.replay,
			Memory: n.memory, Transport: workersTransport(n.engine.WorkersClient), Log: n.log.With("cluster", x.cluster),
			Observe: func(status, attempts int) {
				requests.WithLabelValues(x.cluster, strconv.Itoa(status)).Inc()
				repeated.Add(float64(max(0, attempts-1)))
			},
		})
		x.web.MakeRoom(n.engine.CloseIdleConnections)
		x.web.Start(access.Guard(access.Options{
			Access: n.engine, Log: n.log, Token: served.Token, Hosts: served.Hosts, Local: transport.Loopback(x.web.Addr()),
		}, proxy))
		n.log.Info("passing requests on", "cluster", x.cluster, "address", "http://"+x.web.Addr(), "key", x.key.String())
		g.Go(func() error { return x.web.Run(ctx) })
	}
}

// close closes proxies that were not started.
func (p *proxies) close() error {
	var errs []error
	for _, x := range p.all {
		if x.web != nil {
			errs = append(errs, x.web.Close())
		}
	}
	return errors.Join(errs...)
}

// workersTransport reaches the workers of the current definition.
type workersTransport func() *http.Client

// RoundTrip implements [http.RoundTripper].
func (t workersTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	// A new definition may allow other hosts.
	return t().Transport.RoundTrip(r)
}

// ProxyURL returns the address of the proxy, if there is one cluster.
func (n *Node) ProxyURL() string { return "http://" + n.proxies.all[0].web.Addr() }
