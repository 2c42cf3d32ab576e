package addon

import (
	"procaas/dsl/tree"
	"procaas/engine/diff"
	"procaas/handlers/webhooks/language"
)

// compareWebhooks compares webhooks.
func compareWebhooks(c *diff.Comparison, a, b *tree.Bundle) {
	diff.List(c, "webhook", language.All(a), language.All(b), diff.Edits[*language.Webhook]{
		Name:    func(w *language.Webhook) string { return w.ID },
		Removed: "its provider gets 404, and many give up after some days",
		Both:    func(old, now *language.Webhook) { c.Changed("webhook", now.ID, diff.Fields(old, now)) },
	})
}
