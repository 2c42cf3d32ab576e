// Package language has what subscriptions add to the language: the section subscriptions of files, with its check and its rules.
package language

import (
	"fmt"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
	"procaas/dsl/typing"
)

// Section is the section subscriptions of files.
func Section() tree.Section {
	return tree.Section{
		Of: sectionSpec(), Rules: readRules,
		Check: func(value any, c *tree.Checking) {
			groups := map[string]*Subscription{}
			for _, s := range value.([]*Subscription) {
				check(s, c)
				checkGroup(s, groups, c)
			}
		},
		Each: func(value any, visit func(tree.Declaration)) {
			for _, s := range value.([]*Subscription) {
				kind, _ := s.Type.Text()
				visit(tree.Declaration{
					Kind: "subscription", ID: s.ID, Span: s.Span, At: s.PlaceOf("id", s.Span),
					Owner: &s.Owner, OwnerAt: s.PlaceOf("owner", s.Span), Path: s.Path(), Event: kind, From: s.Origin(),
				})
			}
		},
	}
}

// Roots are what expressions of a subscription may read.
var Roots = []string{"message"}

// message has what a message has. Its body and its headers may be anything.
var message = typing.Record(map[string]*typing.Outline{
	"id": text, "subject": text, "key": text, "time": text, "headers": typing.OfShape(datum.MapShape), "body": nil,
})

var text = typing.OfShape(datum.StringShape)

// check compiles the expressions of a subscription, and reports what cannot work.
func check(s *Subscription, c *tree.Checking) {
	fields := sectionSpec().Field(sectionName).Elem.Spec
	for _, f := range []struct {
		name  string
		value *expr.Value
	}{{"when", s.When}, {"event-id", s.EventID}, {"type", s.Type}, {"key", s.Key}, {"payload", s.Payload}} {
		spec.Compile(f.value, fields.Field(f.name), &expr.Scope{Roots: Roots, Outlines: map[string]*typing.Outline{Roots[0]: message}}, c.Reporter)
		checkKeyRead(s, f.value, c)
	}
	if kind, ok := s.Type.Literal(); ok {
		if kind, ok := kind.(string); ok {
			checkServed(s, kind, c)
			if !s.Payload.IsNull() {
				c.Fits(kind, s.Payload)
			}
		}
	}
	if c.Bundle.Pipeline(sectionName) != nil {
		c.Errorf(s.PlaceOf("id", s.Span), rules.Subscription, "give the pipeline another id",
			"operators could not tell subscription %q from a part of the pipeline %s: both are %s", s.ID, sectionName, s.Path())
	}
	if s.Parallelism > 1 && s.Key.IsNull() && !s.OfStore() {
		c.Errorf(s.PlaceOf("parallelism", s.Span), rules.Subscription, "add key:, or drop parallelism",
			"subscription %q has no key, so nothing says which of its messages may be stored at once", s.ID)
	}
	if s.OfStore() {
		checkStore(s, c)
		return
	}
	checkBroker(s, c)
	s.Connection().Check(fmt.Sprintf("subscription %q", s.ID), s.Broker, s, s.Span, c)
}

// checkKeyRead reports an expression that reads the key of a message, if messages of the broker have none.
func checkKeyRead(s *Subscription, v *expr.Value, c *tree.Checking) {
	if s.Broker != "nats" && s.Broker != "rabbitmq" {
		return
	}
	for _, read := range v.Reads() {
		if len(read.Path) > 1 && read.Path[1] == "key" {
			c.Errorf(read.Span, rules.Subscription, "read the subject, a header or a part of the body", "messages of %s have no key", s.Broker)
		}
	}
}

// checkServed reports a type that no pipeline serves. All messages would be dead letters.
func checkServed(s *Subscription, kind string, c *tree.Checking) {
	if c.Partial || kind == "" || len(c.Bundle.On(kind)) > 0 || len(c.Bundle.Awaiting(kind)) > 0 {
		return
	}
	c.Errorf(s.PlaceOf("type", s.Span), rules.Subscription, c.SuggestOr(kind, diag.NamesIn(c.Bundle.Index.Serving), "write it below on: of a pipeline"),
		"no pipeline serves events of the type %q of subscription %q", kind, s.ID)
}

// checkGroup reports two subscriptions that would take each other's messages.
func checkGroup(s *Subscription, groups map[string]*Subscription, c *tree.Checking) {
	name := s.Broker + " " + s.From() + " " + s.GroupName()
	if s.Table != "" { // databases of several services have tables of one name
		name += " " + strings.Join(s.Servers, " ")
	}
	if other := groups[name]; other != nil {
		at, remedy := s.PlaceOf("group", s.Span), "give one of them another group:"
		share := fmt.Sprintf("share the group %s of %s", s.GroupName(), s.From())
		switch {
		case s.Queue != "":
			at, remedy = s.PlaceOf("queue", s.Span), "bind a queue for each to the same exchange"
		case s.OfStore():
			share = "read what programs submit to the store"
			at, remedy = s.PlaceOf("broker", s.Span), "keep one, whose type: and when: may depend on the message"
		case s.Table != "":
			share = "read the table " + s.Table
			at, remedy = s.PlaceOf("table", s.Span), "read it with one, whose type: depends on the row"
		}
		c.Errorf(at, rules.Subscription, remedy,
			"subscriptions %q and %q %s: each would miss messages", other.ID, s.ID, share)
	}
	groups[name] = s
}

