package transfer

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Condition returns by which condition a server finds the rows of a table that move.
func Condition(ctx context.Context, c *pgx.Conn, t Table) (string, error) {
	s, err := readShape(ctx, c, t)
	switch {
	case err != nil:
		return "", err
	case s == nil:
		return "", fmt.Errorf("there is no table %s", t.Name)
	case s.odd != "":
		return "", fmt.Errorf("table %s %s", s.title(), s.odd)
	}
	return s.where, nil
}

// Tells returns the reason why no row of a table can be one of the key: nil when there may be some.
func Tells(ctx context.Context, c *pgx.Conn, t Table) (why, err error) {
	s, err := readShape(ctx, c, t)
	if err != nil || s == nil || s.odd != "" {
		return nil, err // there is more to say of it than this
	}
	for i, part := range t.Key {
		if column := s.column(t.Columns[i]); column.is(part) == never {
			return fmt.Errorf("column %s of table %s is %s, which is never written %q", column.name, s.title(), column.typ, part), nil
		}
	}
	return nil, nil
}

// never is a condition that no row fulfils.
const never = "false"

// condition writes what selects the rows that move. A row whose column is null has no such part: it
// belongs to the wider key, so what is excepted must not be unknown.
func (s *shape) condition(t Table) string {
	var parts []string
	if t.Where != "" {
		parts = append(parts, "("+t.Where+")")
	}
	if len(t.Key) > 0 {
		parts = append(parts, s.hold(t.Columns, t.Key))
	}
	for _, key := range t.Except {
		parts = append(parts, "("+s.hold(t.Columns, key)+") is not true")
	}
	return strings.Join(parts, " and ")
}

// hold is true for the rows whose first columns hold the parts of a key.
func (s *shape) hold(columns, parts []string) string {
	out := make([]string, len(parts))
	for i, part := range parts {
		out[i] = s.column(columns[i]).is(part)
	}
	return strings.Join(out, " and ")
}

// is compares a column with a part of a key: it is true when the server writes the value so. Where equal
// values are written alike and no others, the operator of the type says that, which an index serves
// and which the filter of a publication takes; 042 and 42 must not be two names of the same rows, though.
func (c *column) is(part string) string {
	typ, _, _ := strings.Cut(c.typ, "(")
	written := true
	switch {
	case !c.bytes || !Publishable(typ):
		return quote(c.name) + `::text collate "C" = ` + literal(part)
	case typ == "bigint":
		written = wholeNumber(part, 64)
	case typ == "integer":
		written = wholeNumber(part, 32)
	case typ == "smallint":
		written = wholeNumber(part, 16)
	case typ == "uuid":
		written = uuidPattern.MatchString(part)
	}
	if !written {
		return never
	}
	return quote(c.name) + " = " + literal(part)
}

// Publishable reports whether the stream can tell rows by a column of a type: whether its equal values are
// written alike, and a publication filters by it.
func Publishable(typ string) bool {
	return slices.Contains([]string{"bigint", "integer", "smallint", "uuid", "text", "character varying"}, typ)
}

var uuidPattern = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// wholeNumber reports whether a server writes a whole number so.
func wholeNumber(text string, bits int) bool {
	n, err := strconv.ParseInt(text, 10, bits)
	return err == nil && strconv.FormatInt(n, 10) == text
}
