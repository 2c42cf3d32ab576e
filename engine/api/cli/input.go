package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// maxInput bounds a file or standard input that a person names, in bytes.
const maxInput = 64 << 20

// Input reads a file, or standard input for "-".
func (s Streams) Input(name string) ([]byte, error) {
	in := s.In
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, Usage(err)
		}
		defer f.Close()
		in = f
	}
	data, err := AtMost(in, maxInput)
	if err != nil {
		return nil, Usagef("%s: %w", name, WithoutPath(err))
	}
	return data, nil
}

// AtMost reads everything, or fails if there is more than most bytes.
func AtMost(r io.Reader, most int) ([]byte, error) {
	var data bytes.Buffer
	if f, ok := r.(fs.File); ok { // its size is a hint, so that the buffer need not grow
		if info, err := f.Stat(); err == nil {
			data.Grow(int(min(info.Size(), int64(most))) + bytes.MinRead)
		}
	}
	_, err := data.ReadFrom(io.LimitReader(r, int64(most)+1))
	if err == nil && data.Len() > most {
		err = fmt.Errorf("it has more than %d MiB", most>>20)
	}
	return data.Bytes(), err
}

// WithoutPath returns the reason of an error without the path of the file.
func WithoutPath(err error) error {
	var path *fs.PathError
	if !errors.As(err, &path) {
		return err
	}
	if path.Err.Error() == "path escapes from parent" { // os.Root has no exported error for it
		return errors.New("it is a link that leads out of the directory: links must be relative and stay inside, or name what it leads to")
	}
	return path.Err
}
