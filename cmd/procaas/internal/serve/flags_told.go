package serve

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"time"

	"procaas/engine/clock"
)

// common are the flags that nodes of a store should have in common, for procaas doctor: those that decide what becomes of an event, wherever
// it runs, and which calls need a token. The others are about one machine, such as its addresses, its memory and its log, or about files,
// which may lie elsewhere on each. Addresses may have passwords, so of them it is a hash.
func (f *Flags) common() map[string]string {
	var services []string
	for _, id := range slices.Sorted(maps.Keys(f.Services)) {
		services = append(services, id+"="+f.Services[id])
	}
	return map[string]string{
		"retention": f.Retention.String(), "audit-retention": f.Audit.String(), "lease": f.Lease.String(), "record": f.Record, "max-body": f.MaxBody,
		"allow-target": digest(slices.Sorted(slices.Values(f.Targets))), "service": digest(services),
		"open": strings.Join(slices.Sorted(slices.Values(f.Access.Open)), ","),
	}
}

// digest is empty for nothing.
func digest(list []string) string {
	if len(list) == 0 {
		return ""
	}
	sum := sha256.Sum256([]byte(strings.Join(list, "\x00")))
	return hex.EncodeToString(sum[:4])
}

// tellFlags tells the flags of the node once. What goes wrong with that keeps nobody from working.
func (n *Node) tellFlags(ctx context.Context) {
	for {
		err := n.engine.Runs.TellFlags(ctx, nodeName(n.flags.Name), n.flags.common())
		if err == nil || ctx.Err() != nil {
			return
		}
		n.log.Debug("the flags of this node could not be told to others, trying again", "error", err)
		if !clock.Pause(ctx, 10*time.Second) {
			return
		}
	}
}
