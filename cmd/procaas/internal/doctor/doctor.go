// Package doctor looks for what is wrong with a server and its store.
package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/addons"
	"procaas/cmd/procaas/internal/authoring"
	"procaas/cmd/procaas/internal/serve/stores"
	"procaas/dsl/diag"
	"procaas/engine/api/cli"
	"procaas/engine/api/problem"
	"procaas/engine/credentials"
	"procaas/engine/guard"
	"procaas/engine/pgkit"
	"procaas/engine/records"
	"procaas/engine/stats"
	"procaas/engine/store"
)

// endsSoon is how long before its end a token is a finding.
const endsSoon = 14 * 24 * time.Hour

// signInAgain is how long before its end a login is a finding that nothing renews. The issuers of such tokens give them for hours.
const signInAgain = time.Hour

// Command returns the command.
func Command() *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor [PATH…]",
		Short: "Look for what is wrong with a server and its store",
		Long: `doctor asks a server how it is: whether it works, and whether its nodes serve the same pipelines.
It finds services that are down, failed runs that hold up their keys, and subscriptions that are
not read. It finds tokens, logins, and certificates for services that are about to end, and
switches that contradict each other. With
paths it says how the files there differ from what is current on the server. With --store it also
does what procaas store check does. There it finds clocks that differ, locks that hold others up,
tables that grow, and a disk that is full. With --store alone, no server is asked.

It compares the flags that nodes should have in common, such as --retention. What a node makes of
its own flags is not asked: procaas serve --check says that. It changes nothing, and says for each
finding what to do.

Exit codes: 0 nothing is wrong, 1 there are findings, 3 nothing could be asked.`,
		Example: "  procaas doctor\n  procaas doctor flows/ --store postgres://procaas@db/procaas --server http://127.0.0.1:8080\n" +
			"  procaas doctor --store sqlite:store.db --format json",
	}
	cli.ServerFlags(c)
	dsn := c.Flags().String("store", "", "postgres://… or sqlite:FILE, to look at the store, too")
	return cli.Formatted(c, func(q *cli.Call) error {
		d := &doctor{Call: q}
		if *dsn == "" || c.Flags().Changed("server") || len(q.Args) > 0 {
			if err := d.server(); err != nil && *dsn == "" {
				return err
			} else if err != nil {
				remedy := "start it, or name its address by --server"
				if errors.As(err, new(*problem.Problem)) { // it answers
					remedy = "see what it says of its store below; procaas docs runbook says what to do when the store is away or lost"
				}
				d.note("server", store.CheckRefused, remedy, "%v", err)
			}
		}
		if *dsn != "" {
			found, err := stores.Examine(q.Ctx, *dsn)
			if err != nil && len(d.all) == 0 {
				return fmt.Errorf("check %s: %w", pgkit.Redact(*dsn), err)
			} else if err != nil {
				d.note("store", store.CheckRefused, "start it, or name its address by --store", "%v", err)
			}
			d.all = append(d.all, found...)
		}
		err := q.Show(d.all, func() error { return stores.WriteChecks(q.Streams, d.all) })
		wrong := slices.ContainsFunc(d.all, func(c store.Check) bool { return c.Level != store.CheckFine })
		return errors.Join(err, cli.FindingsIf(wrong))
	})
}

// A doctor notes what it finds.
type doctor struct {
	*cli.Call
	all []store.Check
}

func (d *doctor) note(name, level, remedy, found string, args ...any) {
	d.all = append(d.all, store.Check{Name: name, Level: level, Found: fmt.Sprintf(found, args...), Remedy: remedy})
}

// server asks the server. An error says that it does not work.
func (d *doctor) server() error {
	h, err := d.Health(d.Ctx, false)
	if err != nil {
		return err
	}
	if h.Degraded == "" {
		d.note("server", store.CheckFine, "", "ready")
	} else {
		d.note("server", store.CheckWarning, "procaas docs runbook says what to do about what is away", "ready, but %s", h.Degraded)
	}
	if h.Version == cli.Version() {
		d.note("program", store.CheckFine, "", "version %s", h.Version)
	} else {
		d.note("program", store.CheckWarning, "use the same release for both, unless you are upgrading",
			"the server has version %s, and this program is %s", h.Version, cli.Version())
	}
	looks := []look{
		{"nodes", d.nodes}, {"services", d.services}, {"runs", d.runs}, {"tokens", d.tokens}, {"login", d.login}, {"controls", d.controls}, {"definitions", d.definitions},
	}
	for _, a := range addons.All() {
		if a.Examine != nil {
			looks = append(looks, look{a.Name, func() error {
				found, err := a.Examine(d.Call)
				d.all = append(d.all, found...)
				return err
			}})
		}
	}
	for _, look := range looks {
		err := look.at()
		refused, ok := errors.AsType[*problem.Problem](err)
		switch {
		case ok && refused.Status == http.StatusNotFound: // the server does not have what this look is about
		case ok:
			d.note(look.name, store.CheckWarning, "use a token that may do that", "not looked at: %s", refused.Detail)
		case err != nil:
			return err
		}
	}
	return nil
}

