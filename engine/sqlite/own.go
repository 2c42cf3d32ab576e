package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

var errInUse = errors.New("in use by another process, which may have opened it by another path: " +
	"stop that one, or use PostgreSQL, which several can share")

// An ownership makes sure that no other process and no other Store uses a file. It consists of two
// locks. The lock beside the file is SQLite's own, on an empty database. It works on every system,
// and earlier releases know it. But it can be removed, and has the name of the file. So there is
// also a hold on the file itself. Both end with the process.
type ownership struct {
	beside *sql.DB
	hold   *hold
}

// own takes the ownership of the file at path. The lock beside the file comes first. A Store that
// this process has opened is met there, before its file is opened and closed again.
func own(ctx context.Context, path string) (_ *ownership, err error) {
	o := &ownership{}
	if o.beside, err = lockBeside(ctx, path); err != nil {
		return nil, err
	}
	if o.hold, err = holdFile(path); err != nil {
		return nil, errors.Join(err, o.beside.Close())
	}
	return o, nil
}

// Close ends the ownership. SQLite must have closed the file.
func (o *ownership) Close() error { return errors.Join(o.hold.Close(), o.beside.Close()) }

// lockBeside locks the file beside the one at path. A file has one such lock, whichever symbolic
// link leads to it, like SQLite's log.
func lockBeside(ctx context.Context, path string) (*sql.DB, error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	db, err := openDB(path+"-lock", 1, "busy_timeout(0)")
	if err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, "begin exclusive")
	if err == nil {
		return db, nil
	}
	var code *sqlite.Error
	if errors.As(err, &code) && code.Code()&0xff == sqlite3.SQLITE_BUSY {
		err = errInUse
	}
	return nil, errors.Join(err, db.Close())
}
