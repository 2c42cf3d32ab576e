package conformance

import (
	"fmt"
	"sync"

	"procaas/engine/store"
)

// usedSince lists what was used since a day.
func (p *probe) usedSince(day string) (all []store.Use) {
	p.Helper()
	p.must(p.Usage.UsageSince(p.Context(), day, func(u store.Use) { all = append(all, u) }))
	return all
}

var usageCases = []storeCase{
	{"what was used adds up by day and path, and old days go", func(p *probe) {
		one := store.UseCounts{Calls: 1, RequestBytes: 9, Bytes: 2, CallMicros: 3, CPUMicros: 4, Runs: 5, StoredBytes: 6, Timed: 7, Late: 8}
		two := one
		two.Add(one)
		p.must(p.Usage.AddUsage(p.Context(), []store.Use{
			{Day: "2026-03-02", Path: "b", UseCounts: one}, {Day: "2026-03-01", Path: "b", UseCounts: one},
			{Day: "2026-03-01", Path: "a/x", UseCounts: one},
		}, "2026-01-01"))
		p.must(p.Usage.AddUsage(p.Context(), []store.Use{{Day: "2026-03-01", Path: "b", UseCounts: one}, {Day: "2026-03-02"}}, "2026-03-01"))
		p.equal("all", p.usedSince("2026-02-01"), []store.Use{
			{Day: "2026-03-01", Path: "a/x", UseCounts: one}, {Day: "2026-03-01", Path: "b", UseCounts: two},
			{Day: "2026-03-02"}, {Day: "2026-03-02", Path: "b", UseCounts: one},
		})
		timed := 0
		p.must(p.Usage.TimedSince(p.Context(), "2026-03-02", func(store.Use) { timed++ }))
		p.equal("with a target", timed, 1)
		p.equal("since a day", len(p.usedSince("2026-03-02")), 2)
		p.must(p.Usage.AddUsage(p.Context(), nil, "2026-03-02"))
		p.equal("without what is too old", len(p.usedSince("2026-01-01")), 2)
	}},
	{"nodes that add at once lose nothing", func(p *probe) {
		const nodes, times = 4, 5
		var all sync.WaitGroup
		for n := range nodes {
			all.Go(func() {
				for range times {
					uses := []store.Use{{Day: "2026-03-01", Path: "a", UseCounts: store.UseCounts{Late: 1}},
						{Day: "2026-03-01", Path: "b", UseCounts: store.UseCounts{Late: 1}},
						{Day: "2026-03-01", Path: fmt.Sprint("of-", n), UseCounts: store.UseCounts{Late: 1}}}
					if n%2 == 1 {
						uses[0], uses[1] = uses[1], uses[0] // the store must lock them in one order
					}
					if err := p.Usage.AddUsage(p.Context(), uses, ""); err != nil {
						p.Error(err)
					}
				}
			})
		}
		all.Wait()
		found := p.usedSince("")
		p.equal("paths", len(found), 2+nodes)
		for i, u := range found {
			want := int64(times)
			if i < 2 {
				want *= nodes
			}
			p.equal(u.Path, u.Late, want)
		}
	}},
}
