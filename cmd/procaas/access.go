package main

import (
	"net"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"procaas/dsl/diag"
	"procaas/engine"
	"procaas/engine/api"
	"procaas/engine/api/access"
	"procaas/engine/api/transport"
)

// accessFlags say who may call a node.
type accessFlags struct {
	token, file string
	open, hosts []string
}

func (f *accessFlags) add(c *cobra.Command, open []string) {
	flags := c.Flags()
	flags.StringVar(&f.token, "admin-token", "", "bearer token of an admin, or sha256: and its hash; procaas token makes others. Needed, "+
		"or a made one, when listening beyond loopback")
	flags.StringVar(&f.file, "admin-token-file", "", "file with the admin token, or its hash")
	flags.StringSliceVar(&f.open, "open", open, "calls that need no token although there are some: "+strings.Join(access.OpenGroups(), ", ")+
		", or none")
	flags.StringSliceVar(&f.hosts, "host", nil, "name by which callers without a token may call a server that listens on loopback, "+
		"besides localhost (repeatable)")
}

// plain gives the admin token when it is known; a hash does not tell it.
func (f *accessFlags) plain() string {
	if strings.HasPrefix(f.token, "sha256:") {
		return ""
	}
	return f.token
}

// options tells the API who may call it on an address.
func (f *accessFlags) options(listen string) (api.Options, error) {
	o := api.Options{Token: f.token, Local: transport.Loopback(listen), Hosts: f.hosts}
	if host, _, err := net.SplitHostPort(listen); err == nil {
		o.Hosts = append(slices.Clone(o.Hosts), host)
	}
	if f.file != "" {
		if f.token != "" {
			return o, usagef("--admin-token and --admin-token-file exclude each other")
		}
		data, err := os.ReadFile(f.file)
		if err != nil {
			return o, usagef("--admin-token-file: %w", err)
		}
		if o.Token = strings.TrimSpace(string(data)); o.Token == "" {
			return o, usagef("--admin-token-file %s: the file is empty", f.file)
		}
	}
	if o.Token != "" {
		if err := engine.CheckAdminToken(o.Token); err != nil {
			return o, usagef("the admin token: %w", err)
		}
	}
	for _, group := range f.open {
		switch {
		case group == "none" && len(f.open) == 1:
		case slices.Contains(access.OpenGroups(), group):
			o.Open = append(o.Open, group)
		default:
			hint := "want " + strings.Join(access.OpenGroups(), ", ") + ", or none alone"
			if near := diag.Suggest(group, access.OpenGroups()); near != "" {
				hint = "did you mean " + near + "?"
			}
			return o, usagef("--open %q: %s", group, hint)
		}
	}
	return o, nil
}

// errNoToken refuses to serve whoever can reach an address.
func errNoToken(listen string) error {
	return usagef("%s can be reached from outside; set --admin-token-file or --admin-token, or listen on 127.0.0.1", listen)
}

// storeExists tells whether a store may hold tokens that were made before.
func storeExists(dsn string) bool {
	path, ok := strings.CutPrefix(dsn, "sqlite:")
	if !ok {
		return true
	}
	_, err := os.Stat(path)
	return err == nil
}
