package tree

import (
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/spec"
)

// An Auth is how calls prove to a service who they are. It has exactly one of its fields. The node adds the header Authorization
// to requests that name the service.
type Auth struct {
	Span diag.Span `yaml:"-"`

	places

	// Bearer is the secret that is sent as a bearer token. The node reads it at each call.
	Bearer *expr.Value `yaml:"bearer" kind:"secret" expr:"no"`

	// Basic sends a user name and a password.
	Basic *BasicAuth `yaml:"basic"`

	// OAuth2 sends an access token that the node gets from an issuer and renews.
	OAuth2 *ClientCredentials `yaml:"oauth2"`
}

// A BasicAuth is a user name with its password.
type BasicAuth struct {
	// Username is the name of the user. It contains no colon.
	Username string `yaml:"username" required:"true"`

	// Password is the secret with the password. The node reads it at each call.
	Password *expr.Value `yaml:"password" required:"true" kind:"secret" expr:"no"`
}

// A ClientCredentials gets access tokens by the grant of OAuth 2.0 of this name. All runs of a node share one token. The node renews it before it
// ends, and once after the service has answered 401.
type ClientCredentials struct {
	Span diag.Span `yaml:"-"`

	places

	// TokenURL is the address of the issuer that returns tokens.
	TokenURL string `yaml:"token-url" required:"true"`

	// ClientID is the name by which the issuer knows you.
	ClientID string `yaml:"client-id" required:"true"`

	// ClientSecret is the secret that proves it.
	ClientSecret *expr.Value `yaml:"client-secret" required:"true" kind:"secret" expr:"no"`

	// Scopes are what the token shall allow.
	Scopes spec.Names `yaml:"scopes"`

	// Params are further parameters of the request for a token, such as audience.
	Params map[string]string `yaml:"params"`

	// SendIn says where the issuer expects client-id and client-secret: in the header Authorization, or in the body.
	SendIn string `yaml:"send-in" enum:"header,body" default:"header"`
}

// A Certificates has the files for encrypted connections to a service. They are in the directory of the server's secrets, so
// that no author can use the keys of others. The node reads them again when they change.
type Certificates struct {
	Span diag.Span `yaml:"-"`

	places

	// Cert is the PEM file with the certificate that the node shows. Those of its issuers may follow in it.
	Cert string `yaml:"cert" pattern:"file"`

	// Key is the PEM file with the private key of cert.
	Key string `yaml:"key" pattern:"file"`

	// CA is the PEM file with the issuers whose certificates the service may show. The default is the issuers that the system
	// of the node trusts.
	CA string `yaml:"ca" pattern:"file"`
}

// Kind returns the name of the field that is given, or "" for none.
func (a *Auth) Kind() string {
	switch {
	case a == nil:
		return ""
	case a.OAuth2 != nil:
		return "oauth2"
	case a.Basic != nil:
		return "basic"
	case a.Bearer != nil:
		return "bearer"
	}
	return ""
}
