// Package demo shows keys that move between shards while services write to them.
package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"procaas/dsl/diag"
	"procaas/engine/addon"
	"procaas/engine/api/cli"
	"procaas/engine/api/client"
	"procaas/engine/clock"
	"procaas/engine/records"
	"procaas/handlers/sharding/remote"
	"procaas/handlers/sharding/transfers"
)

// Options are the flags of the demo.
type Options struct {
	Users  int     // keys of the map
	Rate   float64 // writes per second
	Token  string  // of an admin; empty for none
	Format string  // text or json
}

// letters is how many rows each user has at first.
const letters = 400

// endsWithin bounds the whole demo, so that it ends although a move does not.
const endsWithin = 10 * time.Minute

// A show is a running demo.
type show struct {
	cli.Streams
	Options

	began  time.Time
	server string
	client *client.Client
	second *exec.Cmd // the process of the second node

	mu sync.Mutex // guards what is printed
}

// Run runs the demo to its end, or until ctx ends.
func Run(ctx context.Context, s cli.Streams, o Options, open addon.OpenDemo) error {
	limited, stop := context.WithTimeout(ctx, endsWithin)
	defer stop()
	d := &show{Streams: s, Options: o, began: time.Now()}
	shards, end, err := startServers(limited)
	if err != nil {
		return err
	}
	defer end()
	sum, err := d.run(limited, shards, open)
	switch {
	case ctx.Err() != nil:
		return nil // Ctrl-C
	case limited.Err() != nil:
		return fmt.Errorf("the demo has not ended within %s: %w", endsWithin, err)
	case err != nil:
		return err
	}
	return sum.print(s, o.Format)
}

// run starts the nodes on the servers of two shards, plays, and counts.
func (d *show) run(ctx context.Context, shards []string, open addon.OpenDemo) (summary, error) {
	store, err := prepare(ctx, shards, d.Users)
	if err != nil {
		return summary{}, err
	}
	node, err := open(ctx, addon.DemoNode{Shipped: "sharding", Store: store, Files: []diag.File{mapFile(shards)}})
	if err != nil {
		return summary{}, err
	}
	d.server, d.client = node.URL(), client.New(node.URL(), d.Token)
	playing, stop := context.WithCancel(ctx)
	g, playing := errgroup.WithContext(playing)
	g.Go(func() error { return node.Run(playing) })
	load := newLoad(d)
	defer load.close()
	g.Go(func() error {
		defer stop()
		defer d.killSecond()
		if err := d.startSecond(playing, store); err != nil {
			return err
		}
		if err := d.enroll(playing, load); err != nil {
			return err
		}
		writing, quiet := context.WithCancel(playing)
		defer quiet()
		ended := make(chan struct{})
		go func() { defer close(ended); load.run(writing) }()
		err := d.play(playing, load)
		quiet()
		<-ended
		return err
	})
	if err := g.Wait(); err != nil && (!errors.Is(err, context.Canceled) || ctx.Err() != nil) {
		return summary{}, err
	}
	return load.count(ctx, shards)
}

// play moves one user, then all others, and kills a node meanwhile.
func (d *show) play(ctx context.Context, load *load) error {
	if err := d.await(ctx, "writes", func() (bool, error) { return load.written() >= 50, nil }); err != nil {
		return err
	}
	if err := d.command(ctx, "shard", "move", mapID, "1", "s2", "--grace", "0s"); err != nil {
		return err
	}
	if err := d.await(ctx, "the first move", func() (bool, error) {
		all, err := remote.ShardTransfers(ctx, d.client, mapID)
		if err != nil || len(all) == 0 || !transfers.TransferEnded(all[0].State) {
			return false, err
		}
		d.say("user 1 is on s2. Its writers waited for %.1f ms", all[0].WindowMS)
		return true, nil
	}); err != nil {
		return err
	}
	for _, line := range []string{"shard drain " + mapID + " s1 --reason trial", "submit --type shard-drain --key drain"} {
		if err := d.command(ctx, strings.Fields(line)...); err != nil {
			return err
		}
	}
	if err := d.loseNode(ctx, load); err != nil {
		return err
	}
	if err := d.await(ctx, "the last move", func() (bool, error) { return d.left(ctx, load) }); err != nil {
		return err
	}
	return d.command(ctx, "shard", "list", mapID)
}

