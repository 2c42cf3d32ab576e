// Package chglog takes the place of the module by which nfpm reads changelogs. That one contains all of git, which made up most of the
// time to compile nfpm. Our packages have no changelog, so nothing here is ever called.
package chglog

import (
	"errors"
	"text/template"
	"time"
)

var errUnread = errors.New("want no changelog in deploy/nfpm.yaml: deploy/tools/chglog cannot read it")

// A PackageChangeLog is the changelog of a package.
type PackageChangeLog struct {
	Name    string
	Entries []*Entry
}

// An Entry is one version in a changelog.
type Entry struct {
	Semver, Packager string
	Date             time.Time
}

// Parse returns an error.
func Parse(string) ([]*Entry, error) { return nil, errUnread }

// FormatChangelog returns an error.
func FormatChangelog(*PackageChangeLog, *template.Template) (string, error) { return "", errUnread }

// DebTemplate returns an error.
func DebTemplate() (*template.Template, error) { return nil, errUnread }

// LoadTemplateData returns an error.
func LoadTemplateData(string) (*template.Template, error) { return nil, errUnread }