// A look asks the server about one thing.
type look struct {
	name string
	at   func() error
}

// nodes looks for nodes that serve other pipelines than the rest, and for dead ones whose runs nobody has taken over.
func (d *doctor) nodes() error {
	all, err := d.Nodes(d.Ctx)
	if err != nil {
		return err
	}
	alive := 0
	serve := map[string][]string{}
	for _, n := range all {
		if !n.Alive && n.Runs > 0 {
			d.note("nodes", store.CheckWarning, "nodes take over within the lease: if it stays, see their logs", "%s is dead and still has %d runs", n.Name, n.Runs)
		}
		if n.Alive {
			alive++
		}
		if n.Alive && n.Bundle != "" {
			serve[n.Bundle] = append(serve[n.Bundle], n.Name)
		}
	}
	if len(serve) > 1 {
		var who []string
		for version, names := range serve {
			who = append(who, cli.Short(version)+" by "+strings.Join(names, ", "))
		}
		slices.Sort(who)
		d.note("nodes", store.CheckWarning, "nodes follow within seconds: if it stays, see the logs of those that do not",
			"new events are served by different pipelines: %s", strings.Join(who, "; "))
	} else {
		d.note("nodes", store.CheckFine, "", "%s alive, with the same pipelines", diag.Plural(alive, "node"))
	}
	d.flags(all)
	return nil
}

// effects say what happens if nodes do not have a flag in common.
var effects = map[string]string{
	"retention":       "the node with the shortest one removes runs of all",
	"audit-retention": "the node with the shortest one trims the audit of all",
	"lease":           "runs of some nodes are taken over later than those of others",
	"record":          "runs are recorded more often on some nodes",
	"max-body":        "some nodes refuse events that others accept",
	"allow-target":    "calls that some nodes make are refused by others; the values are hashes",
	"service":         "nodes call a service at different addresses; the values are hashes",
}

// flags looks for flags that nodes should have in common, and have not.
func (d *doctor) flags(all []records.NodeView) {
	by := map[string]map[string][]string{} // names of nodes, by flag and value
	told := 0
	for _, n := range all {
		if !n.Alive || n.Flags == nil {
			continue
		}
		told++
		for flag, value := range n.Flags {
			if by[flag] == nil {
				by[flag] = map[string][]string{}
			}
			by[flag][value] = append(by[flag][value], n.Name)
		}
	}
	differ := 0
	for _, flag := range slices.Sorted(maps.Keys(by)) {
		if len(by[flag]) < 2 {
			continue
		}
		differ++
		var who []string
		for _, value := range slices.Sorted(maps.Keys(by[flag])) {
			who = append(who, fmt.Sprintf("%s on %s", cmp.Or(value, "none"), strings.Join(by[flag][value], ", ")))
		}
		found := fmt.Sprintf("--%s differs among nodes: %s", flag, strings.Join(who, "; "))
		if effect := effects[flag]; effect != "" {
			found += "; " + effect
		}
		d.note("flags", store.CheckWarning, fmt.Sprintf("give all nodes the same --%s, such as by one file for --config, and restart those that have another", flag), "%s", found)
	}
	if told > 1 && differ == 0 {
		d.note("flags", store.CheckFine, "", "%d nodes have the flags in common that they should", told)
	}
}

// services looks for services that are down, and for certificates that nodes show to services and that are about to end.
func (d *doctor) services() error {
	all, err := d.Services(d.Ctx)
	if err != nil {
		return err
	}
	down, shown, ending := 0, 0, 0
	for _, s := range all {
		if state := s.State(); state == guard.ServiceDown || state == guard.ServiceFailing {
			down++
			since := ""
			if s.FailingSince != nil {
				since = " since " + cli.Time(*s.FailingSince)
			}
			d.note("services", store.CheckWarning, "procaas docs runbook says what to do when a service is down",
				"%s is %s%s: %s", s.ID, state, since, cmp.Or(s.LastError, "hardly any call succeeds"))
		}
		if s.Certificate == nil {
			continue
		}
		shown++
		if s.Certificate.EndsSoon(time.Now()) {
			ending++
			d.note("certificates", store.CheckWarning, "replace the files of tls of the service: nodes read them again by themselves",
				"what nodes show to service %s: %s", s.ID, s.Certificate.Text())
		}
	}
	if len(all) > 0 && down == 0 {
		d.note("services", store.CheckFine, "", "%s, none of which is down as the node sees it", diag.Plural(len(all), "service"))
	}
	if shown > 0 && ending == 0 {
		d.note("certificates", store.CheckFine, "", "%s for services, none of which ends soon", diag.Plural(shown, "certificate"))
	}
	return nil
}

