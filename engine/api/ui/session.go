package ui

import (
	"net/http"
	"net/url"
	"strings"

	"procaas/engine/credentials"
)

type signInData struct {
	Error string
	Next  string

	Entrances []credentials.Entrance // where people sign in without a token
}

func (c *Console) signIn(w http.ResponseWriter, r *http.Request) error {
	d := signInData{Next: OwnPage(r.FormValue("next"))}
	if c.o.Entrances != nil {
		d.Entrances = c.o.Entrances(d.Next)
	}
	status := http.StatusOK
	if r.Method == http.MethodPost {
		err := c.o.SignIn(w, r, strings.TrimSpace(r.PostFormValue("token")))
		if err == nil {
			http.Redirect(w, r, d.Next, http.StatusSeeOther)
			return nil
		}
		d.Error, status = err.Error(), http.StatusUnauthorized
	}
	c.show(w, r, status, "signin", "Sign in", d)
	return nil
}

// OwnPage returns the address of a page of the console. For anything else, that is
// the first page. Browsers drop line breaks and tabs from addresses, and take backslashes for slashes.
func OwnPage(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.Opaque != "" {
		return "/"
	}
	misread := strings.ContainsFunc(u.Path, func(c rune) bool { return c < ' ' || c == '\\' })
	if misread || !strings.HasPrefix(u.Path, Root) {
		return "/"
	}
	return (&url.URL{Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery}).String()
}

func (c *Console) signOut(w http.ResponseWriter, r *http.Request) error {
	if err := c.o.SignOut(w, r); err != nil {
		return err
	}
	http.Redirect(w, r, SignInPage, http.StatusSeeOther)
	return nil
}
