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

	"github.com/gofrs/flock"
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

// lockWithin is how long a command waits for another one that changes the file, which may ask an issuer meanwhile.
const lockWithin = 2 * renewWithin

// changeKept changes the tokens while no other process does, on all systems. After an error the file is as it was.
func changeKept(ctx context.Context, change func(all map[string]KeptToken) error) (name string, err error) {
	if name, err = keptFile(); err != nil {
		return name, err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return name, err
	}
	ctx, cancel := context.WithTimeout(ctx, lockWithin)
	defer cancel()
	// The file itself is replaced, so a lock on it would be one on a file of before.
	lock := flock.New(name+".lock", flock.SetPermissions(0o600))
	if _, err := lock.TryLockContext(ctx, 20*time.Millisecond); err != nil {
		return name, fmt.Errorf("lock %s: %w", lock.Path(), err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	_, all, err := readKept()
	if err != nil {
		return name, err
	}
	if err := change(all); err != nil {
		return name, err
	}
	return name, writeKept(name, all)
}

// writeKept replaces the file. Only this user can read it.
func writeKept(name string, all map[string]KeptToken) error {
	data, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".tokens-") // with mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// KeepToken makes commands send a token to a server until it expires. The zero value forgets it.
func KeepToken(ctx context.Context, server string, t KeptToken) (name string, err error) {
	return changeKept(ctx, func(all map[string]KeptToken) error {
		server = strings.TrimRight(server, "/")
		t.Expires = t.Expires.UTC()
		all[server] = t
		if t.Token == "" {
			delete(all, server)
		}
		return nil
	})
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
		token, err := renewKept(q.Ctx, strings.TrimRight(server, "/"))
		if err == nil {
			return token
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

// renewKept renews the token for a server, unless another command has just done so: an issuer may take what renews it only once, and
// may end the login when it sees it twice.
func renewKept(ctx context.Context, server string) (token string, err error) {
	_, err = changeKept(ctx, func(all map[string]KeptToken) error {
		t := all[server]
		if t.Refresh != "" && time.Until(t.Expires) <= renewBefore {
			next, err := t.renewed(ctx)
			if err != nil {
				return err
			}
			next.Expires = next.Expires.UTC()
			all[server] = next
		}
		token = all[server].Token
		return nil
	})
	return token, err
}

// Login returns what procaas login has kept for the server of the call. It is zero if the call is made with another token.
func (q *Call) Login() KeptToken {
	_, all, err := readKept()
	if t := all[strings.TrimRight(q.Server, "/")]; err == nil && t.Token == q.token {
		return t
	}
	return KeptToken{}
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
