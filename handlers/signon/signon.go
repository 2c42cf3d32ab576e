package signon

import (
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"procaas/dsl/diag"
	"procaas/engine/credentials"
)

// A Desk identifies callers by the tokens of issuers, and says by a file what they may do. The file is read again when it changes.
// It implements the identifier of the API.
type Desk struct {
	name   string
	client *http.Client
	log    *slog.Logger

	mu        sync.Mutex // guards the rest
	looked    time.Time
	changed   time.Time
	size      int64
	told      string // what the log says is wrong with the file
	file      *File
	providers map[string]*provider // of the file's issuers, by address; replaced as a whole
	started   context.Context      //nolint:containedctx // of Run, for the issuers of a later file
	running   sync.WaitGroup
	stops     map[string]context.CancelFunc // end reading the keys of an issuer
}

// ReadFile reads a file. It is nil exactly if a finding is an error, or if there is one.
func ReadFile(name string) (*File, diag.File, []diag.Diagnostic, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, diag.File{}, nil, err
	}
	text := diag.File{Name: name, Data: data}
	f, found := Parse(text)
	return f, text, found, nil
}

// Open reads the file. Nothing is asked of an issuer yet.
func Open(name string) (*Desk, error) {
	d := &Desk{name: name, log: slog.New(slog.DiscardHandler), stops: map[string]context.CancelFunc{}}
	return d, d.read()
}

// Use sets what the desk asks issuers by, and where it logs. Call it before the first caller comes.
func (d *Desk) Use(client *http.Client, log *slog.Logger) {
	d.client, d.log, d.providers = client, log, nil
	d.follow()
}

// Run reads the keys of the issuers again and again until ctx ends.
func (d *Desk) Run(ctx context.Context) {
	d.mu.Lock()
	d.started = ctx
	d.follow()
	d.mu.Unlock()
	<-ctx.Done()
	d.running.Wait()
}

// follow reads the keys of the current issuers, and no longer those of others. What is known of an issuer that stays is kept. The
// caller holds the lock.
func (d *Desk) follow() {
	now := map[string]*provider{}
	for _, i := range d.file.Issuers {
		now[i.Issuer] = d.providers[i.Issuer]
		if now[i.Issuer] == nil {
			now[i.Issuer] = newProvider(i.Issuer, d.client, d.log)
		}
	}
	d.providers = now
	for address, stop := range d.stops {
		if now[address] == nil {
			stop()
			delete(d.stops, address)
		}
	}
	if d.started == nil || d.started.Err() != nil {
		return
	}
	for address, p := range now {
		if d.stops[address] != nil {
			continue
		}
		ctx, stop := context.WithCancel(d.started)
		d.stops[address] = stop
		d.running.Go(func() { p.run(ctx) })
	}
}

// read reads the file if it has changed. Of a file that stays as it is, it tells once what is wrong.
func (d *Desk) read() error {
	info, err := os.Stat(d.name)
	if err != nil {
		return err
	}
	if info.ModTime().Equal(d.changed) && info.Size() == d.size {
		return nil
	}
	d.changed, d.size = info.ModTime(), info.Size()
	f, _, found, err := ReadFile(d.name)
	if err != nil {
		return err
	}
	if f == nil {
		var all []error
		for _, one := range found {
			all = append(all, errors.New(strings.TrimSuffix(one.Span.String()+": "+one.Message+"; "+one.Hint, "; ")))
		}
		return errors.Join(all...)
	}
	d.file = f
	d.follow()
	return nil
}

// now returns the file as it is, and what is known of its issuers.
func (d *Desk) now() (*File, map[string]*provider) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := time.Now(); now.Sub(d.looked) >= time.Second {
		d.looked = now
		before := d.file
		if err := d.read(); err != nil && err.Error() == d.told {
			return d.file, d.providers
		} else if err != nil {
			d.told = err.Error()
			d.log.Error("the access file cannot be used, so people have the roles that it gave them before", "file", d.name, "error", err)
		} else if d.file != before {
			d.log.Info("the access file was read again", "file", d.name, "issuers", len(d.file.Issuers))
		}
	}
	return d.file, d.providers
}

// tokenForm is the form of a signed token: a header, claims and a signature. Tokens of procaas token have no dots.
var tokenForm = regexp.MustCompile(`^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*$`)

// Identify returns the bearer of a token of an issuer. It returns false for a token of another form.
func (d *Desk) Identify(ctx context.Context, token string) (credentials.Identity, bool, error) {
	if !tokenForm.MatchString(token) {
		return credentials.Identity{}, false, nil
	}
	f, providers := d.now()
	by, err := f.issuerOf(peek(token))
	if err != nil {
		return credentials.Identity{}, true, err
	}
	audiences := by.Audiences()
	if len(audiences) == 0 {
		return credentials.Identity{}, true, &ClaimError{"aud", "this server takes no tokens of " + by.Issuer + ": its access file has neither audience nor login"}
	}
	who, _, err := identify(ctx, by, providers[by.Issuer], token, audiences)
	return who, true, err
}

// identify checks a token.
func identify(ctx context.Context, by *Issuer, p *provider, token string, audiences []string) (who credentials.Identity, c Claims, err error) {
	// A token for others is refused without asking for keys. What nobody has signed yet decides nothing else.
	if err := peek(token).checkParties(by.Issuer, audiences); err != nil {
		return who, nil, err
	}
	c, raw, err := p.verify(ctx, token)
	if err == nil {
		err = c.checkParties(by.Issuer, audiences)
	}
	if err == nil {
		who.Until, err = c.checkTimes(time.Now())
	}
	if err == nil {
		who.Name, err = by.nameIn(c)
	}
	who.Claims = raw
	return who, c, err
}

// peek returns the claims of a token whose signature was not checked.
func peek(token string) Claims {
	_, rest, _ := strings.Cut(token, ".")
	text, _, _ := strings.Cut(rest, ".")
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil
	}
	c, err := ParseClaims(data)
	if err != nil {
		return nil
	}
	return c
}

// Grant returns what somebody may do, by the file as it is now.
func (d *Desk) Grant(who credentials.Identity) (credentials.Grant, error) {
	f, _ := d.now()
	c, err := ParseClaims(who.Claims)
	if err != nil {
		return credentials.Grant{}, err
	}
	return f.Grant(c)
}

// StartPath is where people begin to sign in, and CallbackPath where the issuer sends them back to.
const (
	StartPath    = "/v1/sign-on/start"
	CallbackPath = "/v1/sign-on/callback"
)

// Entrances returns where people sign in with a browser to see a page then, one for each issuer with a client for the console.
func (d *Desk) Entrances(next string) (all []credentials.Entrance) {
	f, _ := d.now()
	for _, i := range f.Issuers {
		if i.Console == nil {
			continue
		}
		q := url.Values{"next": {next}}
		if i.ID != "" {
			q.Set("issuer", i.ID)
		}
		all = append(all, credentials.Entrance{Address: StartPath + "?" + q.Encode(), Name: i.Title()})
	}
	return all
}

// Away returns why issuers cannot be asked, by their address. Those that can be are there with nil.
func (d *Desk) Away() map[string]error {
	_, providers := d.now()
	away := map[string]error{}
	for address, p := range providers {
		if err, asked := p.state(); asked {
			away[address] = err
		}
	}
	return away
}
