package conformance

import (
	"slices"
	"testing"

	"procaas/engine/store"
)

// Store checks that a store meets the contract of the engine's ports. open returns an empty
// store for the test and closes it at the end. With names of groups it checks only these.
func Store(t *testing.T, open func(t *testing.T) store.Store, only ...string) {
	groups := []struct {
		name  string
		cases []storeCase
	}{
		{"Inbox", inboxCases},
		{"Order", orderCases},
		{"Ledger", ledgerCases},
		{"Nodes", nodeCases},
		{"Losses", lossCases},
		{"Runs", runCases},
		{"LeftOut", leftOutCases},
		{"Filters", filterCases},
		{"Settings", settingCases},
		{"Controls", controlCases},
		{"Access", accessCases},
		{"Bundles", bundleCases},
		{"Moves", moveCases},
		{"Undo", undoCases},
		{"Tell", tellCases},
		{"Awaits", awaitCases},
		{"Fallback", fallbackCases},
		{"Documents", documentCases},
		{"Usage", usageCases},
		{"Limits", limitCases},
		{"TrimRuns", trimRunsCases},
		{"Erase", eraseCases},
		{"Race", raceCases},
	}
	checks := func(name string) bool { return len(only) == 0 || slices.Contains(only, name) }
	for _, g := range groups {
		if !checks(g.name) {
			continue
		}
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range g.cases {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					p := newProbe(t, open(t))
					p.open = func() store.Store { return open(t) }
					c.run(p)
				})
			}
		})
	}
	if checks("Model") {
		t.Run("Model", func(t *testing.T) {
			t.Parallel()
			checkModel(t, open)
		})
	}
}
