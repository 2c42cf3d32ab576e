package conformance

import (
	"fmt"

	"procaas/engine/model"
	"procaas/engine/store"
)

// lossCases are about runs whose nodes die.
var lossCases = []storeCase{
	{"each death of a node counts against its runs until they get further", func(p *probe) {
		ids := p.accept(p.event("k"), p.event("k2"))
		p.equal("losses", p.lose(0, ids...), "[0 0]")
		node := p.join()
		held := node.wantClaims(ids...)
		further := change(held[0], model.Running)
		further.Progress = true
		node.commit(further, change(held[1], model.Running))
		node.leave(nil)
		p.equal("losses", p.lose(0, ids...), "[0 1]")
		p.equal("losses", p.lose(0, ids...), "[1 2]")
		node = p.join()
		node.finish(node.wantClaims(ids...)...)
	}},
	{"a death counts against a suspected run only when it was under trial", func(p *probe) {
		id := p.accept(p.event("k"))[0]
		for _, want := range []int{0, 1, 2, 2} {
			p.equal("losses", p.lose(0, id), fmt.Sprint([]int{want}))
		}
		node := p.join()
		held := node.claimOne(id)
		trial := change(held, model.Running)
		trial.Trial = true
		node.commit(trial)
		held.Version++
		node.commit(change(held, model.Running))
		node.leave(nil)
		p.equal("losses", p.lose(1, id), "[2]")
		p.equal("losses", p.lose(0, id), "[3]")
	}},
	{"a run that was ignored can be retried, at its old place", func(p *probe) {
		ids := p.accept(p.event("k"), p.event("k"), p.event("k2"))
		node := p.join()
		held := node.wantClaims(ids[0], ids[2])
		ignored := change(held[0], model.Ignored)
		ignored.Reason = "nobody serves it"
		alone := change(held[1], model.Ignored)
		node.commit(ignored, alone)
		next := node.claimOne(ids[1])
		p.must(p.Runs.Retry(p.Context(), ids[0], store.Actor{Name: "ann"}))
		p.must(p.Runs.Retry(p.Context(), ids[2], store.Actor{Name: "ann"}))
		p.wantStatus(ids[0], model.Waiting)
		p.equal("pipeline", p.run(ids[0]).Pipeline, held[0].Pipeline)
		node.wantClaims(ids[2])
		node.finish(next)
		back := node.claimOne(ids[0])
		p.equal("generation", back.Generation, 1)
		p.equal("checkpoint", string(back.Checkpoint), "")
		p.equal("event", back.Event, held[0].Event)
		node.commit(change(back, model.Succeeded))
		p.wantErr("retry of one that has succeeded", p.Runs.Retry(p.Context(), ids[0], store.Actor{Name: "ann"}), store.ErrConflict)
		p.equal("fresh", p.oldest(store.RunFilter{Fresh: true}), []string{ids[2]})
	}},
	{"a retry and a change of the mind forget the losses", func(p *probe) {
		ids := p.accept(p.event("k"), p.event("k2"))
		p.lose(0, ids...)
		node := p.join()
		held := node.wantClaims(ids...)
		stuck := change(held[0], model.Parked)
		stuck.Error, stuck.ErrorClass = "nodes die of it", model.ClassQuarantined
		node.commit(stuck, change(held[1], model.Running))
		p.equal("error", p.run(ids[0]).Error, "nodes die of it")
		p.equal("class", p.run(ids[0]).ErrorClass, model.ClassQuarantined)
		p.must(p.Runs.Retry(p.Context(), ids[0], store.Actor{Name: "ann"}))
		p.must(p.Runs.Undo(p.Context(), ids[1], store.Actor{Name: "ann", Reason: "stop"}, store.Tell{}))
		node.leave(nil)
		node = p.join()
		for _, c := range node.wantClaims(ids...) {
			p.equal("losses", c.Losses, 0)
		}
		p.equal("error", p.run(ids[0]).Error, "")
	}},
}

// lose makes a node claim runs and die, the first of them under trial. It returns the losses that
// they had before.
func (p *probe) lose(trials int, ids ...string) string {
	p.Helper()
	live := p.join()
	node, held := p.dying(ids...)
	losses := make([]int, len(held))
	for i, c := range held {
		losses[i] = c.Losses
		if i >= trials {
			continue
		}
		trial := change(c, model.Running)
		trial.Trial = true
		node.commit(trial)
	}
	live.takeOver(len(ids))
	live.leave(nil)
	return fmt.Sprint(losses)
}
