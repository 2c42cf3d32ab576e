package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"procaas/engine/api/wire"
)

// measureConsole measures how long the pages of the console take beside many runs, on both stores. Of 1,000 runs, 50
// have failed and 10 wait.
func measureConsole(ctx context.Context, b *bench) error {
	stores := []struct {
		name string
		on   storeMaker
	}{{"PostgreSQL", onPostgres("console")}, {"SQLite", onSQLite}}
	got := make([]map[string]sample, len(stores))
	for i, s := range stores {
		var err error
		if got[i], err = b.lookAround(ctx, s.on); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	fmt.Fprintf(b.out, "pages of the console beside %d runs, ms, p50 and the slowest of %d\n", b.backlog, looks)
	b.table("\tPostgreSQL\t\tSQLite\t\t", func(w *tabwriter.Writer) {
		for _, p := range consolePages {
			fmt.Fprintf(w, "%s\t", p)
			for _, pages := range got {
				fmt.Fprintf(w, "%.1f\t%.1f\t", pages[p].p50(), quantile(pages[p].latencies, 1))
			}
			fmt.Fprintln(w)
		}
	})
	return nil
}

// looks is how often each page is loaded.
const looks = 20

// consolePages are the addresses of pages. RUN is a run that has failed, OTHER one that succeeded, KEY their key, and
// OLDER the second page of a list.
var consolePages = []string{
	"/", "/console/incidents", "/console/incidents?since=1h", "/console/incidents.md?since=24h", "/console/data?since=1h", "/console/marks?since=1h",
	"/console/runs", "/console/runs?cursor=OLDER", "/console/runs?status=succeeded", "/console/runs?status=failed", "/console/runs?status=parked", "/console/runs?status=running",
	"/console/runs?pipeline=mixed", "/console/runs?pipeline=mixed&status=failed", "/console/runs?handler=mixed/judge/refuse", "/console/runs?error=out+of+stock",
	"/console/runs?error=nothing-like-it", "/console/runs?key=KEY", "/console/runs?flow=entities&key=KEY", "/console/runs?flow=entities", "/console/runs?label=city=city-7",
	"/console/runs?status=failed&since=1h", "/console/runs?since=1h&until=1s", "/console/runs?text=c-77,", "/console/runs?text=nothing-like-it",
	"/console/runs/RUN", "/console/runs/OTHER", "/console/runs/RUN/why/mixed/judge/refuse", "/console/runs/RUN/compare", "/console/keys/entities/KEY",
	"/console/pipelines/mixed", "/console/handlers/mixed/judge/refuse", "/console/queue", "/console/submit", "/console/clusters", "/console/shards",
	"/console/versions", "/console/audit", "/console/playground", "/console/docs",
}

// lookAround fills a store with runs, and loads each page.
func (b *bench) lookAround(ctx context.Context, on storeMaker) (_ map[string]sample, err error) {
	p, err := newBinary(ctx, b, on)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := p.fillMixed(ctx, b.backlog); err != nil {
		return nil, err
	}
	if err := b.server.settle(ctx); err != nil {
		return nil, err
	}
	names, err := p.examples(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]sample{}
	for _, page := range consolePages {
		address := names.Replace(page)
		var s sample
		for range looks {
			began := time.Now()
			if _, err := p.load(ctx, address, "no-cache"); err != nil {
				return nil, err
			}
			s.latencies = append(s.latencies, time.Since(began))
		}
		slices.Sort(s.latencies)
		out[page] = s
	}
	return out, nil
}

// examples returns the values of the names in consolePages.
func (p *binary) examples(ctx context.Context) (*strings.Replacer, error) {
	type run struct{ ID, Key string }
	var failed, succeeded wire.Page[run]
	first, err := p.load(ctx, "/console/runs", "no-cache")
	err = errors.Join(err, p.call(ctx, "/v1/runs?status=failed&limit=1", nil, &failed), p.call(ctx, "/v1/runs?status=succeeded&limit=1", nil, &succeeded))
	if err != nil {
		return nil, err
	}
	_, older, _ := strings.Cut(string(first), "?cursor=")
	older, _, _ = strings.Cut(older, `"`)
	if len(failed.Items)*len(succeeded.Items)*len(older) == 0 {
		return nil, errors.New("want a run that failed, one that succeeded, and two pages of runs")
	}
	return strings.NewReplacer("RUN", failed.Items[0].ID, "OTHER", succeeded.Items[0].ID, "KEY", failed.Items[0].Key, "OLDER", older), nil
}

// load gets a page, compressed as browsers and Prometheus do. The header says how old the page may be.
func (p *binary) load(ctx context.Context, page, cacheControl string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.nodes[0].url+page, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Cache-Control", cacheControl)
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: want status 200, have %d", page, resp.StatusCode)
	}
	return body, err
}

// fillMixed makes runs, and waits until all have ended or wait.
func (p *binary) fillMixed(ctx context.Context, runs int) error {
	const batch = 500
	g, sending := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for from := 0; from < runs; from += batch {
		g.Go(func() error {
			events := make([]wire.Event, min(batch, runs-from))
			for i := range events {
				n := from + i
				events[i] = wire.Event{
					Type: "mixed", ID: fmt.Sprint("m-", n), Source: "bench", Key: fmt.Sprint("key-", n), Labels: map[string]string{"city": fmt.Sprint("city-", n%50)},
					Payload: map[string]any{"customer": fmt.Sprint("c-", n), "fails": n%20 == 0, "waits": n%100 == 1, "address": strings.Repeat("Long Street ", 10)},
				}
			}
			var receipts wire.Receipts
			return p.call(sending, "/v1/events", events, &receipts)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return poll(ctx, 100*time.Millisecond, func() (bool, error) {
		for _, status := range []string{"waiting", "running"} {
			var live wire.Page[struct{}]
			if err := p.call(ctx, "/v1/runs?limit=1&status="+status, nil, &live); err != nil || len(live.Items) > 0 {
				return false, err
			}
		}
		return true, nil
	})
}
