package conformance

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

// crashEnv tells the test binary that it is the process to kill.
const crashEnv = "PROCAAS_TEST_CRASH_STORE"

// crashes is how often the process is killed, and writers how many goroutines write at once. The
// test waits for the lease once, at the end. A process that stands still for the time of its lease
// considers itself dead.
const (
	crashes    = 4
	writers    = 4
	crashLease = 3 * time.Second
)

// Crash kills a process that works with the store at dsn, again and again. It checks that
// everything acknowledged is there and that nothing is incomplete. The process is this test binary,
// which runs only the calling test, so the test must call Crash first.
func Crash(t *testing.T, dsn func() string, open func(ctx context.Context, dsn string) (store.Store, error)) {
	if store := os.Getenv(crashEnv); store != "" {
		workUntilKilled(t, store, open)
		return
	}
	store := dsn()
	log := &crashLog{acked: map[string]string{}}
	for round := range crashes {
		log.follow(t, store, 20+rand.IntN(200))
		s, err := open(t.Context(), store)
		if err != nil {
			t.Fatalf("open after crash %d: %v", round, err)
		}
		p := newProbe(t, s)
		log.check(p)
		if round == crashes-1 {
			p.finishAll()
			log.checkEnd(p)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// workUntilKilled accepts events and takes them to their end. It prints what it is about to write,
// and what is durable.
func workUntilKilled(t *testing.T, dsn string, open func(ctx context.Context, dsn string) (store.Store, error)) {
	s, err := open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	id, err := s.Ledger.Join(t.Context(), "to be killed", crashLease)
	if err != nil {
		t.Fatal(err)
	}
	n := &member{newProbe(t, s), id}
	var out sync.Mutex
	say := func(verb string, ids ...string) {
		out.Lock()
		defer out.Unlock()
		fmt.Printf("%s%s %s\n", crashMark, verb, strings.Join(ids, " "))
	}
	n.together(writers+1, func(w int) error {
		for round := 0; ; round++ {
			if w == writers {
				if _, err := s.Ledger.Beat(t.Context(), id, crashLease, ""); err != nil {
					return err
				}
				n.pause(crashLease / 4)
				continue
			}
			if err := n.crashRound(fmt.Sprintf("%d-%d-%d", os.Getpid(), w, round), say); err != nil {
				return err
			}
		}
	})
}

// crashMark is the prefix of lines for the other process.
const crashMark = "crash-test: "

// crashRound accepts a batch and takes its runs through a checkpoint to the end, which emits an
// event.
func (n *member) crashRound(name string, say func(verb string, ids ...string)) error {
	var batch []model.Intake
	var ids []string
	for i := range 3 {
		in := n.event(fmt.Sprintf("k-%s-%d", name, i), owned)
		in.ID, in.Event.ID = fmt.Sprintf("r-%s-%d", name, i), fmt.Sprintf("e-%s-%d", name, i)
		batch, ids = append(batch, in), append(ids, in.ID)
	}
	over := n.event("k-"+name, owned, unordered)
	over.ID, over.Event.ID = endedAtOnce+name, "e-"+name
	over = n.ending(over)
	say("accepting", append(slices.Clone(ids), over.ID)...)
	results, err := n.Inbox.Accept(n.Context(), n.id, append(batch, over))
	if err != nil {
		return err
	}
	say("accepted", ids...)
	say("over", over.ID)
	var steps, ends []model.Change
	for _, r := range results[:len(ids)] {
		steps = append(steps, change(*r.Claimed, model.Running))
		r.Claimed.Version++
		end := change(*r.Claimed, model.Succeeded)
		next := n.event(r.Claimed.Key)
		next.ID, next.Event.ID = emittedBy(r.Run), emittedBy(r.Run)
		end.Emit = []model.Intake{next}
		ends = append(ends, end)
	}
	for _, c := range []struct {
		verb    string
		changes []model.Change
	}{{"saved", steps}, {"ended", ends}} {
		if err := n.tryCommit(c.changes...); err != nil {
			return err
		}
		say(c.verb, ids...)
	}
	return nil
}

// endedAtOnce is the prefix of runs that are accepted with their end.
const endedAtOnce = "x-"

func emittedBy(run string) string { return "by-" + run }

// A crashLog has the output of a killed process.
type crashLog struct {
	batches [][]string        // that it was about to accept
	acked   map[string]string // the last acknowledgement of each run
}

// follow runs a process and kills it after some lines.
func (l *crashLog) follow(t *testing.T, dsn string, lines int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), crashEnv+"="+dsn)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said []string
	heard := 0
	for in := bufio.NewScanner(out); in.Scan(); {
		text, ok := strings.CutPrefix(in.Text(), crashMark)
		if !ok {
			said = append(said, in.Text())
			continue
		}
		l.note(strings.Fields(text))
		// Later lines count, too.
		heard++
		if heard == lines {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait() // it was killed
	if heard < lines {
		t.Fatalf("the process ended by itself after %d lines:\n%s", heard, strings.Join(said, "\n"))
	}
}

func (l *crashLog) note(words []string) {
	verb, ids := words[0], words[1:]
	if verb == "accepting" {
		l.batches = append(l.batches, ids)
		return
	}
	for _, id := range ids {
		l.acked[id] = verb
	}
}

// check compares the output with the store.
func (l *crashLog) check(p *probe) {
	p.Helper()
	found := map[string]store.RunRecord{}
	for f := (store.RunFilter{Limit: 1000}); ; {
		runs, next, err := p.Runs.List(p.Context(), f)
		p.must(err)
		for _, r := range runs {
			found[r.ID] = r
		}
		f.Cursor = next
		if next == "" {
			break
		}
	}
	for id, verb := range l.acked {
		r, ok := found[id]
		if !ok {
			p.Fatalf("run %s was acknowledged as %s, and is not there", id, verb)
		}
		least := map[string]int64{"accepted": 0, "saved": 1, "ended": 2, "over": 1}[verb]
		if isOver := verb == "ended" || verb == "over"; r.Version < least || isOver && r.Status != model.Succeeded {
			p.Fatalf("run %s was acknowledged as %s, and is %s in version %d", id, verb, r.Status, r.Version)
		}
	}
	for _, batch := range l.batches {
		there := slices.IndexFunc(batch, func(id string) bool { _, ok := found[id]; return ok }) >= 0
		for _, id := range batch {
			r, ok := found[id]
			if ok != there {
				p.Fatalf("of the batch %v only a part is there", batch)
			}
			if strings.HasPrefix(id, endedAtOnce) {
				if ok && r.Status != model.Succeeded {
					p.Fatalf("run %s was accepted with its end, and is %s", id, r.Status)
				}
				continue
			}
			_, emitted := found[emittedBy(id)]
			if ok && emitted != (r.Status == model.Succeeded) {
				p.Fatalf("run %s is %s, its event emitted: %v", id, r.Status, emitted)
			}
			if e, err := p.Runs.Entity(p.Context(), "orders", "k-"+strings.TrimPrefix(id, "r-")); ok != (err == nil) {
				p.Fatalf("run %s is there: %v, its entity: %+v, %v", id, ok, e, err)
			}
		}
	}
}

// finishAll takes over dead processes' runs and ends all runs.
func (p *probe) finishAll() {
	p.Helper()
	node := p.join()
	p.eventually("the end of all runs", func() bool {
		node.beat()
		for {
			runs := node.claim(100)
			if len(runs) == 0 {
				break
			}
			var ends []model.Change
			for _, c := range runs {
				ends = append(ends, change(c, model.Succeeded))
			}
			node.commit(ends...)
		}
		left, _, err := p.Runs.List(p.Context(), store.RunFilter{Status: model.Running, Limit: 1})
		p.must(err)
		return len(left) == 0
	})
}

// checkEnd checks that every accepted run has ended.
func (l *crashLog) checkEnd(p *probe) {
	p.Helper()
	for id := range l.acked {
		p.wantStatus(id, model.Succeeded)
	}
	if d, err := p.Inbox.Depth(p.Context()); err != nil || d.Waiting != 0 {
		p.Fatalf("want nothing to wait, have %d, %v", d.Waiting, err)
	}
}

// pause waits, but not beyond the end of the test.
func (p *probe) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.Context().Done():
	}
}
