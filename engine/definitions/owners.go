package definitions

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"procaas/dsl/decode"
	"procaas/dsl/tree"
	"procaas/engine/store"
)

// An OwnerError refuses a change of what other teams look after.
type OwnerError struct{ Message string }

// Error implements error.
func (e *OwnerError) Error() string { return e.Message }

// OwnedBy returns an [*OwnerError] if two definitions differ in a file that has something of other owners, before or
// after. It compares files and not their meaning: what nobody has compared, nobody can slip in.
func (l *Library) OwnedBy(owners []string, before, after *tree.Bundle) error {
	files, claims := [2]map[string][]byte{}, [2]map[string][]decode.Claim{}
	var paths []string
	for i, b := range []*tree.Bundle{before, after} {
		files[i] = map[string][]byte{}
		for _, f := range b.Files {
			path := cmp.Or(f.ID, f.Name)
			files[i][path] = f.Data
			paths = append(paths, path)
		}
		claims[i] = decode.Read(slices.Clone(b.Files), l.Language, l.Types, nil).Claims()
	}
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		old, had := files[0][path]
		now, has := files[1][path]
		if had == has && bytes.Equal(old, now) {
			continue
		}
		for _, c := range append(slices.Clone(claims[0][path]), claims[1][path]...) {
			if !slices.Contains(owners, c.Owner) {
				return &OwnerError{fmt.Sprintf("%q differs from the current version, and %s in it is %s; this token may change only what is of %s: "+
					"procaas release pull brings the files of others up to date", path, c.What, ownerText(c.Owner), strings.Join(owners, ", "))}
			}
		}
	}
	return nil
}

func ownerText(owner string) string {
	if owner == "" {
		return "of no owner"
	}
	return "of " + owner
}

// OwnedChange is [Library.OwnedBy] for two stored versions.
func (h *History) OwnedChange(ctx context.Context, owners []string, old, now string) error {
	before, err := h.Library.Read(ctx, old)
	if err != nil {
		return unreadable(err)
	}
	after, err := h.Library.Read(ctx, now)
	if err != nil {
		return unreadable(err)
	}
	return h.Library.OwnedBy(owners, before, after)
}

// ofOwners returns the current version of the store, if b differs from it only in what the owners look after.
func (f *Follower) ofOwners(ctx context.Context, b *tree.Bundle, owners []string) (current string, err error) {
	if current, err = f.Bundles.Current(ctx); err != nil {
		return "", err
	}
	before, err := f.Library.Read(ctx, current)
	if err != nil {
		return "", unreadable(err)
	}
	return current, f.Library.OwnedBy(owners, before, b)
}

// activateOwn makes b current instead of the version that it was compared with. Nobody's deployment comes in between.
func (f *Follower) activateOwn(ctx context.Context, b *tree.Bundle, how Change, by store.Actor) error {
	current, err := f.ofOwners(ctx, b, how.Owners)
	if err != nil || current == b.Hash {
		return err
	}
	files, err := encodeFiles(b)
	if err != nil {
		return err
	}
	if err := f.Bundles.Keep(ctx, b.Hash, files); err != nil {
		return fmt.Errorf("save definition %s: %w", b.Hash, err)
	}
	done, err := f.Bundles.Promote(ctx, current, b.Hash, by)
	if err == nil && !done {
		err = refuse("another version has just become current; procaas release pull it, and deploy again")
	}
	return err
}
