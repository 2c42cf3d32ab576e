package serve

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"procaas/cmd/procaas/addons"
	"procaas/dsl/tree"
	"procaas/dsl/urls"
	"procaas/engine"
	"procaas/engine/addon"
	"procaas/engine/api"
	"procaas/engine/api/access"
	"procaas/engine/checkpoint"
	"procaas/engine/pgkit"
	"procaas/engine/records"
	"procaas/engine/store"
)

// This file plugs add-ons into a node.

// processes returns the add-ons of the command. The first call makes them, and sets their flags to the defaults.
func (f *Flags) processes() []*addon.Process {
	if f.own != nil {
		return f.addons
	}
	f.own = pflag.NewFlagSet("add-ons", pflag.ContinueOnError)
	for _, a := range addons.All() {
		if a.New == nil {
			continue
		}
		f.addons = append(f.addons, a.New())
	}
	f.declare(f.own)
	f.declareServed(f.own)
	return f.addons
}

// declare declares the flags of add-ons that all commands have that run a node.
func (f *Flags) declare(on *pflag.FlagSet) {
	for _, p := range f.processes() {
		if p.Flags != nil {
			p.Flags(on)
		}
	}
}

// declareServed declares those that only procaas serve has.
func (f *Flags) declareServed(on *pflag.FlagSet) {
	for _, p := range f.processes() {
		if p.ServeFlags != nil {
			p.ServeFlags(on)
		}
	}
}

// Set sets a flag of an add-on, also one that the command does not declare. Flags with add-ons serve one node.
func (f *Flags) Set(name, value string) error {
	f.processes()
	return f.own.Set(name, value)
}

// listening lists the addresses that the add-ons listen on, or will.
func (f *Flags) listening() []string {
	var all []string
	for _, p := range f.processes() {
		if p.Addresses != nil {
			all = append(all, p.Addresses()...)
		}
	}
	return all
}

// Listening lists the addresses where add-ons of the node listen.
func (n *Node) Listening() []string { return n.flags.listening() }

// beyond returns an address of the node that other machines reach, or "".
func (f *Flags) beyond(served api.Options) string {
	if !served.Local {
		return f.Listen
	}
	for _, address := range append(f.listening(), f.Admin, f.Metrics) {
		if address != "" && !urls.OnlyThisMachine(address) {
			return address
		}
	}
	return ""
}

// check checks the flags of all add-ons.
func (f *Flags) check(b *tree.Bundle) error {
	for _, p := range f.processes() {
		if p.Check == nil {
			continue
		}
		if err := p.Check(b); err != nil {
			return err
		}
	}
	return nil
}

// others recognises callers without a token of the server, or is nil.
func (f *Flags) others() (access.Identifier, error) {
	for _, p := range f.processes() {
		if p.Identifier == nil {
			continue
		}
		if i, err := p.Identifier(); i != nil || err != nil {
			return i, err
		}
	}
	return nil, nil
}

// spread returns how to open the store if an add-on makes one of several databases, or nil.
func (f *Flags) spread() (addon.Spread, error) {
	for _, p := range f.processes() {
		if p.Spread == nil {
			continue
		}
		if s, err := p.Spread(f.Store); s != nil || err != nil {
			return s, err
		}
	}
	return nil, nil
}

// listen binds the addresses of all add-ons.
func (n *Node) listen(ctx context.Context) error {
	for _, p := range n.flags.addons {
		if p.Listen == nil {
			continue
		}
		if err := p.Listen(ctx, n.log); err != nil {
			return err
		}
	}
	return nil
}

// openParts opens the parts of all add-ons. The store is open, and there is no engine yet.
func (n *Node) openParts(ctx context.Context, b *tree.Bundle) error {
	f := &n.flags
	n.first.Store(b)
	h := &addon.Host{
		Name: nodeName(f.Name), DSN: f.Store, Postgres: pgkit.IsDSN(f.Store), Store: n.store,
		Bundle: func() *tree.Bundle {
			if first := n.first.Load(); first != nil {
				return first
			}
			return n.engine.Bundle()
		},
		Now: func() time.Time {
			if n.engine == nil {
				return time.Now()
			}
			return n.engine.Now()
		},
		Secrets: n.secrets.Value, Targets: n.targets, Memory: n.memory, Metrics: n.metrics, Log: n.log,
		HTTP: func(name string, pause time.Duration) *http.Client {
			return n.breakers.Guard(name, n.targets.Client(), pause)
		},
		Lease: f.Lease, Retention: f.Retention,
	}
	for _, p := range f.addons {
		if p.Open == nil {
			continue
		}
		part, err := p.Open(ctx, h)
		if err != nil {
			return err
		}
		n.parts = append(n.parts, &plugged{Part: part, adopted: b.Hash})
	}
	return nil
}

