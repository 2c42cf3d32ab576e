package addon

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

	"procaas/dsl/datum"
	"procaas/dsl/tree"
	"procaas/dsl/urls"
	"procaas/engine/addon"
	"procaas/engine/api/access"
	"procaas/engine/api/cli"
	"procaas/engine/api/transport"
	"procaas/engine/api/web"
	"procaas/handlers/balancer/clusters"
	"procaas/handlers/balancer/language"
	"procaas/handlers/balancer/route"
)

const proxyHelp = `With --proxy the node passes requests to the worker of a cluster that serves their
key. If the partition is moving, the node sends the request again to its new worker.
As soon as there are tokens, such requests need a submitter's token in the header
Proxy-Authorization.`

// flags are the flags of the proxies for clusters.
type flags struct {
	addresses, keys map[string]string // by cluster
	patience        time.Duration
	silence         time.Duration
	replay          string
}

func (f *flags) add(on *pflag.FlagSet) {
	on.StringToStringVar(&f.addresses, "proxy", nil, "address whose requests go to the workers of a cluster: CLUSTER=:PORT on "+
		"this machine, or CLUSTER=HOST:PORT (repeatable)")
	on.StringToStringVar(&f.keys, "proxy-key", nil, "where these requests have their key, if not where the cluster says: "+
		"CLUSTER=header:NAME, query:NAME or path:N (repeatable)")
	on.DurationVar(&f.patience, "proxy-patience", route.DefaultPatience, "how long a request waits for a worker that serves "+
		"its partition")
	on.DurationVar(&f.silence, "proxy-timeout", route.DefaultSilence, "how long a worker may be silent before and within its answer, "+
		"and a caller within its body")
	on.StringVar(&f.replay, "proxy-replay", "1MiB",
		"largest body that the proxy can send again; a larger one waits until a worker asks for it")
}

// A proxied is the proxy of one cluster.
type proxied struct {
	cluster string            // its id
	address string            // including the host
	web     *web.Server       // nil before listen
	key     language.KeyPlace // place of the key in requests
}

// proxies are all proxies of a node.
type proxies struct {
	flags  flags
	replay int64      // bytes
	all    []*proxied // sorted by cluster; empty before check
}

// check reads the flags and finds the clusters. It binds no address.
func (p *proxies) check(b *tree.Bundle) error {
	f := &p.flags
	replay, err := datum.ParseBytes(f.replay)
	if err != nil && len(f.addresses) > 0 {
		return cli.Usagef("--proxy-replay %q: %w", f.replay, err)
	}
	p.replay = int64(replay)
	for id := range f.keys {
		if f.addresses[id] == "" {
			return cli.Usagef("--proxy-key %s=%s: there is no --proxy for the cluster", id, f.keys[id])
		}
	}
	for _, id := range slices.Sorted(maps.Keys(f.addresses)) {
		x, err := f.find(id, b)
		if err != nil {
			return err
		}
		p.all = append(p.all, x)
	}
	return nil
}

// find returns the proxy of one --proxy.
func (f *flags) find(id string, b *tree.Bundle) (*proxied, error) {
	declared := language.ClusterOf(b, id)
	if declared == nil {
		known := cli.Names(language.ClustersOf(b), func(c *language.Cluster) string { return c.ID })
		return nil, cli.Usagef("--proxy %s=%s: no cluster %q is declared; %s", id, f.addresses[id], id,
			cli.Meant(id, known, "did you mean %s?", "declare it below clusters:"))
	}
	address, err := proxyAddress(f.addresses[id])
	if err != nil {
		return nil, cli.Usagef("--proxy %s=%s: %w", id, f.addresses[id], err)
	}
	place := declared.Key
	if f.keys[id] != "" {
		place = f.keys[id]
	}
	key, err := language.ParseKeyPlace(place)
	if err != nil {
		return nil, cli.Usagef("--proxy-key %s: %w", id, err)
	}
	return &proxied{cluster: id, address: address, key: key}, nil
}

// listen binds the addresses. If one fails, call close for the others.
func (p *proxies) listen(ctx context.Context, log *slog.Logger) (err error) {
	for _, x := range p.all {
		if x.web, err = web.Listen(ctx, x.address, log, transport.PassingServer); err != nil {
			return cli.ListenError("proxy", x.cluster+"="+x.address, err)
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

// addresses lists the addresses that listen has bound, or will bind.
func (p *proxies) addresses() []string {
	var all []string
	for _, x := range p.all {
		if x.web != nil {
			all = append(all, x.web.Addr())
		}
	}
	if all != nil {
		return all
	}
	for _, id := range slices.Sorted(maps.Keys(p.flags.addresses)) {
		if address, err := proxyAddress(p.flags.addresses[id]); err == nil {
			all = append(all, address)
		}
	}
	return all
}

// run answers until ctx ends, with the API's rules for access.
func (p *proxies) run(ctx context.Context, h *addon.Host, n addon.Running, of *process) error {
	if len(p.all) == 0 {
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "procaas_proxy_requests_total", Help: "Requests to a cluster, by the status of the reply.",
	}, []string{"cluster", "code"})
	repeats := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "procaas_proxy_repeats_total", Help: "How often the proxy sent such requests again, because their partition was moving or " +
			"the worker failed.",
	}, []string{"cluster"})
	h.Metrics.MustRegister(requests, repeats)
	for _, x := range p.all {
		follower := route.NewFollower(route.SourceFunc(func(ctx context.Context, after int64) (clusters.Assignment, error) {
			return of.clusters.AwaitAssignment(ctx, x.cluster, after)
		}), h.Log.With("cluster", x.cluster))
		g.Go(func() error { follower.Run(ctx); return nil })
		repeated := repeats.WithLabelValues(x.cluster)
		proxy := route.NewProxy(route.ProxyOptions{
			Follower: follower, Key: x.key, Patience: p.flags.patience, Silence: p.flags.silence, Replay: p.replay,
			Memory: h.Memory, Transport: workersTransport(func() *http.Client { return of.workers.Of(h.Bundle()) }),
			Log: h.Log.With("cluster", x.cluster),
			Observe: func(status, attempts int) {
				requests.WithLabelValues(x.cluster, strconv.Itoa(status)).Inc()
				repeated.Add(float64(max(0, attempts-1)))
			},
		})
		x.web.MakeRoom(n.Free)
		rules := n.Access
		rules.Local = urls.OnlyThisMachine(x.web.Addr())
		x.web.Start(access.Guard(rules, proxy))
		h.Log.Info("passing requests on", "cluster", x.cluster, "address", "http://"+x.web.Addr(), "key", x.key.String())
		g.Go(func() error { return x.web.Run(ctx) })
	}
	return g.Wait()
}

// close closes the addresses.
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
