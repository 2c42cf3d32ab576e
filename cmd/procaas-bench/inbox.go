package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"procaas/engine/api/wire"
	"procaas/engine/enginetest/cluster"
	"procaas/engine/store"
	"procaas/handlers/inbox"
	inboxremote "procaas/handlers/inbox/remote"
	queueremote "procaas/handlers/queue/remote"
)

// inboxServers are the compared numbers of PostgreSQL servers.
var inboxServers = []int{1, 2, 4}

// measureInbox measures an inbox on several PostgreSQL servers on this machine. So it shows the cost of
// spreading, not the gain of more machines.
func measureInbox(ctx context.Context, b *bench) (err error) {
	servers := []*server{b.server}
	for len(servers) < slices.Max(inboxServers) {
		c, err := cluster.Start(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.Stop()) }()
		s, err := findServer(ctx, c.URL)
		if err != nil {
			return err
		}
		servers = append(servers, s)
	}
	flows, tasks := make([]line, len(inboxServers)), make([]line, len(inboxServers))
	for range b.rounds {
		for i, n := range inboxServers {
			if err := b.spreadOver(ctx, servers[:n], &flows[i], &tasks[i]); err != nil {
				return fmt.Errorf("%d servers: %w", n, err)
			}
		}
	}
	fmt.Fprintf(b.out, "%d flows of %d steps with ids and keys, 64 in flight, median of %d rounds\n", b.flows, steps, b.rounds)
	b.compare("flows", flows)
	fmt.Fprintf(b.out, "\n%d tasks put and done over HTTP\n", b.tasks)
	b.compare("tasks", tasks)
	fmt.Fprintln(b.out)
	for i, n := range inboxServers {
		prefix := fmt.Sprintf("inbox on %d PostgreSQL: ", n)
		b.note(prefix+"program, a flow", "µs", collect(flows[i].of, sample.getOwn)...)
		b.note(prefix+"PostgreSQL, a flow", "µs", collect(flows[i].of, sample.getServer)...)
		b.note(prefix+"program, a task", "µs", collect(tasks[i].of, sample.getOwn)...)
		b.note(prefix+"PostgreSQL, a task", "µs", collect(tasks[i].of, sample.getServer)...)
	}
	return b.measureMoves(ctx, servers[:2])
}

