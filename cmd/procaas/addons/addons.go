// Package addons lists the add-ons of this program. Without one of them the program builds and works, but for what
// the add-on adds: the build tags without_archive, without_balancer, without_inbox, without_queue, without_sharding,
// without_signon, without_sql, without_subscriptions and without_webhooks leave one out.
package addons

import (
	"slices"
	"sync"

	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/addon"
	"procaas/engine/alert"
	"procaas/engine/api/problem"
	"procaas/engine/diff"
	"procaas/engine/store"
	"procaas/handlers"
)

// All lists the add-ons. Their handler types in the reference and their flags in the help have this order.
// Each command asks for them. Nobody changes the list.
var All = sync.OnceValue(func() []addon.Addon {
	return slices.Concat(balancing(), sharded(), queued(), divided(), hooked(), subscribed(), databases(), signedOn(), archived())
})

// Language is the language of files: its core, and the sections of the add-ons.
var Language = sync.OnceValue(func() *tree.Language {
	var sections []tree.Section
	for _, a := range All() {
		sections = append(sections, a.Sections...)
	}
	return tree.NewLanguage(sections...)
})

// HandlerTypes lists all handler types: those of the core, then those of the add-ons.
func HandlerTypes() []engine.HandlerType { return slices.Clone(handlerTypes()) }

var handlerTypes = sync.OnceValue(func() []engine.HandlerType {
	types := handlers.All()
	for _, a := range All() {
		if a.Types != nil {
			types = append(types, a.Types()...)
		}
	}
	return types
})

// Types lists all handler types as the language sees them.
func Types() []tree.Type { return engine.Types(HandlerTypes()) }

// Compare lists what finds differences in the sections of add-ons. Sections are declared the other way round, and their
// differences have that order.
func Compare() []diff.Comparer {
	var all []diff.Comparer
	for _, a := range slices.Backward(All()) {
		if a.Compare != nil {
			all = append(all, a.Compare)
		}
	}
	return all
}

// Tables lists the migrations of add-ons. One without any is listed too: a newer program may have made some, which this one refuses.
func Tables() []store.Tables {
	var all []store.Tables
	for _, a := range All() {
		t := a.Tables
		t.Name = a.Name
		all = append(all, t)
	}
	return all
}

// Alerts lists the alerting rules of add-ons, whose commands name a server.
func Alerts(server string) []alert.Rule {
	var all []alert.Rule
	for _, a := range All() {
		if a.Alerts != nil {
			all = append(all, a.Alerts(server)...)
		}
	}
	return all
}

// Problems lists why calls of add-ons are refused.
func Problems() []problem.Kind {
	var all []problem.Kind
	for _, a := range All() {
		all = append(all, a.Problems...)
	}
	return all
}
