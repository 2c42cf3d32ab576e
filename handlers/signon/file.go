// Package signon signs people and programs on by the tokens of issuers that a company trusts, with OpenID Connect. One file says who
// issues them, and what their bearers may do.
package signon

import (
	"embed"
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"procaas/dsl/decode"
	"procaas/dsl/diag"
	"procaas/dsl/rules"
	"procaas/dsl/spec"
	"procaas/dsl/urls"
	"procaas/engine/credentials"
)

// A File says who issues tokens, and what their bearers may do.
type File struct {
	// Issuers are those whose tokens are accepted. Each has its own audience, clients and rules. The claim iss of a token chooses among
	// them. A file with one issuer may have its fields themselves instead.
	Issuers []*Issuer `yaml:"issuers" required:"true"`
}

// An Issuer issues tokens, by the rules of OpenID Connect.
type Issuer struct {
	Span        diag.Span `yaml:"-"`
	spec.Places `yaml:"-"`

	// ID is what people call the issuer. Names in the audit begin with it, since two issuers may know different people by one name.
	// It is required among several issuers.
	ID string `yaml:"id" pattern:"id"`

	// Issuer is the address of the issuer, exactly as the claim iss of its tokens has it.
	Issuer string `yaml:"issuer" required:"true"`

	// Audience is what the claim aud of a token for this server has: one of these. Tokens for the client Login are accepted, too.
	Audience spec.Names `yaml:"audience"`

	// Name is the claim that names people in the audit. Where a token has none, that is sub.
	Name string `yaml:"name" default:"email"`

	// Console is the client of the issuer that signs people in to the console.
	Console *Client `yaml:"console"`

	// Login is the client of the issuer for a tool that gets people tokens for the command line. It has no secret.
	Login *Client `yaml:"login"`

	// Rules say what people may do. The first rule that fits counts. Nobody else gets in.
	Rules []*Rule `yaml:"rules" required:"true"`
}

// A Client is what the issuer knows a program as.
type Client struct {
	Span        diag.Span `yaml:"-"`
	spec.Places `yaml:"-"`

	// ID is the client's id, which is in the claim aud of its tokens.
	ID string `yaml:"id" required:"true"`

	// SecretFile is a file with the client's secret. It is read each time that it is needed. A relative name is relative to this file.
	SecretFile string `yaml:"secret-file"`

	// Address is that of the console for browsers, such as https://procaas.example.com. The default is how the browser calls it.
	Address string `yaml:"address"`

	// Scopes are what is asked for. openid is asked for in any case.
	Scopes spec.Names `yaml:"scopes" default:"email,profile"`
}

// A Rule says what those may do whose claims fit.
type Rule struct {
	Span        diag.Span `yaml:"-"`
	spec.Places `yaml:"-"`

	// When names claims with the values that fit. Each claim must have one of its values. A claim inside of another one is named with
	// dots, such as realm_access.roles. Without when, the rule fits everybody whom the issuer knows.
	When map[string]spec.Names `yaml:"when"`

	// Role is what they are.
	Role string `yaml:"role" required:"true" enum:"viewer,submitter,worker,operator,deployer,admin"`

	// Paths are what the role is bound to, such as pipeline/stage. Everything without any.
	Paths spec.Names `yaml:"paths"`

	// Owners are those whose files a deployer may change. All without any.
	Owners spec.Names `yaml:"owners"`

	number int // from 1
}

//go:embed file.go
var source embed.FS

// The specs of a file with a list of issuers, and of one with the fields of its only issuer.
var (
	listSpec = sync.OnceValue(func() *spec.Spec { return spec.OfFile(reflect.TypeFor[File](), spec.Read(source)) })
	onlySpec = sync.OnceValue(func() *spec.Spec { return spec.OfFile(reflect.TypeFor[Issuer](), spec.Read(source)) })
)

// isList finds whether a file has a list of issuers.
var isList = regexp.MustCompile(`(?m)^issuers\s*:|\A\s*\{\s*issuers\s*:`)

// Parse reads a file. It is nil exactly if a finding is an error.
func Parse(f diag.File) (*File, []diag.Diagnostic) {
	file, only := new(File), new(Issuer)
	r := new(diag.Reporter)
	what, into := onlySpec(), any(only)
	if isList.Match(f.Data) {
		what, into = listSpec(), file
	}
	for _, d := range decode.File(f, what, into, nil) {
		r.Report(d)
	}
	begin := diag.Span{File: f.Name, Start: diag.Pos{Line: 1, Column: 1}, End: diag.Pos{Line: 1, Column: 1}}
	if into == any(only) {
		only.Span = begin
		file.Issuers = []*Issuer{only}
	}
	if !diag.HasErrors(r.Found) {
		file.check(r, begin)
	}
	found := r.Diagnostics()
	if diag.HasErrors(found) {
		return nil, found
	}
	return file, found
}

// check reports what tags cannot say.
func (f *File) check(r *diag.Reporter, begin diag.Span) {
	if len(f.Issuers) == 0 {
		r.Errorf(begin, rules.Body, "name an issuer", "the list of issuers is empty, so the file signs nobody on")
	}
	ids, addresses := map[string]bool{}, map[string]bool{}
	for _, i := range f.Issuers {
		i.check(r)
		switch {
		case len(f.Issuers) > 1 && i.ID == "":
			r.Errorf(i.Span, rules.Body, "add an id such as id: staff", "one of several issuers has no id")
		case ids[i.ID]:
			r.Errorf(i.PlaceOf("id", i.Span), rules.Body, "give each issuer another id", "id: %q is the id of another issuer", i.ID)
		case addresses[i.Issuer]:
			r.Errorf(i.PlaceOf("issuer", i.Span), rules.Body, "put the rules of both into one", "issuer: %s is in the list already", i.Issuer)
		}
		ids[i.ID], addresses[i.Issuer] = true, true
	}
}