// spreadOver measures flows and tasks with slots spread evenly over some servers.
func (b *bench) spreadOver(ctx context.Context, servers []*server, flows, tasks *line) (err error) {
	p, joint, err := b.openInbox(ctx, servers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	for i, n := 1, len(servers); i < n; i++ {
		slots := fmt.Sprintf("%d-%d", i*store.InboxSlots/n, (i+1)*store.InboxSlots/n-1)
		if _, err := p.move(ctx, slots, cellName(i)); err != nil {
			return err
		}
	}
	if _, err := joint.saturate(ctx, keyedFlows{p}, b.short(), 64, "warm"); err != nil {
		return err
	}
	flow, err := joint.saturate(ctx, keyedFlows{p}, b.flows, 64, "spread")
	if err != nil {
		return err
	}
	task, err := joint.rated(ctx, p.pid(), func() (int, error) { return b.tasks, p.passTasks(ctx, b.tasks) })
	name := fmt.Sprintf("%d PostgreSQL", len(servers))
	flows.name, flows.of = name, append(flows.of, flow)
	tasks.name, tasks.of = name, append(tasks.of, task)
	return err
}

func cellName(i int) string { return fmt.Sprint("cell", i) }

// openInbox starts a node on several servers. The returned bench counts the use of all of them.
func (b *bench) openInbox(ctx context.Context, servers []*server) (*binary, *bench, error) {
	const schema = "inbox"
	var cells []string
	for i, s := range servers[1:] {
		dsn, err := s.schema(ctx, schema)
		if err != nil {
			return nil, nil, err
		}
		cells = append(cells, "--cell", cellName(i+1)+"="+dsn)
	}
	home, joint := *servers[0], *b
	home.others, joint.server = servers[1:], &home
	p, err := newBinary(ctx, &joint, onPostgres(schema), cells...)
	return p, &joint, err
}

// keyedFlows are flows whose events have ids and keys, so they are spread.
type keyedFlows struct{ *binary }

func (p keyedFlows) flow(ctx context.Context, id string) error {
	return p.follow(ctx, id, wire.Event{Type: "entity", ID: id, Source: "bench", Key: "key-" + id, Payload: map[string]any{"order": id}})
}

func openKeyed(ctx context.Context, b *bench) (contestant, error) {
	p, err := newBinary(ctx, b, onPostgres("keyed"))
	return keyedFlows{p}, err
}

// putTasks puts tasks over HTTP.
func (p *binary) putTasks(ctx context.Context, n int) error {
	for left := n; left > 0; left -= 1000 {
		if err := p.call(ctx, "/v1/queues/"+taskKind.Name+"/tasks", make([]queueremote.Task, min(left, 1000)), nil); err != nil {
			return err
		}
	}
	return nil
}

// passTasks puts tasks and lets workers do them.
func (p *binary) passTasks(ctx context.Context, n int) error {
	if err := p.putTasks(ctx, n); err != nil {
		return err
	}
	var done atomic.Int64
	l := loop{2, 500}
	err := l.run(func() error { return p.loopOverHTTP(ctx, l.claim, &done) })
	if err == nil && done.Load() != int64(n) {
		err = fmt.Errorf("want %d tasks done, have %d", n, done.Load())
	}
	return err
}

// move moves slots and waits for the end.
func (p *binary) move(ctx context.Context, slots, to string) (done inbox.Move, err error) {
	if err := p.call(ctx, "/admin/v1/inbox/moves", inboxremote.InboxMoveRequest{Slots: slots, To: to}, &done); err != nil {
		return done, err
	}
	err = poll(ctx, 20*time.Millisecond, func() (bool, error) {
		var v inbox.View
		if err := p.call(ctx, "/admin/v1/inbox", nil, &v); err != nil {
			return false, err
		}
		done = v.Moves[0]
		return done.Ended != nil, nil
	})
	if err == nil && done.Error != "" {
		err = errors.New(done.Error)
	}
	return done, err
}

// measureMoves measures how long the keys of an inbox stop while all its slots move in parts.
func (b *bench) measureMoves(ctx context.Context, servers []*server) error {
	head := "all slots move\tevents posted meanwhile\trefused\tthe slowest ms\tp99 ms\tlongest stop of a slot ms\tall of it s\tprogram µs a run\tPostgreSQL µs a run\t"
	var rows []string
	for _, waiting := range slices.Compact([]int{min(1000, b.crowd), min(100_000, b.crowd), b.crowd}) {
		row, err := b.moveWaiting(ctx, servers, waiting)
		if err != nil {
			return fmt.Errorf("move of %d runs: %w", waiting, err)
		}
		rows = append(rows, row)
	}
	b.table(head, func(w *tabwriter.Writer) {
		for _, row := range rows {
			fmt.Fprintln(w, row)
		}
	})
	return nil
}

// moveWaiting moves waiting runs while further events for the same slots arrive.
func (b *bench) moveWaiting(ctx context.Context, servers []*server, waiting int) (row string, err error) {
	p, joint, err := b.openInbox(ctx, servers)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	later := time.Now().Add(24 * time.Hour)
	event := func(key string) wire.Event { return wire.Event{Type: "nothing", Key: key, At: later} }
	var filling errgroup.Group
	filling.SetLimit(4)
	for first := 0; first < waiting; first += 1000 {
		events := make([]wire.Event, min(1000, waiting-first))
		for i := range events {
			events[i] = event(fmt.Sprint("key-", first+i))
		}
		filling.Go(func() error { return p.call(ctx, "/v1/events", events, nil) })
	}
	if err := errors.Join(filling.Wait(), joint.server.settle(ctx)); err != nil {
		return "", err
	}
	posting, stop := context.WithCancel(ctx)
	defer stop()
	var posters sync.WaitGroup
	var mu sync.Mutex // guards took and refused
	var took []time.Duration
	refused := 0
	for i := range 4 {
		posters.Go(func() {
			for n := i; posting.Err() == nil; n += 4 {
				began := time.Now()
				err := p.call(ctx, "/v1/events", event(fmt.Sprint("more-", n)), nil)
				mu.Lock()
				took = append(took, time.Since(began))
				if err != nil {
					refused++ // the client would send it again
				}
				mu.Unlock()
				time.Sleep(2 * time.Millisecond) // keeps the load of the posts low beside the move
			}
		})
	}
	var done inbox.Move
	s, err := joint.rated(ctx, p.pid(), func() (int, error) {
		done, err = p.move(ctx, fmt.Sprint("0-", store.InboxSlots-1), cellName(1))
		return waiting, err
	})
	stop()
	posters.Wait()
	if err != nil {
		return "", err
	}
	slices.Sort(took)
	prefix := fmt.Sprintf("move of %d runs: ", waiting)
	b.note(prefix+"slowest event", "s", quantile(took, 1)/1000)
	b.note(prefix+"p99 of events", "s", quantile(took, 0.99)/1000)
	b.note(prefix+"all of it", "s", done.Ended.Sub(done.Begun).Seconds())
	b.note(prefix+"program", "µs", micros(s.own))
	b.note(prefix+"PostgreSQL", "µs", micros(s.server))
	return fmt.Sprintf("with %d waiting runs\t%d\t%d\t%.0f\t%.0f\t%.0f\t%.1f\t%.0f\t%.0f\t", waiting, len(took), refused,
		quantile(took, 1), quantile(took, 0.99), 1000*done.FrozenS, done.Ended.Sub(done.Begun).Seconds(), micros(s.own), micros(s.server)), nil
}