// runs looks for runs that stand still until a person decides.
func (d *doctor) runs() error {
	backlog, err := d.Backlog(d.Ctx)
	if err != nil {
		return err
	}
	stuck, kept := 0, 0
	for _, p := range backlog.Parked {
		n, since := diag.Plural(p.Runs, "run"), cli.Time(p.Since)
		switch p.Reason {
		case stats.ParkedBlocking:
			stuck++
			d.note("runs", store.CheckWarning, fmt.Sprintf("procaas runs list --status failed --pipeline %s shows them: retry or cancel each", p.Pipeline),
				"%s of %s failed, which holds up the later events of their keys, the first since %s", n, p.Pipeline, since)
		case stats.ParkedOperator:
			stuck++
			d.note("runs", store.CheckWarning,
				fmt.Sprintf("procaas runs list --status parked --pipeline %s shows them: retry or cancel each", p.Pipeline),
				"%s of %s wait for a decision, the first since %s", n, p.Pipeline, since)
		case stats.ParkedUnserved:
			stuck++
			d.note("runs", store.CheckWarning, "procaas release deploy DIR with files that have the pipeline, or cancel the runs",
				"%s of %s wait for pipelines that serve their events, the first since %s", n, p.Pipeline, since)
		case stats.ParkedFailed:
			kept += p.Runs
		}
	}
	if stuck == 0 {
		d.note("runs", store.CheckFine, "", "none holds up its key or waits for a decision; %d failed ones are kept", kept)
	}
	return nil
}

// tokens looks for tokens of the server that are about to end.
func (d *doctor) tokens() error {
	all, err := d.Tokens(d.Ctx)
	if err != nil {
		return err
	}
	ending := 0
	for _, t := range all {
		if t.State != credentials.TokenActive || t.Expires == nil || time.Until(*t.Expires) > endsSoon {
			continue
		}
		ending++
		d.note("tokens", store.CheckWarning, fmt.Sprintf("hand out one of another name by procaas token new, then procaas token revoke %s", t.Name),
			"the token of %s ends at %s", t.Name, cli.Time(*t.Expires))
	}
	if ending == 0 {
		d.note("tokens", store.CheckFine, "", "%d tokens, none of which ends within %d days", len(all), int(endsSoon.Hours()/24))
	}
	return nil
}

// login looks at the login of the person who asks.
func (d *doctor) login() error {
	t := d.Login()
	switch {
	case t.Token == "":
	case t.Refresh == "" && time.Until(t.Expires) < signInAgain:
		d.note("login", store.CheckWarning, "procaas login --server "+d.Server, "your login ends at %s, and nothing renews it", cli.Time(t.Expires))
	default:
		d.note("login", store.CheckFine, "", "your login is good until %s, or renewed then", cli.Time(t.Expires))
	}
	return nil
}

// controls looks for switches, limits and rollouts that have no effect, because the path is gone or another one overrules them.
func (d *doctor) controls() error {
	all, err := d.Controls(d.Ctx)
	if err != nil {
		return err
	}
	contradicts := 0
	for _, c := range all {
		if c.Expired {
			continue
		}
		undo := fmt.Sprintf("procaas switch undo %d takes it back", c.Revision)
		if !c.Known {
			contradicts++
			d.note("controls", store.CheckWarning, fmt.Sprintf("procaas switch on %s takes it back", c.Path),
				"%s has a control, but the present pipelines have no such path: only runs of older versions obey it", c.Path)
		}
		for _, off := range all {
			over := !off.Enabled && off.Mode != guard.ModeHold && !off.Expired && strings.HasPrefix(c.Path+"/", off.Path+"/")
			switch {
			case over && c.Mode == guard.ModeKeep:
				contradicts++
				d.note("controls", store.CheckWarning, undo, "%s is kept in the flow, but %s is off", c.Path, off.Path)
			case over && c.RolloutPercent != nil:
				contradicts++
				d.note("controls", store.CheckWarning, undo, "%s is rolled out to %g%%, but %s is off", c.Path, *c.RolloutPercent, off.Path)
			}
		}
	}
	if contradicts == 0 {
		d.note("controls", store.CheckFine, "", "%s, none of which contradict", diag.Plural(len(all), "control"))
	}
	return nil
}

// definitions compares files with what is current on the server.
func (d *doctor) definitions() error {
	if len(d.Args) == 0 {
		return nil
	}
	where := strings.Join(d.Args, " ")
	files, err := authoring.Drift(d.Call, d.Args)
	switch {
	case err != nil:
		return err
	case len(files) > 0:
		d.note("definitions", store.CheckWarning, "procaas release deploy "+where+", or procaas release pull "+where,
			"%d files differ from what the server has: %s", len(files), strings.Join(files, ", "))
	default:
		d.note("definitions", store.CheckFine, "", "%s has what the server has", where)
	}
	return nil
}
