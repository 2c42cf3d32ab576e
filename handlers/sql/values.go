package sql

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"procaas/dsl/datum"
	"procaas/engine/model"
	"procaas/handlers/sql/language"
)

// values returns the parameters, after it has counted them.
func (x *execution) values() ([]any, error) {
	s, err := language.ParseStatement(x.Statement)
	if err == nil {
		err = s.Count(len(x.Parameters))
	}
	return x.Parameters, err
}

// encode makes texts of parameters, as PostgreSQL reads them. Only what a list becomes depends on its type, which the server knows.
func encode(ctx context.Context, conn *pgconn.PgConn, statement string, values []any) ([][]byte, error) {
	var types []uint32
	for _, v := range values {
		if _, isList := v.([]any); isList {
			described, err := conn.Prepare(ctx, "", statement, nil)
			if err != nil {
				return nil, err
			}
			types = described.ParamOIDs
			break
		}
	}
	texts := make([][]byte, len(values))
	for i, v := range values {
		var err error
		switch list, isList := v.([]any); {
		case isList && !isText(types[i]):
			texts[i], err = arrayText(list)
		default:
			texts[i], err = text(v)
		}
		if err == nil && bytes.IndexByte(texts[i], 0) >= 0 {
			err = errors.New("it has a character 0, which PostgreSQL does not take")
		}
		if err != nil {
			return nil, model.Permanent(fmt.Errorf("$%d: %w", i+1, err))
		}
	}
	return texts, nil
}

// isText reports whether a list becomes JSON for a type. For others it becomes an array.
func isText(oid uint32) bool {
	return oid == pgtype.JSONOID || oid == pgtype.JSONBOID || oid == pgtype.TextOID || oid == pgtype.VarcharOID
}

// text returns a value as text, or nil for null.
func text(v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case string:
		return []byte(v), nil
	}
	return datum.FormatJSON(v)
}

// arrayText returns a list as PostgreSQL writes arrays.
func arrayText(list []any) ([]byte, error) {
	out := []byte{'{'}
	for i, v := range list {
		if i > 0 {
			out = append(out, ',')
		}
		inner, isList := v.([]any)
		element, err := text(v)
		switch {
		case isList:
			element, err = arrayText(inner)
		case element == nil:
			element = []byte("NULL")
		default:
			element = []byte(`"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(string(element)) + `"`)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, element...)
	}
	return append(out, '}'), nil
}

const (
	smallResult   = 64 << 10 // bytes that are read before there is memory for them
	copies        = 3        // of a result: as it came, as its run keeps it, and in a checkpoint
	largestFactor = 80       // the most bytes that a byte of a result takes decoded
)

// read reads the rows of a result, up to the bounds of the handler.
func (x *execution) read(ctx context.Context, types *pgtype.Map, found *pgconn.ResultReader) (rows []any, err error) {
	limit := int(x.MaxResponse)
	if limit == 0 {
		limit = int(x.call.MaxReply)
	}
	if limit == 0 {
		limit = 1 << 20
	}
	rows, size, reserved := []any{}, 0, false
	for found.NextRow() {
		columns := found.FieldDescriptions()
		for _, value := range found.Values() {
			size += len(value)
		}
		for _, c := range columns {
			size += len(c.Name)
		}
		switch {
		case len(rows) == x.MaxRows:
			return nil, model.Permanent(fmt.Errorf("the statement returns more than max-rows, %d: add a limit to it, or raise max-rows", x.MaxRows))
		case size > limit:
			return nil, model.Permanent(fmt.Errorf("the rows are larger than max-response, %d bytes: select fewer columns or rows, or raise it", limit))
		}
		if size > smallResult && !reserved && x.call.Reserve != nil {
			if err := x.call.Reserve(ctx, limit*(largestFactor+copies), true); err != nil {
				return nil, fmt.Errorf("the rows: %w", err)
			}
			reserved = true
		}
		row, err := rowOf(types, columns, found.Values())
		if err != nil {
			return nil, model.Permanent(err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func rowOf(types *pgtype.Map, columns []pgconn.FieldDescription, values [][]byte) (map[string]any, error) {
	row := make(map[string]any, len(columns))
	for i, c := range columns {
		if _, twice := row[c.Name]; twice {
			return nil, fmt.Errorf("two columns have the name %s: give one of them another name with as", c.Name)
		}
		if values[i] == nil {
			row[c.Name] = nil
			continue
		}
		v, err := decode(types, c.DataTypeOID, string(values[i]))
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", c.Name, err)
		}
		row[c.Name] = v
	}
	return row, nil
}

// decode makes data of the text of a value.
func decode(types *pgtype.Map, oid uint32, text string) (any, error) {
	switch oid {
	case pgtype.BoolOID:
		return text == "t", nil
	case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID, pgtype.OIDOID:
		return strconv.Atoi(text)
	case pgtype.Float4OID, pgtype.Float8OID:
		if f, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f, nil
		}
	case pgtype.JSONOID, pgtype.JSONBOID:
		return datum.ParseJSON([]byte(text))
	case pgtype.ByteaOID:
		b, err := hex.DecodeString(strings.TrimPrefix(text, `\x`))
		return base64.StdEncoding.EncodeToString(b), err
	case pgtype.TimestamptzOID:
		if t, err := time.Parse("2006-01-02 15:04:05.999999Z07", text); err == nil {
			return t.UTC().Format(time.RFC3339Nano), nil
		}
	case pgtype.TimestampOID:
		return strings.Replace(text, " ", "T", 1), nil
	}
	if t, ok := types.TypeForOID(oid); ok {
		if array, ok := t.Codec.(*pgtype.ArrayCodec); ok {
			return decodeArray(types, array.ElementType.OID, text)
		}
	}
	return text, nil
}

// decodeArray makes a list of the text of an array, with lists inside if it has several dimensions. Each value is as outside of arrays.
func decodeArray(types *pgtype.Map, element uint32, text string) (any, error) {
	var found pgtype.Array[pgtype.Text]
	if err := types.Scan(pgtype.TextArrayOID, pgtype.TextFormatCode, []byte(text), &found); err != nil {
		return nil, err
	}
	values := make([]any, len(found.Elements))
	for i, e := range found.Elements {
		if !e.Valid {
			continue
		}
		var err error
		if values[i], err = decode(types, element, e.String); err != nil {
			return nil, err
		}
	}
	for i := len(found.Dims) - 1; i > 0; i-- { // the innermost lists first
		var lists []any
		for list := range slices.Chunk(values, int(found.Dims[i].Length)) {
			lists = append(lists, list)
		}
		values = lists
	}
	return values, nil
}
