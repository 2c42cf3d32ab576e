package conformance

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"procaas/engine/store"
)

// asks asks for tokens of values of one limit, whose buckets have two tokens. One comes back in ten minutes.
func asks(values ...string) (out []store.TokenAsk) {
	for _, v := range values {
		out = append(out, store.TokenAsk{Limit: "p/a/h", Value: v, Step: 10 * time.Minute, Burst: 2})
	}
	return out
}

// take sends requests, and returns for each whether a token was granted.
func (p *probe) take(asks []store.TokenAsk, rows int) (out []store.Token, granted string) {
	p.Helper()
	out, err := p.Limits.TakeTokens(p.Context(), asks, rows)
	p.must(err)
	for _, t := range out {
		granted += map[bool]string{true: "+", false: "-"}[t.Until != 0]
	}
	return out, granted
}

var limitCases = []storeCase{
	{"each value has its burst, and what is beyond it waits in a row", func(p *probe) {
		got, granted := p.take(asks("a", "a", "b", "a", "a", "b"), 10)
		p.equal("granted", granted, "+++--+")
		for i, most := range map[int]time.Duration{3: 10 * time.Minute, 4: 20 * time.Minute} {
			if w := got[i].Wait; w > most || w < most-time.Minute {
				p.Errorf("wait of request %d: have %s, want about %s", i, w, most)
			}
		}
		more := asks("a")
		more[0].Skips = true
		got, granted = p.take(more, 10)
		if granted != "-" {
			p.Errorf("one that skips: have %v", got)
		}
		kept, err := p.Limits.SweepLimits(p.Context())
		p.must(err)
		p.equal("kept", kept["p/a/h"], 2)
	}},
	{"a token that was not used comes back", func(p *probe) {
		got, _ := p.take(asks("a", "a"), 10)
		back := asks("a")
		back[0].Back = got[1].Until
		_, granted := p.take(slices.Concat(back, asks("a", "a")), 10)
		p.equal("granted", granted, "-+-")
		back[0].Value = "unknown"
		_, granted = p.take(back, 10)
		p.equal("of a value that is not kept", granted, "-")
	}},
	{"a limit keeps no more values than it may", func(p *probe) {
		got, granted := p.take(asks("a", "b", "c", "a"), 2)
		p.equal("granted", granted, "++-+")
		if !got[2].Full || got[2].Wait < time.Second {
			p.Errorf("of a value without room: have %+v", got[2])
		}
		other := asks("c")
		other[0].Limit = "p/a/other"
		_, granted = p.take(other, 2)
		p.equal("of another limit", granted, "+")
	}},
	{"rows that no longer count make room", func(p *probe) {
		brief := asks("a", "b")
		for i := range brief {
			brief[i].Step = time.Microsecond
		}
		p.take(brief, 2)
		for p.Context().Err() == nil {
			if _, granted := p.take(asks("c"), 1); granted == "+" {
				break
			}
		}
		kept, err := p.Limits.SweepLimits(p.Context())
		p.must(err)
		p.equal("kept", kept["p/a/h"], 1)
	}},
	{"nodes that ask at once never get more than the burst", func(p *probe) {
		const nodes, values = 4, 20
		granted := make([]int, nodes)
		var all sync.WaitGroup
		for n := range nodes {
			all.Go(func() {
				for i := range values {
					var of []store.TokenAsk
					for k := range 5 { // in another order on each node
						of = append(of, asks(fmt.Sprint("v", (i*(n+1)+k)%values))...)
					}
					got, err := p.Limits.TakeTokens(p.Context(), of, 100)
					if err != nil {
						p.Error(err)
					}
					for _, t := range got {
						if t.Until != 0 {
							granted[n]++
						}
					}
				}
			})
		}
		all.Wait()
		total := 0
		for _, g := range granted {
			total += g
		}
		p.equal("tokens", total, 2*values)
	}},
}
