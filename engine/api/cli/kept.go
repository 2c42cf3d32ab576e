package cli

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A KeptToken is a token that commands send to one server, if the command line and the environment have none.
type KeptToken struct {
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`

	// Refresh is what the issuer at Issuer gives Client another token for; empty if it does not. Issuer is its address for that.
	Refresh string `json:"refresh,omitempty"`
	Issuer  string `json:"issuer,omitempty"`
	Client  string `json:"client,omitempty"`
}

// keptFile returns the file with the tokens of this user, by the address of the server.
func keptFile() (string, error) {
	dir, err := os.UserConfigDir()
	return filepath.Join(dir, "procaas", "tokens.json"), err
}

func readKept() (name string, all map[string]KeptToken, err error) {
	name, err = keptFile()
	if err != nil {
		return name, nil, err
	}
	all = map[string]KeptToken{}
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return name, all, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		return name, nil, fmt.Errorf("kept tokens %s: %w; remove the file, and procaas login", name, err)
	}
	return name, all, nil
}

// KeepToken makes commands send a token to a server until it expires. Only this user can read it. The zero value forgets it.
func KeepToken(server string, t KeptToken) (name string, err error) {
	name, all, err := readKept()
	if err != nil {
		return name, err
	}
	server = strings.TrimRight(server, "/")
	t.Expires = t.Expires.UTC()
	all[server] = t
	if t.Token == "" {
		delete(all, server)
	}
	data, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return name, err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return name, err
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".tokens-") // with mode 0600
	if err != nil {
		return name, err
	}
	_, err = f.Write(append(data, '\n'))
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return name, errors.Join(err, os.Remove(f.Name()))
	}
	return name, nil
}

// renewBefore is how long before its end a token is renewed, so that it is good for the whole command.
const renewBefore = 30 * time.Second

// kept returns the token for a server, or "". It is renewed near its end. Where it cannot be read or has expired, the call is made
// without one.
func (q *Call) kept(server string) string {
	_, all, err := readKept()
	if err != nil {
		fmt.Fprintf(q.Err, "procaas: %v; the call is made without a token\n", err)
		return ""
	}
	t := all[strings.TrimRight(server, "/")]
	left := time.Until(t.Expires)
	if t.Token == "" || left > renewBefore {
		return t.Token
	}
	why := ""
	if t.Refresh != "" {
		next, err := t.renewed(q.Ctx)
		if err == nil {
			_, err = KeepToken(server, next)
		}
		if err == nil {
			return next.Token
		}
		why = fmt.Sprintf(", and the issuer does not renew it (%v)", err)
	}
	if left > 0 {
		return t.Token
	}
	fmt.Fprintf(q.Err, "procaas: the login at %s ended at %s%s; sign in again: procaas login --server %[1]s\n", server,
		t.Expires.Format(time.RFC3339), why)
	return ""
}

// renewWithin bounds the request for another token.
const renewWithin = 10 * time.Second

// renewed asks the issuer for another token, as section 6 of RFC 6749 says. An issuer may replace what renews it.
func (t KeptToken) renewed(ctx context.Context) (KeptToken, error) {
	ctx, cancel := context.WithTimeout(ctx, renewWithin)
	defer cancel()
	form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {t.Refresh}, "client_id": {t.Client}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, t.Issuer, strings.NewReader(form.Encode()))
	if err != nil {
		return t, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		return t, err
	}
	defer reply.Body.Close()
	var got struct {
		Token   string `json:"id_token"`
		Refresh string `json:"refresh_token"`
		Error   string `json:"error"`
	}
	if err := json.NewDecoder(io.LimitReader(reply.Body, 1<<20)).Decode(&got); err != nil || reply.StatusCode != http.StatusOK || got.Token == "" {
		return t, errors.New(strings.TrimSpace(reply.Status + " " + got.Error))
	}
	t.Token, t.Refresh = got.Token, cmp.Or(got.Refresh, t.Refresh)
	t.Expires, err = expiry(got.Token)
	return t, err
}

// expiry returns the end of a token, which the server will check.
func expiry(token string) (time.Time, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}, errors.New("its token has no claims")
	}
	var claims struct {
		Exp float64 `json:"exp"`
	}
	data, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(data, &claims)
	}
	return time.Unix(int64(claims.Exp), 0), err
}
