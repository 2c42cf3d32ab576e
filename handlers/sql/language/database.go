// Package language has what the handler type sql adds to the language: the section databases of files, and what a statement may be.
package language

import (
	"embed"
	"errors"
	"fmt"
	"net"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"time"

	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
)

// A Database is a database of PostgreSQL in which handlers of the type sql execute statements.
type Database struct {
	Span diag.Span `yaml:"-"`

	spec.Places

	// ID names the database. Handlers name it, and secrets in a folder of that name are for it.
	ID string `yaml:"id" required:"true" pattern:"id"`

	// Address is postgres://USER@HOST:PORT/NAME, and may end with ?search_path= and the schemas where the server looks for names
	// without one, the first of them with the table procaas_applied. The default port is 5432.
	Address string `yaml:"address" required:"true"`

	// Password is the secret with the password of the user. Each new connection reads it again.
	Password *expr.Value `yaml:"password" kind:"secret" expr:"no"`

	// TLS encrypts the connection. The certificate of the server is checked. Without it, nothing is encrypted.
	TLS *DatabaseTLS `yaml:"tls"`

	// MaxConnections is the highest number of connections of a node. Other calls wait for one.
	MaxConnections int `yaml:"max-connections" default:"4" min:"1" max:"1000"`

	// Timeout is the longest time of one attempt, unless the handler sets its own timeout.
	Timeout time.Duration `yaml:"timeout" default:"5s" min:"1ms"`

	// KeepKeys is how long the table procaas_applied knows a call. A call that is repeated later takes effect again. Make it
	// longer than a run may wait for a person.
	KeepKeys time.Duration `yaml:"keep-keys" default:"30d" min:"1h"`

	// Owner is the team that looks after the database.
	Owner string `yaml:"owner"`
}

// A DatabaseTLS is how connections to a database are encrypted.
type DatabaseTLS struct {
	// CA is the secret with the certificates, in PEM, that sign that of the server. Without it, those of the system count.
	CA *expr.Value `yaml:"ca" kind:"secret" expr:"no"`

	// Certificate is the secret with the certificate of the node in PEM, if the server wants one. It needs a key.
	Certificate *expr.Value `yaml:"certificate" kind:"secret" expr:"no"`

	// Key is the secret with the private key of the certificate.
	Key *expr.Value `yaml:"key" kind:"secret" expr:"no"`
}

// A Place is where a database is, and who connects.
type Place struct {
	User, Host, Port, Name string

	SearchPath []string // empty for that of the user
}

// defaultPort is that of PostgreSQL.
const defaultPort = "5432"

// Place parses the address. The error says what is wrong with it, and the remedy how to mend it.
func (d *Database) Place() (p Place, remedy string, err error) {
	const want = "write such as postgres://procaas@db.internal/billing"
	u, err := url.Parse(d.Address)
	switch {
	case err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql":
		return p, want, errors.New("the address is none of PostgreSQL")
	case u.Fragment != "":
		return p, want, errors.New("the address has a # in it")
	}
	for name, values := range u.Query() {
		switch {
		case name == "search_path", name == "sslmode" && values[0] == "disable" && d.TLS == nil:
		case name == "sslmode":
			return p, "drop it, and write tls: {} for a connection that is encrypted", fmt.Errorf("the address has sslmode=%s", values[0])
		default:
			return p, "drop it: search_path is the only one that counts", fmt.Errorf("the address has the parameter %s", name)
		}
	}
	if _, has := u.User.Password(); has {
		return p, "write password: !secret NAME", errors.New("the address holds a password")
	}
	p = Place{User: u.User.Username(), Host: u.Hostname(), Port: u.Port(), Name: strings.TrimPrefix(u.Path, "/")}
	switch {
	case p.Host == "" || strings.Contains(p.Host, ","):
		return p, want, errors.New("the address has no single host")
	case p.User == "":
		return p, want, errors.New("the address has no user")
	case p.Name == "" || strings.Contains(p.Name, "/"):
		return p, want, errors.New("the address does not name a database")
	}
	if p.Port == "" {
		p.Port = defaultPort
	}
	for schema := range strings.SplitSeq(u.Query().Get("search_path"), ",") {
		schema = strings.TrimSpace(schema)
		if schema != "" {
			p.SearchPath = append(p.SearchPath, schema)
		}
	}
	return p, "", nil
}

