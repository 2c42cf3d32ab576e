package serve

import (
	"regexp"
	"strings"

	"github.com/spf13/pflag"

	"procaas/dsl/urls"
	"procaas/engine/alert"
	"procaas/engine/api/cli"
)

// AlertFlags are the flags for receivers of alerts.
type AlertFlags struct {
	Alertmanagers, Webhooks []string
	Labels                  map[string]string
	ExternalURL             string
}

func (f *AlertFlags) add(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.Alertmanagers, "alertmanager", nil, "URL of an Alertmanager to send alerts to (repeatable: name each "+
		"member of a cluster)")
	flags.StringSliceVar(&f.Webhooks, "alert-webhook", nil, "URL to post alerts to, as JSON (repeatable)")
	flags.StringToStringVar(&f.Labels, "alert-label", nil, "label for all alerts, such as cluster=berlin (repeatable)")
	flags.StringVar(&f.ExternalURL, "external-url", "", "address of this server for people, for links and commands in alerts "+
		"(default: the listen address)")
}

// wanted reports whether there are receivers.
func (f *AlertFlags) wanted() bool { return len(f.Alertmanagers)+len(f.Webhooks) > 0 }

var labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

func goodTraceURL(template string) bool {
	const id = "{trace_id}"
	if template == "" {
		return true
	}
	_, err := urls.ParsePublic(strings.ReplaceAll(template, id, "0"))
	return err == nil && strings.Contains(template, id)
}

// newAlerts returns the alerter, or nil if there are no receivers.
func (n *Node) newAlerts(f Flags, name string) (*alert.Alerter, error) {
	for label := range f.Alerts.Labels {
		if !labelName.MatchString(label) {
			return nil, cli.Usagef("--alert-label %s=…: want a name of letters, digits and underscores", label)
		}
	}
	server := n.URL()
	if given := f.Alerts.ExternalURL; given != "" {
		if _, err := urls.ParseBase(given); err != nil {
			return nil, cli.Usagef("--external-url %v: want such as https://procaas.example", err)
		}
		server = strings.TrimRight(given, "/")
	}
	a, err := alert.New(alert.Options{
		Alertmanagers: f.Alerts.Alertmanagers, Webhooks: f.Alerts.Webhooks, Labels: f.Alerts.Labels,
		Server: server, Node: name, Log: n.log, Metrics: n.metrics, Breakers: &n.breakers,
	})
	if err != nil {
		return nil, cli.Usagef("--alertmanager, --alert-webhook: %w", err)
	}
	return a, nil
}
