package addon

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/engine/api/cli"
	"procaas/handlers/signon"
	"procaas/handlers/signon/remote"
)

// loginCommand signs a person in for the commands that call a server.
func loginCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "login", Short: "Sign in to a server by the issuer of your company", Args: cobra.NoArgs,
		Long: `login shows an address of the issuer. Open it in a browser on this machine and sign in. From
then on, commands send your token to this server. They renew it as long as the issuer lets
them. Many issuers want the scope offline_access for that. A flag --token and the variable
PROCAAS_TOKEN win over it. Only you can read the file with the token. --forget removes the
token from the file. It stays good until it expires.

If the server has several issuers, --issuer names one.

On a machine without a browser, --device shows an address and a code. Open the address on any
other machine, for example a phone, and enter the code there.`,
		Example: "  procaas login --server https://procaas.example.com\n  procaas login --server https://procaas.example.com --device\n" +
			"  procaas login --server https://procaas.example.com --forget",
	}
	issuer := c.Flags().String("issuer", "", "id of the issuer, if the server has several")
	device := c.Flags().Bool("device", false, "sign in with a browser on another machine")
	forget := c.Flags().Bool("forget", false, "remove the token for the server, and ask nothing")
	cli.ServerFlags(c)
	return cli.Calls(c, func(q *cli.Call) error {
		if *forget {
			if _, err := cli.KeepToken(q.Ctx, q.Server, cli.KeptToken{}); err != nil {
				return err
			}
			return q.Printf("there is no token for %s now\n", q.Server)
		}
		on, err := remote.Ask(q.Ctx, q.Client)
		if err != nil {
			return err
		}
		from, err := chosen(on, *issuer, q.Server)
		if err != nil {
			return err
		}
		var got signon.Login
		if *device {
			got, err = signon.Device(q.Ctx, from.Issuer, from.Client, from.Scopes, func(address, code string) error {
				_, err := fmt.Fprintf(q.Err, "Open this address in a browser on any machine, and enter the code %s:\n%s\n", code, address)
				return err
			})
		} else {
			got, err = signon.Browser(q.Ctx, from.Issuer, from.Client, from.Scopes, func(address string) error {
				_, err := fmt.Fprintf(q.Err, "Open this address in a browser on this machine:\n%s\n", address)
				return err
			})
		}
		if err != nil {
			return err
		}
		name, err := cli.KeepToken(q.Ctx, q.Server, cli.KeptToken{
			Token: got.Token, Expires: got.Until, Refresh: got.Refresh, Issuer: got.Issuer, Client: from.Client,
		})
		if err != nil {
			return err
		}
		renewed := ""
		if got.Refresh != "" {
			renewed = ", and is renewed"
		}
		return q.Printf("signed in to %s until %s; the token is in %s%s\n", q.Server, got.Until.UTC().Format(time.RFC3339), name, renewed)
	})
}

// chosen returns the issuer to sign in at. Servers of before know only one.
func chosen(on remote.SignOn, id, server string) (remote.Issuer, error) {
	if len(on.Issuers) == 0 {
		on.Issuers = []remote.Issuer{on.Issuer}
	}
	var all []remote.Issuer
	var ids []string
	for _, i := range on.Issuers {
		if i.Client == "" {
			continue
		}
		if id != "" && i.ID == id {
			return i, nil
		}
		all, ids = append(all, i), append(ids, i.ID)
	}
	switch {
	case len(all) == 0:
		return remote.Issuer{}, cli.Usagef("the access file of %s names no client for the command line; an admin adds login: {id: CLIENT}", server)
	case id != "":
		return remote.Issuer{}, cli.Usagef("--issuer: want one of %s, have %q", strings.Join(ids, ", "), id)
	case len(all) > 1:
		return remote.Issuer{}, cli.Usagef("several issuers sign people on at %s; add --issuer with one of %s", server, strings.Join(ids, ", "))
	}
	return all[0], nil
}
