package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A keptToken is a token that commands send to one server, if the command line and the environment have none.
type keptToken struct {
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`
}

// keptFile returns the file with the tokens of this user, by the address of the server.
func keptFile() (string, error) {
	dir, err := os.UserConfigDir()
	return filepath.Join(dir, "procaas", "tokens.json"), err
}

func readKept() (name string, all map[string]keptToken, err error) {
	name, err = keptFile()
	if err != nil {
		return name, nil, err
	}
	all = map[string]keptToken{}
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

// KeepToken makes commands send a token to a server until it expires. Only this user can read it. An empty token forgets it.
func KeepToken(server, token string, until time.Time) (name string, err error) {
	name, all, err := readKept()
	if err != nil {
		return name, err
	}
	server = strings.TrimRight(server, "/")
	all[server] = keptToken{token, until.UTC()}
	if token == "" {
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

// kept returns the token for a server, or "". Where it cannot be read or has expired, the call is made without one.
func (q *Call) kept(server string) string {
	_, all, err := readKept()
	t := all[strings.TrimRight(server, "/")]
	switch {
	case err != nil:
		fmt.Fprintf(q.Err, "procaas: %v; the call is made without a token\n", err)
	case t.Token != "" && !time.Now().Before(t.Expires):
		fmt.Fprintf(q.Err, "procaas: the login at %s ended at %s; sign in again: procaas login --server %[1]s\n", server, t.Expires.Format(time.RFC3339))
	default:
		return t.Token
	}
	return ""
}
