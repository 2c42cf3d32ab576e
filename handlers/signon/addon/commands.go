package addon

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"procaas/dsl/diag"
	"procaas/engine/addon"
	"procaas/engine/api/cli"
	"procaas/handlers/signon"
)

func commands(addon.Tools) []addon.Command {
	access := &cobra.Command{
		Use: "access", Short: "Check the file of serve --access",
		Long: `access works with the file of procaas serve --access. It names issuers of tokens, and has
rules for what their bearers may do.`,
	}
	access.AddCommand(testCommand())
	return []addon.Command{{Command: access}, {Command: loginCommand()}}
}

// A tested is what a file makes of claims.
type tested struct {
	Name   string   `json:"name,omitempty"` // in the audit
	Role   string   `json:"role,omitempty"`
	Paths  []string `json:"paths,omitempty"`
	Owners []string `json:"owners,omitempty"`
	By     string   `json:"by,omitempty"` // the rule
	Refuse string   `json:"refused,omitempty"`
}

// testCommand tries a file without a server and without an issuer.
func testCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "test FILE", Short: "Show what somebody may do by an access file", Args: cobra.ExactArgs(1),
		Long: `test checks an access file. With --claims, it shows what the bearer of a token with these
claims may do, and by which rule. The claims are a mapping in JSON, as they stand in the
token. Among several issuers, the claim iss chooses. - is stdin. No issuer is asked.

It ends with 1 if the file has errors, or if no rule fits.`,
		Example: "  procaas access test access.yaml\n  procaas access test access.yaml --claims claims.json",
	}
	claims := c.Flags().String("claims", "", "file with the claims of somebody, in JSON")
	format := cli.Format(c, "text", "json")
	c.RunE = func(c *cobra.Command, args []string) error {
		s := cli.Of(c)
		f, text, found, err := signon.ReadFile(args[0])
		if err != nil {
			return cli.Usage(err)
		}
		if len(found) > 0 {
			err = s.Findings([]diag.File{text}, found)
		}
		if err != nil {
			return err
		}
		if f == nil {
			return cli.ErrFindings
		}
		if *claims == "" {
			for _, i := range f.Issuers {
				if err := s.Printf("%s has %s for %s\n", args[0], diag.Plural(len(i.Rules), "rule"), i.Issuer); err != nil {
					return err
				}
			}
			return nil
		}
		data, err := s.Input(*claims)
		if err != nil {
			return err
		}
		known, err := signon.ParseClaims(data)
		if err != nil {
			return cli.Usagef("%s: want a mapping of claims in JSON, such as {\"sub\": \"ann\"}: %w", *claims, err)
		}
		out := tested{}
		g, err := f.Grant(known)
		if err == nil {
			out = tested{Name: g.Name, Role: string(g.Role), Paths: g.Paths, Owners: g.Owners, By: g.By}
		} else {
			out.Refuse = err.Error()
		}
		if *format == "json" {
			err = s.PrintJSON(out)
		} else {
			err = printTested(s, &out)
		}
		if err != nil {
			return err
		}
		return cli.FindingsIf(out.Refuse != "")
	}
	return c
}

func printTested(s cli.Streams, out *tested) error {
	for _, line := range []struct{ name, value string }{
		{"name", out.Name}, {"role", out.Role}, {"paths", strings.Join(out.Paths, ", ")}, {"owners", strings.Join(out.Owners, ", ")},
		{"by", out.By}, {"refused", out.Refuse},
	} {
		if line.value == "" {
			continue
		}
		if _, err := fmt.Fprintf(s.Out, "%-7s  %s\n", line.name, line.value); err != nil {
			return err
		}
	}
	return nil
}