func (i *Issuer) check(r *diag.Reporter) {
	if u, err := urls.Parse(i.Issuer); err != nil || !isSafe(u) || u.RawQuery != "" || u.Fragment != "" {
		r.Errorf(i.PlaceOf("issuer", i.Span), rules.Body, "want an address such as https://login.example.com; http is only for this machine",
			"issuer: %q is no address of an issuer", i.Issuer)
	}
	if len(i.Audience) == 0 && i.Console == nil && i.Login == nil {
		r.Errorf(i.Span, rules.Body, "add audience for calls with tokens, console for the console, or login for the command line",
			"the file signs nobody on by %s", i.Issuer)
	}
	if i.Login != nil && (i.Login.SecretFile != "" || i.Login.Address != "") {
		r.Errorf(i.Login.Span, rules.Body, "remove secret-file and address", "the client of the command line has neither a secret nor an address")
	}
	if c := i.Console; c != nil && c.Address != "" {
		if u, err := urls.Parse(c.Address); err != nil || !isSafe(u) || strings.Trim(u.Path, "/") != "" {
			r.Errorf(c.PlaceOf("address", c.Span), rules.Body, "want an address such as https://procaas.example.com, without a path",
				"address: %q is no address of a console", c.Address)
		}
	}
	all := 0 // number of the rule for everybody
	for n, rule := range i.Rules {
		rule.number = n + 1
		rule.check(r)
		if all > 0 {
			r.Errorf(rule.Span, rules.Body, "put the rule without when last", "rule %d never counts, because rule %d fits everybody", n+1, all)
		} else if len(rule.When) == 0 {
			all = n + 1
		}
	}
}

// isSafe reports whether nobody on the way can read or change what is sent to an address.
func isSafe(u *url.URL) bool {
	return u.User == nil && (u.Scheme == "https" || urls.IsThisMachine(u.Hostname()))
}

func (rule *Rule) check(r *diag.Reporter) {
	at := rule.PlaceOf("role", rule.Span)
	role := credentials.Role(rule.Role)
	switch {
	case role == credentials.RoleAdmin && len(rule.When) == 0:
		r.Errorf(at, rules.Body, "name the claims of admins below when", "rule %d makes everybody an admin whom the issuer knows", rule.number)
	case len(rule.Paths) > 0 && !role.TakesPaths():
		r.Errorf(rule.PlaceOf("paths", at), rules.Body, "remove paths", "rule %d: the role %s is not bound to paths", rule.number, role)
	case len(rule.Owners) > 0 && role != credentials.RoleDeployer:
		r.Errorf(rule.PlaceOf("owners", at), rules.Body, "remove owners, or write role: deployer", "rule %d: only a deployer has owners, not the role %s",
			rule.number, role)
	}
	for _, p := range rule.Paths {
		if p == "" || strings.HasPrefix(p, "/") || strings.HasSuffix(p, "/") || strings.Contains(p, "//") {
			r.Errorf(rule.PlaceOf("paths", at), rules.Body, "want a path such as orders or orders/pay", "rule %d: %q is no path", rule.number, p)
		}
	}
	for _, name := range diag.SortedKeys(rule.When) {
		if len(rule.When[name]) == 0 {
			r.Errorf(rule.PlaceOf("when", at), rules.Body, "name the values that fit", "rule %d: no value of the claim %s fits", rule.number, name)
		}
	}
}

// grant returns what the rule allows.
func (rule *Rule) grant() credentials.Grant {
	g := credentials.Grant{
		Role: credentials.Role(rule.Role), Paths: rule.Paths, Owners: rule.Owners,
		By: fmt.Sprintf("rule %d (%s:%d)", rule.number, rule.Span.File, rule.Span.Start.Line),
	}
	if len(g.Owners) == 0 {
		g.Owners = nil
	}
	return g
}

// Audiences lists the values of the claim aud with which a token is one for calls of this server.
func (i *Issuer) Audiences() []string {
	all := slices.Clone([]string(i.Audience))
	if i.Login != nil {
		all = append(all, i.Login.ID)
	}
	return all
}

// Title returns how people are asked to sign in: with what they call the issuer, or with its host.
func (i *Issuer) Title() string {
	u, err := url.Parse(i.Issuer)
	if i.ID != "" || err != nil {
		return i.ID
	}
	return u.Host
}

// issuerOf returns who has issued a token, by what it says itself. Only one issuer need not be named.
func (f *File) issuerOf(c Claims) (*Issuer, error) {
	have, named := c["iss"].(string)
	var known []string
	for _, i := range f.Issuers {
		if have == i.Issuer || !named && len(f.Issuers) == 1 {
			return i, nil
		}
		known = append(known, i.Issuer)
	}
	return nil, &ClaimError{"iss", fmt.Sprintf("want %s, have %q", strings.Join(known, " or "), shortened(have))}
}

// forConsole returns the issuer that signs people in to the console: the one with this id, or the first one that does. Nil for none.
func (f *File) forConsole(id string) *Issuer {
	for _, i := range f.Issuers {
		if i.Console != nil && (id == "" || i.ID == id) {
			return i
		}
	}
	return nil
}
