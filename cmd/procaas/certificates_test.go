package main

import (
	"crypto/x509"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"procaas/engine/enginetest"
)

// A client certificate stands for a token: with its role, until it is revoked. Certificates of others stand for nothing.
func TestCertificatesOfClientsStandForTokens(t *testing.T) {
	t.Parallel()
	ours, others := enginetest.NewIssuer(t), enginetest.NewIssuer(t)
	cert, key := ours.Leaf("server", nil)
	cmd := exec.CommandContext(t.Context(), "procaas", "serve", "--store", "sqlite:"+filepath.Join(t.TempDir(), "s.db"), "--log-format", "json",
		"--pipelines", "../../deploy/flows", "--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key, "--tls-client-ca",
		ours.CA)
	cmd.Env = append(os.Environ(), "PROCAAS_ADMIN_TOKEN="+adminToken)
	at := startSignalled(t, cmd).ready()
	run := func(want string, env []string, args ...string) {
		t.Helper()
		c := exec.CommandContext(t.Context(), "procaas", append(args, "--server", at)...)
		c.Env = append(append(os.Environ(), "SSL_CERT_FILE="+ours.CA), env...)
		out, err := c.CombinedOutput()
		code := "exit status 0"
		if err != nil {
			code = err.Error()
		}
		if have := string(out) + code; !regexp.MustCompile(want).MatchString(have) {
			t.Fatalf("%q: have %s, want %s", args, have, want)
		}
	}
	shows := func(i *enginetest.Issuer, name, uri string) []string {
		t.Helper()
		cert, key := i.Leaf(name, func(c *x509.Certificate) {
			if u, err := url.Parse(uri); err == nil && uri != "" {
				c.URIs = []*url.URL{u}
			}
		})
		return []string{"PROCAAS_CLIENT_CERT=" + cert, "PROCAAS_CLIENT_KEY=" + key}
	}
	admin := []string{"PROCAAS_TOKEN=" + adminToken}
	const shop = "spiffe://example/shop"
	run(`Its bearer shows a certificate with URI:spiffe://example/shop`, admin, "token", "new", "--name", "shop", "--role", "viewer",
		"--certificate", "URI:"+shop)
	run(`certificates with URI:spiffe://example/shop(?s).*exit status [12]`, admin, "token", "new", "--name", "again", "--role", "admin",
		"--certificate", "URI:"+shop)
	run(`certificate: want a name such as(?s).*exit status 2`, admin, "token", "new", "--name", "again", "--role", "admin",
		"--certificate", "shop")

	run(`exit status 0`, shows(ours, "any", shop), "runs", "list")
	run(`the token shop is a viewer's(?s).*exit status 1`, shows(ours, "any", shop), "reload")
	run(`no token is for a certificate with CN:shop(?s).*exit status 1`, shows(ours, "shop", ""), "runs", "list")
	run(`exit status [13]`, shows(others, "any", shop), "runs", "list")
	run(`exit status 1`, nil, "runs", "list")
	run(`exit status 0`, append(shows(ours, "any", shop), admin...), "versions", "show", "current")
	run(`exit status 0`, admin, "token", "revoke", "shop")
	run(`no token is for a certificate(?s).*exit status 1`, shows(ours, "any", shop), "runs", "list")
}