// HostPort returns the host with its port.
func (p Place) HostPort() string { return net.JoinHostPort(p.Host, p.Port) }

// Reached describes all that needs other connections when it changes.
func (d *Database) Reached() string {
	text := fmt.Sprintf("%s %s %q %d", d.ID, d.Address, d.Password.SecretName(), d.MaxConnections)
	if t := d.TLS; t != nil {
		text += fmt.Sprintf(" tls %q", []string{t.CA.SecretName(), t.Certificate.SecretName(), t.Key.SecretName()})
	}
	return text
}

// A section is the section of files.
type section struct {
	// Databases are databases of PostgreSQL in which handlers execute statements.
	Databases []*Database `yaml:"databases"`
}

//go:embed database.go
var source embed.FS

//go:embed rules.yaml
var rulesFile embed.FS

func readRules() []rules.Rule { return rules.Read(rulesFile, "rules.yaml") }

// sectionSpec describes the section.
var sectionSpec = sync.OnceValue(func() *spec.Spec { return spec.OfFile(reflect.TypeFor[section](), spec.Read(source)) })

// Section is the section databases of files.
func Section() tree.Section {
	return tree.Section{
		Of: sectionSpec(), Rules: readRules,
		Check: func(value any, c *tree.Checking) {
			for _, d := range value.([]*Database) {
				check(d, c)
			}
		},
		Each: func(value any, visit func(tree.Declaration)) {
			for _, d := range value.([]*Database) {
				visit(tree.Declaration{
					Kind: "database", ID: d.ID, Span: d.Span, At: d.PlaceOf("id", d.Span), Owner: &d.Owner, OwnerAt: d.PlaceOf("owner", d.Span),
					Service: d.service(),
				})
			}
		},
	}
}

// service says how calls to the database are limited and watched. A call that finds no free connection waits outside of its timeout.
func (d *Database) service() *tree.Service {
	return &tree.Service{
		Span: d.Span, ID: d.ID, URL: d.Address, Timeout: d.Timeout, OfNode: d.MaxConnections, Concurrency: "adaptive", RetryBudget: retryBudget,
		FreezeFallbacks: true, Owner: d.Owner,
	}
}

// retryBudget is the default of services.
const retryBudget = 0.2

func check(d *Database, c *tree.Checking) {
	if _, remedy, err := d.Place(); err != nil && !c.Blamed(d.PlaceOf("address", d.Span)) && d.Address != "" {
		c.Errorf(d.PlaceOf("address", d.Span), rules.Database, remedy, "database %q: %v", d.ID, err)
	}
	if c.Bundle.Service(d.ID) != nil {
		c.Errorf(d.PlaceOf("id", d.Span), rules.Database, "rename one of them", "operators could not tell database %q from the service of that name", d.ID)
	}
	if t := d.TLS; t != nil && (t.Certificate.SecretName() == "") != (t.Key.SecretName() == "") {
		c.Errorf(d.PlaceOf("tls", d.Span), rules.Database, "write both certificate: and key:, or none",
			"tls of database %q has a certificate without its key, or a key without its certificate", d.ID)
	}
}

// All lists the databases of a bundle.
func All(b *tree.Bundle) []*Database { return tree.In[*Database](b, "databases") }

// Of returns a database of a bundle by its id, or nil.
func Of(b *tree.Bundle, id string) *Database {
	for _, d := range All(b) {
		if d.ID == id {
			return d
		}
	}
	return nil
}
