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

// Condition returns the SQL condition for the rows of a table that move.
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

// Tells returns why no row of a table can belong to the key, or nil.
func Tells(ctx context.Context, c *pgx.Conn, t Table) (why, err error) {
	s, err := readShape(ctx, c, t)
	if err != nil || s == nil || s.odd != "" {
		return nil, err // its other problems matter more
	}
	for i, part := range t.Key {
		if column := s.column(t.Columns[i]); column.is(part) == never {
			return fmt.Errorf("column %s of table %s is %s, which is never written %q", column.name, s.title(), column.typ, part), nil
		}
	}
	return nil, nil
}

// never is a condition that no row meets.
const never = "false"

// condition returns the condition for the rows that move. A row with a null column does not have
// that part: it belongs to the wider key, so exceptions must not evaluate to unknown.
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

// hold returns a condition for rows whose first columns have the parts of a key.
func (s *shape) hold(columns, parts []string) string {
	out := make([]string, len(parts))
	for i, part := range parts {
		out[i] = s.column(columns[i]).is(part)
	}
	return strings.Join(out, " and ")
}

// is compares a column with a part of a key, in the form in which the server writes values. If
// exactly the equal values of a type have equal texts, it uses the operator of the type, which an
// index and a publication filter support. 042 and 42 must not be two names of the same rows.
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

// Publishable reports whether the stream can filter by a column of a type: equal values have equal
// texts, and a publication supports it.
func Publishable(typ string) bool {
	return slices.Contains([]string{"bigint", "integer", "smallint", "uuid", "text", "character varying"}, typ)
}

var uuidPattern = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// wholeNumber reports whether a text is a whole number in the server's form.
func wholeNumber(text string, bits int) bool {
	n, err := strconv.ParseInt(text, 10, bits)
	return err == nil && strconv.FormatInt(n, 10) == text
}
