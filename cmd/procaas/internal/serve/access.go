package serve

import (
	"net"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"procaas/dsl/urls"
	"procaas/engine/api"
	"procaas/engine/api/cli"
	"procaas/engine/api/rest"
	"procaas/engine/credentials"
)

// AccessFlags are the flags for access to the API of a node.
type AccessFlags struct {
	Token, File string
	Open, Hosts []string
}

func (f *AccessFlags) add(c *cobra.Command, open []string) {
	flags := c.Flags()
	flags.StringVar(&f.Token, "admin-token", "", "bearer token of an admin, or sha256: and its hash. Listening beyond loopback "+
		"needs it, or a token made before")
	flags.StringVar(&f.File, "admin-token-file", "", "file with the admin token or its hash")
	flags.StringSliceVar(&f.Open, "open", open, "calls that never need a token: "+strings.Join(rest.OpenGroups(), ", ")+
		", or none")
	flags.StringSliceVar(&f.Hosts, "host", nil, "host name under which callers need no token when the server listens on loopback, "+
		"in addition to localhost (repeatable)")
}

// Plain returns the admin token, or "" if only its hash is known.
func (f *AccessFlags) Plain() string {
	if strings.HasPrefix(f.Token, "sha256:") {
		return ""
	}
	return f.Token
}

// options returns the API's options for access on an address.
func (f *AccessFlags) options(listen string) (api.Options, error) {
	o := api.Options{Token: f.Token, Local: urls.OnlyThisMachine(listen), Hosts: f.Hosts}
	if host, _, err := net.SplitHostPort(listen); err == nil {
		o.Hosts = append(slices.Clone(o.Hosts), host)
	}
	if f.File != "" {
		if f.Token != "" {
			return o, cli.Usagef("--admin-token and --admin-token-file exclude each other")
		}
		data, err := os.ReadFile(f.File)
		if err != nil {
			return o, cli.Usagef("--admin-token-file: %w", err)
		}
		o.Token = strings.TrimSpace(string(data))
		if o.Token == "" {
			return o, cli.Usagef("--admin-token-file %s: the file is empty", f.File)
		}
	}
	if o.Token != "" {
		if err := credentials.CheckAdminToken(o.Token); err != nil {
			return o, cli.Usagef("the admin token: %w", err)
		}
	}
	for _, group := range f.Open {
		switch {
		case group == "none" && len(f.Open) == 1:
		case slices.Contains(rest.OpenGroups(), group):
			o.Open = append(o.Open, group)
		default:
			return o, cli.Usagef("--open %q: %s", group,
				cli.Meant(group, rest.OpenGroups(), "did you mean %s?", "want "+strings.Join(rest.OpenGroups(), ", ")+", or "+
					"none alone"))
		}
	}
	return o, nil
}

// errNoToken returns the error for an address that other machines reach without a token.
func errNoToken(listen string) error {
	if _, _, err := net.SplitHostPort(listen); err != nil {
		return cli.Usagef("the address %q: want HOST:PORT such as 127.0.0.1:8080, or :8080 for all addresses of this machine", listen)
	}
	return cli.Usagef("%s can be reached from outside; set --admin-token-file or --admin-token, or listen on 127.0.0.1", listen)
}
