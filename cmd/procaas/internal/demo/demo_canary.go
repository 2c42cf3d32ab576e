package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"procaas/cmd/procaas/internal/source"
	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/engine/canary"
	"procaas/engine/clock"
	"procaas/engine/store"
)

// badVersion is an incident outside the services: a new version of the pipelines calls a wrong address.
const badVersion = "bad-version"

// The address that the bad version gets wrong. Only new orders call it.
const (
	rightAddress = "path: /v1/candidates"
	wrongAddress = "path: /v2/candidates"
)

// triedOn is the percentage of orders that use the bad version.
const triedOn = 20

// tryBadVersion starts a canary with the bad version after a while, and waits for its rollback.
func (d *taxiDemo) tryBadVersion(ctx context.Context) error {
	if !clock.Pause(ctx, d.incidentAfter) {
		return nil
	}
	engine := d.node.Engine()
	for engine.Healthy(ctx) != nil {
		if !clock.Pause(ctx, 100*time.Millisecond) {
			return nil
		}
	}
	var files []diag.File
	for _, f := range d.files {
		files = append(files, diag.File{Name: f.Name, Data: bytes.ReplaceAll(f.Data, []byte(rightAddress), []byte(wrongAddress))})
	}
	b, err := source.Check(d.Streams, files, dsl.Options{ServiceURLs: d.stubs.URLs()})
	if err != nil {
		return err
	}
	by := store.Actor{Name: "demo", Reason: "candidates have a new address"}
	if _, err := engine.TryVersion(ctx, b, canary.Order{Percent: triedOn}, by); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return errors.Join(errors.New("the bad version cannot be tried"), err)
	}
	d.traffic.setIncident(badVersion, true)
	for engine.Canary().Runs() {
		if !clock.Pause(ctx, 100*time.Millisecond) {
			return nil
		}
	}
	d.traffic.setIncident(badVersion, false)
	return nil
}

// try returns news about a canary.
func (n *news) try(v canary.View) (told []string) {
	version := v.New[:min(12, len(v.New))]
	switch {
	case v.Phase == n.canary.Phase && v.New == n.canary.New && v.Percent == n.canary.Percent:
	case v.Phase == canary.Running:
		told = append(told, fmt.Sprintf("canary: %g %% of the orders use version %s", v.Percent, version))
	case v.Why != "":
		told = append(told, fmt.Sprintf("canary: version %s is %s: %s", version, v.Phase, v.Why))
	}
	n.canary = v
	return told
}
