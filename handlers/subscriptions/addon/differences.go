package addon

import (
	"procaas/dsl/tree"
	"procaas/engine/diff"
	"procaas/handlers/subscriptions/language"
)

// compare compares subscriptions and brokers. It warns of changes that let a subscription begin elsewhere.
func compare(c *diff.Comparison, a, b *tree.Bundle) {
	diff.List(c, "subscription", language.All(a), language.All(b), diff.Edits[*language.Subscription]{
		Name:    func(s *language.Subscription) string { return s.ID },
		Added:   "its group begins as start: says, unless the broker knows it already",
		Removed: "nobody reads its messages; the broker keeps its group, and the store its dead letters",
		Both: func(old, now *language.Subscription) {
			c.Warned("subscription", now.ID, diff.Fields(old, now), meaning)
		},
	})
	diff.List(c, "broker", language.AllBrokers(a), language.AllBrokers(b), diff.Edits[*language.Broker]{
		Name: func(k *language.Broker) string { return k.ID },
		Both: func(old, now *language.Broker) { c.Changed("broker", now.ID, diff.Fields(old, now)) },
	})
}

// meaning returns what the change of a field means for messages.
func meaning(f diff.FieldChange) string {
	switch f.Field {
	case "broker", "servers", "stream", "topic", "group":
		return "a group that the broker does not know begins as start: says; what the old one has not read stays unread"
	case "table":
		return "rows that are left in the old one stay there, and nobody reads them"
	case "mark":
		return "rows count as read by this column from now on: set it for rows that were read, or they become events again"
	case "order-by":
		return "rows that wait now become events in the new order"
	case "filter":
		return "what the old filter passed over is not read any more"
	case "start":
		return "it matters only for a group that the broker does not know"
	case "event-id":
		return "a message that comes again meanwhile becomes a second run"
	case "key":
		return "messages that came before and after may run at the same time"
	}
	return ""
}