// closeParts closes all that add-ons have bound or opened.
func (n *Node) closeParts() error {
	var errs []error
	for _, p := range n.flags.addons {
		if p.Close != nil {
			errs = append(errs, p.Close())
		}
	}
	return errors.Join(errs...)
}

// types returns the handler types of the node.
func (n *Node) types() []engine.HandlerType {
	types := addons.HandlerTypes()
	bound := map[string]engine.HandlerType{}
	for _, p := range n.parts {
		for _, t := range p.Types {
			bound[t.Name] = t
		}
	}
	for i, t := range types {
		if t, ok := bound[t.Name]; ok {
			types[i] = t
		}
	}
	return types
}

// erasers returns what the parts do to erase a key.
func (n *Node) erasers() (all []store.EraseFunc) {
	for _, p := range n.parts {
		if p.Erase != nil {
			all = append(all, p.Erase)
		}
	}
	return all
}

// origin says where an event came from, if a part has submitted it.
func (n *Node) origin(ctx context.Context, e checkpoint.EventView) string {
	for _, p := range n.parts {
		if p.Origin == nil {
			continue
		}
		if text := p.Origin(ctx, e); text != "" {
			return text
		}
	}
	return ""
}

// archive returns where ended runs go before they leave the store.
func (n *Node) archive() records.ArchiveOptions {
	for _, p := range n.parts {
		if p.Archive != (records.ArchiveOptions{}) {
			return p.Archive
		}
	}
	return records.ArchiveOptions{}
}

// running is what the parts get of the node when it runs.
func (n *Node) running() addon.Running {
	return addon.Running{
		Engine: n.engine, Free: n.free,
		Access: access.Options{Access: n.engine, Others: n.access.Others, Log: n.log, Token: n.access.Token, Hosts: n.access.Hosts},
	}
}

// free closes connections that nobody needs, when the process has too many open files.
func (n *Node) free() {
	n.engine.CloseIdleConnections()
	for _, p := range n.parts {
		if p.Free != nil {
			p.Free()
		}
	}
}

// A plugged is a part of the node, with the definition that it has adopted.
type plugged struct {
	*addon.Part

	mu      sync.Mutex // guards adopted, and serializes Adopt
	adopted string     // hash of the definition
}

// adopt lets the part follow the current definition, unless it has done so.
func (p *plugged) adopt(ctx context.Context, e *engine.Engine) error {
	if p.Adopt == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	b := e.Bundle()
	if b.Hash == p.adopted {
		return nil
	}
	if err := p.Adopt(ctx, b); err != nil {
		return err
	}
	p.adopted = b.Hash
	return nil
}

// accept returns why a definition cannot become current.
func (n *Node) accept(ctx context.Context, b *tree.Bundle) error {
	for _, p := range n.parts {
		if p.Accept == nil {
			continue
		}
		if err := p.Accept(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// adopt lets all parts follow the current definition.
func (n *Node) adopt(ctx context.Context) error {
	var errs []error
	for _, p := range n.parts {
		errs = append(errs, p.adopt(ctx, n.engine))
	}
	return errors.Join(errs...)
}

// adoptAgain is the pause before a part is asked again to follow a definition, after an error.
const adoptAgain = time.Second

// follow lets the parts follow definitions that other nodes activated, until ctx ends.
func (n *Node) follow(ctx context.Context) {
	for told := ""; ; {
		again := n.engine.Reloaded()
		var later <-chan time.Time
		err := n.adopt(ctx)
		switch {
		case err == nil:
			told = ""
		case ctx.Err() == nil:
			later = time.After(adoptAgain) // the error may be temporary
			if told != err.Error() {
				n.log.Error("the definition is not followed", "error", err)
			}
			told = err.Error()
		}
		select {
		case <-ctx.Done():
			return
		case <-again:
		case <-later:
		}
	}
}

// A wholeNode is an engine with the add-ons of its node.
type wholeNode struct {
	*engine.Engine
	parts []*plugged
}

// Degraded returns what does not work although the node works: of the engine, or else of an add-on.
func (n wholeNode) Degraded() error {
	err := n.Engine.Degraded()
	for _, p := range n.parts {
		if err == nil && p.Degraded != nil {
			err = p.Degraded()
		}
	}
	return err
}
