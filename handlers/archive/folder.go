package archive

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// A folder has the files of an archive below it. Each is written under another name first, so that readers never see half of one.
type folder struct{ path string }

// unfinished is the folder of files that are being written. What a crash leaves there is removed later.
const unfinished = ".unfinished"

// leftAfter is how long after its last write an unfinished file is one that a crash has left.
const leftAfter = time.Hour

// The permissions of what is made. The group may read it.
const (
	dirMode  = 0o750
	fileMode = 0o640
)

// check implements [place].
func (f *folder) check(context.Context) error {
	info, err := os.Stat(f.path)
	if err == nil && !info.IsDir() {
		return fmt.Errorf("%s is no folder", f.path)
	}
	if err != nil {
		return fmt.Errorf("%w; a node does not make it, because the disk may only not be mounted", err)
	}
	tmp, err := os.CreateTemp(f.path, ".check-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString("a node may write here\n")
	return closing(tmp, err)
}

// put implements [place].
func (f *folder) put(_ context.Context, name string, data []byte, _ string) error {
	if _, err := os.Stat(f.path); err != nil {
		return err // it is not made again where the disk is gone
	}
	to := filepath.Join(f.path, filepath.FromSlash(name))
	for _, dir := range []string{filepath.Join(f.path, unfinished), filepath.Dir(to)} {
		if err := makeDir(dir); err != nil {
			return err
		}
	}
	f.clean()
	tmp, err := os.CreateTemp(filepath.Join(f.path, unfinished), "*-"+filepath.Base(to))
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // it is not there any more if all went well
	if err := tmp.Chmod(fileMode); err != nil {
		return closing(tmp, err)
	}
	_, err = tmp.Write(data)
	if err == nil {
		err = tmp.Sync()
	}
	if err = closing(tmp, err); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), to); err != nil {
		return err
	}
	return syncDir(filepath.Dir(to))
}

// clean removes what crashes have left.
func (f *folder) clean() {
	left, err := os.ReadDir(filepath.Join(f.path, unfinished))
	if err != nil {
		return
	}
	for _, e := range left {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > leftAfter {
			_ = os.Remove(filepath.Join(f.path, unfinished, e.Name())) // tried again with the next part
		}
	}
}

// makeDir makes a folder below one that exists, and makes its entry there durable.
func makeDir(dir string) error {
	err := os.Mkdir(dir, dirMode)
	if os.IsExist(err) {
		return nil
	}
	if err == nil {
		err = syncDir(filepath.Dir(dir))
	}
	return err
}

// syncDir makes the entries of a folder durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return closing(d, d.Sync())
}

// closing closes a file, and returns the first error.
func closing(f *os.File, err error) error {
	closed := f.Close()
	if err == nil {
		err = closed
	}
	return err
}
