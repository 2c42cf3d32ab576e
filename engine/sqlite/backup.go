package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	"modernc.org/sqlite"

	"procaas/engine/sqlstore"
	"procaas/engine/store"
)

// leastRoom is the free space of a disk below which events may soon be refused. The log of a busy store alone takes a quarter of it.
const leastRoom = 256 << 20

// room looks at the free space beside a store. It returns nothing if the file system does not say.
func room(path string, size int64) []store.Check {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return nil
	}
	if log, err := os.Stat(path + "-wal"); err == nil { // what a node has written since it copied its log to the file
		size += log.Size()
	}
	return []store.Check{roomFor(size, uint64(fs.Bavail)*uint64(fs.Bsize))}
}

func roomFor(size int64, free uint64) store.Check {
	c := store.Check{Name: "disk", Level: store.CheckFine, Found: fmt.Sprintf("%d MiB are free beside the store, which has %d MiB", free>>20, size>>20)}
	if free < leastRoom {
		c.Level = store.CheckWarning
		c.Remedy = "make room, or a shorter --retention: a node whose disk is full refuses events, and runs wait"
	}
	return c
}

// maxDamage bounds what a check says of a damaged file.
const maxDamage = 5

// openBeside opens the file of a store to read it, beside a node that may have it open. A node that has it open keeps its log.
func openBeside(path string) (*sql.DB, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	return openDB(path, 1, "query_only(1)", "busy_timeout(5000)")
}

// Backup copies the store at path to another file, which must not exist. A node may go on to write: the copy has all that was
// acknowledged before it began. It is read whole in one step, since a copy in steps begins again with each write. What cannot
// be read without damage is refused, and leaves no file.
func Backup(ctx context.Context, path, to string) (err error) {
	if _, err := os.Stat(to); err == nil {
		return fmt.Errorf("%s exists: name a new file, or remove it first", to)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	db, err := openBeside(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	partial := to + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return err
	}
	defer func() {
		for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
			err = errors.Join(err, os.RemoveAll(partial+suffix))
		}
	}()
	if err := keepPrivate(partial); err != nil {
		return err
	}
	if err := copyTo(ctx, db, partial); err != nil {
		return fmt.Errorf("copy %s: %w", path, err)
	}
	if found, err := damage(ctx, partial); err != nil || len(found) > 0 {
		return errors.Join(err, damaged(path, found))
	}
	return persist(partial, to)
}

// copyTo makes a copy by the online API of SQLite.
func copyTo(ctx context.Context, db *sql.DB, to string) error {
	c, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Raw(func(driver any) error {
		b, err := driver.(interface {
			NewBackup(to string) (*sqlite.Backup, error)
		}).NewBackup(to)
		if err != nil {
			return err
		}
		for more := true; more && err == nil; {
			more, err = b.Step(-1)
		}
		return errors.Join(err, b.Finish())
	})
}

// persist gives a finished copy its name when it is on the disk.
func persist(partial, to string) error {
	f, err := os.OpenFile(partial, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(partial, to)
}

// damage lists what SQLite finds wrong in a file.
func damage(ctx context.Context, path string) (found []string, err error) {
	db, err := openBeside(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	rows, err := db.QueryContext(ctx, fmt.Sprintf("pragma integrity_check(%d)", maxDamage))
	if err != nil {
		return []string{err.Error()}, nil // a file that is damaged at its beginning cannot even be asked
	}
	defer rows.Close()
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return nil, err
		}
		if line != "ok" {
			found = append(found, strings.Join(strings.Fields(line), " "))
		}
	}
	if err := rows.Err(); err != nil {
		found = append(found, err.Error())
	}
	return found, nil
}

// damaged names what is wrong with a file.
func damaged(path string, found []string) error {
	if len(found) == 0 {
		return nil
	}
	return fmt.Errorf("%s is damaged: %s", path, strings.Join(found, "; "))
}

// Examine looks at the file of a store, beside a node that may have it open. It changes nothing.
func Examine(ctx context.Context, path string, addons ...store.Tables) (all []store.Check, err error) {
	known, err := histories(addons)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return []store.Check{{Name: "file", Level: store.CheckFine, Found: "none yet: the first node makes it, or procaas store migrate"}}, nil
	}
	if err != nil {
		return nil, err
	}
	all = append(all, store.Check{Name: "file", Level: store.CheckFine, Found: fmt.Sprintf("%d bytes", info.Size())})
	found, err := damage(ctx, path)
	if err != nil {
		return all, err
	}
	if err := damaged(path, found); err != nil {
		return append(all, store.Check{
			Name: "pages", Level: store.CheckRefused, Found: err.Error(), Remedy: "restore the newest backup that procaas store check finds fine",
		}), nil
	}
	all = append(all, room(path, info.Size())...)
	all = append(all, store.Check{Name: "pages", Level: store.CheckFine, Found: "every page was read, and indexes agree with tables"})
	db, err := openBeside(path)
	if err != nil {
		return all, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	have, err := versions(ctx, db, known)
	if err != nil {
		return all, err
	}
	all = append(all, sqlstore.Examine(known, have))
	if have[0].Applied < documentsVersion {
		return all, nil
	}
	var document []byte
	if err := db.QueryRowContext(ctx, sqlstore.FindKeys).Scan(&document); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return all, err
	}
	return append(all, sqlstore.ExamineKeys(document)), nil
}

// documentsVersion is the version of the schema that brought documents.
const documentsVersion = 11
