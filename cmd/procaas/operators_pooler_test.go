//go:build pooler

package main

import (
	"testing"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
)

// A restart of the pooler cuts all connections of the nodes to their store. They go on, and lose
// nothing.
func TestPoolerRestartsUnderLoad(t *testing.T) {
	b := enginetest.StartBouncer(t)
	o := newOperators(t, b.URL, 2)
	for range 5 {
		before := o.accepted()
		patience.Until(t, "events to be accepted", func() bool { return o.accepted() > before+20 })
		b.Restart(t)
	}
	before := o.accepted()
	patience.Until(t, "events to be accepted after the last restart", func() bool { return o.accepted() > before })
	o.end()
}
