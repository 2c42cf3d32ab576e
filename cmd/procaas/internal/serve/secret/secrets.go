// Package secret resolves the secrets of flows, from files or from the environment.
package secret

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"procaas/engine/api/cli"
	"procaas/engine/credentials"
	"procaas/engine/model"
	"procaas/engine/secrets"
)

// A Store resolves !secret NAME from files of a directory, or from the environment as PROCAAS_SECRET_NAME. In
// the directory, SERVICE/NAME is only for this service, @OWNER/NAME only for services of this owner, and NAME
// for all services.
type Store struct {
	dir   string             // empty for the environment
	admin *[sha256.Size]byte // hash of the admin token, which flows must not get; nil for none
}

// secretVariable is the prefix of secrets in the environment.
const secretVariable = "PROCAAS_SECRET_"

// New refuses secrets that include the admin token. Otherwise authors could send it anywhere and become admins.
func New(dir, adminFile, adminToken string) (Store, error) {
	s := Store{dir: dir}
	if adminToken == "" {
		return s, nil
	}
	hash, err := credentials.HashToken(adminToken)
	if err != nil {
		return s, cli.Usagef("the admin token: %w", err)
	}
	s.admin = &hash
	if dir == "" {
		for _, variable := range os.Environ() {
			if name, value, _ := strings.Cut(variable, "="); strings.HasPrefix(name, secretVariable) && s.isAdmin(value) {
				return s, cli.Usagef("%s is the admin token, and every flow could send it anywhere; unset it", name)
			}
		}
		return s, nil
	}
	return s, s.checkFiles(adminFile)
}

// longestSecret limits the size of files that are compared with the admin token.
const longestSecret = 64 << 10

// checkFiles looks for the admin token in the files of secrets.
func (s Store) checkFiles(adminFile string) error {
	files, err := s.files()
	if err != nil {
		return cli.Usagef("--secrets-dir: %w", err)
	}
	admin, _ := os.Stat(adminFile) // nil if the token comes from a flag
	for _, path := range files {
		info, err := os.Stat(path) // follows links, like reading a secret
		if err != nil || !info.Mode().IsRegular() {
			continue // an unreadable file is no secret; Value checks again later
		}
		same := admin != nil && os.SameFile(admin, info)
		if !same && info.Size() <= longestSecret {
			value, err := readSecret(path)
			same = err == nil && s.isAdmin(value)
		}
		if same {
			return cli.Usagef("--secrets-dir %s holds the admin token, as %s, and every flow could send it anywhere: keep the "+
				"token outside "+
				"of that directory, such as --admin-token-file /run/procaas/admin --secrets-dir /run/secrets", s.dir, path)
		}
	}
	return nil
}

// files lists possible secrets: files in the directory and in its subdirectories.
func (s Store) files() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	var files []string
	for _, e := range entries {
		path := filepath.Join(s.dir, e.Name())
		files = append(files, path)
		within, _ := os.ReadDir(path) // empty for a file
		for _, e := range within {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	return files, err
}

// isAdmin reports whether a text is the admin token.
func (s Store) isAdmin(text string) bool {
	if s.admin == nil {
		return false
	}
	hash := sha256.Sum256([]byte(strings.TrimSpace(text)))
	return subtle.ConstantTimeCompare(hash[:], s.admin[:]) == 1
}

// Value returns a secret for the given use. The error of a secret that is not there has the class credentials.
func (s Store) Value(use secrets.Use) (string, error) {
	text, err := s.read(use)
	switch {
	case err != nil:
		return "", model.WithClass(model.ClassCredentials, fmt.Errorf("secret %s: %w", use.Name, err))
	case s.isAdmin(text):
		return "", model.Permanent(fmt.Errorf("secret %s is the admin token of this server, which no flow may send", use.Name))
	}
	return text, nil
}

func (s Store) read(use secrets.Use) (string, error) {
	if s.dir == "" {
		name := secretVariable + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_", "/", "_").Replace(use.Name))
		if value, ok := os.LookupEnv(name); ok {
			return value, nil
		}
		return "", fmt.Errorf("%s is not set: start the node with it, or keep secrets in files, with --secrets-dir", name)
	}
	name := filepath.Base(use.Name)
	for _, scope := range []string{use.To, "@" + use.Owner, "."} {
		if scope == "" || scope == "@" || filepath.Base(scope) != scope || scope == ".." {
			continue
		}
		text, err := readSecret(filepath.Join(s.dir, scope, name))
		if !errors.Is(err, fs.ErrNotExist) {
			return text, err
		}
	}
	files, err := s.files()
	if err != nil {
		return "", err
	}
	if slices.ContainsFunc(files, func(path string) bool { return filepath.Base(path) == name }) {
		return "", model.Permanent(fmt.Errorf("it is not kept for %s: want it as %s of the directory of secrets, or as %s for all services",
			use.To, filepath.Join(use.To, name), name))
	}
	return "", fmt.Errorf("there is no file %s in %s: put it there, which needs no restart", name, s.dir)
}

// readSecret reads a file without trailing line breaks.
func readSecret(path string) (string, error) {
	data, err := os.ReadFile(path)
	return strings.TrimRight(string(data), "\r\n"), err
}
