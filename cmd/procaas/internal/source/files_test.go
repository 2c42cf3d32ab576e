package source

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The working directory of an empty image is the root. Reading all below it ends at what the system keeps there.
func TestTheRootOfTheFileSystemIsNotReadAsAWhole(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/", link); err != nil {
		t.Fatal(err)
	}
	t.Chdir("/")
	for _, path := range []string{"/", ".", link} {
		_, err := Pipelines([]string{path}, nil)
		if err == nil || !strings.Contains(err.Error(), path+" is the root of the file system") ||
			!strings.Contains(err.Error(), "--pipelines DIR") {
			t.Errorf("%s: have %v, want what to name instead", path, err)
		}
	}
}

func TestADirectoryThatCannotBeReadIsNamed(t *testing.T) {
	t.Parallel()
	entry := func(name string) fs.DirEntry {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		return fs.FileInfoToDirEntry(info)
	}
	denied := &fs.PathError{Op: "open", Path: "team", Err: fs.ErrPermission}
	err := unreadable("flows/team", "flows", entry("team"), denied)
	want := "flows/team: permission denied: all directories below flows are read; let this user read it, or name only those " +
		"that have the files"
	if err == nil || err.Error() != want {
		t.Errorf("have %v, want %s", err, want)
	}
	if err := unreadable("flows/lost+found", "flows", entry("lost+found"), denied); !errors.Is(err, fs.SkipDir) {
		t.Errorf("have %v, want lost+found left out", err)
	}
}
