package dsl

import (
	"net/url"
	"time"

	"procaas/dsl/diag"
	"procaas/dsl/rules"
	"procaas/dsl/tree"

	// Zones must not depend on the machine that validates.
	_ "time/tzdata"
)

// checkService checks the address of a service. Paths of requests are appended to it, so it
// has no query; and files of pipelines are read by many, so it holds no password.
func (c *checker) checkService(s *tree.Service) {
	if s.URL == "" {
		return // reported when it was read
	}
	at := s.PlaceOf("url", s.Span)
	const want = "write an address such as http://127.0.0.1:9081 or https://orders.example.com/api"
	u, err := url.Parse(s.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		c.Errorf(at, rules.ServiceURL, want, "url of service %q is not an absolute http or https URL: %q", s.ID, s.URL)
	case u.User != nil:
		c.Errorf(at, rules.ServiceURL, "send it in headers, from !secret NAME", "url of service %q holds a password", s.ID)
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		c.Errorf(at, rules.ServiceURL, "write it as query of the request", "url of service %q has a query or a fragment", s.ID)
	case tree.BadHost(u) != "":
		c.Errorf(at, rules.ServiceURL, want, "url of service %q: %s", s.ID, tree.BadHost(u))
	case tree.StandsForHost(u):
		c.Warnf(at, rules.ServiceURL, "write the host of your service, such as 127.0.0.1:9081", "url of service %q: no server has the name %s", s.ID, u.Hostname())
	}
}

// checkTrigger checks when a trigger fires and that its event is served.
func (c *checker) checkTrigger(t *tree.Trigger) {
	at := t.PlaceOf("id", t.Span)
	switch {
	case t.Every != 0 && t.Cron != "":
		c.Errorf(t.PlaceOf("cron", at), rules.TriggerTime, "keep one of them", "trigger %q has both every and cron", t.ID)
	case t.Every == 0 && t.Cron == "":
		c.Errorf(at, rules.TriggerTime, `say every: 1m or cron: "*/5 * * * *"`, "trigger %q does not say when it fires", t.ID)
	}
	if t.Cron != "" {
		if problem := checkCron(t.Cron); problem != "" {
			c.Errorf(t.PlaceOf("cron", at), rules.Cron, "the fields are minute, hour, day, month, weekday", "%s", problem)
		}
	}
	// Local would mean another zone on each node.
	if _, err := time.LoadLocation(t.TimeZone); err != nil || t.TimeZone == "Local" {
		c.Errorf(t.PlaceOf("time-zone", at), rules.TimeZone, "want an IANA name such as Europe/Berlin, or UTC",
			"unknown time zone %q", t.TimeZone)
	}
	if t.Event != "" && c.Bundle.Index.Serving[t.Event] == nil && c.Bundle.Index.Awaiting[t.Event] == nil {
		c.unknownEvent(t)
	}
}

// unknownEvent reports a trigger whose event no pipeline serves.
func (c *checker) unknownEvent(t *tree.Trigger) {
	if c.Partial {
		return // the pipeline may be in the file that could not be read
	}
	c.Warnf(t.PlaceOf("event", t.Span), rules.TriggerEvent, c.DidYouMean(t.Event, diag.NamesIn(c.Bundle.Index.Serving)),
		"no pipeline serves event type %q", t.Event)
}