// maxName is how long the name of what is read may be, because it is a part of the id of each event, which has at most 200 bytes.
const maxName = 120

// reads is what is read of each broker.
var reads = map[string]string{"nats": "stream", "kafka": "topic", "rabbitmq": "queue", "postgres": "table"}

// checkBroker reports fields that are for another broker, and what is missing for this one.
func checkBroker(s *Subscription, c *tree.Checking) {
	of := reads[s.Broker]
	for _, f := range []struct{ name, value string }{{"stream", s.Stream}, {"topic", s.Topic}, {"queue", s.Queue}, {"table", s.Table}} {
		switch {
		case of == "":
		case f.name == of && f.value == "":
			c.Errorf(s.PlaceOf("broker", s.Span), rules.Subscription, "add "+of+":", "subscription %q does not say which %s of %s to read", s.ID, of, s.Broker)
		case f.name != of && f.value != "":
			c.Errorf(s.PlaceOf(f.name, s.Span), rules.Subscription, "write "+of+":", "%s has no %s", s.Broker, f.name)
		}
	}
	if from := s.From(); len(from) > maxName {
		c.Errorf(s.PlaceOf(of, s.Span), rules.Subscription, "read one with a shorter name",
			"the name of the %s of subscription %q has %d characters, and the ids of its events have room for %d", of, s.ID, len(from), maxName)
	}
	if of != "" && s.Broker != "nats" && s.Filter != "" {
		c.Errorf(s.PlaceOf("filter", s.Span), rules.Subscription, "write when:, or drop it", "%s has no filter; the node reads the whole %s %q",
			s.Broker, of, s.From())
	}
	if at := s.PlaceOf("prefetch", diag.Span{}); at != (diag.Span{}) && s.Broker != "rabbitmq" {
		c.Errorf(at, rules.Subscription, "drop it", "%s takes no prefetch; a node reads it in batches of bounded size", s.Broker)
	}
	if s.Broker == "rabbitmq" && s.Group != "" {
		c.Errorf(s.PlaceOf("group", s.Span), rules.Subscription, "drop it; a queue for each reader is bound to the same exchange",
			"rabbitmq has no groups: a queue has what nobody has acknowledged")
	}
	checkTable(s, c)
}

// checkTable reports what only tables have, and what they do not have.
func checkTable(s *Subscription, c *tree.Checking) {
	isTable := s.Broker == "postgres"
	for _, f := range []struct{ name, value string }{{"order-by", s.OrderBy}, {"mark", s.Mark}} {
		if reads[s.Broker] != "" && !isTable && f.value != "" {
			c.Errorf(s.PlaceOf(f.name, s.Span), rules.Subscription, "drop it", "%s has no columns: %s: is for a table of postgres", s.Broker, f.name)
		}
	}
	if isTable && s.Group != "" {
		c.Errorf(s.PlaceOf("group", s.Span), rules.Subscription, "drop it", "a table has no groups: each row becomes one event, and is gone or marked")
	}
	if isTable && s.Start == "new" {
		c.Errorf(s.PlaceOf("start", s.Span), rules.Subscription, "delete or mark old rows, or write when:",
			"a table is read from its first row: nothing says which rows are new")
	}
	if isTable && (strings.Count(s.Table, ".") > 1 || strings.HasPrefix(s.Table, ".") || strings.HasSuffix(s.Table, ".")) {
		c.Errorf(s.PlaceOf("table", s.Span), rules.Subscription, "write NAME or SCHEMA.NAME", "%q names no table", s.Table)
	}
}

// checkStore reports what is for brokers. The node knows its store, and the table there.
func checkStore(s *Subscription, c *tree.Checking) {
	for _, f := range []struct {
		name string
		is   bool
	}{
		{"servers", len(s.Servers) > 0},
		{"auth", s.Auth != nil},
		{"tls", s.TLS != nil},
		{"stream", s.Stream != ""},
		{"topic", s.Topic != ""},
		{"queue", s.Queue != ""},
		{"table", s.Table != ""},
		{"order-by", s.OrderBy != ""},
		{"mark", s.Mark != ""},
		{"filter", s.Filter != ""},
		{"group", s.Group != ""},
		{"start", s.Start == "new"},
	} {
		if f.is {
			c.Errorf(s.PlaceOf(f.name, s.Span), rules.Subscription, "drop it", "subscription %q reads the store of the node, which has no %s:", s.ID, f.name)
		}
	}
}
