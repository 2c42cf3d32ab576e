package main

import (
	"net/url"
	"regexp"
	"strings"

	"github.com/spf13/pflag"

	"procaas/engine/alert"
)

// alertFlags say who is told when something is wrong.
type alertFlags struct {
	alertmanagers, webhooks []string
	labels                  map[string]string
	externalURL             string
}

func (f *alertFlags) add(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.alertmanagers, "alertmanager", nil, "URL of an Alertmanager that is told what goes wrong (repeatable: name "+
		"each of a cluster)")
	flags.StringSliceVar(&f.webhooks, "alert-webhook", nil, "URL that alerts are posted to as JSON (repeatable)")
	flags.StringToStringVar(&f.labels, "alert-label", nil, "label of all alerts, such as cluster=berlin (repeatable)")
	flags.StringVar(&f.externalURL, "external-url", "", "where people reach this server, for links and commands in alerts (default: the "+
		"address that it listens on)")
}

// wanted tells whether anybody is to be told.
func (f *alertFlags) wanted() bool { return len(f.alertmanagers)+len(f.webhooks) > 0 }

var labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// newAlerts makes what tells people; nil when nobody is to be told.
func (n *node) newAlerts(f nodeFlags, name string) (*alert.Alerter, error) {
	for label := range f.alerts.labels {
		if !labelName.MatchString(label) {
			return nil, usagef("--alert-label %s=…: want a name of letters, digits and underscores", label)
		}
	}
	server := n.url()
	if given := f.alerts.externalURL; given != "" {
		u, err := url.Parse(given)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
			return nil, usagef("--external-url: want an absolute URL without a user, such as https://procaas.example")
		}
		server = strings.TrimRight(given, "/")
	}
	a, err := alert.New(alert.Options{
		Alertmanagers: f.alerts.alertmanagers, Webhooks: f.alerts.webhooks, Labels: f.alerts.labels,
		Server: server, Node: name, Log: n.log, Metrics: n.metrics, Breakers: &n.breakers,
	})
	if err != nil {
		return nil, usagef("--alertmanager, --alert-webhook: %w", err)
	}
	return a, nil
}
