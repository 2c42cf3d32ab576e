package main

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

	"procaas/dsl"
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/engine"
	"procaas/engine/api"
	"procaas/engine/api/access"
	"procaas/engine/api/transport"
	"procaas/handlers/balancer/route"
)

// proxyFlags say which clusters a node passes requests on to, and how.
type proxyFlags struct {
	addresses, keys map[string]string // by the ids of clusters
	patience        time.Duration
	replay          string
}

func (f *proxyFlags) add(flags *pflag.FlagSet) {
	flags.StringToStringVar(&f.addresses, "proxy", nil, "pass requests that come to an address on to the workers of a cluster: "+
		"CLUSTER=:PORT, of this machine, or CLUSTER=HOST:PORT (repeatable)")
	flags.StringToStringVar(&f.keys, "proxy-key", nil, "where they have their key, in place of what the cluster says: "+
		"CLUSTER=header:NAME, query:NAME or path:N (repeatable)")
	flags.DurationVar(&f.patience, "proxy-patience", route.DefaultPatience, "how long a request waits for a worker that serves its partition")
	flags.StringVar(&f.replay, "proxy-replay", "1MiB",
		"largest body that is kept to be sent again; a larger one waits until a worker wants it")
}

// A proxied is a cluster whose requests a node passes on.
type proxied struct {
	cluster string       // its id
	address string       // with the host
	web     *httpServer  // nil before listen
	key     dsl.KeyPlace // where its requests have their key
}

// proxies are all of them.
type proxies struct {
	flags  proxyFlags
	replay int64      // bytes
	all    []*proxied // by the ids of their clusters
}

// newProxies reads the flags and looks the clusters up. It binds no address.
func newProxies(f proxyFlags, b *dsl.Bundle) (*proxies, error) {
	p := &proxies{flags: f}
	replay, err := datum.ParseBytes(f.replay)
	if err != nil && len(f.addresses) > 0 {
		return nil, usagef("--proxy-replay %q: %w", f.replay, err)
	}
	p.replay = int64(replay)
	for id := range f.keys {
		if f.addresses[id] == "" {
			return nil, usagef("--proxy-key %s=%s: there is no --proxy for the cluster", id, f.keys[id])
		}
	}
	for _, id := range slices.Sorted(maps.Keys(f.addresses)) {
		x, err := f.find(id, b)
		if err != nil {
			return nil, err
		}
		p.all = append(p.all, x)
	}
	return p, nil
}

// find says what one --proxy means.
func (f *proxyFlags) find(id string, b *dsl.Bundle) (*proxied, error) {
	cluster := b.Cluster(id)
	if cluster == nil {
		known := make([]string, 0, len(b.Clusters))
		for _, c := range b.Clusters {
			known = append(known, c.ID)
		}
		hint := "declare it below clusters:"
		if near := diag.Suggest(id, known); near != "" {
			hint = "did you mean " + near + "?"
		}
		return nil, usagef("--proxy %s=%s: no cluster %q is declared; %s", id, f.addresses[id], id, hint)
	}
	address, err := proxyAddress(f.addresses[id])
	if err != nil {
		return nil, usagef("--proxy %s=%s: %w", id, f.addresses[id], err)
	}
	place := cluster.Key
	if f.keys[id] != "" {
		place = f.keys[id]
	}
	key, err := dsl.ParseKeyPlace(place)
	if err != nil {
		return nil, usagef("--proxy-key %s: %w", id, err)
	}
	return &proxied{cluster: id, address: address, key: key}, nil
}

// listen binds the addresses. What it has bound when one cannot be is for close.
func (p *proxies) listen(ctx context.Context, log *slog.Logger) (err error) {
	for _, x := range p.all {
		if x.web, err = listenHTTP(ctx, x.address, log, transport.PassingServer); err != nil {
			return err
		}
	}
	return nil
}

// proxyAddress puts this machine where an address names no host: that others can reach a
// proxy has to be said.
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

// beyond gives an address that others than this machine reach; empty when there is none.
func (f *proxyFlags) beyond() string {
	for _, id := range slices.Sorted(maps.Keys(f.addresses)) {
		if address, err := proxyAddress(f.addresses[id]); err == nil && !transport.Loopback(address) {
			return address
		}
	}
	return ""
}

// start lets them answer, by the rules of access of the API.
func (p *proxies) start(ctx context.Context, g *errgroup.Group, n *node, served api.Options) {
	if len(p.all) == 0 {
		return
	}
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "procaas_proxy_requests_total", Help: "Requests that came for a cluster, by the status of the answer.",
	}, []string{"cluster", "code"})
	repeats := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "procaas_proxy_repeats_total", Help: "How often such requests were sent to a worker again, since their partition was moving or " +
			"the worker failed.",
	}, []string{"cluster"})
	n.metrics.MustRegister(requests, repeats)
	for _, x := range p.all {
		follower := route.NewFollower(route.SourceFunc(func(ctx context.Context, after int64) (engine.Assignment, error) {
			return n.engine.AwaitAssignment(ctx, x.cluster, after)
		}), n.log.With("cluster", x.cluster))
		g.Go(func() error { follower.Run(ctx); return nil })
		repeated := repeats.WithLabelValues(x.cluster)
		proxy := route.NewProxy(route.ProxyOptions{
			Follower: follower, Key: x.key, Patience: p.flags.patience, Replay: p.replay, Transport: workersTransport{n.engine},
			Log: n.log.With("cluster", x.cluster),
			Observe: func(status, attempts int) {
				requests.WithLabelValues(x.cluster, strconv.Itoa(status)).Inc()
				repeated.Add(float64(max(0, attempts-1)))
			},
		})
		x.web.start(access.Guard(access.Options{
			Access: n.engine, Log: n.log, Token: served.Token, Hosts: served.Hosts, Local: transport.Loopback(x.web.listener.Addr().String()),
		}, proxy))
		n.log.Info("passing requests on", "cluster", x.cluster, "address", "http://"+x.web.listener.Addr().String(), "key", x.key.String())
		g.Go(func() error { return x.web.run(ctx) })
	}
}

// close ends proxies that were not started.
func (p *proxies) close() error {
	var errs []error
	for _, x := range p.all {
		if x.web != nil {
			errs = append(errs, x.web.close())
		}
	}
	return errors.Join(errs...)
}

// workersTransport reaches the workers of whatever definition the engine has.
type workersTransport struct{ engine *engine.Engine }

// RoundTrip implements [http.RoundTripper].
func (t workersTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	// Asked each time: a new definition may reach other hosts.
	return t.engine.WorkersClient().Transport.RoundTrip(r)
}