// loseNode kills the second node while it works on runs, and waits until the other one has none of them left to take over.
func (d *show) loseNode(ctx context.Context, load *load) error {
	second := func() (records.NodeView, error) {
		all, err := d.client.Nodes(ctx)
		for _, n := range all {
			if n.Name == secondName {
				return n, nil
			}
		}
		return records.NodeView{}, err
	}
	busy := 0
	if err := d.await(ctx, "a move by "+secondName, func() (bool, error) {
		all, err := remote.ShardTransfers(ctx, d.client, mapID)
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(all, func(t transfers.ShardTransfer) bool { return t.State == transfers.TransferRunning }) {
			n, err := second()
			busy = n.Runs
			if busy > 0 || err != nil {
				return busy > 0, err
			}
		}
		return d.left(ctx, load) // the other node may have done all, also before anybody looked
	}); err != nil || busy == 0 {
		return err
	}
	d.say("$ kill -9 %d\n        %s is killed while it works on %d runs", d.second.Process.Pid, secondName, busy)
	d.killSecond()
	return d.await(ctx, "the other node", func() (bool, error) {
		n, err := second()
		if err != nil || n.Alive || n.Runs > 0 {
			return false, err
		}
		d.say("$ procaas nodes\n        the other node has taken them over")
		return true, nil
	})
}

// left says how the moves go. It reports whether all users have left s1.
func (d *show) left(ctx context.Context, load *load) (bool, error) {
	all, err := remote.ShardTransfers(ctx, d.client, mapID)
	if err != nil {
		return false, err
	}
	running := 0
	for _, t := range all {
		if t.State == transfers.TransferFailed || t.State == transfers.TransferCancelled {
			return false, fmt.Errorf("user %s has not moved: %s", t.Key, t.Error)
		}
		if !transfers.TransferEnded(t.State) {
			running++
		}
	}
	shards, err := remote.Shards(ctx, d.client, mapID)
	if err != nil {
		return false, err
	}
	for _, s := range shards {
		if s.ID == "s2" {
			load.report(s.Placements, running)
			return s.Placements == int64(d.Users) && running == 0, nil
		}
	}
	return false, errors.New("the map has no shard s2")
}

// enroll prepares the shards, and gives each user a place on s1.
func (d *show) enroll(ctx context.Context, load *load) error {
	for _, shard := range []string{"s1", "s2"} {
		// The node may not have seen yet that the server is a master.
		if err := d.await(ctx, "shard "+shard, func() (bool, error) {
			e, err := remote.EnrollShard(ctx, d.client, mapID, shard)
			return err == nil && len(e.Reasons) == 0, nil
		}); err != nil {
			return err
		}
		d.say("$ procaas shard enroll %s %s", mapID, shard)
	}
	for user := range d.Users {
		if err := d.await(ctx, "a place for user "+keyOf(user), func() (bool, error) {
			_, err := load.shards.Resolve(ctx, question(user))
			return err == nil, nil // a host that answered late counts as away for a moment
		}); err != nil {
			return err
		}
	}
	d.say("%d users are on s1, with %d letters each. Services write to them", d.Users, letters)
	return nil
}

// await asks until done, or until an error.
func (d *show) await(ctx context.Context, what string, done func() (bool, error)) error {
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		if !clock.Pause(ctx, 100*time.Millisecond) {
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		}
	}
}

// say prints a line with the second of the demo.
func (d *show) say(format string, args ...any) {
	if d.Format != "text" {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintf(d.Out, "%4.0f s  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

// command runs a command of this program at the server, and prints it with what it says.
func (d *show) command(ctx context.Context, args ...string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, append(args, "--server", d.server)...)
	cmd.Env = append(os.Environ(), "PROCAAS_TOKEN="+d.Token)
	out, err := cmd.CombinedOutput()
	text := strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", "\n        ")
	d.say("$ procaas %s\n        %s", strings.Join(args, " "), text)
	if err != nil {
		return fmt.Errorf("procaas %s: %w: %s", strings.Join(args, " "), err, text)
	}
	return nil
}

const secondName = "node-2"

// startSecond starts a node that takes its pipelines from the store, in a process of its own.
func (d *show) startSecond(ctx context.Context, store string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	d.second = exec.CommandContext(ctx, program, "serve", "--name", secondName, "--store", store, "--pipelines=", "--listen", "127.0.0.1:0",
		"--log-level", "error")
	d.second.Stderr, d.second.WaitDelay = d.Err, 5*time.Second
	if err := d.second.Start(); err != nil {
		return fmt.Errorf("start %s: %w", secondName, err)
	}
	err = d.await(ctx, "the nodes", func() (bool, error) {
		all, err := d.client.Nodes(ctx)
		alive := 0
		for _, n := range all {
			if n.Alive && n.Bundle != "" {
				alive++
			}
		}
		return err == nil && alive == 2, nil // the first one may not serve yet
	})
	if err == nil {
		d.say("2 nodes serve: this process, and %s, process %d. The console is at %s", secondName, d.second.Process.Pid, d.server)
	}
	return err
}

// killSecond ends the process as kill -9 does, if it was started.
func (d *show) killSecond() {
	if d.second == nil || d.second.Process == nil {
		return
	}
	_ = d.second.Process.Kill()
	_ = d.second.Wait() // it may be over already
}
